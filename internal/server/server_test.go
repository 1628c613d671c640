package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/httpapi"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// A running is a server under test.
type running struct {
	*Server
	t    *testing.T
	stop context.CancelFunc
	done chan error
}

// start runs a server on free ports; the test ends with stopping it.
func start(t *testing.T, change func(*Options)) *running {
	t.Helper()
	o := Options{
		Config:   DefaultConfig(),
		Version:  "test",
		Log:      slog.New(slog.DiscardHandler),
		Registry: prometheus.NewRegistry(),
	}
	o.Config.HTTPAddr, o.Config.TelnetAddr, o.Config.CloseGrace = "127.0.0.1:0", "127.0.0.1:0", 0
	if change != nil {
		change(&o)
	}
	if err := o.Config.Validate(); err != nil {
		t.Fatal(err)
	}
	s := New(o)
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Server: s, t: t, stop: cancel, done: make(chan error, 1)}
	var once sync.Once
	go func() { r.done <- s.Run(ctx) }()
	t.Cleanup(func() { once.Do(func() { cancel(); r.wait() }) })
	return r
}

// wait returns when the server has stopped.
func (r *running) wait() {
	r.t.Helper()
	select {
	case err := <-r.done:
		r.done <- nil
		if err != nil {
			r.t.Errorf("Run: %v", err)
		}
	case <-time.After(2 * time.Minute):
		r.t.Fatal("the server does not stop")
	}
}

