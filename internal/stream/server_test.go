package stream

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/ingest/ingesttest"
)

// A handle is a function that is a Handler.
type handle func(ctx context.Context, c *Conn)

func (h handle) ServeConn(ctx context.Context, c *Conn) { h(ctx, c) }

// echo sends back what it reads.
func echo(_ context.Context, c *Conn) { _, _ = io.Copy(c, c) }

func onLoopback(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// serve runs a server on a listener, and returns what Serve returns.
func serve(ctx context.Context, s *Server, ln net.Listener) <-chan error {
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, ln) }()
	return served
}

func dial(t *testing.T, ln net.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// answers sends a text, and returns an error unless it is sent back.
func answers(c net.Conn, text string) error {
	if _, err := io.WriteString(c, text); err != nil {
		return err
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != text {
		return fmt.Errorf("%q came back as %q", text, got)
	}
	return nil
}

// ended reports whether the other side has closed a connection.
func ended(c net.Conn) bool {
	_, err := c.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

func shutdown(t *testing.T, s *Server, served <-chan error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := errors.Join(s.Shutdown(ctx), <-served); err != nil {
		t.Error(err)
	}
}

// A server that stops reads what has arrived, closes its connections, and accepts no others.
func TestServerStops(t *testing.T) {
	read := make(chan string, 1)
	s := NewServer(Options{Name: "test", Limit: 10}, nil, nil)
	s.SetHandler(handle(func(_ context.Context, c *Conn) {
		if err := answers(c, "ready"); err != nil { // the client sends the same
			t.Error(err)
		}
		all, _ := io.ReadAll(c)
		read <- string(all)
	}))
	if s.Handler() == nil {
		t.Error("there is no handler")
	}
	ln := onLoopback(t)
	served := serve(t.Context(), s, ln)
	c := dial(t, ln)
	if err := answers(c, "ready"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "the last words"); err != nil {
		t.Fatal(err)
	}
	shutdown(t, s, served)
	if got := <-read; got != "the last words" || !ended(c) {
		t.Errorf("read %q at the stop", got)
	}
	other := onLoopback(t)
	if err := s.Serve(t.Context(), other); err != nil {
		t.Errorf("after the stop: %v", err)
	}
	if _, err := other.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a listener that came after the stop: %v", err)
	}
}

// A handler may run until the deadline of Shutdown; then its context ends.
func TestStopThatIsLate(t *testing.T) {
	began := make(chan struct{})
	s := NewServer(Options{Name: "test", Limit: 10}, handle(func(ctx context.Context, _ *Conn) {
		close(began)
		<-ctx.Done()
	}), nil)
	ln := onLoopback(t)
	served := serve(t.Context(), s, ln)
	c := dial(t, ln)
	<-began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "stop the test listener: ") {
		t.Errorf("Shutdown: %v", err)
	}
	if err := <-served; err != nil || !ended(c) {
		t.Errorf("Serve: %v", err)
	}
}

// A noting listener tells of each connection that it has accepted.
type noting struct {
	net.Listener
	accepted chan struct{}
}

func (n *noting) Accept() (net.Conn, error) {
	c, err := n.Listener.Accept()
	if err == nil {
		n.accepted <- struct{}{}
	}
	return c, err
}

// A connection that waited for a place until the deadline of Shutdown, which frees one, does not
// keep Shutdown waiting.
func TestPlaceThatTheStopFrees(t *testing.T) {
	began := make(chan struct{}, 2)
	s := NewServer(Options{Name: "test", Limit: 1}, handle(func(ctx context.Context, c *Conn) {
		c.Busy() // keeps its place
		began <- struct{}{}
		<-ctx.Done() // as one that waits for the store
	}), nil)
	ln := &noting{onLoopback(t), make(chan struct{}, 2)}
	serving, end := context.WithCancel(t.Context())
	defer end()
	served := serve(serving, s, ln)
	first := dial(t, ln)
	<-began
	<-ln.accepted
	second := dial(t, ln)
	<-ln.accepted
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(ctx) }()
	select {
	case err := <-stopped:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Shutdown: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("Shutdown waits for the connection that had no place")
		end()
		<-stopped
	}
	if err := <-served; err != nil || !ended(first) || !ended(second) {
		t.Errorf("Serve: %v", err)
	}
}

