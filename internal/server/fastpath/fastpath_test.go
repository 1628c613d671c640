package fastpath

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/server/tlstest"
	"varve/internal/stream"
)

// A handed connection is what Serve left to net/http.
type handed struct {
	unused string
	over   bool
}

// A rig is a Server that serves all connections of a listener.
type rig struct {
	server *Server
	addr   string
	ended  chan handed // one element for each connection that Serve returned
}

// A network is how a test connects to its server: with TLS, or without.
type network struct{ authority *tlstest.Authority } // nil: without

// overBoth runs a test with TLS and without.
func overBoth(t *testing.T, test func(t *testing.T, over network)) {
	t.Run("plain", func(t *testing.T) { test(t, network{}) })
	t.Run("TLS", func(t *testing.T) { test(t, network{tlstest.NewAuthority(t)}) })
}

func (n network) listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if n.authority == nil {
		return l
	}
	pair, err := tls.X509KeyPair(n.authority.Issue("server"))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}}
	return &stream.Door{Listener: l, TLS: &stream.TLS{Config: func() *tls.Config { return config }, Timeout: time.Minute}}
}

func (n network) connect(addr string) (net.Conn, error) {
	if n.authority == nil {
		return net.Dial("tcp", addr)
	}
	return tls.Dial("tcp", addr, n.authority.Client(""))
}

func newRig(t *testing.T, over network, h http.HandlerFunc) *rig {
	return newRigWith(t, over, Options{Handler: h, FirstTimeout: time.Minute, IdleTimeout: time.Minute})
}

func newRigWith(t *testing.T, over network, o Options) *rig {
	l := over.listen(t)
	o.Log = slog.New(slog.DiscardHandler)
	r := &rig{addr: l.Addr().String(), ended: make(chan handed, 100), server: New(o)}
	sl := stream.NewListener(l, stream.Options{Name: "test", Limit: 100})
	go func() {
		for {
			c, err := sl.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if err := c.(*stream.Conn).Handshake(context.Background()); err != nil {
					return
				}
				unused, over := r.server.Serve(context.Background(), c.(*stream.Conn))
				r.ended <- handed{string(unused), over}
			}()
		}
	}()
	t.Cleanup(func() {
		sl.Close()
		r.server.Close()
		<-sl.Drained()
	})
	return r
}

func dial(t *testing.T, over network, addr string) net.Conn {
	t.Helper()
	c, err := over.connect(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	return c
}

// answered sends text, and returns what comes until the server closes the connection.
func answered(t *testing.T, over network, addr, text string) string {
	t.Helper()
	c := dial(t, over, addr)
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("after %d bytes: %v", len(all), err)
	}
	return string(all)
}

// parsed describes answers, all whose dates of now are the same. How a body was cut into chunks does not count.
func parsed(text string) string {
	var out strings.Builder
	in := bufio.NewReader(strings.NewReader(text))
	for {
		if _, err := in.Peek(1); err != nil {
			return out.String()
		}
		a, err := http.ReadResponse(in, nil)
		if err != nil {
			return out.String() + err.Error()
		}
		body, err := io.ReadAll(a.Body)
		for i, date := range a.Header["Date"] {
			if at, err := http.ParseTime(date); err == nil && time.Since(at).Abs() < time.Hour {
				a.Header["Date"][i] = "now"
			}
		}
		fmt.Fprintln(&out, a.Status, a.ContentLength, a.TransferEncoding, a.Close, a.Header, len(body), strings.Trim(string(body), "y"), err)
	}
}

// answerAsAsked answers in the way that the query of a request says.
func answerAsAsked(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	w.Header().Set("From", fmt.Sprint(host, err))
	for k, v := range q {
		if name, ok := strings.CutPrefix(k, "h-"); ok {
			w.Header()[name] = v
		}
	}
	switch q.Get("body") {
	case "all":
		text, err := io.ReadAll(r.Body)
		w.Header().Set("Got", fmt.Sprint(len(text), err))
	case "closed":
		r.Body.Close()
	}
	if code := q.Get("status"); code != "" {
		status, _ := strconv.Atoi(code)
		w.WriteHeader(status)
		w.WriteHeader(299) // is too late
		w.Header().Set("Too", "late")
	}
	for size := range strings.SplitSeq(q.Get("write"), ",") {
		switch n, _ := strconv.Atoi(size); {
		case size == "panic":
			panic(http.ErrAbortHandler)
		case size == "flush":
			w.(http.Flusher).Flush()
		case n > 0:
			if k, err := w.Write(bytes.Repeat([]byte("y"), n)); k != n && err == nil {
				panic("a short write")
			}
		}
	}
}

