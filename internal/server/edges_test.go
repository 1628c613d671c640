package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"varve/internal/auth"
	"varve/internal/httpapi"
	"varve/internal/server/tlstest"
)

// Files of TLS are checked before a server uses them, and the error says which file and what is
// wrong in it.
func TestFilesOfTLS(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	cert, key := ca.Issue("server")
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	junk := "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	tlstest.Write(t, dir, map[string][]byte{
		"cert": cert, "key": key, "ca": ca.PEM, "two": slices.Concat(ca.PEM, ca.PEM), "keys": slices.Concat(ca.PEM, key),
		"broken": slices.Concat(ca.PEM, []byte(junk)), "text": slices.Concat(ca.PEM, []byte("text")), "empty": nil,
	})
	if err := os.WriteFile(path("large"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path("large"), maxKeyFile+1); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path("full"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path("full"), maxKeyFile); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ cert, key, ca, want string }{
		{"cert", "key", "", ""},
		{"cert", "key", "ca", ""},
		{"cert", "key", "two", ""},
		{"none", "key", "", "server.tls.cert_file: stat "},
		{"cert", "none", "", "server.tls.key_file: stat "},
		{"cert", "key", "none", "server.tls.client_ca_file: stat "},
		{"cert", "key", ".", "client_ca_file: " + dir + " is not a regular file"},
		{"cert", "key", "large", "has 4194305 bytes; want at most 4194304"},
		{"cert", "key", "full", "it contains no PEM certificate"},
		{"cert", "ca", "", "TLS: certificate " + path("cert") + " with key " + path("ca")},
		{"cert", "key", "keys", `it contains a "PRIVATE KEY" block; want certificates only`},
		{"cert", "key", "broken", "certificate 2: "},
		{"cert", "key", "text", "the text after certificate 1 is not a certificate"},
		{"cert", "key", "empty", "it contains no PEM certificate"},
	} {
		c := TLSConfig{CertFile: path(tc.cert), KeyFile: path(tc.key), MinVersion: "1.2"}
		if tc.ca != "" {
			c.ClientCAFile = path(tc.ca)
		}
		err := c.Check()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%+v: %v, want %q", tc, err, tc.want)
		}
	}
	old, oldKey := ca.Expired("server")
	tlstest.Write(t, dir, map[string][]byte{"cert": old, "key": oldKey})
	if err := (TLSConfig{CertFile: path("cert"), KeyFile: path("key")}).Check(); err == nil || !strings.Contains(err.Error(), "expired on") {
		t.Errorf("an expired certificate: %v", err)
	}
}

// The lowest version of TLS is the one that is configured.
func TestLowestVersionOfTLS(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	for version, want := range map[string]bool{"1.2": true, "1.3": false} {
		s, _ := secured(t, ca, func(o *Options) { o.Config.TLS.MinVersion = version })
		config := ca.Client("")
		config.MaxVersion = tls.VersionTLS12
		c, err := tls.Dial("tcp", s.Addr("http"), config)
		if (err == nil) != want {
			t.Errorf("at least %s: a client of 1.2 gets %v", version, err)
		}
		if err == nil {
			c.Close()
		}
	}
}

// Without TLS there is nothing to read again, and it cannot be turned on while the server runs.
func TestReadTLSWithoutTLS(t *testing.T) {
	s := start(t, nil)
	if apply, err := s.ReadTLS(DefaultConfig()); apply != nil || err != nil {
		t.Error(err)
	}
	c := DefaultConfig()
	c.TLS.CertFile, c.TLS.KeyFile = "cert", "key"
	if apply, err := s.ReadTLS(c); apply != nil || err == nil || !strings.Contains(err.Error(), "needs a restart") {
		t.Error(err)
	}
}

// A failingStream is one whose listener fails.
type failingStream struct{ err error }

func (f failingStream) Serve(context.Context, net.Listener) error { return f.err }
func (failingStream) Shutdown(context.Context) error              { return nil }