// A wire is a raw connection to a server.
type wire struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func (r *running) dial() *wire {
	r.t.Helper()
	c, err := net.Dial("tcp", r.Addr("http"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	return &wire{c, r.t, bufio.NewReader(c)}
}

func (w *wire) send(lines ...string) {
	w.t.Helper()
	if _, err := io.WriteString(w, strings.Join(lines, "\r\n")); err != nil {
		w.t.Fatal(err)
	}
}

// answer reads one answer.
func (w *wire) answer() (*http.Response, string) {
	w.t.Helper()
	response, err := http.ReadResponse(w.r, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return response, string(body)
}

// patiently tries with a timeout of the server, and with longer ones until it works: on a
// busy machine a client may fall behind its pace. A fault of the server shows with all of
// them.
func patiently(t *testing.T, timeout time.Duration, try func(t *testing.T, timeout time.Duration) error) {
	t.Helper()
	for ; ; timeout *= 4 {
		err := try(t, timeout)
		if err == nil {
			return
		}
		if timeout > 10*time.Second {
			t.Errorf("with a timeout of %v: %v", timeout, err)
			return
		}
		t.Logf("with a timeout of %v: %v", timeout, err)
	}
}

// route returns a route that changes something unless its method says otherwise.
func route(method, path string, f http.HandlerFunc) httpapi.Route {
	access := httpapi.Write
	if method == http.MethodGet || method == http.MethodOptions {
		access = httpapi.Read
	}
	return httpapi.On(method, path, access, f)
}

func hello(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }

func withRoutes(routes ...httpapi.Route) func(*Options) {
	return func(o *Options) { o.Routes = routes }
}

// python-kairosdb sends "{}" with each GET and DELETE on kept-alive
// connections; it must not be taken for the next request.
func TestBodiesOfGetAndDeleteAreDrained(t *testing.T) {
	s := start(t, withRoutes(route("GET", "/hello", hello), route("DELETE", "/hello", hello)))
	w := s.dial()
	for range 3 {
		for _, method := range []string{"GET", "DELETE"} {
			w.send(method+" /hello HTTP/1.1", "Host: x", "Content-Length: 2", "", "{}")
			if response, body := w.answer(); response.StatusCode != 200 || body != "hello" || response.Close {
				t.Fatalf("%s: %d %q close=%v", method, response.StatusCode, body, response.Close)
			}
		}
	}
}

// npm kairosdb counts characters, not bytes: the rest of a body runs into the
// next request line. That is a 400 and the end of the connection.
func TestSpilledBodyEndsTheConnection(t *testing.T) {
	s := start(t, withRoutes(route("POST", "/hello", hello)))
	w := s.dial()
	w.send("POST /hello HTTP/1.1", "Host: x", "Content-Length: 2", "", "[]]POST /hello HTTP/1.1", "Host: x", "Content-Length: 0", "", "")
	w.answer()
	if response, _ := w.answer(); response.StatusCode != 400 || !response.Close {
		t.Errorf("%d close=%v", response.StatusCode, response.Close)
	}
	if _, err := w.r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("connection goes on: %v", err)
	}
}

func TestExpectContinue(t *testing.T) {
	s := start(t, withRoutes(route("POST", "/hello", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(w, r.Body)
	})))
	w := s.dial()
	w.send("POST /hello HTTP/1.1", "Host: x", "Expect: 100-continue", "Content-Length: 3", "", "")
	if response, _ := w.answer(); response.StatusCode != 100 {
		t.Fatalf("%d, want 100", response.StatusCode)
	}
	w.send("abc")
	if response, body := w.answer(); response.StatusCode != 200 || body != "abc" {
		t.Errorf("%d %q", response.StatusCode, body)
	}
}

// A client that begins with HTTP/2, without asking whether the server speaks it,
// gets an answer of HTTP/1.1 and the end of the connection; others are served.
func TestPrefaceOfHTTP2(t *testing.T) {
	s := start(t, withRoutes(route("GET", "/hello", hello)))
	w := s.dial()
	w.send("PRI * HTTP/2.0", "", "SM", "", "\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	if response, _ := w.answer(); response.StatusCode != 400 || response.ProtoMajor != 1 || !response.Close {
		t.Errorf("answer %d in HTTP/%d, close=%v", response.StatusCode, response.ProtoMajor, response.Close)
	}
	if _, err := w.r.ReadByte(); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection goes on: %v", err)
	}
	w = s.dial()
	w.send("GET /hello HTTP/1.1", "Host: x", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__", "", "")
	if response, body := w.answer(); response.StatusCode != 200 || response.ProtoMajor != 1 || body != "hello" {
		t.Errorf("asked to go over to HTTP/2: %d %q", response.StatusCode, body)
	}
}

// A header that is too large, or has too many names, is answered 431 and ends the
// connection, whether it comes to its end or not.
func TestHeaderLimit(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	var served atomic.Bool
	answer := func(w http.ResponseWriter, r *http.Request) {
		served.Store(true)
		hello(w, r)
	}
	s := start(t, func(o *Options) {
		o.Registry = registry
		o.Routes = []httpapi.Route{route("GET", "/hello", answer), route("POST", "/hello", answer)}
	})
	names := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "x%d:\r\n", i)
		}
		return b.String()
	}
	refused := 0
	for _, tc := range []struct {
		name, sent string
		status     string
	}{
		{"long target", "GET /" + strings.Repeat("x", 40<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n", "431"},
		{"long header", "GET /hello HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 40<<10) + "\r\n\r\n", "431"},
		{"many names", "GET /hello HTTP/1.1\r\nHost: x\r\n" + names(5000) + "\r\n", "431"},
		{"many names in one piece", "GET /hello HTTP/1.1\r\nHost: x\r\n" + names(200) + "\r\n", "431"},
		{"many names, no end", "GET /hello HTTP/1.1\r\nHost: x\r\n" + names(5000), "431"},
		{"many names, no body", "POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n" + names(5000) + "\r\n", "431"},
		{"long query", "GET /hello?" + strings.Repeat("x", 30<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n", "200"},
		{"some names", "GET /hello HTTP/1.1\r\nHost: x\r\n" + names(100) + "\r\n", "200"},
		{"many lines of body", "POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("\n", 100_000), "200"},
	} {
		served.Store(false)
		w := s.dial()
		io.WriteString(w, tc.sent) // the server may be faster
		response, body := w.answer()
		if got := response.Status[:3]; got != tc.status {
			t.Errorf("%s: %s %s", tc.name, response.Status, body)
		}
		if served.Load() != (tc.status == "200") {
			t.Errorf("%s: %s, but the handler was called: %t", tc.name, response.Status, served.Load())
		}
		if tc.status == "431" {
			refused++
			if !response.Close || response.Header.Get("Content-Type") != "application/json" || !strings.Contains(body, "send a long query by POST") {
				t.Errorf("%s: close=%v %s", tc.name, response.Close, body)
			}
			continue
		}
		w.send("GET /hello HTTP/1.1", "Host: x", "", "")
		if response, body := w.answer(); response.StatusCode != 200 || body != "hello" {
			t.Errorf("%s, then another request: %s %s", tc.name, response.Status, body)
		}
	}
	if got, want := figures(registry, "varve_server_http_headers_refused_total"), fmt.Sprintf("varve_server_http_headers_refused_total %d\n", refused); got != want {
		t.Errorf("counted: %s, want %s", got, want)
	}
}

// Requests that follow each other without a wait for the answers are told apart: the
// body of one is not taken for the header of the next.
func TestHeadersOfPipelinedRequests(t *testing.T) {
	t.Parallel()
	s := start(t, withRoutes(route("POST", "/hello", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		hello(w, r)
	})))
	const n = 40
	w := s.dial()
	body := strings.Repeat("\n", 3000)
	request := fmt.Sprintf("POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	go io.WriteString(w, strings.Repeat(request, n))
	for range n {
		if response, _ := w.answer(); response.StatusCode != 200 {
			t.Fatal(response.Status)
		}
	}
}

func TestStalledBodyIsCut(t *testing.T) {
	result := make(chan error, 1)
	s := start(t, func(o *Options) {
		o.Config.StallTimeout = 100 * time.Millisecond
		o.Routes = []httpapi.Route{route("POST", "/hello", func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			result <- err
		})}
	})
	w := s.dial()
	w.send("POST /hello HTTP/1.1", "Host: x", "Content-Length: 3", "", "a")
	if err := <-result; err == nil {
		t.Error("the body is not there, but its end was seen")
	}
}

// A body that keeps coming, however slowly, and a handler that takes long
// after it are not stalls.
func TestSlowIsNotStalled(t *testing.T) {
	t.Parallel()
	patiently(t, 600*time.Millisecond, askSlowly)
}

func askSlowly(t *testing.T, stall time.Duration) error {
	faults := make(chan error, 10)
	s := start(t, func(o *Options) {
		o.Config.StallTimeout = stall
		o.Routes = []httpapi.Route{route("POST", "/hello", func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				faults <- err
			}
			select {
			case <-time.After(3 * stall / 2):
			case <-r.Context().Done():
				faults <- errors.New("the client was taken for gone")
			}
			if r.URL.RawQuery == "silent" {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			w.Write(body)
		})}
	})
	w := s.dial()
	w.SetDeadline(time.Now().Add(2*time.Minute + 20*stall))
	w.send("POST /hello?silent HTTP/1.1", "Host: x", "Content-Length: 1", "", "x")
	if response, err := http.ReadResponse(w.r, nil); err != nil || response.StatusCode != 204 {
		return fmt.Errorf("a byte: %v, %v", response, err)
	}
	for range 2 { // the second request must not inherit a deadline
		w.send("POST /hello HTTP/1.1", "Host: x", "Content-Length: 8", "", "")
		for range 8 {
			time.Sleep(stall / 4)
			_, _ = io.WriteString(w, "x") // the answer tells of the end
		}
		response, err := http.ReadResponse(w.r, nil)
		if err != nil {
			return err
		}
		if body, err := io.ReadAll(response.Body); response.StatusCode != 200 || string(body) != "xxxxxxxx" {
			return fmt.Errorf("%d %q, %v", response.StatusCode, body, err)
		}
	}
	select {
	case err := <-faults:
		return err
	default:
		return nil
	}
}

// A client that asks for much and reads nothing loses its connection.
func TestStalledReaderIsCut(t *testing.T) {
	t.Parallel()
	result := make(chan error, 1)
	s := start(t, func(o *Options) {
		o.Config.StallTimeout = 100 * time.Millisecond
		o.Routes = []httpapi.Route{route("GET", "/much", func(w http.ResponseWriter, _ *http.Request) {
			chunk := make([]byte, 64<<10)
			for range 10_000 {
				if _, err := w.Write(chunk); err != nil {
					result <- err
					return
				}
			}
			result <- nil
		})}
	})
	s.dial().send("GET /much HTTP/1.1", "Host: x", "", "")
	if err := <-result; err == nil {
		t.Error("640 MB went into a connection that nobody reads")
	}
}

// One connection more than the limit waits while all others have requests, and
// takes the place of the one that has been without for longest.
func TestConnectionLimit(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	s := start(t, func(o *Options) {
		o.Config.MaxConnections = 1
		o.Routes = []httpapi.Route{
			route("GET", "/hello", hello),
			route("GET", "/slow", func(http.ResponseWriter, *http.Request) { entered <- struct{}{}; <-leave }),
		}
	})
	first := s.dial()
	first.send("GET /slow HTTP/1.1", "Host: x", "", "")
	<-entered
	second := s.dial()
	second.send("GET /hello HTTP/1.1", "Host: x", "", "")
	second.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := second.r.Peek(1); err == nil {
		t.Fatal("a second connection was served")
	}
	close(leave)
	if response, _ := first.answer(); response.StatusCode != 200 {
		t.Error(response.Status)
	}
	second.SetReadDeadline(time.Now().Add(2 * time.Minute))
	if response, _ := second.answer(); response.StatusCode != 200 {
		t.Error(response.Status)
	}
	if _, err := first.r.ReadByte(); err == nil {
		t.Error("the connection without a request is still open")
	}
}

// Connections that send nothing, half a header or nothing more do not lock out
// other clients.
func TestSilentConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *Options) {
		o.Config.MaxConnections = 8
		o.Routes = []httpapi.Route{route("GET", "/hello", hello)}
	})
	for i := range 24 {
		w := s.dial()
		switch i % 3 {
		case 0:
			w.send("GET /hello HTTP/1.1", "Host: x")
		case 1:
			w.send("GET /hello HTTP/1.1", "Host: x", "", "")
			w.answer()
		}
	}
	w := s.dial()
	w.send("GET /hello HTTP/1.1", "Host: x", "", "")
	if response, body := w.answer(); response.StatusCode != 200 || body != "hello" {
		t.Error(response.Status, body)
	}
}