// Answers are those of net/http.
func TestSameAsNetHTTP(t *testing.T) { overBoth(t, testSameAsNetHTTP) }

func testSameAsNetHTTP(t *testing.T, over network) {
	r := newRig(t, over, answerAsAsked)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	peer := &http.Server{Handler: http.HandlerFunc(answerAsAsked), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	go peer.Serve(l)
	defer peer.Close()
	for _, query := range []string{
		"", "status=204", "status=304", "status=404", "status=799", "write=1", "write=1,2,3", "write=2048", "write=2049", "write=2048,1", "write=2047,1,1",
		"write=16384", "write=16385", "write=200000", "write=1,200000,1", "write=flush", "write=flush,1", "write=1,flush,1", "write=1,flush,5000,flush",
		"write=9&status=204", "write=9&status=304", "write=9&status=500", "write=10&h-Content-Length=10", "write=10&h-Content-Length=11", "write=10&h-Content-Length=9",
		"h-Content-Length=0", "write=5,5,flush&h-Content-Length=10", "h-Connection=close&write=3",
		"h-Content-Type=text/x&write=3", "h-Content-Encoding=gzip&write=3", "h-Date=never&write=1", "h-X=a%0d%0ab:c&write=1", "h-A=1&h-A=2&h-B=", "h-Bad%20name=1",
		"write=panic", "write=3,panic", "write=3,flush,panic", "h-Content-Length=10&status=204", "h-Content-Length=10&status=304", "body=closed", "body=all", "body=all&write=5000",
	} {
		for _, request := range []string{
			"GET /x?%s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			"GET /x?%s HTTP/1.1\r\nHost: a\r\n\r\nGET /x?write=7 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			"POST /x?body=all&%s HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12345GET /x?write=7 HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n",
			"POST /x?body=all&%s HTTP/1.1\r\nHost: a\r\ncontent-length: 9000\r\nConnection: close\r\n\r\n" + strings.Repeat("z", 9000),
			"POST /x?body=all&%s HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12345\r\n\r\nGET /x?write=7 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			"DELETE /x?%s HTTP/1.1\r\nhost: a:80\r\nCONNECTION: keep-alive\r\n\r\nPUT /x?write=7 HTTP/1.1\r\nHost: [::1]:5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
		} {
			text := fmt.Sprintf(request, query)
			if got, want := parsed(answered(t, over, r.addr, text)), parsed(answered(t, network{}, l.Addr().String(), text)); got != want {
				t.Errorf("%.300q\nis answered\n%.600s\nwant\n%.600s", text, got, want)
			}
			select {
			case h := <-r.ended:
				if h.over {
					t.Errorf("%.300q is left to net/http", text)
				}
			case <-time.After(2 * time.Minute):
				t.Fatal("Serve goes on")
			}
		}
	}
}

// What is not plain goes to net/http with all that was read, after what is.
func TestHandsOver(t *testing.T) { overBoth(t, testHandsOver) }

func testHandsOver(t *testing.T, over network) {
	var served int
	r := newRig(t, over, func(w http.ResponseWriter, r *http.Request) { served++ })
	const plain = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n"
	lines := strings.Repeat("A: b\r\n", maxLines)
	for _, text := range []string{
		"HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET http://a/x HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /x HTTP/1.0\r\nHost: a\r\n\r\n",
		"GET /x HTTP/1.1 \r\nHost: a\r\n\r\n",
		"GET  /x HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /\x80 HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /x HTTP/1.1\r\n\r\n",
		"GET /x HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
		"GET /x HTTP/1.1\r\nHost: a b\r\n\r\n",
		"GET /x HTTP/1.1\r\nHost:\r\n\r\n",
		"GET /x HTTP/1.1\r\nHost: a\r\nNo colon\r\n\r\n",
		"GET /x HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
		"GET /x HTTP/1.1\r\nHost: a\r\nA : b\r\n\r\n",
		"GET /x HTTP/1.1\r\nHost: a\r\n A: b\r\n\r\n",
		"GET /x HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n",
		"GET /x HTTP/1.1\r\nHost: a\r\nA: \x00\r\n\r\n",
		"GET /x HTTP/1.1\r\nHost: a\r\nA: b\nC: d\r\n\r\n",
		"GET /x HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n\r\n",
		"GET /x HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, te\r\n\r\n",
		"GET /x HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\n\r\n",
		"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\ncontent-length: 1\r\n\r\nx",
		"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx",
		"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\nx",
		"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999999999999\r\n\r\nx",
		"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"POST /x HTTP/1.1\r\nHost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
		"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n",
		"POST /x HTTP/1.1\r\nHost: a\r\nTrailer: A\r\n\r\n",
		"GET /x HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n",
		"GET /" + strings.Repeat("x", maxHeader) + " HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /x HTTP/1.1\r\nHost: a\r\n", // and nothing more
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		for _, before := range []string{"", plain, plain + plain} {
			c := dial(t, over, r.addr)
			served = 0
			io.WriteString(c, before+text)
			h := <-r.ended
			least := min(len(text), maxHeader-len(before))
			if over.authority != nil {
				least = min(least, 1<<10) // as much as a record of TLS has at the least; further ones may come later
			}
			if want := text[:min(len(text), len(h.unused))]; !h.over || h.unused != want || len(want) < least {
				t.Errorf("after %d plain requests %.300q leaves %.300q, %v", strings.Count(before, "GET"), text, h.unused, h.over)
			}
			if want := strings.Count(before, "GET"); served != want {
				t.Errorf("%d requests were served before %q, want %d", served, text, want)
			}
			c.Close()
		}
	}
}

// Empty lines before a request are skipped, also before the first one, after a GET, and if they
// arrive byte by byte. More than that is left to net/http.
func TestEmptyLinesBeforeRequest(t *testing.T) { overBoth(t, testEmptyLinesBeforeRequest) }

func testEmptyLinesBeforeRequest(t *testing.T, over network) {
	const (
		first = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n"
		last  = "GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
	)
	served := make(chan struct{}, 10)
	r := newRig(t, over, func(http.ResponseWriter, *http.Request) { served <- struct{}{} })
	for _, tt := range []struct {
		sent   []string // each by a write of its own
		served int
		want   handed
	}{
		{[]string{"\r\n" + last}, 1, handed{}},
		{[]string{first + "\r\n" + last}, 2, handed{}},
		{[]string{first + "\r\n\r\n" + last}, 2, handed{}},
		{[]string{first, "\r", "\n", "\r", "\n", last}, 2, handed{}},
		{[]string{first + "\r\n", first + "\r\n", last}, 3, handed{}},
		{[]string{first + "\r\n\r\n\r\n"}, 1, handed{"\r\n", true}},
		{[]string{"\r\n\r\n\r\n"}, 0, handed{"\r\n", true}},
		{[]string{"\r\nHEAD /x HTTP/1.1\r\nHost: a\r\n\r\n"}, 0, handed{"HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n", true}},
	} {
		c := dial(t, over, r.addr)
		for _, text := range tt.sent {
			if _, err := io.WriteString(c, text); err != nil {
				t.Fatal(err)
			}
		}
		if got := <-r.ended; got != tt.want || len(served) != tt.served {
			t.Errorf("after %q: %d requests were served, then %q, %v; want %d, then %q, %v", tt.sent, len(served), got.unused, got.over, tt.served, tt.want.unused, tt.want.over)
		}
		for len(served) > 0 {
			<-served
		}
	}
}

// A connection on which only empty lines arrive has no more time for its first request than one on
// which nothing arrives.
func TestEmptyLinesDoNotExtendTimeout(t *testing.T) {
	r := newRigWith(t, network{}, Options{Handler: http.NotFoundHandler(), FirstTimeout: 50 * time.Millisecond, IdleTimeout: time.Hour})
	c := dial(t, network{}, r.addr)
	io.WriteString(c, "\r\n")
	if got := <-r.ended; got != (handed{}) {
		t.Errorf("%q, %v", got.unused, got.over)
	}
}

// A request that takes long is cancelled when its client leaves. If there is something behind it, a
// client that ends its direction still has some time to get its answers.
func TestClientLeaves(t *testing.T) { overBoth(t, testClientLeaves) }

func testClientLeaves(t *testing.T, over network) {
	for name, test := range map[string]struct {
		text  string
		after string // is sent once the request is being answered
		half  bool   // the client ends only its own direction
		want  error
	}{
		"closed":             {text: "GET /long HTTP/1.1\r\nHost: a\r\n\r\n", want: context.Canceled},
		"ended":              {text: "GET /long HTTP/1.1\r\nHost: a\r\n\r\n", half: true, want: context.Canceled},
		"with a body":        {text: "POST /long HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", want: context.Canceled},
		"after another":      {text: "GET /x HTTP/1.1\r\nHost: a\r\n\r\nGET /long HTTP/1.1\r\nHost: a\r\n\r\n", want: context.Canceled},
		"with one behind it": {text: "GET /long HTTP/1.1\r\nHost: a\r\n\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n", half: true},

		"with a byte behind it":                {text: "GET /long HTTP/1.1\r\nHost: a\r\n\r\n", after: "G", want: context.Canceled},
		"with one behind it, after a while":    {text: "GET /long HTTP/1.1\r\nHost: a\r\n\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n", want: context.Canceled},
		"with one behind that is not read yet": {text: "GET /long HTTP/1.1\r\nHost: a\r\n\r\n", after: "GET /long HTTP/1.1\r\nHost: a\r\n\r\n", want: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			left, ended := make(chan struct{}), make(chan error, 1)
			r := newRig(t, over, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if r.URL.Path != "/long" {
					return
				}
				close(left)              // a request behind one that was cancelled is not served, or this panics
				limit := 2 * time.Minute // until the server notices the end
				if test.want == nil {
					limit = 8 * watchPause
				}
				select {
				case <-r.Context().Done():
				case <-time.After(limit):
				}
				ended <- r.Context().Err()
			})
			c := dial(t, over, r.addr)
			io.WriteString(c, test.text)
			<-left
			io.WriteString(c, test.after)
			if test.half {
				c.(interface{ CloseWrite() error }).CloseWrite()
			} else {
				c.Close()
			}
			if got := <-ended; !errors.Is(got, test.want) {
				t.Errorf("the request ended with %v, want %v", got, test.want)
			}
		})
	}
}

