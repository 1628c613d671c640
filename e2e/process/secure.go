package process

import (
	"crypto/tls"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"varve/internal/server/tlstest"
)

// A Secured server uses TLS and authenticates senders.
type Secured struct {
	*Server
	CA    *tlstest.Authority
	Files string // directory of cert and key
	Token string // with the role admin
}

// StartSecured starts a server that uses TLS on all streams and has one token, which
// Client sends. rules apply to senders without a token.
func StartSecured(t *testing.T, dir string, rules string, flags ...string) *Secured {
	t.Helper()
	s := &Secured{CA: tlstest.NewAuthority(t), Files: t.TempDir()}
	s.NewCertificate(t)
	tlstest.Write(t, s.Files, map[string][]byte{"ca": s.CA.PEM})
	file := func(name string) string { return filepath.Join(s.Files, name) }
	s.Token = Token(t, file("tokens.json"), "test", "admin")
	s.Server = Start(t, dir, append([]string{"--auth-enabled=true", "--auth-token-file=" + file("tokens.json"), "--auth-rules=" + rules,
		"--server-tls-cert-file=" + file("cert"), "--server-tls-key-file=" + file("key"), "--server-tls-client-ca-file=" + file("ca")}, flags...)...)
	s.Client.Transport = &http.Transport{MaxIdleConnsPerHost: 16, TLSClientConfig: s.CA.Client("")}
	s.Show(s.Token)
	return s
}

// Show makes Client send a token with each request.
func (s *Server) Show(token string) {
	s.Client.Transport = bearer{s.Client.Transport.(*http.Transport), token}
}

// OfTenant returns s with a tenant's name in the path of each request.
func (s *Server) OfTenant(name string) *Server {
	return &Server{Scheme: s.Scheme, HTTP: s.HTTP + "/t/" + name, Client: s.Client}
}

// Afresh returns s with a client of its own that makes a connection for each request. Closing the
// idle connections of Client after each request would not suffice: that also closes a connection
// on which another goroutine is about to send.
func (s *Secured) Afresh() *Server {
	transport := s.Client.Transport.(bearer).Transport.Clone()
	transport.DisableKeepAlives = true
	return &Server{Scheme: s.Scheme, HTTP: s.HTTP, Client: &http.Client{Timeout: AnswerWithin, Transport: bearer{transport, s.Token}}}
}

// NewCertificate replaces the server's certificate in its file.
func (s *Secured) NewCertificate(t *testing.T) {
	t.Helper()
	cert, key := s.CA.Issue("server")
	tlstest.Write(t, s.Files, map[string][]byte{"cert": cert, "key": key})
}

// DialTelnet connects to the telnet port and shows a certificate of a common name.
func (s *Secured) DialTelnet(common string) (*tls.Conn, error) {
	return tls.Dial("tcp", s.Telnet, s.CA.Client(common))
}

// Token creates a token with the command, and returns the text that its sender
// must send.
func Token(t *testing.T, file, name, role string) string {
	t.Helper()
	c := Command(t.Context(), Binary, "token", "create", name, "--role", role, "--auth-token-file="+file, "--audit-file=none")
	c.Env = Environment()
	shown, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(shown))
}

// bearer sends a token with each request.
type bearer struct {
	*http.Transport
	token string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.Transport.RoundTrip(r)
}
