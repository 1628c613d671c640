package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/auth"
	"varve/internal/httpapi"
	"varve/internal/principal"
	"varve/internal/server/tlstest"
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
	upload := func(w http.ResponseWriter, r *http.Request) {
		begun <- r.URL.Path
		_, err := io.Copy(io.Discard, r.Body)
		if err == nil {
			t.Error("a body came to its end")
		}
		http.Error(w, "cannot read: "+err.Error(), http.StatusBadRequest)
	}
	s := start(t, func(o *Options) {
		o.Keeper = keeper
		o.Routes = []httpapi.Route{
			httpapi.On("GET", "/begun", httpapi.Read, follow),
			httpapi.On("GET", "/silent", httpapi.Read, follow),
			httpapi.On("POST", "/body", httpapi.Write, upload),
			httpapi.On("POST", "/sized", httpapi.Write, upload),
			httpapi.On("GET", "/fails", httpapi.Read, func(w http.ResponseWriter, r *http.Request) {
				begun <- r.URL.Path
				<-r.Context().Done()
				text := "a fault of the store"
				w.Header().Set("Content-Encoding", "odd")
				w.Header().Set("Content-Length", fmt.Sprint(len(text)))
				w.WriteHeader(http.StatusServiceUnavailable)
				io.WriteString(w, text)
			}),
		}
		o.Streams = map[string]StreamServer{"telnet": stream.NewServer(stream.Options{Name: "telnet", Limit: 10, Refuse: true}, whoamiLine{}, nil)}
	})

	type outcome struct {
		status int
		body   string
		err    error
	}
	const announced = 1 << 20 // bytes of a body that does not come to its end
	ask := func(who, method, path string, body io.Reader) chan outcome {
		r, _ := http.NewRequest(method, "http://"+s.Addr("http")+path, body)
		if path == "/sized" {
			r.ContentLength = announced
		}
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
	neverSized, sizedSender := io.Pipe()
	defer sizedSender.Close()
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
	sized := ask("lost", "POST", "/sized", neverSized)
	slow, fails := ask("lost", "POST", "/body", trickle), ask("lost", "GET", "/fails", nil)
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
	if got := <-fails; got.status != 401 || !strings.HasPrefix(got.body, "{") || !strings.HasSuffix(strings.TrimSpace(got.body), "}") || strings.Contains(got.body, "fault") {
		t.Errorf("an answer that would have been another error: %+v", got)
	}
	for _, posted := range []chan outcome{body, sized, slow} {
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

// When a reload takes an authority of client certificates away, what is open by its
// certificates ends, and an open connection has no further request. What is open by
// certificates of another authority goes on.
func TestAuthorityRemoved(t *testing.T) {
	root, gone := tlstest.NewAuthority(t), tlstest.NewAuthority(t)
	kept := root.Intermediate()
	gate := newGate(t, auth.Config{Rules: []string{"cn=tail role=read stream=http", "cn=lines role=write stream=telnet"}})
	begun, causes, goOn := make(chan struct{}), make(chan error, 10), make(chan struct{})
	s, config := secured(t, root, func(o *Options) {
		if err := os.WriteFile(o.Config.TLS.ClientCAFile, slices.Concat(root.PEM, gone.PEM), 0o600); err != nil {
			t.Fatal(err)
		}
		o.Keeper = gate.Keeper
		o.Routes = []httpapi.Route{
			httpapi.On("GET", "/who", httpapi.Read, whoami),
			httpapi.On("GET", "/tail", httpapi.Read, func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintln(w, "first")
				w.(http.Flusher).Flush()
				begun <- struct{}{}
				select {
				case <-r.Context().Done():
					causes <- context.Cause(r.Context())
				case <-goOn:
					fmt.Fprintln(w, "last")
				}
			}),
		}
		o.Streams = map[string]StreamServer{"telnet": stream.NewServer(stream.Options{Name: "telnet", Limit: 10, Refuse: true}, whoamiLine{}, nil)}
	})
	type open struct {
		tails []*http.Response // by HTTP/1.1 and HTTP/2
		idle  *http.Client
		lines *tls.Conn
	}
	url := "https://" + s.Addr("http")
	by := func(ca *tlstest.Authority) (o open) {
		shows := func(common string) *tls.Config {
			c := ca.Client(common)
			c.RootCAs = root.Client("").RootCAs // the server's authority
			return c
		}
		for _, second := range []bool{false, true} {
			response, err := client(t, shows("tail"), second).Get(url + "/tail")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { response.Body.Close() })
			<-begun
			o.tails = append(o.tails, response)
		}
		o.idle = client(t, shows("tail"), false)
		if response, who := get(t, o.idle, url+"/who"); response.StatusCode != 200 {
			t.Fatal(response.Status, who)
		}
		var err error
		if o.lines, err = tls.Dial("tcp", s.Addr("telnet"), shows("lines")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { o.lines.Close() })
		o.lines.SetDeadline(time.Now().Add(2 * time.Minute))
		return o
	}
	answers := func(c *tls.Conn) bool {
		fmt.Fprintln(c, "hello")
		n, err := c.Read(make([]byte, 100))
		return err == nil && n > 0
	}
	ended, goesOn := by(gone), by(kept)
	if !answers(ended.lines) || !answers(goesOn.lines) {
		t.Fatal("lines are not taken")
	}
	reload := func() {
		t.Helper()
		apply, err := s.ReadTLS(config)
		if err != nil || apply == nil {
			t.Fatal("a change of the authorities is not seen: ", err)
		}
		apply()
	}
	tlstest.Write(t, filepath.Dir(config.TLS.ClientCAFile), map[string][]byte{"ca": root.PEM})
	reload()

	for _, tail := range ended.tails {
		if err := <-causes; !errors.Is(err, auth.ErrEnded) {
			t.Errorf("a request ends for %v", err)
		}
		if text, err := io.ReadAll(tail.Body); err == nil {
			t.Errorf("an answer by %s comes to its end: %q", tail.Proto, text)
		}
	}
	if response, text := get(t, ended.idle, url+"/who"); response.StatusCode != 401 || !strings.Contains(text, "no longer trusted") {
		t.Errorf("a further request: %s %s", response.Status, text)
	}
	if answers(ended.lines) {
		t.Error("a connection of lines stays open")
	}
	close(goOn)
	for _, tail := range goesOn.tails {
		if text, err := io.ReadAll(tail.Body); err != nil || string(text) != "first\nlast\n" {
			t.Errorf("by another authority: %q %v", text, err)
		}
	}
	if response, text := get(t, goesOn.idle, url+"/who"); response.StatusCode != 200 {
		t.Errorf("a further request by another authority: %s %s", response.Status, text)
	}
	if !answers(goesOn.lines) {
		t.Error("a connection of lines by another authority is closed")
	}
	config.TLS.ClientCAFile = ""
	reload()
	if answers(goesOn.lines) {
		t.Error("a connection of lines stays open without any authority")
	}
}