// What a handler has done before it answers is done for its client, for the race detector too.
// Otherwise tests would fail by chance that read after an answer what a handler has noted.
func TestAnswersSynchronize(t *testing.T) { overBoth(t, testAnswersSynchronize) }

func testAnswersSynchronize(t *testing.T, over network) {
	served := 0
	r := newRig(t, over, func(w http.ResponseWriter, _ *http.Request) {
		served++
		const size = 2 * copied // so that header and body are separate pieces
		w.Header().Set("Content-Length", strconv.Itoa(size))
		w.Write(make([]byte, size))
	})
	c := dial(t, over, r.addr)
	in := bufio.NewReader(c)
	for want := 1; want <= 10; want++ {
		io.WriteString(c, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, answer.Body)
		if served != want {
			t.Errorf("%d requests are served, want %d", served, want)
		}
	}
}

// A client that stays keeps its request, however long that takes.
func TestClientStays(t *testing.T) { overBoth(t, testClientStays) }

func testClientStays(t *testing.T, over network) {
	r := newRig(t, over, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
			w.WriteHeader(http.StatusGone)
		case <-time.After(6 * watchPause):
		}
	})
	got := answered(t, over, r.addr, "GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		t.Errorf("got %q", got)
	}
}

// Shutdown closes idle connections, and the others after their answers.
func TestShutdown(t *testing.T) { overBoth(t, testShutdown) }

