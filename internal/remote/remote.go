// Package remote is a running server as commands see it: they ask it over HTTP, with the
// token and the authority that the environment names.
package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"

	"varve/internal/clip"
)

// Environment variables with which commands reach a server that has authentication or TLS.
const (
	tokenVariable = "VARVE_TOKEN"   // the token that they send
	caVariable    = "VARVE_CA_FILE" // the authority of the server's certificate; if it is set, commands use TLS
)

// PlainFault begins the answer of a server to plain HTTP on a port for TLS. The rest of the answer
// is for browsers: it says that the URL needs https://, but most commands take addresses.
const PlainFault = "this port speaks TLS"

// maxAnswer bounds what is read of an answer.
const maxAnswer = 256 << 20

// A Server is asked over HTTP.
type Server struct {
	Addr   string // host:port
	Tenant string // whose data requests are about; "": the first tenant of the token
	client *http.Client
	scheme string
	token  string
}

// New returns the server at an address, host:port. It does not ask it yet: an error is one
// of the address or of the environment.
func New(addr string) (*Server, error) {
	s := &Server{Addr: Dialable(addr), client: http.DefaultClient, scheme: "http", token: Token()}
	if _, err := http.NewRequest(http.MethodGet, s.scheme+"://"+s.Addr, nil); err != nil {
		return nil, fmt.Errorf("address of the server: %w", err)
	}
	trusting, err := Trusting()
	if err != nil {
		return nil, err
	}
	if trusting != nil {
		s.client, s.scheme = &http.Client{Transport: trusting}, "https"
	}
	return s, nil
}

// Trusting returns a transport that accepts certificates of the authority that the environment
// names, nil if it names none.
func Trusting() (*http.Transport, error) {
	path := os.Getenv(caVariable)
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("environment %s: %w", caVariable, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("environment %s: %s contains no PEM certificate", caVariable, path)
	}
	own := http.DefaultTransport.(*http.Transport).Clone()
	own.TLSClientConfig = &tls.Config{RootCAs: pool}
	return own, nil
}

// Token returns what commands show to servers, "" without it.
func Token() string { return strings.TrimSpace(os.Getenv(tokenVariable)) }

// Dialable turns the address of a listener on all interfaces into one that can be
// connected to from this machine.
func Dialable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// A StatusError is an answer that is not 200.
type StatusError struct {
	Status int
	text   string
}

func (e *StatusError) Error() string { return e.text }

// Refusal is the error that an answer with some text is: the errors that it lists, else the
// text itself.
func (s *Server) Refusal(status int, text []byte) *StatusError {
	var refusal struct{ Errors []string }
	if json.Unmarshal(text, &refusal) == nil && len(refusal.Errors) > 0 {
		said := strings.Join(refusal.Errors, "\n")
		if status == http.StatusServiceUnavailable { // what the server does, not the command: "starting, 40 %"
			said = "the server at " + s.Addr + ": " + said
		}
		if s.scheme == "http" && strings.HasPrefix(said, PlainFault) {
			said = PlainFault + "; commands speak it if the variable " + caVariable + " names a file with the authority of the server's certificate"
		}
		return &StatusError{status, said + s.tokenHint(status)}
	}
	return &StatusError{status, strings.TrimSpace(fmt.Sprintf("the server at %s answers %d %s %s",
		s.Addr, status, http.StatusText(status), clip.Text(string(bytes.TrimSpace(text)), 300)))}
}

// tokenHint says where the command has its token from, if the server wants another one.
func (s *Server) tokenHint(status int) string {
	switch {
	case status != http.StatusUnauthorized:
		return ""
	case s.token == "":
		return "; set the variable " + tokenVariable + " to a token for this command"
	}
	return "; this command used the token in the variable " + tokenVariable
}

func (s *Server) send(ctx context.Context, method, path, kind string, body []byte) (*http.Response, error) {
	if s.Tenant != "" {
		path = "/t/" + s.Tenant + path
	}
	request, err := http.NewRequestWithContext(ctx, method, s.scheme+"://"+s.Addr+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	if s.token != "" {
		request.Header.Set("Authorization", "Bearer "+s.token)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the server at %s: %w", s.Addr, Unreached(err, "--http-addr"))
	}
	return response, nil
}

// Unreached leaves out of an error of http.Client what the text before it says: method, URL
// and address. It adds the way out, where there is one. flag is the one that names the server.
func Unreached(err error, flag string) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	unknown, foreign := errors.AsType[x509.UnknownAuthorityError](err)
	switch {
	case foreign:
		return fmt.Errorf("%w; the variable %s must name a file with the authority of the server's certificate", unknown, caVariable)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: no server listens there; use %s for another server", syscall.ECONNREFUSED, flag)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("the server closed the connection without an answer (%w); check that this is its HTTP port (server.http_addr)", io.EOF)
	}
	return err
}

// Exchange sends a request and returns the answer's status, whatever it is, and its text.
// kind is the type of the body, if it has one that matters.
func (s *Server) Exchange(ctx context.Context, method, path, kind string, body []byte) (status int, text []byte, err error) {
	response, err := s.send(ctx, method, path, kind, body)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	text, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	return response.StatusCode, text, err
}

// Ask sends a request and returns the answer, whose body the caller closes. An answer that
// is not 200 is a *StatusError.
func (s *Server) Ask(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	response, err := s.send(ctx, method, path, "", body)
	if err != nil || response.StatusCode == http.StatusOK {
		return response, err
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	return nil, s.Refusal(response.StatusCode, text)
}

// Read reads the JSON of an answer of 200.
func (s *Server) Read(ctx context.Context, method, path string, body []byte, into any) error {
	response, err := s.Ask(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(into); err != nil {
		return fmt.Errorf("read the answer of the server: %w", err)
	}
	return nil
}