// Where all connections have a request, a new one replaces the one whose body arrives
// most slowly. Requests that are being served, and bodies that arrive, stay.
func TestHalfBodiesMakeRoom(t *testing.T) {
	t.Parallel()
	const half = 6
	registry := prometheus.NewRegistry()
	entered, leave := make(chan struct{}), make(chan struct{})
	var receiving atomic.Int32
	s := start(t, func(o *Options) {
		o.Config.MaxConnections = half + 2
		o.Registry = registry
		o.Routes = []httpapi.Route{
			route("GET", "/hello", hello),
			route("POST", "/body", func(w http.ResponseWriter, r *http.Request) {
				receiving.Add(1)
				defer receiving.Add(-1)
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					httpapi.WriteErrors(w, http.StatusBadRequest, err.Error())
					return
				}
				hello(w, r)
			}),
			route("POST", "/slow", func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				entered <- struct{}{}
				<-leave
				hello(w, r)
			}),
		}
	})
	served := s.dial()
	served.send("POST /slow HTTP/1.1", "Host: x", "Content-Length: 3", "", "abc")
	<-entered
	begin := func(sent int) *wire {
		w := s.dial()
		w.send("POST /body HTTP/1.1", "Host: x", "Content-Length: 10000000", "", strings.Repeat("x", sent))
		return w
	}
	upload := begin(9_000_000)
	var stuck []*wire
	for i := range half {
		stuck = append(stuck, begin(i))
	}
	for receiving.Load() < half+1 {
		time.Sleep(time.Millisecond)
	}
	next := s.dial() // waits until a body has had time to arrive
	next.send("GET /hello HTTP/1.1", "Host: x", "", "")
	if response, body := next.answer(); response.StatusCode != 200 || body != "hello" {
		t.Error(response.Status, body)
	}
	if _, err := stuck[0].r.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection of the slowest body goes on: %v", err)
	}
	for receiving.Load() > half {
		time.Sleep(time.Millisecond)
	}
	if n := receiving.Load(); n != half {
		t.Errorf("%d bodies go on, want %d", n, half)
	}
	upload.send(strings.Repeat("x", 1_000_000))
	close(leave)
	for name, w := range map[string]*wire{"upload": upload, "request that is served": served} {
		if response, body := w.answer(); response.StatusCode != 200 {
			t.Errorf("the %s was ended: %s %s", name, response.Status, body)
		}
	}
	if got := figures(registry, "varve_server_http_connections_evicted_total"); !strings.Contains(got, `{waits_for="body"} 1`) {
		t.Errorf("evicted: %s", got)
	}
}