// A server whose listener fails ends with the reason.
func TestListenerThatFails(t *testing.T) {
	fault := errors.New("too many open files")
	s := start(t, func(o *Options) { o.Streams = map[string]StreamServer{"telnet": failingStream{fault}} })
	addr := s.Addr("telnet")
	select {
	case err := <-s.done:
		if !errors.Is(err, fault) || !strings.HasPrefix(err.Error(), "telnet listener on "+addr+" failed: ") {
			t.Errorf("%v", err)
		}
		s.done <- nil
	case <-time.After(2 * time.Minute):
		t.Fatal("the server goes on")
	}
}

// The list of routes waits for the front ends, and has the profiler's routes too.
func TestRoutesWaitForTheFrontEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mounted := make(chan struct{})
		s := &Server{mounted: mounted, api: &web{router: newTestRouter(prometheus.NewRegistry())}, pprof: &web{router: newTestRouter(prometheus.NewRegistry())}}
		s.pprof.router.mount(profiles()...)
		var got []httpapi.Route
		go func() { got = s.Routes() }()
		synctest.Wait()
		if got != nil {
			t.Error("routes are listed before they are there")
		}
		s.api.router.mount(route("GET", "/hello", hello))
		close(mounted)
		synctest.Wait()
		var paths []string
		for _, r := range got {
			paths = append(paths, r.Path)
		}
		if !slices.Contains(paths, "/hello") || !slices.Contains(paths, "/debug/pprof/profile") {
			t.Errorf("%v", paths)
		}
	})
}