// A connection that is accepted just as the context of Serve ends is closed as well.
func TestAcceptedAtTheEnd(t *testing.T) {
	s := NewServer(Options{Name: "test", Limit: 1}, handle(echo), nil)
	ctx, cancel := context.WithCancel(t.Context())
	own, peer := net.Pipe()
	defer peer.Close()
	l := NewListener(onLoopback(t), s.o)
	cancel()
	s.closeAll(l)
	c := &Conn{Conn: own, listener: l}
	s.register(ctx, c, cancel)
	if err := own.SetDeadline(time.Time{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the connection is open: %v", err)
	}
}

// When its context ends, a server closes all connections at once.
func TestServerOfAContextThatEnds(t *testing.T) {
	s := NewServer(Options{Name: "test", Limit: 10}, handle(echo), nil)
	ln := onLoopback(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := serve(ctx, s, ln)
	c := dial(t, ln)
	if err := answers(c, "a"); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-served; !errors.Is(err, context.Canceled) || !ended(c) {
		t.Errorf("Serve: %v", err)
	}
}

// A deadline that a handler sets ends its Read, and a stop does not wait for it.
func TestDeadlineOfAHandler(t *testing.T) {
	const patience = time.Minute // only a test that fails waits for so long
	read := make(chan error)
	s := NewServer(Options{Name: "test", Limit: 10}, handle(func(_ context.Context, c *Conn) {
		for _, deadline := range []time.Time{time.Now().Add(time.Millisecond), time.Now().Add(time.Hour)} {
			c.SetReadDeadline(deadline)
			_, err := c.Read(make([]byte, 1))
			read <- err
		}
	}), nil)
	ln := onLoopback(t)
	served := serve(t.Context(), s, ln)
	dial(t, ln)
	for _, when := range []string{"after the deadline", "at the stop"} {
		select {
		case err := <-read:
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: %v", when, err)
			}
		case <-time.After(patience):
			t.Fatalf("%s: the handler still reads", when)
		}
		if when == "after the deadline" {
			go s.Shutdown(t.Context())
		}
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// A panic closes only its own connection, whose place becomes free.
func TestPanicOfAHandler(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := NewServer(Options{Name: "test", Limit: 10, Metrics: NewMetrics(registry, "test", "test")}, handle(func(ctx context.Context, c *Conn) {
		var first [1]byte
		if _, err := io.ReadFull(c, first[:]); err == nil && first[0] == '!' {
			panic("a fault")
		}
		_, _ = c.Write(first[:])
		echo(ctx, c)
	}), nil)
	ln := onLoopback(t)
	served := serve(t.Context(), s, ln)
	good, bad := dial(t, ln), dial(t, ln)
	if err := answers(good, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(bad, "!"); err != nil || !ended(bad) {
		t.Errorf("the connection of the panic: %v", err)
	}
	if err := answers(good, "b"); err != nil {
		t.Errorf("another connection: %v", err)
	}
	shutdown(t, s, served)
	if n := ingesttest.Counters(t, registry, "varve_test_connections")[""]; n != 0 {
		t.Errorf("%v connections are open", n)
	}
}

// A stumbling listener fails once.
type stumbling struct {
	net.Listener
	failed atomic.Bool
}

func (s *stumbling) Accept() (net.Conn, error) {
	if !s.failed.Swap(true) {
		return nil, errors.New("too many open files")
	}
	return s.Listener.Accept()
}

// A temporary failure to accept does not stop the server.
func TestAcceptFails(t *testing.T) {
	s := NewServer(Options{Name: "test", Limit: 10}, handle(echo), nil)
	ln := &stumbling{Listener: onLoopback(t)}
	served := serve(t.Context(), s, ln)
	if err := answers(dial(t, ln), "a"); err != nil {
		t.Error(err)
	}
	shutdown(t, s, served)
}

type clientKey struct{}

// A door refuses clients, or passes their identity to the handler.
func TestDoor(t *testing.T) {
	var admitted atomic.Bool
	s := NewServer(Options{Name: "test", Limit: 10}, handle(func(ctx context.Context, c *Conn) {
		_, _ = fmt.Fprintln(c, ctx.Value(clientKey{}))
	}), nil)
	ln := onLoopback(t)
	served := serve(t.Context(), s, &Door{Listener: ln, Admit: func(ctx context.Context, c *Conn) (context.Context, error) {
		if !admitted.Load() {
			return ctx, errors.New("nobody")
		}
		return context.WithValue(ctx, clientKey{}, "somebody"), nil
	}})
	if got, _ := io.ReadAll(dial(t, ln)); len(got) > 0 {
		t.Errorf("a client that is refused got %q", got)
	}
	admitted.Store(true)
	if got, err := io.ReadAll(dial(t, ln)); err != nil || string(got) != "somebody\n" {
		t.Errorf("a client that is admitted got %q, %v", got, err)
	}
	shutdown(t, s, served)
	if err := (&Door{Listener: &stumbling{}}).SetDeadline(time.Now()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("the deadline of a listener that has none: %v", err)
	}
}

// A wait for the end of all activities returns when none is left, even if others began during the wait.
func TestActivity(t *testing.T) {
	var a Activity
	isClosed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	if !isClosed(a.None()) {
		t.Error("an activity is reported before the first one")
	}
	a.Begin()
	first := a.None()
	a.Begin()
	second := a.None()
	a.End()
	if isClosed(first) || isClosed(second) {
		t.Error("the wait ended although one of two activities continues")
	}
	a.End()
	if !isClosed(first) || !isClosed(second) || !isClosed(a.None()) {
		t.Error("an activity is reported after the last one")
	}
	a.Begin()
	if isClosed(a.None()) {
		t.Error("the activity that began again is not reported")
	}
	a.End()
}

// certified returns a configuration for a server on loopback, and the authority that signed its certificate.
func certified(t *testing.T) (*tls.Config, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}}}, pool
}

// When the server stops, a connection with TLS is read to its last record. The connection has the certificate of its
// client, and reports whether the present authorities signed it. A failed handshake is counted with its reason.
func TestServerWithTLS(t *testing.T) {
	config, authorities := certified(t)
	config.ClientCAs, config.ClientAuth = authorities, tls.VerifyClientCertIfGiven
	var current atomic.Pointer[tls.Config]
	current.Store(config)
	failed := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "failed"}, []string{"stream", "reason"})
	registry := prometheus.NewRegistry()
	registry.MustRegister(failed)
	type seen struct {
		certificate bool
		trusted     bool
		later       bool
		text        string
	}
	results, proceed := make(chan seen, 1), make(chan struct{})
	s := NewServer(Options{Name: "test", Limit: 10}, handle(func(_ context.Context, c *Conn) {
		one := seen{certificate: c.Certificate() != nil, trusted: c.Trusted()}
		if Of(c) != c || Of(c.TLS()) != c {
			t.Error("the connection is not found again")
		}
		if err := answers(c, "ready"); err != nil {
			t.Error(err)
		}
		<-proceed
		one.later = c.Trusted()
		var all bytes.Buffer
		_, _ = io.Copy(&all, c)
		one.text = all.String()
		results <- one
	}), nil)
	ln := onLoopback(t)
	served := serve(t.Context(), s, &Door{Listener: ln, TLS: &TLS{Config: current.Load, Timeout: time.Minute, Failed: failed}})

	plain := dial(t, ln)
	if _, err := io.WriteString(plain, "put a line that is no handshake\n"); err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(plain)
	leaves := dial(t, ln)
	leaves.Close()

	own := &tls.Config{RootCAs: authorities, ServerName: "127.0.0.1", Certificates: config.Certificates}
	c := tls.Client(dial(t, ln), own)
	if err := answers(c, "ready"); err != nil {
		t.Fatal(err)
	}
	other, others := certified(t)
	other.ClientCAs = others
	current.Store(other)
	close(proceed)
	if _, err := io.WriteString(c, "the last words"); err != nil {
		t.Fatal(err)
	}
	shutdown(t, s, served)
	if got := <-results; got != (seen{certificate: true, trusted: true, later: false, text: "the last words"}) {
		t.Errorf("the connection was seen as %+v", got)
	}
	got := ingesttest.Counters(t, registry, "failed")
	if got["test,"+handshakePlain]+got[handshakePlain+",test"] != 1 || len(got) != 2 {
		t.Errorf("failed handshakes: %v", got)
	}
}

// Each failure of a handshake has a reason that metrics show.
func TestHandshakeFaults(t *testing.T) {
	for want, errs := range map[string][]error{
		handshakePlain:       {tls.RecordHeaderError{}},
		handshakeCertificate: {&tls.CertificateVerificationError{Err: errors.New("unknown")}, errors.New("remote error: tls: bad certificate")},
		handshakeTime:        {context.DeadlineExceeded, os.ErrDeadlineExceeded},
		handshakeEnded:       {io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, context.Canceled},
		handshakeOther:       {errors.New("no common version")},
	} {
		for _, err := range errs {
			for _, err := range []error{err, fmt.Errorf("handshake: %w", err)} {
				if got := handshakeFault(err); got != want {
					t.Errorf("%v is counted as %s, want %s", err, got, want)
				}
			}
		}
	}
	if vouch(nil, []*x509.Certificate{{}}) || vouch(x509.NewCertPool(), nil) {
		t.Error("a certificate is trusted without an authority")
	}
}