// A body that is announced and does not come costs the connection, whether the
// handler reads it or there is no handler, and does not hold up the answer.
func TestAnnouncedBodyThatDoesNotCome(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *Options) {
		o.Config.StallTimeout = time.Hour
		o.Routes = []httpapi.Route{
			route("GET", "/hello", hello), route("POST", "/hello", hello),
			route("POST", "/flush", func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, "first")
				http.NewResponseController(w).Flush()
				io.WriteString(w, "second")
			}),
		}
	})
	for _, tc := range []struct {
		request string
		status  int
	}{
		{"POST /hello", 200}, {"POST /flush", 200}, {"POST /nothing", 404}, {"POST /api/v1/nothing", 404},
		{"PUT /hello", 405}, {"GET /hello", 200}, {"GET /a/../b", 404},
	} {
		for _, length := range []string{"Content-Length: 10", "Transfer-Encoding: chunked", "Content-Length: 10\r\nExpect: 100-continue", "Content-Length: 99999999"} {
			t.Run(tc.request+" "+length, func(t *testing.T) {
				t.Parallel()
				w := s.dial()
				w.send(tc.request+" HTTP/1.1", "Host: x", length, "", "")
				response, _ := w.answer()
				if response.StatusCode != tc.status || !response.Close {
					t.Errorf("%s close=%v", response.Status, response.Close)
				}
				if _, err := w.r.ReadByte(); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the connection is not closed: %v", err)
				}
			})
		}
	}
}

// A handler that works for long beside a body that it does not read is not
// told that its client has gone.
func TestUnreadBodyDoesNotEndTheRequest(t *testing.T) {
	t.Parallel()
	s := start(t, withRoutes(route("POST", "/long", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "first")
		http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(bodyRest + 500*time.Millisecond):
			io.WriteString(w, " second")
		}
	})))
	w := s.dial()
	w.send("POST /long HTTP/1.1", "Host: x", "Content-Length: 2", "", "{}")
	if _, body := w.answer(); body != "first second" {
		t.Errorf("%q", body)
	}
}

// A body that trickles is given up, although each byte comes in time.
func TestTricklingBodyIsCut(t *testing.T) {
	t.Parallel()
	const stall = 50 * time.Millisecond
	result := make(chan error, 1)
	s := start(t, func(o *Options) {
		o.Config.StallTimeout = stall
		o.Routes = []httpapi.Route{route("POST", "/hello", func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			result <- err
		})}
	})
	w := s.dial()
	w.send("POST /hello HTTP/1.1", "Host: x", "Transfer-Encoding: chunked", "", "")
	go func() {
		for {
			if _, err := io.WriteString(w, "1\r\nx\r\n"); err != nil {
				return
			}
			time.Sleep(stall / 5)
		}
	}()
	select {
	case err := <-result:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("a body of a byte now and then goes on for ever")
	}
}

// A client that takes a large answer slowly but steadily gets all of it, also
// when that takes three times stall_timeout.
func TestSteadyReaderGetsAll(t *testing.T) {
	t.Parallel()
	patiently(t, time.Second, readSteadily)
}

func readSteadily(t *testing.T, stall time.Duration) error {
	const size = 24 << 20
	s := start(t, func(o *Options) {
		o.Config.StallTimeout = stall
		o.Routes = []httpapi.Route{route("GET", "/much", func(w http.ResponseWriter, _ *http.Request) {
			w.Write(make([]byte, size))
		})}
	})
	w := s.dial()
	w.SetDeadline(time.Now().Add(2*time.Minute + 20*stall))
	w.Conn.(*net.TCPConn).SetReadBuffer(64 << 10)
	w.send("GET /much HTTP/1.1", "Host: x", "Connection: close", "", "")
	var got int
	for buf := make([]byte, 256<<10); ; {
		n, err := io.ReadFull(w, buf)
		if got += n; err != nil {
			break
		}
		time.Sleep(stall / 30)
	}
	if got < size {
		return fmt.Errorf("%d of %d bytes", got, size)
	}
	return nil
}

// An answer that was written, and that the handler ends only much later, arrives.
func TestLateEndOfAnAnswer(t *testing.T) {
	patiently(t, 100*time.Millisecond, endLate)
}

