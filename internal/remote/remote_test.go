package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"varve/internal/server/tlstest"
)

func TestAnswers(t *testing.T) {
	t.Setenv(tokenVariable, " secret\n")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("shows %q", r.Header.Get("Authorization"))
		}
		switch body, _ := io.ReadAll(r.Body); r.URL.Path {
		case "/echo":
			io.WriteString(w, r.Method+" "+r.Header.Get("Content-Type")+" "+string(body))
		case "/json":
			io.WriteString(w, `{"a":1}`)
		case "/errors":
			w.WriteHeader(400)
			io.WriteString(w, `{"errors":["one","two"]}`)
		case "/starting":
			w.WriteHeader(503)
			io.WriteString(w, `{"errors":["starting, 40 %: reading the log"]}`)
		default:
			w.WriteHeader(503)
			io.WriteString(w, "<html>\n")
		}
	}))
	defer s.Close()
	server, err := New(strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	status, text, err := server.Exchange(t.Context(), "POST", "/echo", "text/x", []byte("body"))
	if status != 200 || string(text) != "POST text/x body" || err != nil {
		t.Errorf("%d %s, %v", status, text, err)
	}
	var into struct{ A int }
	if err := server.Read(t.Context(), "GET", "/json", nil, &into); err != nil || into.A != 1 {
		t.Errorf("%+v, %v", into, err)
	}
	if err := server.Read(t.Context(), "GET", "/echo", nil, &into); err == nil || !strings.HasPrefix(err.Error(), "read the answer of the server: ") {
		t.Error(err)
	}
	for path, want := range map[string]string{"/errors": "one\ntwo", "/starting": "the server at " + server.Addr + ": starting, 40 %: reading the log", "/else": "the server at " + server.Addr + " answers 503 Service Unavailable <html>"} {
		refused := (*StatusError)(nil)
		if _, err := server.Ask(t.Context(), "GET", path, nil); !errors.As(err, &refused) || err.Error() != want || refused.Status/100 < 4 {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	s.Close()
	const nobody = ": connection refused: no server listens there; use --http-addr for another server"
	if _, _, err := server.Exchange(t.Context(), "GET", "/echo", "", nil); err == nil || err.Error() != "ask the server at "+server.Addr+nobody {
		t.Error(err)
	}
}

// A port that closes the connection, such as that of telnet, is probably not the HTTP port.
func TestOtherPort(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if c, _, err := w.(http.Hijacker).Hijack(); err != nil || c.Close() != nil {
			t.Errorf("close the connection: %v", err)
		}
	}))
	defer s.Close()
	server, err := New(strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	const want = ": the server closed the connection without an answer (EOF); check that this is its HTTP port (server.http_addr)"
	if _, err := server.Ask(t.Context(), "GET", "/", nil); !errors.Is(err, io.EOF) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// A server that wants another token is told with where the command has its token from.
func TestTokenHint(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, `{"errors":["who?"]}`)
	}))
	defer s.Close()
	for token, want := range map[string]string{
		"":    "who?; set the variable VARVE_TOKEN to a token for this command",
		"old": "who?; this command used the token in the variable VARVE_TOKEN",
	} {
		t.Setenv(tokenVariable, token)
		server, err := New(strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := server.Ask(t.Context(), "GET", "/", nil); err == nil || err.Error() != want {
			t.Errorf("with token %q: %v, want %s", token, err, want)
		}
	}
}

// A command that speaks plain HTTP to a port for TLS is told how to speak TLS.
func TestPlainToTLS(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, `{"errors":["this port speaks TLS; use https://"]}`)
	}))
	defer s.Close()
	server, err := New(strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "this port speaks TLS; commands speak it if the variable VARVE_CA_FILE names a file with the authority of the server's certificate"
	if _, err := server.Ask(t.Context(), "GET", "/", nil); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// With an authority in the environment commands speak TLS, and believe its servers only.
func TestAuthority(t *testing.T) {
	dir := t.TempDir()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	trusted := tlstest.NewAuthority(t)
	pair, err := tls.X509KeyPair(trusted.Issue("server"))
	if err != nil {
		t.Fatal(err)
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.Config.ErrorLog = nil
	s.StartTLS()
	defer s.Close()
	for name, c := range map[string]struct {
		pem  []byte
		good bool
	}{"trusted": {trusted.PEM, true}, "another": {tlstest.NewAuthority(t).PEM, false}} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, c.pem, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv(caVariable, path)
		server, err := New(strings.TrimPrefix(s.URL, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := server.Exchange(context.Background(), "GET", "/", "", nil); (err == nil) != c.good ||
			!c.good && !strings.Contains(err.Error(), "the variable VARVE_CA_FILE must name a file") {
			t.Errorf("%s: %v", name, err)
		}
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{empty, filepath.Join(dir, "nosuch")} {
		t.Setenv(caVariable, path)
		if _, err := New("127.0.0.1:1"); err == nil || !strings.HasPrefix(err.Error(), "environment VARVE_CA_FILE: ") {
			t.Error(err)
		}
	}
}

func TestAddress(t *testing.T) {
	for addr, want := range map[string]string{"0.0.0.0:80": "127.0.0.1:80", "[::]:80": "127.0.0.1:80", "db:80": "db:80", "10.0.0.1:80": "10.0.0.1:80", "odd": "odd"} {
		if s, err := New(addr); err != nil || s.Addr != want {
			t.Errorf("%s: %+v, %v", addr, s, err)
		}
	}
	if _, err := New("a b"); err == nil {
		t.Error("a blank is taken in an address")
	}
}
