package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"varve/internal/server/tlstest"
	"varve/internal/stream"
)

// secured makes a server speak TLS by a certificate of ca, which may sign clients too.
func secured(t *testing.T, ca *tlstest.Authority, change func(*Options)) (*running, Config) {
	t.Helper()
	dir := t.TempDir()
	cert, key := ca.Issue("server")
	tlstest.Write(t, dir, map[string][]byte{"cert": cert, "key": key, "ca": ca.PEM})
	var config Config
	s := start(t, func(o *Options) {
		o.Config.TLS.CertFile, o.Config.TLS.KeyFile = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
		o.Config.TLS.ClientCAFile = filepath.Join(dir, "ca")
		if change != nil {
			change(o)
		}
		config = o.Config
	})
	return s, config
}

// client returns a client that trusts ca, for HTTP/2 or for HTTP/1.1.
func client(t *testing.T, c *tls.Config, second bool) *http.Client {
	transport := &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: second}
	if !second {
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 2 * time.Minute}
}

func counted(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func get(t *testing.T, c *http.Client, url string) (*http.Response, string) {
	t.Helper()
	response, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// Both versions of HTTP are spoken over TLS, and large answers arrive whole.
func TestTLS(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	text := strings.Repeat("0123456789abcdef", 50_000)
	s, _ := secured(t, ca, withRoutes(route("GET", "/large", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Proto", r.Proto)
		io.WriteString(w, text)
	})))
	for _, second := range []bool{false, true} {
		c := client(t, ca.Client(""), second)
		for range 3 {
			response, body := get(t, c, "https://"+s.Addr("http")+"/large")
			if want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[second]; response.Header.Get("Proto") != want || body != text {
				t.Errorf("%s, %d bytes; want %s, %d bytes", response.Header.Get("Proto"), len(body), want, len(text))
			}
		}
	}
	old := ca.Client("")
	old.MaxVersion = tls.VersionTLS11
	if _, err := tls.Dial("tcp", s.Addr("http"), old); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
}

// A server without requests stops without a word of requests that it has cut. Which of two
// goroutines closes the listener first is chance, hence several servers.
func TestQuietStopOverTLS(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	for range 10 {
		var log bytes.Buffer
		s, _ := secured(t, ca, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		get(t, client(t, ca.Client(""), false), "https://"+s.Addr("http")+"/api/v1/health/status") // net/http has the listener now
		s.stop()
		s.wait()
		if text := log.String(); strings.Contains(text, "cut") {
			t.Fatalf("the log says: %s", text)
		}
	}
}

// A connection over TLS is answered on, whoever answers: plain requests, then those for net/http, one of
// which comes in halves.
func TestRequestsOfAllKindsOverTLS(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	s, _ := secured(t, ca, withRoutes(route("GET", "/hello", hello), route("POST", "/size", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	})))
	c, err := tls.Dial("tcp", s.Addr("http"), ca.Client(""))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	in := bufio.NewReader(c)
	const hello = "GET /hello HTTP/1.1\r\nHost: localhost\r\n"
	for _, test := range []struct {
		answers int
		pieces  []string
	}{
		{1, []string{hello + "\r\n"}},
		{2, []string{hello + "\r\n" + hello + "\r\n"}},
		{1, []string{"POST /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n", strings.Repeat("x", 100_000)}},
		{1, []string{hello, "\r\n"}}, // from here on for net/http
		{1, []string{"POST /size HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n", "12345\r\n0\r\n\r\n"}},
		{1, []string{hello + "Upgrade: websocket\r\nConnection: upgrade\r\n\r\n"}},
		{2, []string{hello + "\r\n" + hello + "\r\n"}},
	} {
		for _, piece := range test.pieces {
			io.WriteString(c, piece)
		}
		for range test.answers {
			response, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("%.60q: %v", test.pieces, err)
			}
			if io.Copy(io.Discard, response.Body); response.StatusCode != http.StatusOK {
				t.Errorf("%.60q: %s", test.pieces, response.Status)
			}
		}
	}
}