func endLate(t *testing.T, stall time.Duration) error {
	r := start(t, func(o *Options) {
		o.Config.StallTimeout = stall
		withRoutes(route("GET", "/late", func(w http.ResponseWriter, r *http.Request) {
			hello(w, r)
			for end := time.Now().Add(2 * stall); time.Now().Before(end); {
				time.Sleep(time.Millisecond) // it works
			}
		}))(o)
	})
	for _, line := range []string{"X: y", "Connection: upgrade"} { // by our own code, and by net/http
		w := r.dial()
		w.SetDeadline(time.Now().Add(2*time.Minute + 2*stall))
		w.send("GET /late HTTP/1.1", "Host: localhost", line, "", "")
		answer, err := http.ReadResponse(w.r, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		if body, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK || string(body) != "hello" {
			return fmt.Errorf("%s: status %d, %q, %v", line, answer.StatusCode, body, err)
		}
	}
	return nil
}

// A write deadline that another goroutine sets ends the writing of a handler.
func TestWriteDeadlineOfAHandlerStays(t *testing.T) {
	t.Parallel()
	result := make(chan error, 1)
	s := start(t, func(o *Options) {
		o.Config.StallTimeout = time.Hour
		o.Routes = []httpapi.Route{route("GET", "/much", func(w http.ResponseWriter, _ *http.Request) {
			time.AfterFunc(50*time.Millisecond, func() { http.NewResponseController(w).SetWriteDeadline(time.Now()) })
			_, err := w.Write(make([]byte, 256<<20))
			result <- err
		})}
	})
	s.dial().send("GET /much HTTP/1.1", "Host: x", "", "")
	if err := <-result; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

// A kept-alive client gets one more answer while the server stops, and is told
// that it was the last.
func TestCloseIsAnnounced(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *Options) {
		o.Config.CloseGrace, o.Config.ShutdownTimeout = time.Minute, 2*time.Minute
		o.Routes = []httpapi.Route{route("GET", "/hello", hello)}
	})
	w := s.dial()
	w.send("GET /hello HTTP/1.1", "Host: x", "", "")
	if response, _ := w.answer(); response.Close {
		t.Fatal("closed too early")
	}
	s.stop()
	for !s.draining.Load() {
		time.Sleep(time.Millisecond)
	}
	w.send("GET /hello HTTP/1.1", "Host: x", "", "")
	if response, body := w.answer(); !response.Close || body != "hello" {
		t.Errorf("close=%v %q", response.Close, body)
	}
	s.wait() // for nobody
	if _, err := net.Dial("tcp", s.Addr("http")); err == nil {
		t.Error("still accepts")
	}
}

// An idle client does not hold up the stop for longer than half of the shutdown timeout.
func TestShortShutdownTimeout(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *Options) {
		o.Config.CloseGrace, o.Config.ShutdownTimeout = time.Hour, 20*time.Millisecond
		o.Routes = []httpapi.Route{route("GET", "/hello", hello)}
	})
	w := s.dial()
	w.send("GET /hello HTTP/1.1", "Host: x", "", "")
	w.answer()
	s.stop()
	s.wait()
}

func TestRequestInFlightIsCompleted(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	s := start(t, withRoutes(route("GET", "/slow", func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-leave
		io.WriteString(w, "done")
	})))
	w := s.dial()
	w.send("GET /slow HTTP/1.1", "Host: x", "", "")
	<-entered
	s.stop()
	for !s.draining.Load() {
		time.Sleep(time.Millisecond)
	}
	close(leave)
	if response, body := w.answer(); body != "done" || !response.Close {
		t.Errorf("%q close=%v", body, response.Close)
	}
	s.wait()
}

func TestEndlessRequestIsCut(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	s := start(t, func(o *Options) {
		o.Config.ShutdownTimeout = 400 * time.Millisecond
		o.Routes = []httpapi.Route{route("GET", "/slow", func(w http.ResponseWriter, r *http.Request) {
			close(entered)
			<-r.Context().Done()
		})}
	})
	s.dial().send("GET /slow HTTP/1.1", "Host: x", "", "")
	<-entered
	began := time.Now()
	s.stop()
	s.wait()
	if elapsed := time.Since(began); elapsed < 150*time.Millisecond {
		t.Errorf("stopped after %v, want 200ms", elapsed)
	}
}

// A handler that does not end does not keep the server from stopping.
func TestStuckRequestIsLeft(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	defer close(leave)
	s := start(t, func(o *Options) {
		o.Config.ShutdownTimeout = 400 * time.Millisecond
		o.Routes = []httpapi.Route{route("GET", "/stuck", func(http.ResponseWriter, *http.Request) {
			close(entered)
			<-leave
		})}
	})
	s.dial().send("GET /stuck HTTP/1.1", "Host: x", "", "")
	<-entered
	s.stop()
	s.wait()
}

// A lineServer is a StreamServer that counts bytes.
type lineServer struct {
	mu       sync.Mutex
	received bytes.Buffer
	listener net.Listener
	accepted chan struct{} // one element for each connection
	conns    sync.WaitGroup
}

func (s *lineServer) Serve(_ context.Context, l net.Listener) error {
	s.mu.Lock()
	s.listener = l
	s.mu.Unlock()
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		s.conns.Go(func() {
			defer c.Close()
			b, _ := io.ReadAll(c)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.received.Write(b)
		})
		s.accepted <- struct{}{} // after conns counts it: Shutdown waits for all that was accepted
	}
}

func (s *lineServer) Shutdown(context.Context) error {
	s.mu.Lock()
	s.listener.Close()
	s.mu.Unlock()
	s.conns.Wait()
	return nil
}

