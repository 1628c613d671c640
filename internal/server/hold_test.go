package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/auth"
	"varve/internal/httpapi"
	"varve/internal/principal"
	"varve/internal/stream"
)

// What a sender has open when its token is revoked, or its rule goes, ends soon: an answer
// that has begun is cut, one that has not is 401, a body is no longer read, and a connection
// of lines is closed. What others have open goes on.
func TestEndOfRights(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	tokens := map[string]string{}
	for _, name := range []string{"lost", "kept"} {
		_, shown, err := auth.Create(path, auth.Grant{Name: name, Rights: principal.Read | principal.Write}, time.Time{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		tokens[name] = shown
	}
	config := auth.DefaultConfig()
	config.Rules = []string{"address=127.0.0.1 stream=telnet role=write name=lines"}
	keeper, err := auth.NewKeeper(config, auth.Options{TokenFile: path, Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan string, 10)
	goOn := make(chan struct{})
	follow := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begun" {
			fmt.Fprintln(w, "first")
			w.(http.Flusher).Flush()
		}
		begun <- r.URL.Path
		select {
		case <-r.Context().Done():
		case <-goOn:
			fmt.Fprintln(w, "last")
		}
	}
	s := start(t, func(o *Options) {
		o.Keeper = keeper
		o.Routes = []httpapi.Route{
			httpapi.On("GET", "/begun", httpapi.Read, follow),
			httpapi.On("GET", "/silent", httpapi.Read, follow),
			httpapi.On("POST", "/body", httpapi.Write, func(w http.ResponseWriter, r *http.Request) {
				begun <- r.URL.Path
				_, err := io.Copy(io.Discard, r.Body)
				if err == nil {
					t.Error("a body came to its end")
				}
			}),
		}
		o.Streams = map[string]StreamServer{"telnet": stream.NewServer(stream.Options{Name: "telnet", Limit: 10, Refuse: true}, whoamiLine{}, nil)}
	})

	type outcome struct {
		status int
		body   string
		err    error
	}
	ask := func(who, method, path string, body io.Reader) chan outcome {
		r, _ := http.NewRequest(method, "http://"+s.Addr("http")+path, body)
		r.Header.Set("Authorization", "Bearer "+tokens[who])
		done := make(chan outcome, 1)
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		go func() {
			response, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(r)
			if err != nil {
				done <- outcome{err: err}
				return
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			done <- outcome{response.StatusCode, string(text), err}
		}()
		if got := <-begun; got != path {
			t.Fatalf("%s has begun, not %s", got, path)
		}
		return done
	}
	never, sender := io.Pipe()
	defer sender.Close()
	trickle, tap := io.Pipe()
	defer tap.Close()
	dripping := make(chan struct{})
	go func() { // until the client closes its end
		defer close(dripping)
		for {
			if _, err := io.WriteString(tap, "some more"); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	cut, silent, kept, body := ask("lost", "GET", "/begun", nil), ask("lost", "GET", "/silent", nil), ask("kept", "GET", "/begun", nil), ask("lost", "POST", "/body", never)
	slow := ask("lost", "POST", "/body", trickle)
	lines, err := net.Dial("tcp", s.Addr("telnet"))
	if err != nil {
		t.Fatal(err)
	}
	defer lines.Close()
	lines.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintln(lines, "hello")
	answers := bufio.NewReader(lines)
	if line, err := answers.ReadString('\n'); err != nil || !strings.HasPrefix(line, "lines@") {
		t.Fatalf("%q %v", line, err)
	}

	if _, err := auth.Revoke(path, "lost"); err != nil {
		t.Fatal(err)
	}
	config.Rules = nil
	apply, err := keeper.Read(config)
	if err != nil {
		t.Fatal(err)
	}
	apply()
	if got := <-cut; got.status != 200 || got.body != "first\n" || !errors.Is(got.err, io.ErrUnexpectedEOF) {
		t.Errorf("an answer that had begun: %+v", got)
	}
	if got := <-silent; got.status != 401 || !strings.Contains(got.body, "was revoked") {
		t.Errorf("an answer that had not begun: %+v", got)
	}
	for _, posted := range []chan outcome{body, slow} {
		if got := <-posted; got.status != 401 && got.err == nil {
			t.Errorf("a request whose body does not end: %+v", got)
		}
	}
	trickle.Close()
	<-dripping
	if _, err := answers.ReadByte(); err == nil {
		t.Error("a connection of lines stays open")
	}
	close(goOn)
	if got := <-kept; got.err != nil || got.body != "first\nlast\n" {
		t.Errorf("an answer for someone else: %+v", got)
	}
}