func testShutdown(t *testing.T, over network) {
	entered, goOn := make(chan struct{}), make(chan struct{})
	r := newRig(t, over, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			close(entered)
			<-goOn
		}
	})
	idle, busy := dial(t, over, r.addr), dial(t, over, r.addr)
	io.WriteString(idle, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
	in := bufio.NewReader(idle)
	if _, err := http.ReadResponse(in, nil); err != nil {
		t.Fatal(err)
	}
	io.WriteString(busy, "GET /long HTTP/1.1\r\nHost: a\r\n\r\n")
	<-entered
	soon, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := r.server.Shutdown(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a request: %v", err)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("the idle connection: %v", err)
	}
	close(goOn)
	if err := r.server.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(busy), nil)
	if err != nil || answer.StatusCode != http.StatusOK || !answer.Close {
		t.Errorf("the busy connection: %v, %v", answer, err)
	}
	if h := <-r.ended; h.over {
		t.Error("handed over")
	}
	late := dial(t, over, r.addr)
	if n, err := late.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error("a connection after the end is served")
	}
}

// A connection that begins to wait just after Shutdown has looked at it ends too.
func TestShutdownBeforeIdle(t *testing.T) {
	r := newRig(t, network{}, func(http.ResponseWriter, *http.Request) {})
	under := network{}.listen(t)
	listener := stream.NewListener(under, stream.Options{Name: "test", Limit: 1})
	defer listener.Close()
	dial(t, network{}, under.Addr().String())
	c, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l := &lane{server: r.server, conn: c.(*stream.Conn), in: bufio.NewReader(c)}
	if !r.server.enter(l) {
		t.Fatal("the server has ended")
	}
	r.server.close()
	l.endIdle() // is not idle yet
	waits := make(chan bool)
	go func() { waits <- l.await(time.Hour) }()
	select {
	case more := <-waits:
		if more {
			t.Error("there is a request")
		}
	case <-time.After(2 * time.Minute):
		t.Error("waits for a request that nobody will take")
	}
	r.server.leave(l)
}