func TestTelnetIsServedAndDrained(t *testing.T) {
	telnet := &lineServer{accepted: make(chan struct{}, 1)}
	s := start(t, func(o *Options) { o.Streams = map[string]StreamServer{"telnet": telnet} })
	c, err := net.Dial("tcp", s.Addr("telnet"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "put a 1 2 b=c\n")
	c.Close()
	<-telnet.accepted
	s.stop()
	s.wait()
	if got := telnet.received.String(); got != "put a 1 2 b=c\n" {
		t.Errorf("%q", got)
	}
}

func TestHealth(t *testing.T) {
	fault := errors.New("disk full")
	var failing error
	reference := reference.New(nil)
	s := start(t, func(o *Options) {
		o.Checks = []Check{QueryCheck(reference), {Name: "Datastore-Write", Run: func(context.Context) error { return failing }, Quiet: true}}
	})
	ask := func(path string) (*http.Response, string) {
		t.Helper()
		w := s.dial()
		w.send("GET /api/v1/health/"+path+" HTTP/1.1", "Host: x", "Connection: close", "", "")
		return w.answer()
	}
	expect := func(check int, status string) {
		t.Helper()
		if response, body := ask("check/"); response.StatusCode != check || body != "" {
			t.Errorf("check: %d %q, want %d", response.StatusCode, body, check)
		}
		if response, body := ask("status"); response.StatusCode != 200 || body != status ||
			response.Header.Get("Content-Type") != "application/json;charset=utf-8" {
			t.Errorf("status: %d %q, want %q", response.StatusCode, body, status)
		}
	}
	expect(204, `["Datastore-Query: OK"]`)
	failing = fault
	expect(500, `["Datastore-Query: OK","Datastore-Write: FAIL"]`)
	failing = fmt.Errorf("secret: %w", publicError{fault})
	expect(500, `["Datastore-Query: OK","Datastore-Write: FAIL","Datastore-Write-Backlog: 7 samples wait"]`)
	failing = nil
	reference.Close()
	expect(500, `["Datastore-Query: FAIL"]`)
}

type publicError struct{ error }

func (publicError) Public() string { return "7 samples wait" }

// A namesView is a view that records which names it was asked for.
type namesView struct {
	view
	asked *store.NamesQuery
}

type view store.View // so that a method may be called View

func (v namesView) View(context.Context) (store.View, error) { return v, nil }

func (v namesView) Names(_ context.Context, q store.NamesQuery) ([]string, bool, error) {
	*v.asked = q
	return nil, false, nil
}

func (namesView) Close() error { return nil }

// A health check reads a single name, however many there are.
func TestHealthCheckIsCheap(t *testing.T) {
	v := namesView{asked: new(store.NamesQuery)}
	if err := QueryCheck(v).Run(t.Context()); err != nil || v.asked.Limit != 1 {
		t.Errorf("asked for %+v, %v", *v.asked, err)
	}
}

// A metric says which checks pass, for alerts.
func TestHealthIsMeasured(t *testing.T) {
	registry := prometheus.NewRegistry()
	start(t, func(o *Options) {
		o.Registry = registry
		o.Checks = []Check{AliveCheck(), {Name: "Datastore-Write", Run: func(context.Context) error { return errors.New("disk full") }}}
	})
	const want = "varve_health_check{check=\"Datastore-Write\"} 0\nvarve_health_check{check=\"JVM-Thread-Deadlock\"} 1\n"
	if got := figures(registry, "varve_health_check{"); got != want {
		t.Error(got)
	}
}

// The ports are open before the store is. Requests that need the store are told to
// come again.
func TestStarting(t *testing.T) {
	telnet := &lineServer{accepted: make(chan struct{}, 1)}
	s := start(t, func(o *Options) { o.Opening = func() string { return "40 %: reading the log" } })
	c, err := net.Dial("tcp", s.Addr("telnet"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "put a 1 2 b=c\n")
	c.Close()
	w := s.dial()
	const why = `{"errors":["starting, 40 %: reading the log"]}`
	for _, tc := range []struct {
		request, body string
		status        int
	}{
		{"GET /api/v1/health/status", `["JVM-Thread-Deadlock: OK","Datastore-Query: FAIL","Datastore-Open: starting, 40 %: reading the log"]`, 200},
		{"GET /api/v1/health/check", why, 503},
		{"POST /api/v1/datapoints/query", why, 503},
		{"POST /api/v1/datapoints", "", 503},
	} {
		w.send(tc.request+" HTTP/1.1", "Host: localhost", "Content-Length: 2", "", "{}")
		response, body := w.answer()
		if response.StatusCode != tc.status || body != tc.body || (tc.status == 503) != (response.Header.Get("Retry-After") != "") {
			t.Errorf("%s: %s %s", tc.request, response.Status, body)
		}
	}
	s.Mount(Front{Routes: []httpapi.Route{route("GET", "/hello", hello)}, Streams: map[string]StreamServer{"telnet": telnet}})
	w.send("GET /hello HTTP/1.1", "Host: localhost", "", "")
	if response, body := w.answer(); body != "hello" {
		t.Error(response.Status, body)
	}
	<-telnet.accepted
	s.stop()
	s.wait()
	if got := telnet.received.String(); got != "put a 1 2 b=c\n" {
		t.Errorf("sent while the store was opened: %q", got)
	}
}

// A server that could not open its store ends with all its listeners.
func TestStopWhileStarting(t *testing.T) {
	s := start(t, func(o *Options) { o.Opening = func() string { return "0 %" } })
	s.stop()
	s.wait()
	for _, name := range []string{"http", "telnet"} {
		if c, err := net.Dial("tcp", s.Addr(name)); err == nil {
			c.Close()
			t.Errorf("%s still listens", name)
		}
	}
}

// A server that other machines reach without authentication does not start, and says
// what to do. It holds no listener then.
func TestExposureIsRefused(t *testing.T) {
	c := DefaultConfig()
	c.HTTPAddr, c.PprofAddr = "127.0.0.1:0", "0.0.0.0:0"
	s := New(Options{Config: c, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()})
	err := s.Listen()
	if err == nil {
		t.Fatal("it listens")
	}
	for _, want := range []string{"the pprof listener at 0.0.0.0:", "server.pprof_addr", "auth.enabled: true", "server.insecure: true"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "http listener") {
		t.Error(err)
	}
	for _, st := range s.streams {
		if st.isOpen() {
			if c, err := net.Dial("tcp", st.local().String()); err == nil {
				c.Close()
				t.Errorf("%s still listens", st.name)
			}
		}
	}
}

// The log warns of listeners that other machines can reach, not of those on
// loopback, and the health status says so.
func TestExposureIsTold(t *testing.T) {
	var log bytes.Buffer
	s := start(t, func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		o.Config.Insecure = true
		o.Config.HTTPAddr, o.Config.PprofAddr = "0.0.0.0:0", ":0"
	})
	for name, want := range map[string]int{"listener=http": 1, "listener=pprof": 1, "listener=telnet": 0} {
		if got := strings.Count(log.String(), name); got != want {
			t.Errorf("%s %d times in %s", name, got, log.String())
		}
	}
	_, port, _ := net.SplitHostPort(s.Addr("http"))
	if want := "address=0.0.0.0:" + port; !strings.Contains(log.String(), want) {
		t.Errorf("no %s in %s", want, log.String())
	}
	if _, body := get(t, client(t, nil, false), "http://127.0.0.1:"+port+"/api/v1/health/status"); !strings.Contains(body, "Server-Insecure") {
		t.Error(body)
	}
}

func TestHealthFailsWhileStopping(t *testing.T) {
	s := start(t, func(o *Options) { o.Config.CloseGrace, o.Config.ShutdownTimeout = time.Minute, 2*time.Minute })
	w := s.dial()
	w.send("GET /api/v1/health/check HTTP/1.1", "Host: x", "", "")
	if response, _ := w.answer(); response.StatusCode != 204 {
		t.Fatal(response.Status)
	}
	s.stop()
	for !s.draining.Load() {
		time.Sleep(time.Millisecond)
	}
	w.send("GET /api/v1/health/check HTTP/1.1", "Host: x", "", "")
	if response, _ := w.answer(); response.StatusCode != 500 {
		t.Error(response.Status)
	}
}

func TestPages(t *testing.T) {
	s := start(t, nil)
	for path, want := range map[string]string{
		"/":                 "/api/v1/",
		"/internal/metrics": "\nvarve_build_info{go=",
	} {
		w := s.dial()
		w.send("GET "+path+" HTTP/1.1", "Host: x", "Connection: close", "", "")
		response, body := w.answer()
		if response.StatusCode != 200 || !strings.Contains(body, want) || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("%s: %d %s %.300q", path, response.StatusCode, response.Header.Get("Content-Type"), body)
		}
	}
	if s.Addr("pprof") != "" {
		t.Error("the profiler listens without being asked to")
	}
	w := s.dial()
	w.send("GET /debug/pprof/ HTTP/1.1", "Host: x", "Connection: close", "", "")
	if response, _ := w.answer(); response.StatusCode != 404 {
		t.Errorf("profiler on the API's port: %d", response.StatusCode)
	}
}