// The path of a request names its tenant, also if a part behind the name is escaped, and without
// authentication.
func TestTenantOfAPath(t *testing.T) {
	var raw string
	s := start(t, func(o *Options) {
		o.Tenants = func(name string) bool { return name == "a" }
		o.Routes = []httpapi.Route{httpapi.On("GET", "/who/{name}", httpapi.Read, func(w http.ResponseWriter, r *http.Request) {
			raw = strings.TrimSuffix(r.URL.EscapedPath()+"?"+r.URL.RawQuery, "?") + " " + r.PathValue("name")
			whoami(w, r)
		})}
	})
	for path, want := range map[string]string{
		"/who/x":          "200 default /who/x x",
		"/t/a/who/x":      "200 a /who/x x",
		"/t/a/who/x?y=z":  "200 a /who/x?y=z x",
		"/t/a/who/x%2Fy":  "200 a /who/x%2Fy x/y",
		"/t/a/who/x%20y":  "200 a /who/x%20y x y",
		"/t/b/who/x":      "404",
		"/t/%61/who/x%2F": "404",
		"/t/a%2Fwho/x":    "404",
		"/t/A/who/x":      "404",
		"/t//who/x":       "404",
	} {
		raw = ""
		r, err := http.NewRequest("GET", "http://"+s.Addr("http")+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		status, body, _ := do(t, r)
		got := fmt.Sprint(status)
		if status == 200 {
			_, rest, _ := strings.Cut(body, "@")
			got += " " + strings.Fields(rest)[0] + " " + raw
		}
		if got != want {
			t.Errorf("%s: %d %s, %q, want %q", path, status, body, got, want)
		}
	}
}

// A datagram is on behalf of the address that it shows, if a rule lets that write.
func TestRightsOfDatagrams(t *testing.T) {
	s := start(t, func(o *Options) {
		o.Keeper = newGate(t, auth.Config{Rules: []string{
			"address=10.0.0.0/8 stream=carbon_udp role=write name=rack", "address=192.0.2.1 stream=carbon_udp role=read", "address=192.0.2.2 stream=carbon_udp role=write tenant=elsewhere",
			"address=192.0.2.3 role=write", "address=fe80::1 stream=carbon_udp role=write",
		}}).Keeper
	})
	admit := s.admitDatagram("carbon_udp")
	for from, want := range map[string]string{
		"10.0.0.1": "rack", "::ffff:10.0.0.1": "rack", "192.0.2.1": "needs the role write", "192.0.2.2": "no tenant elsewhere", "192.0.2.3": "no rule", "fe80::1%eth0": "fe80::1",
	} {
		who, err := admit(netip.MustParseAddr(from))
		if err != nil && !strings.Contains(err.Error(), want) || err == nil && who.Name != want {
			t.Errorf("%s: %+v, %v, want %q", from, who, err, want)
		}
	}
	if start(t, nil).admitDatagram("carbon_udp") != nil {
		t.Error("without authentication somebody is asked for")
	}
}

// A sender that is refused repeatedly has to reconnect each time.
func TestThrottledSendersAreDisconnected(t *testing.T) {
	s := start(t, func(o *Options) {
		o.Keeper = newGate(t, auth.Config{}).Keeper
		o.Routes = []httpapi.Route{httpapi.On("GET", "/read", httpapi.Read, whoami)}
	})
	closed := func() bool {
		w := s.dial()
		defer w.Close()
		w.send("GET /read HTTP/1.1", "Host: x", "Authorization: Bearer x", "", "")
		response, _ := w.answer()
		if response.StatusCode != 401 {
			t.Fatal(response.Status)
		}
		return response.Close
	}
	if closed() {
		t.Error("the first refusal ends the connection")
	}
	for n := 0; !closed(); n++ {
		if n > 1000 {
			t.Fatal("a thousand refusals end no connection")
		}
	}
}

func TestRemoteOf(t *testing.T) {
	for text, want := range map[string]string{"10.0.0.1:7": "10.0.0.1", "[::ffff:10.0.0.1]:7": "10.0.0.1", "[fe80::1%eth0]:7": "fe80::1", "@": "invalid IP", "": "invalid IP"} {
		if got := remoteOf(text); got.String() != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// Addresses are those that net.Listen takes.
func TestAddressesAreValidated(t *testing.T) {
	for addr, want := range map[string]string{
		"tcp://127.0.0.1:8080": `telnet_addr: "tcp://127.0.0.1:8080": want host:port, without tcp://`,
		"127.0.0.1":            `telnet_addr: "127.0.0.1": want host:port, for example`,
		"127.0.0.1:4242":       "", "[::1]:4242": "", ":4242": "", "": "",
	} {
		c := DefaultConfig()
		c.TelnetAddr = addr
		if err := c.Validate(); want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", addr, err, want)
		}
	}
	for _, tc := range []struct{ http, telnet, carbon, udp, want string }{
		{"127.0.0.1:8080", "127.0.0.1:8080", "", "", `telnet_addr: "127.0.0.1:8080": server.http_addr has this port already; two listeners cannot share a port`},
		{":8080", "127.0.0.1:4242", "10.0.0.1:8080", "", `carbon_addr: "10.0.0.1:8080": server.http_addr has this port already; two listeners cannot share a port`},
		{"[::1]:8080", "[::]:8080", "", "", `telnet_addr: "[::]:8080": server.http_addr has this port already; two listeners cannot share a port`},
		{"127.0.0.1:2003", "127.0.0.1:4242", carbonAddr, "", ""}, // the server starts without carbon
		{"127.0.0.1:8080", "10.0.0.1:8080", "", "", ""},
		{"127.0.0.1:0", "127.0.0.1:0", "", "", ""},
		{"127.0.0.1:8080", "", "10.0.0.1:2003", "10.0.0.1:2003", ""}, // TCP and UDP
	} {
		c := DefaultConfig()
		c.HTTPAddr, c.TelnetAddr, c.CarbonAddr, c.CarbonUDPAddr = tc.http, tc.telnet, tc.carbon, tc.udp
		if err := c.Validate(); tc.want == "" && err != nil || tc.want != "" && (err == nil || err.Error() != tc.want) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	c := DefaultConfig()
	c.HTTPAddr = ""
	if c.Validate() == nil {
		t.Error("a server without HTTP is valid")
	}
	unknown := &net.UnixAddr{Name: "x"}
	if onLoopback(unknown) || portOf(unknown) != 0 {
		t.Error("an address of a file is on the network")
	}
	local, other := &net.UDPAddr{IP: net.IPv6loopback, Port: 7}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9}
	if !onLoopback(local) || portOf(local) != 7 || onLoopback(other) || portOf(other) != 9 {
		t.Error("addresses are mistaken for others")
	}
}

// A profile that would take too long is refused, before it begins.
func TestLongProfilesAreRefused(t *testing.T) {
	began := 0
	h := boundSeconds(func(http.ResponseWriter, *http.Request) { began++ })
	for seconds, want := range map[string]int{"": 200, "1": 200, "x": 200, "0": 200, "300": 200, "301": 400, "1e9": 400, "NaN": 400, "Inf": 400} {
		began = 0
		w := httptest.NewRecorder()
		if h(w, httptest.NewRequest("GET", "/?seconds="+seconds, nil)); w.Code != want || (began == 1) != (want == 200) {
			t.Errorf("%q: %d, began %d", seconds, w.Code, began)
		}
	}
}

// deadlines is a connection whose write deadline is asked for.
type deadlines struct {
	*httptest.ResponseRecorder
	set   []time.Time // for writing
	read  time.Time
	fault error
}

func (d *deadlines) SetWriteDeadline(t time.Time) error { d.set = append(d.set, t); return d.fault }
func (d *deadlines) SetReadDeadline(t time.Time) error  { d.read = t; return nil }

// The write deadline of a handler stays, its error is told, and after the handler it is none of
// the next request.
func TestWriteDeadlineOfAnAnswer(t *testing.T) {
	d := &deadlines{ResponseRecorder: httptest.NewRecorder(), fault: errors.New("gone")}
	rw := newResponse(d, httptest.NewRequest("GET", "/", nil), time.Minute, func() bool { return false })
	before := len(d.set)
	own := time.Now().Add(time.Second)
	if err := rw.SetWriteDeadline(own); !errors.Is(err, d.fault) {
		t.Errorf("the error is not told: %v", err)
	}
	if len(d.set) != before+1 || !d.set[before].Equal(own) {
		t.Errorf("deadlines %v", d.set)
	}
	rw.allowed = time.Time{}
	if rw.extend(); len(d.set) != before+1 {
		t.Error("the deadline of the handler does not stay")
	}
	rw.over = true
	if err := rw.SetWriteDeadline(own); err != nil || len(d.set) != before+1 {
		t.Errorf("a handler that has returned sets a deadline: %v", err)
	}
	if rw.Unwrap() != http.ResponseWriter(d) {
		t.Error("the connection is out of reach")
	}
}

// An answer that is only flushed is one without a body, and interim answers are none.
func TestFlushBeginsTheAnswer(t *testing.T) {
	d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	rw := newResponse(d, httptest.NewRequest("GET", "/", nil), time.Minute, func() bool { return false })
	rw.WriteHeader(http.StatusEarlyHints)
	if rw.status != 0 {
		t.Errorf("an interim answer is taken for the answer: %d", rw.status)
	}
	if rw.Flush(); rw.status != 200 || !d.Flushed {
		t.Errorf("status %d, flushed %t", rw.status, d.Flushed)
	}
}

// A page of metrics that cannot be made has the status of that.
func TestMetricsThatCannotBeGathered(t *testing.T) {
	broken := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errors.New("out of order") })
	w := httptest.NewRecorder()
	newScraper(prometheus.NewRegistry(), broken).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != 500 || !strings.Contains(w.Body.String(), "out of order") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A body that has ended, or has failed, says so again.
func TestBodyAfterItsEnd(t *testing.T) {
	d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequest("POST", "/", strings.NewReader("text"))
	rw := newResponse(d, r, time.Minute, func() bool { return false })
	if text, err := io.ReadAll(rw.request.Body); string(text) != "text" || err != nil {
		t.Fatalf("%q, %v", text, err)
	}
	for range 2 {
		if n, err := rw.request.Body.Read(make([]byte, 9)); n != 0 || err != io.EOF {
			t.Errorf("after the end: %d, %v", n, err)
		}
	}
}

// A body is not read any further once its sender has lost its rights, even if more of it has arrived,
// nor once the answer has begun.
func TestBodyIsCut(t *testing.T) {
	for name, cut := range map[string]func(*response){
		"the end of rights": (*response).EndOfRights,
		"an answer":         func(rw *response) { rw.WriteHeader(http.StatusOK) },
	} {
		d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", 4*bodyRestSize)))
		rw := newResponse(d, r, time.Minute, func() bool { return false })
		piece := make([]byte, 100)
		if n, err := rw.request.Body.Read(piece); n != len(piece) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		cut(rw)
		expired := d.read
		n, err := rw.request.Body.Read(piece)
		if name == "the end of rights" && (n != 0 || !errors.Is(err, auth.ErrEnded)) {
			t.Errorf("after %s: %d, %v", name, n, err)
		}
		if d.read != expired {
			t.Errorf("after %s, a read moved the deadline from %v to %v", name, expired, d.read)
		}
	}
}

// Only a connection whose handler waits for a body may have to give way as one whose body is slow.
func TestSlowBodies(t *testing.T) {
	var a arrival
	at := time.Now()
	slow := func(after time.Duration) bool {
		_, slow := a.Slow(at.Add(after))
		return slow
	}
	a.begin()
	if slow(time.Hour) {
		t.Error("slow before the handler waits")
	}
	a.wait(at)
	if slow(arrivalPatience-1) || !slow(arrivalPatience) {
		t.Error("not slow once the patience is used up")
	}
	if !a.got(1, at.Add(time.Hour)) || slow(2*time.Hour) {
		t.Error("slow while the handler works")
	}
	a.wait(at.Add(2 * time.Hour))
	if !slow(2 * time.Hour) {
		t.Error("earlier waits do not count")
	}
	if !a.End() || slow(3*time.Hour) || a.got(1, at.Add(3*time.Hour)) {
		t.Error("a connection that gave way goes on")
	}
	a = arrival{}
	a.wait(at)
	if a.got(arrivalEnough*10, at.Add(5*time.Second)); slow(time.Hour) || a.End() {
		t.Error("a connection whose handler does not wait gives way")
	}
	a.wait(at.Add(5 * time.Second))
	if slow(6 * time.Second) {
		t.Error("slow although much has arrived")
	}
}

// The server starts without carbon's listeners only where nobody has chosen their addresses.
func TestOptionalAddresses(t *testing.T) {
	own := DefaultConfig()
	own.CarbonAddr, own.PickleAddr = "127.0.0.1:3003", "127.0.0.1:3004"
	for _, c := range []struct {
		config Config
		want   []string
	}{{DefaultConfig(), []string{"carbon_addr", "pickle_addr"}}, {own, nil}} {
		var got []string
		for _, a := range c.config.Addresses() {
			if a.Optional {
				got = append(got, a.Key)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("optional are %v, want %v", got, c.want)
		}
	}
}

// Requests of HTTP/1 take no room from those of HTTP/2: a connection has only one at a time.
func TestCrowdOfOldRequests(t *testing.T) {
	c := crowdOf(4)
	ask := func(conn context.Context, major int) bool {
		r := httptest.NewRequest("GET", "/", nil).WithContext(conn)
		r.ProtoMajor = major
		_, ok := c.enter(r) // and stays
		return ok
	}
	for range 10 * http2Streams {
		if !ask(withConn(t.Context(), nil), 1) {
			t.Fatal("a request of HTTP/1 is refused")
		}
	}
	conn := withConn(t.Context(), nil)
	for i := range http2Streams {
		if !ask(conn, 2) {
			t.Fatalf("request %d of HTTP/2 is refused", i+1)
		}
	}
	if ask(conn, 2) || !ask(withConn(t.Context(), nil), 2) {
		t.Error("beyond the limit a connection does not have exactly one request")
	}
}