// A client of an authority that is not trusted does not get in, whatever it asks for.
func TestForeignClientCertificate(t *testing.T) {
	ca, foreign := tlstest.NewAuthority(t), tlstest.NewAuthority(t)
	s, _ := secured(t, ca, withRoutes(route("GET", "/hello", hello)))
	c := ca.Client("")
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(foreign.Issue("operator"))
		return &pair, err
	}
	if response, err := client(t, c, false).Get("https://" + s.Addr("http") + "/hello"); err == nil {
		response.Body.Close()
		t.Error("a certificate of another authority gets", response.Status)
	}
	awaitCount(t, s.metrics.handshakes.WithLabelValues("http", "certificate"), 1)
}

// awaitCount waits until a counter has a value: what fails is counted after the client sees
// the end.
func awaitCount(t *testing.T, counter prometheus.Counter, want float64) {
	t.Helper()
	for began := time.Now(); counted(t, counter) < want && time.Since(began) < time.Minute; {
		time.Sleep(time.Millisecond)
	}
	if got := counted(t, counter); got != want {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// Whoever speaks no TLS, or half of it, takes nobody's place for long, and learns what is
// wrong where that is possible.
func TestHandshakesThatFail(t *testing.T) {
	patiently(t, 100*time.Millisecond, failHandshakes)
}

func failHandshakes(t *testing.T, timeout time.Duration) error {
	ca := tlstest.NewAuthority(t)
	s, _ := secured(t, ca, func(o *Options) {
		o.Config.ReadHeaderTimeout = timeout
		withRoutes(route("GET", "/hello", hello))(o)
	})
	w := s.dial()
	w.SetDeadline(time.Now().Add(2*time.Minute + 2*timeout))
	w.send("GET /hello HTTP/1.1", "Host: x", "", "")
	response, err := http.ReadResponse(w.r, nil)
	if err != nil {
		return fmt.Errorf("plain HTTP: %w", err)
	}
	if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != 400 || !strings.Contains(string(body), "https://") {
		return fmt.Errorf("plain HTTP: %s %s %v", response.Status, body, err)
	}
	beginnings := []string{"", "\x16\x03\x01", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "put a 1 1 h=a\n"}
	var open []*wire
	for _, beginning := range beginnings {
		w := s.dial()
		w.SetDeadline(time.Now().Add(2*time.Minute + 2*timeout))
		w.send(beginning)
		open = append(open, w)
	}
	for i, w := range open {
		if _, err := io.Copy(io.Discard, w); err != nil { // until the server closes it
			return fmt.Errorf("after %q: %w", beginnings[i], err)
		}
	}
	failed := map[string]float64{"not_tls": 2, "timeout": 3}
	all := func() (n float64) {
		for reason := range failed {
			n += counted(t, s.metrics.handshakes.WithLabelValues("http", reason))
		}
		return n
	}
	for began := time.Now(); all() < 5 && time.Since(began) < time.Minute; { // soon after the client sees the end
		time.Sleep(time.Millisecond)
	}
	for reason, want := range failed {
		if got := counted(t, s.metrics.handshakes.WithLabelValues("http", reason)); got != want {
			return fmt.Errorf("%v counted as %s, want %v", got, reason, want)
		}
	}
	after, err := client(t, ca.Client(""), true).Get("https://" + s.Addr("http") + "/hello")
	if err != nil {
		return fmt.Errorf("afterwards: %w", err)
	}
	after.Body.Close()
	if after.StatusCode != 200 {
		return fmt.Errorf("afterwards %s", after.Status)
	}
	return nil
}

// The header of a request is bounded as without TLS.
func TestHeaderOverTLS(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	s, _ := secured(t, ca, withRoutes(route("GET", "/hello", hello)))
	for _, second := range []bool{false, true} {
		for _, tc := range []struct{ lines, size, want int }{
			{2 * maxHeaderLines, 1, http.StatusRequestHeaderFieldsTooLarge},
			{10, int(maxHeader) / 8, http.StatusRequestHeaderFieldsTooLarge},
			{10, int(maxHeader) / 11, http.StatusOK},
		} {
			r, err := http.NewRequest("GET", "https://"+s.Addr("http")+"/hello", nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := range tc.lines {
				r.Header.Set(fmt.Sprint("H", i), strings.Repeat("x", tc.size))
			}
			response, err := client(t, ca.Client(""), second).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != tc.want {
				t.Errorf("HTTP/2 %t, %d lines of %d bytes: %s", second, tc.lines, tc.size, response.Status)
			}
		}
	}
}

// An echo answers each line on a stream.
type echo struct{}

func (echo) ServeConn(_ context.Context, c *stream.Conn) {
	buf := make([]byte, 1<<10)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		who := "nobody"
		if cert := c.Certificate(); cert != nil {
			who = cert.Subject.CommonName
		}
		fmt.Fprintf(c, "%s: %s", who, buf[:n])
	}
}

// Streams of lines speak TLS, know who shows a certificate, and drain as without it.
func TestTLSOfLines(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	s, _ := secured(t, ca, func(o *Options) {
		o.Streams = map[string]StreamServer{"telnet": stream.NewServer(stream.Options{Name: "telnet", Limit: 10, Refuse: true}, echo{}, nil)}
	})
	for who, want := range map[string]string{"": "nobody: hello\n", "collector": "collector: hello\n"} {
		c, err := tls.Dial("tcp", s.Addr("telnet"), ca.Client(who))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(2 * time.Minute))
		io.WriteString(c, "hello\n")
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Errorf("%q %v, want %q", got, err, want)
		}
	}
	plain, err := net.Dial("tcp", s.Addr("telnet"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	io.WriteString(plain, "hello\n")
	if got, _ := io.ReadAll(plain); bytes.Contains(got, []byte("hello")) {
		t.Errorf("plain lines are taken: %q", got)
	}
}

// TestEarlyCertificate: a certificate that is not valid yet is used, and the log and the health
// status say that clients refuse it.
func TestEarlyCertificate(t *testing.T) {
	var log bytes.Buffer
	ca := tlstest.NewAuthority(t)
	s, config := secured(t, ca, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	open := client(t, ca.Client(""), false)
	status := func() string {
		_, body := get(t, open, "https://"+s.Addr("http")+"/api/v1/health/status")
		return body
	}
	if got := status(); strings.Contains(got, "Certificate") || strings.Contains(log.String(), "WARN") {
		t.Errorf("a good certificate: %s, log:\n%s", got, log.String())
	}
	cert, key := ca.Early("server")
	tlstest.Write(t, filepath.Dir(config.TLS.CertFile), map[string][]byte{"cert": cert, "key": key})
	apply, err := s.ReadTLS(config)
	if err != nil {
		t.Fatal(err)
	}
	apply()
	const want = "the certificate is not valid before "
	if got := status(); !strings.Contains(got, `"Server-Certificate: `+want) {
		t.Error("status:", got)
	}
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), want) || !strings.Contains(log.String(), config.TLS.CertFile) {
		t.Error("log:", log.String())
	}
	_, err = client(t, ca.Client(""), false).Get("https://" + s.Addr("http") + "/api/v1/health/status")
	if err == nil || !strings.Contains(err.Error(), "not yet valid") {
		t.Error("a new connection:", err)
	}
}

// TestTroubleOfCertificates: the times of a certificate belong to it, as for clients.
func TestTroubleOfCertificates(t *testing.T) {
	begins := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	k := keys{begins: begins, expires: begins.Add(time.Hour)}
	for at, want := range map[time.Duration]string{
		-1: "the certificate is not valid before 2026-05-04T12:00:00Z; check the clock of this machine", 0: "", time.Hour: "",
		time.Hour + 1: "the certificate expired on 2026-05-04T13:00:00Z; get a new one and reload",
	} {
		if got := k.trouble(begins.Add(at)); got != want {
			t.Errorf("at %v: %q, want %q", at, got, want)
		}
	}
}

// Certificates change under open connections. Files with a fault change nothing.
func TestReadTLS(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	s, config := secured(t, ca, withRoutes(route("GET", "/hello", hello)))
	dir := filepath.Dir(config.TLS.CertFile)
	serial := func() string {
		c, err := tls.Dial("tcp", s.Addr("http"), ca.Client(""))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	first := serial()
	open := client(t, ca.Client(""), false)
	get(t, open, "https://"+s.Addr("http")+"/hello")

	if apply, err := s.ReadTLS(config); apply != nil || err != nil {
		t.Error("files that did not change have an effect:", err)
	}
	cert, key := ca.Issue("server")
	old, oldKey := ca.Expired("server")
	other, _ := ca.Issue("server")
	for what, files := range map[string]map[string][]byte{
		"another key":          {"cert": other},
		"an expired one":       {"cert": old, "key": oldKey},
		"no certificate":       {"cert": []byte("-----BEGIN")},
		"no authority":         {"ca": []byte("none")},
		"half of an authority": {"ca": append(append([]byte{}, ca.PEM...), ca.PEM[:100]...)},
	} {
		good := map[string][]byte{"cert": cert, "key": key, "ca": ca.PEM}
		tlstest.Write(t, dir, good)
		tlstest.Write(t, dir, files)
		if apply, err := s.ReadTLS(config); apply != nil || err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if got := serial(); got != first {
		t.Error("a fault has an effect")
	}
	tlstest.Write(t, dir, map[string][]byte{"cert": cert, "key": key, "ca": ca.PEM})
	apply, err := s.ReadTLS(config)
	if err != nil || apply == nil {
		t.Fatal(err)
	}
	apply()
	if got := serial(); got == first {
		t.Error("the new certificate has no effect")
	}
	if response, _ := get(t, open, "https://"+s.Addr("http")+"/hello"); response.StatusCode != 200 {
		t.Error("an open connection:", response.Status)
	}
	config.TLS = TLSConfig{}
	if _, err := s.ReadTLS(config); err == nil {
		t.Error("TLS can be turned off while the server runs")
	}
}

// A server does not start with files that it cannot use, and says which.
func TestTLSFilesAtStart(t *testing.T) {
	c := DefaultConfig()
	c.HTTPAddr, c.TLS.CertFile, c.TLS.KeyFile = "127.0.0.1:0", "/there/is/no/cert", "/there/is/no/key"
	s := New(Options{Config: c, Log: start(t, nil).log, Registry: prometheus.NewRegistry()})
	if err := s.Listen(); err == nil || !strings.HasPrefix(err.Error(), "server.tls.cert_file: stat /there/is/no/cert: ") {
		t.Error(err)
	}
	for _, bad := range []TLSConfig{
		{CertFile: "a", MinVersion: "1.2"},
		{ClientCAFile: "a", MinVersion: "1.2"},
		{MinVersion: "1.1"},
		{MinVersion: "1.2", Streams: []string{"carbon_udp"}},
	} {
		c.TLS = bad
		if c.Validate() == nil {
			t.Errorf("%+v is valid", bad)
		}
	}
}

// Requests of HTTP/2 that nobody takes the answers of do not add up without end, and leave
// each other connection one request.
func TestCrowdOfHTTP2(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	wait, come := make(chan struct{}), make(chan struct{}, 2*http2Streams)
	s, _ := secured(t, ca, func(o *Options) {
		o.Config.MaxConnections = 8
		withRoutes(route("GET", "/wait", func(http.ResponseWriter, *http.Request) { come <- struct{}{}; <-wait }), route("GET", "/hello", hello))(o)
	})
	greedy, other := client(t, ca.Client(""), true), client(t, ca.Client(""), true)
	url := "https://" + s.Addr("http")
	var all sync.WaitGroup
	for range http2Streams {
		all.Go(func() {
			if response, err := greedy.Get(url + "/wait"); err == nil {
				response.Body.Close()
			}
		})
		<-come
	}
	if response, _ := get(t, other, url+"/hello"); response.StatusCode != 200 || response.ProtoMajor != 2 {
		t.Errorf("the first request of a connection: %d by %s", response.StatusCode, response.Proto)
	}
	all.Go(func() {
		if response, err := other.Get(url + "/wait"); err == nil {
			response.Body.Close()
		}
	})
	<-come
	if response, body := get(t, other, url+"/hello"); response.StatusCode != 503 || body != "" || response.Header.Get("Retry-After") == "" {
		t.Errorf("the second one while there is no room: %d %s", response.StatusCode, body)
	}
	close(wait)
	all.Wait()
	if response, _ := get(t, other, url+"/hello"); response.StatusCode != 200 {
		t.Errorf("with room again: %d", response.StatusCode)
	}
}