func TestProfilerHasItsOwnListener(t *testing.T) {
	s := start(t, func(o *Options) { o.Config.PprofAddr = "127.0.0.1:0" })
	response, err := http.Get("http://" + s.Addr("pprof") + "/debug/pprof/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if response.StatusCode != 200 {
		t.Error(response.Status)
	}
}

// TestDefaultOfCarbonMayBeTaken: who runs a carbon on the machine can start Varve beside
// it, and is told what is missing. An address that was asked for has to be free.
func TestDefaultOfCarbonMayBeTaken(t *testing.T) {
	if taken, err := net.Listen("tcp", DefaultConfig().CarbonAddr); err == nil { // else it is taken already
		defer taken.Close()
	}
	streams := map[string]StreamServer{"carbon": &lineServer{}}
	var log bytes.Buffer
	c := DefaultConfig()
	c.HTTPAddr, c.TelnetAddr, c.PickleAddr = "127.0.0.1:0", "", ""
	s := New(Options{Config: c, Log: slog.New(slog.NewTextHandler(&log, nil)), Registry: prometheus.NewRegistry(), Front: Front{Streams: streams}})
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	defer s.api.listener.Close()
	if s.Addr("carbon") != "" || !strings.Contains(log.String(), "server.carbon_addr") || !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("carbon listens on %q; log:\n%s", s.Addr("carbon"), &log)
	}
	log.Reset()
	c.HTTPAddr = s.Addr("http") // is taken: a server that does not start says nothing of what it starts without
	if err := New(Options{Config: c, Log: slog.New(slog.NewTextHandler(&log, nil)), Registry: prometheus.NewRegistry(), Front: Front{Streams: streams}}).Listen(); err == nil || log.Len() > 0 {
		t.Errorf("%v; log:\n%s", err, &log)
	}
	c.HTTPAddr, c.CarbonAddr = "127.0.0.1:0", "localhost:2003"
	if err := New(Options{Config: c, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Front: Front{Streams: streams}}).Listen(); err == nil {
		t.Error("an address that was asked for is taken, and the server listens without it")
	}
}

func TestListenSaysWhichAddressIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	c := DefaultConfig()
	// Once it is closed, other tests may be given its port at 127.0.0.1.
	c.HTTPAddr, c.TelnetAddr, c.PprofAddr = "127.77.0.1:0", taken.Addr().String(), taken.Addr().String()
	s := New(Options{Config: c, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Front: Front{Streams: map[string]StreamServer{"telnet": &lineServer{}}}})
	err = s.Listen()
	for _, want := range []string{taken.Addr().String(), "server.telnet_addr", "server.pprof_addr"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if _, err := net.Dial("tcp", s.Addr("http")); err == nil {
		t.Error("the HTTP listener was left open")
	}
	if !strings.Contains(err.Error(), "or stop what listens there") {
		t.Errorf("%v does not advise to stop what listens", err)
	}

	everywhere, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer everywhere.Close()
	_, port, err := net.SplitHostPort(everywhere.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	datagrams, err := net.ListenPacket("udp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	_, udpPort, err := net.SplitHostPort(datagrams.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, localPort, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.HTTPAddr, c.TelnetAddr, c.PprofAddr, c.CarbonUDPAddr = "0.0.0.0:"+port, "", "localhost:"+localPort, "0.0.0.0:"+udpPort
	front := Front{Datagrams: map[string]DatagramServer{"carbon_udp": &echoes{make(chan struct{})}}}
	err = New(Options{Config: c, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Front: front}).Listen()
	for _, want := range []string{"listen tcp 0.0.0.0:" + port + ": bind: ", "listen udp 0.0.0.0:" + udpPort + ": bind: ", "listen tcp localhost:" + localPort + ": bind: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want the address as it was set: %s", err, want)
		}
	}

	c.HTTPAddr, c.PprofAddr, c.CarbonUDPAddr = "192.0.2.1:0", "", "" // an address of documentation, not of this machine
	err = New(Options{Config: c, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()}).Listen()
	if err == nil || !strings.HasSuffix(err.Error(), "(set server.http_addr to another address)") {
		t.Errorf("of a foreign address: %v", err)
	}
}

func TestConfigValidate(t *testing.T) {
	c := DefaultConfig()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	c.TelnetAddr, c.PprofAddr = "", ""
	c.ShutdownTimeout = time.Millisecond // shorter than twice CloseGrace, which operators cannot change
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	c.HTTPAddr, c.MaxConnections, c.StallTimeout, c.CloseGrace = "8080", 0, 0, -time.Second
	const want = `http_addr: "8080": want host:port, for example 127.0.0.1:8080
max_connections: want at least 1, got 0
stall_timeout: 0s is not greater than 0
close_grace: -1s is negative`
	if err := c.Validate(); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

// Clients that do not read the page of metrics keep nobody from it, and have it for a
// while only.
func TestScrapesThatNobodyReads(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "one", Help: "One."}))
	s := newScraper(registry, registry)
	stuck, leave := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	scrape := func(client string) *http.Request {
		r := httptest.NewRequest("GET", "/internal/metrics", nil)
		r.RemoteAddr = client
		return r
	}
	const crowd, other = "192.0.2.1:1", "192.0.2.2:1"
	for i := range scrapesUnsent {
		client := crowd
		if i == scrapesUnsent-scrapesUnsent/scrapesShare {
			w := httptest.NewRecorder()
			if s.ServeHTTP(w, scrape(crowd)); w.Code != 503 || !strings.Contains(w.Body.String(), "448 pages") {
				t.Errorf("with seven eighths of the pages unread by one address: %d %s", w.Code, w.Body)
			}
		}
		if i >= scrapesUnsent-scrapesUnsent/scrapesShare {
			client = other
		}
		all.Go(func() {
			w := &stuckWriter{ResponseRecorder: httptest.NewRecorder(), stuck: stuck, leave: leave}
			s.ServeHTTP(w, scrape(client))
			if w.deadline.IsZero() || time.Until(w.deadline) > scrapePatience {
				t.Errorf("a write may take until %v", w.deadline)
			}
		})
		<-stuck
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, scrape("192.0.2.3:1"))
	if w.Code != 503 || !strings.Contains(w.Body.String(), "512 pages") {
		t.Errorf("with all pages unread: %d %s", w.Code, w.Body)
	}
	leave <- struct{}{}
	for w = httptest.NewRecorder(); ; w = httptest.NewRecorder() {
		if s.ServeHTTP(w, scrape(crowd)); w.Code != 503 {
			break // the other one has left
		}
		runtime.Gosched()
	}
	if w.Code != 200 || !strings.Contains(w.Body.String(), "\none 0\n") || w.Header().Get("Content-Length") != fmt.Sprint(w.Body.Len()) {
		t.Errorf("beside %d pages that nobody reads: %d %s", scrapesUnsent-1, w.Code, w.Body)
	}
	close(leave)
	all.Wait()
}

// Senders that scrape over many connections take turns with others.
func TestScrapesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		next := make(chan struct{})
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "one", Help: "One."}, func() float64 { <-next; return 1 }))
		s := newScraper(registry, registry)
		var all sync.WaitGroup
		var served [2]atomic.Int64
		scrape := func(who int) {
			all.Go(func() {
				w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/internal/metrics", nil)
				r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", who)
				if s.ServeHTTP(w, r); w.Code == 200 {
					served[who].Add(1)
				}
			})
			synctest.Wait()
		}
		for range 100 {
			scrape(0)
		}
		scrape(1)
		for range scrapesAtOnce + 2 { // those that are being made, and at most one more for each of the two
			next <- struct{}{}
			synctest.Wait()
		}
		if served[1].Load() != 1 {
			t.Errorf("after %d of a crowd, a page of another address is not made", served[0].Load())
		}
		close(next)
		all.Wait()
		if n := served[0].Load(); n != 100 {
			t.Errorf("%d of the crowd were served, want all", n)
		}
	})
}

// A stuckWriter belongs to a client that does not read.
type stuckWriter struct {
	*httptest.ResponseRecorder
	stuck, leave chan struct{}
	deadline     time.Time
}

func (w *stuckWriter) SetWriteDeadline(t time.Time) error { w.deadline = t; return nil }

func (w *stuckWriter) Write(p []byte) (int, error) {
	w.stuck <- struct{}{}
	<-w.leave
	return len(p), nil
}