// A client that is answered before it has sent all can go on sending for a while.
func TestUnreadBody(t *testing.T) { overBoth(t, testUnreadBody) }

func testUnreadBody(t *testing.T, over network) {
	r := newRig(t, over, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		io.WriteString(w, "too large")
	})
	const lingers = 500 * time.Millisecond // stream's limit
	c := dial(t, over, r.addr)
	began := time.Now()
	io.WriteString(c, "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\nzzz")
	got, err := io.ReadAll(c)
	if err != nil || !strings.HasSuffix(string(got), "too large") {
		t.Errorf("got %q, %v", got, err)
	}
	for range 10 {
		if _, err := c.Write(make([]byte, 1000)); err != nil {
			if took := time.Since(began); took < lingers { // a busy machine may have taken all of it
				t.Errorf("after %v: %v", took, err)
			}
			break
		}
		time.Sleep(time.Millisecond) // a reset takes its way
	}
	c.Close()
	if h := <-r.ended; h.over {
		t.Error("handed over")
	}
}

// A connection that is silent is closed in time.
func TestTimeouts(t *testing.T) { overBoth(t, testTimeouts) }

func testTimeouts(t *testing.T, over network) {
	for requests, o := range []Options{
		{FirstTimeout: 50 * time.Millisecond, IdleTimeout: time.Minute},
		{FirstTimeout: time.Minute, IdleTimeout: 50 * time.Millisecond},
	} {
		o.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		r := newRigWith(t, over, o)
		got := answered(t, over, r.addr, strings.Repeat("GET /x HTTP/1.1\r\nHost: a\r\n\r\n", requests))
		if strings.Count(got, "200 OK") != requests {
			t.Errorf("after %d requests: %q", requests, got)
		}
	}
}

// Deadlines that a handler sets are not those of the next request.
func TestDeadlines(t *testing.T) { overBoth(t, testDeadlines) }

func testDeadlines(t *testing.T, over network) {
	r := newRig(t, over, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if err := errors.Join(control.SetReadDeadline(time.Now()), control.SetWriteDeadline(time.Now().Add(time.Minute))); err != nil {
			t.Error(err)
		}
	})
	c := dial(t, over, r.addr)
	in := bufio.NewReader(c)
	for range 3 {
		io.WriteString(c, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
		if _, err := http.ReadResponse(in, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// As many lines as are allowed are plain.
func TestManyLines(t *testing.T) { overBoth(t, testManyLines) }

func testManyLines(t *testing.T, over network) {
	r := newRig(t, over, func(http.ResponseWriter, *http.Request) {})
	answered(t, over, r.addr, "GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"+strings.Repeat("A: b\r\n", maxLines-2)+"\r\n")
	if h := <-r.ended; h.over {
		t.Error("handed over")
	}
}

// TestPipelinedRequests: between two requests that a client has sent at once, goroutines of others run. Thousands
// of such clients would delay everybody else otherwise.
func TestPipelinedRequests(t *testing.T) {
	const requests = 20
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var other atomic.Bool // a goroutine that the request before has started
	var late, n int       // of the server's one goroutine
	r := newRig(t, network{}, func(w http.ResponseWriter, _ *http.Request) {
		if n > 0 && !other.Swap(false) {
			late++
		}
		n++
		go other.Store(true)
		w.Header().Set("Content-Length", "0")
	})
	get := "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	last := "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
	if answers := strings.Count(answered(t, network{}, r.addr, strings.Repeat(get, requests-1)+last), "HTTP/1.1 200"); answers != requests {
		t.Errorf("%d answers", answers)
	}
	if late > requests/2 { // the scheduler sometimes continues with the same goroutine
		t.Errorf("before %d of %d requests no other goroutine ran", late, requests)
	}
}

// A panic of a handler ends its connection only.
func TestPanic(t *testing.T) { overBoth(t, testPanic) }

func testPanic(t *testing.T, over network) {
	r := newRig(t, over, func(w http.ResponseWriter, r *http.Request) { panic("a fault") })
	for range 2 {
		if got := answered(t, over, r.addr, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n"); got != "" {
			t.Errorf("got %q", got)
		}
	}
}

// An answer cannot be written to once it has been given.
func TestWriteTooLate(t *testing.T) { overBoth(t, testWriteTooLate) }

func testWriteTooLate(t *testing.T, over network) {
	kept := make(chan http.ResponseWriter, 1)
	r := newRig(t, over, func(w http.ResponseWriter, r *http.Request) { kept <- w })
	answered(t, over, r.addr, "GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	<-r.ended
	w := <-kept
	if n, err := w.Write(make([]byte, 10000)); n != 0 || err == nil {
		t.Errorf("wrote %d bytes, %v", n, err)
	}
	if err := http.NewResponseController(w).Flush(); err == nil {
		t.Error("flushed")
	}
}

// What looks plain is a request for net/http too, and the same one.
func FuzzPlainHead(f *testing.F) {
	f.Add([]byte("GET /x?a=b%20c HTTP/1.1\r\nHost: a:80\r\nA: b\r\n\r\nmore"))
	f.Add([]byte("POST / HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 4\r\nConnection: close\r\n\r\nmore"))
	f.Fuzz(func(t *testing.T, p []byte) {
		h, ok := plainHead(p)
		if !ok {
			return
		}
		size := bytes.Index(p, headerEnd) + len(headerEnd)
		in := bufio.NewReaderSize(bytes.NewReader(p), max(16, len(p)))
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if in.Buffered() != len(p)-size {
			t.Errorf("net/http leaves %d bytes of %d, the header has %d", in.Buffered(), len(p), size)
		}
		if r.TransferEncoding != nil || r.Header["Expect"] != nil || !r.ProtoAtLeast(1, 1) || r.Host == "" || r.ContentLength < 0 || r.Close != h.last {
			t.Errorf("%q is %+v", p[:size], r)
		}
	})
}

// What a request takes that does nothing.
func BenchmarkRequest(b *testing.B) {
	b.Run("over=plain", func(b *testing.B) { benchmarkRequest(b, network{}) })
	b.Run("over=TLS", func(b *testing.B) { benchmarkRequest(b, network{tlstest.NewAuthority(b)}) })
}

func benchmarkRequest(b *testing.B, over network) {
	text := []byte("GET /x HTTP/1.1\r\nHost: a\r\nUser-Agent: b\r\nAccept: */*\r\n\r\n")
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = []string{"text/plain"}
		io.WriteString(w, "ok")
	})
	l := over.listen(b)
	sl := stream.NewListener(l, stream.Options{Name: "test", Limit: 100})
	defer sl.Close()
	s := New(Options{Handler: h, FirstTimeout: time.Minute, IdleTimeout: time.Minute})
	go func() {
		if c, err := sl.Accept(); err == nil && c.(*stream.Conn).Handshake(context.Background()) == nil {
			s.Serve(context.Background(), c.(*stream.Conn))
			c.Close()
		}
	}()
	c, err := over.connect(l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	buf := make([]byte, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(text); err != nil {
			b.Fatal(err)
		}
		if n, err := c.Read(buf); err != nil || n < 20 {
			b.Fatal(n, err)
		}
	}
}
