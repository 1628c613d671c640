package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/audit"
	"varve/internal/auth"
	"varve/internal/httpapi"
	"varve/internal/principal"
	"varve/internal/server/tlstest"
	"varve/internal/stream"
)

// A testKeeper is a Keeper with the tokens of a test, by name.
type testKeeper struct {
	*auth.Keeper
	tokens map[string]string
}

// newGate makes tokens of grants and a Keeper that knows them.
func newGate(t *testing.T, c auth.Config, grants ...auth.Grant) testKeeper {
	t.Helper()
	g := testKeeper{tokens: map[string]string{}}
	path := filepath.Join(t.TempDir(), "tokens.json")
	for _, grant := range grants {
		_, shown, err := auth.Create(path, grant, time.Time{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		g.tokens[grant.Name] = shown
	}
	c.Enabled = true
	if c.ProxyHeader == "" {
		c.ProxyHeader = auth.DefaultConfig().ProxyHeader
	}
	var err error
	g.Keeper, err = auth.NewKeeper(c, auth.Options{TokenFile: path, Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// whoami answers on whose behalf a request is.
func whoami(w http.ResponseWriter, r *http.Request) {
	p := principal.Of(r.Context())
	fmt.Fprintf(w, "%s@%s %s %s", p.Name, p.Tenant, p.Rights, p.Prefix)
	if httpapi.IsReadOnly(r.Context()) {
		io.WriteString(w, " only reads")
	}
}

// Each route is open to those with the right that it states, and closed to all others.
func TestRights(t *testing.T) {
	g := newGate(t, auth.Config{},
		auth.Grant{Name: "reader", Rights: principal.Read},
		auth.Grant{Name: "writer", Rights: principal.Write},
		auth.Grant{Name: "remover", Rights: principal.Delete},
		auth.Grant{Name: "operator", Rights: principal.Admin},
		auth.Grant{Name: "scraper", Rights: principal.Metrics},
		auth.Grant{Name: "limited", Rights: principal.Read, Prefix: "own."},
		auth.Grant{Name: "other", Rights: principal.Admin, Tenants: []string{"a", "b"}},
	)
	s := start(t, func(o *Options) {
		o.Keeper = g.Keeper
		o.Front.Tenants = func(name string) bool { return name != "b" }
		o.Routes = []httpapi.Route{
			httpapi.On("GET", "/public", httpapi.Public, whoami),
			httpapi.On("GET", "/read", httpapi.Read, whoami),
			httpapi.On("GET", "/metric", httpapi.Read, whoami).ByMetric(),
			httpapi.On("POST", "/write", httpapi.Write, whoami),
			httpapi.On("POST", "/delete", httpapi.Delete, whoami),
			httpapi.On("POST", "/admin", httpapi.Admin, whoami),
			httpapi.On("POST", "/server", httpapi.Admin, whoami).OfServer(),
		}
	})
	for _, test := range []struct {
		who, request string
		status       int
		want         string
	}{
		{"", "GET /public", 200, "@default"},
		{"", "GET /read", 401, "varve token create"},
		{"", "GET /nothing", 404, ""},
		{"reader", "GET /read", 200, "reader@default read  only reads"},
		{"reader", "GET /metric", 200, "reader@default read  only reads"},
		{"reader", "POST /write", 403, "needs the role write; reader has read"},
		{"reader", "POST /delete", 403, "needs the role delete"},
		{"reader", "POST /admin", 403, "needs the role admin"},
		{"reader", "GET /internal/metrics", 403, "needs the role metrics"},
		{"writer", "POST /write", 200, "writer@default write "},
		{"writer", "GET /read", 403, "needs the role read"},
		{"remover", "POST /delete", 200, "remover@default delete  only reads"},
		{"remover", "POST /write", 403, "needs the role write"},
		{"operator", "GET /read", 200, "operator@default admin "},
		{"operator", "POST /server", 200, "operator@default admin "},
		{"operator", "GET /internal/metrics", 200, "varve_build_info"},
		{"operator", "GET /t/a/read", 200, "operator@a admin "},
		{"operator", "GET /t/b/read", 404, "there is no tenant b"},
		{"scraper", "GET /internal/metrics", 200, "varve_build_info"},
		{"scraper", "GET /read", 403, "needs the role read"},
		{"limited", "GET /metric", 200, "limited@default read own. only reads"},
		{"limited", "GET /read", 403, "this needs rights for all metrics; "},
		{"other", "GET /read", 200, "other@a admin "},
		{"other", "GET /t/a/read", 200, "other@a admin "},
		{"other", "GET /t/a", 200, "Varve test"},
		{"other", "GET /t/b/read", 404, "there is no tenant b"},
		{"other", "GET /t/default/read", 403, "may not use the tenant default"},
		{"other", "GET /t/nothing_known/read", 403, "may not use the tenant"},
		{"other", "GET /t/A/read", 404, ""},
		{"operator", "GET /t/a%2Fread", 404, ""},
		{"operator", "GET /t/a%2Fapi/read", 404, ""},
		{"other", "GET /t/%61/read", 404, ""},
		{"other", "POST /server", 403, "concerns the server as a whole"},
	} {
		method, path, _ := strings.Cut(test.request, " ")
		r, err := http.NewRequest(method, "http://"+s.Addr("http")+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if test.who != "" {
			r.Header.Set("Authorization", "Bearer "+g.tokens[test.who])
		}
		status, body, header := do(t, r)
		if status != test.status || !strings.Contains(body, test.want) {
			t.Errorf("%s as %q: %d %.300s, want %d %s", test.request, test.who, status, body, test.status, test.want)
		}
		if challenge := strings.Join(header["Www-Authenticate"], ", "); (status == 401) != strings.Contains(challenge, "Basic realm") {
			t.Errorf("%s as %q: %d with WWW-Authenticate %q", test.request, test.who, status, challenge)
		}
	}
}

func do(t *testing.T, r *http.Request) (status int, body string, header http.Header) {
	t.Helper()
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text), response.Header
}

// While the store is being opened, the server's metrics are as closed as later.
func TestRightsAtStart(t *testing.T) {
	s := start(t, func(o *Options) {
		o.Keeper = newGate(t, auth.Config{}).Keeper
		o.Opening = func() string { return "40 %" }
	})
	r, _ := http.NewRequest("GET", "http://"+s.Addr("http")+"/internal/metrics", nil)
	if status, body, _ := do(t, r); status != 401 {
		t.Errorf("%d %.100s", status, body)
	}
}

// KairosDB's Java library loses a connection by each refusal with a body.
func TestRefusalOfKairosJavaClient(t *testing.T) {
	s := start(t, func(o *Options) {
		o.Keeper = newGate(t, auth.Config{}).Keeper
		o.Routes = []httpapi.Route{httpapi.On("GET", "/read", httpapi.Read, whoami)}
	})
	r, _ := http.NewRequest("GET", "http://"+s.Addr("http")+"/read", nil)
	r.Header.Set("User-Agent", "Apache-HttpClient/4.5.2 (Java/1.8)")
	if status, body, _ := do(t, r); status != 401 || body != "" {
		t.Errorf("%d %q", status, body)
	}
}

// A user is who a listed proxy says, and nobody if another sender says so.
func TestProxyHeader(t *testing.T) {
	for proxies, want := range map[string]int{"127.0.0.0/8": 200, "10.0.0.0/8": 401} {
		s := start(t, func(o *Options) {
			o.Keeper = newGate(t, auth.Config{Proxies: []string{proxies}, Rules: []string{"user=a* role=read"}}).Keeper
			o.Routes = []httpapi.Route{httpapi.On("GET", "/read", httpapi.Read, whoami)}
		})
		r, _ := http.NewRequest("GET", "http://"+s.Addr("http")+"/read", nil)
		r.Header.Set("X-Forwarded-User", "alice")
		if status, body, _ := do(t, r); status != want {
			t.Errorf("proxies %s: %d %s, want %d", proxies, status, body, want)
		}
		r.Header.Set("X-Forwarded-User", "bob")
		if status, body, _ := do(t, r); status == 200 {
			t.Errorf("proxies %s: bob gets %s", proxies, body)
		}
	}
}

// Of a header that says who a sender is and that is there twice, the client may have sent one
// and a proxy the other. None of them counts, unless the header is ignored anyway.
func TestRepeatedIdentity(t *testing.T) {
	for _, c := range []struct {
		proxies, header string
		values          []string
		want            int
	}{
		{"127.0.0.0/8", "X-Forwarded-User", []string{"alice"}, 200},
		{"127.0.0.0/8", "X-Forwarded-User", []string{"alice", "bob"}, 401},
		{"127.0.0.0/8", "X-Forwarded-User", []string{"", "alice"}, 401},
		{"10.0.0.0/8", "X-Forwarded-User", []string{"alice", "bob"}, 200},
		{"10.0.0.0/8", "Authorization", []string{"Bearer x"}, 401},
		{"10.0.0.0/8", "Authorization", []string{"", "Bearer x"}, 401},
	} {
		s := start(t, func(o *Options) {
			rules := []string{"user=alice role=read"}
			if c.proxies == "10.0.0.0/8" { // a sender that is known by something else
				rules = append(rules, "address=127.0.0.0/8 stream=http role=read")
			}
			o.Keeper = newGate(t, auth.Config{Proxies: []string{c.proxies}, Rules: rules}).Keeper
			o.Routes = []httpapi.Route{httpapi.On("GET", "/read", httpapi.Read, whoami)}
		})
		r, _ := http.NewRequest("GET", "http://"+s.Addr("http")+"/read", nil)
		r.Header[c.header] = c.values
		if status, body, _ := do(t, r); status != c.want {
			t.Errorf("%+v: %d %s", c, status, body)
		}
	}
}

// Where an address alone gives rights, a page that reached it by DNS rebinding has none,
// also where Host is not looked at otherwise.
func TestAddressOverHTTP(t *testing.T) {
	s := start(t, func(o *Options) {
		o.Config.HTTPAddr = "0.0.0.0:0"
		o.Keeper = newGate(t, auth.Config{Rules: []string{"address=127.0.0.1 stream=http role=read"}}).Keeper
		o.Routes = []httpapi.Route{httpapi.On("GET", "/read", httpapi.Read, whoami)}
	})
	_, port, _ := net.SplitHostPort(s.Addr("http"))
	for host, want := range map[string]int{"127.0.0.1": 200, "localhost": 200, "evil.example.org": 403} {
		r, _ := http.NewRequest("GET", "http://127.0.0.1:"+port+"/read", nil)
		r.Host = host
		if status, body, _ := do(t, r); status != want {
			t.Errorf("Host %s: %d %s, want %d", host, status, body, want)
		}
	}
}

// A whoamiLine answers each line on whose behalf it is.
type whoamiLine struct{}

func (whoamiLine) ServeConn(ctx context.Context, c *stream.Conn) {
	buf := make([]byte, 100)
	for {
		if _, err := c.Read(buf); err != nil {
			return
		}
		p := principal.Of(ctx)
		fmt.Fprintf(c, "%s@%s %s\n", p.Name, p.Tenant, p.Prefix)
	}
}

// Lines are taken from addresses and certificates that a rule lets write, and from no
// others.
func TestRightsOfLines(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	for _, test := range []struct{ rules, shows, want string }{
		{"address=127.0.0.0/8 role=write prefix=servers. name=rack1", "", "rack1@default servers.\n"},
		{"address=10.0.0.0/8 role=write", "", ""},
		{"address=127.0.0.1 role=read", "", ""},
		{"address=127.0.0.1 role=write tenant=elsewhere", "", ""},
		{"cn=collector-* role=write", "collector-7", "collector-7@default \n"},
		{"cn=collector-* role=write", "visitor", ""},
		{"cn=collector-* role=write", "", ""},
	} {
		s, _ := secured(t, ca, func(o *Options) {
			o.Keeper = newGate(t, auth.Config{Rules: []string{test.rules}}).Keeper
			o.Streams = map[string]StreamServer{"telnet": stream.NewServer(stream.Options{Name: "telnet", Limit: 10, Refuse: true}, whoamiLine{}, nil)}
		})
		c, err := tls.Dial("tcp", s.Addr("telnet"), ca.Client(test.shows))
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(2 * time.Minute))
		io.WriteString(c, "hello\n")
		got := make([]byte, 100)
		n, _ := c.Read(got)
		if string(got[:n]) != test.want {
			t.Errorf("%q as %q: %q, want %q", test.rules, test.shows, got[:n], test.want)
		}
		c.Close()
	}
}

// BenchmarkToken measures what a token adds to a request, and that asking nobody adds nothing.
func BenchmarkToken(b *testing.B) {
	path := filepath.Join(b.TempDir(), "tokens.json")
	_, shown, err := auth.Create(path, auth.Grant{Name: "reader", Rights: principal.Read}, time.Time{}, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	keeper, err := auth.NewKeeper(auth.DefaultConfig(), auth.Options{TokenFile: path, Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler), Now: time.Now})
	if err != nil {
		b.Fatal(err)
	}
	for name, keeper := range map[string]*auth.Keeper{"off": nil, "token": keeper} {
		b.Run(name, func(b *testing.B) {
			rt := &router{stream: "http", keeper: keeper, audit: new(atomic.Pointer[audit.Log])}
			h := rt.guarded(httpapi.On("GET", "/", httpapi.Read, func(http.ResponseWriter, *http.Request) {}))
			r, _ := http.NewRequestWithContext(principal.With(b.Context(), principal.Everyone), "GET", "http://127.0.0.1/", nil)
			r.RemoteAddr = "127.0.0.1:1234"
			r.Header.Set("Authorization", "Bearer "+shown)
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(nil, r)
			}
		})
	}
}

// BenchmarkNoTenants measures what a request pays for tenants and rights on a server that has
// neither: the whole way from the router to a handler, and the handler alone.
func BenchmarkNoTenants(b *testing.B) {
	ctx := httpapi.WithStopping(principal.With(b.Context(), principal.Everyone), make(chan struct{}))
	ctx = context.WithValue(context.WithValue(ctx, http.ServerContextKey, &http.Server{}), http.LocalAddrContextKey, &net.TCPAddr{})
	ctx, cancel := context.WithCancel(withConn(ctx, nil)) // as net/http does
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, "POST", "http://127.0.0.1/api/v1/datapoints", nil)
	handler := func(http.ResponseWriter, *http.Request) {}
	rt := &router{stream: "http", audit: new(atomic.Pointer[audit.Log]), tenants: func(name string) bool { return false }}
	for name, h := range map[string]http.Handler{
		"alone": http.HandlerFunc(handler),
		"none":  rt.guarded(httpapi.On("POST", "/api/v1/datapoints", httpapi.Write, handler)),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				one := r
				if name == "none" {
					one, _ = withTenant(r)
				}
				h.ServeHTTP(nil, one)
			}
		})
	}
}

// A lines handler sends each line of a log.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// Each refusal is in the log with the request and the reason, whether the keeper, the rules
// for browsers or a handler refuses.
func TestRefusalsAreLogged(t *testing.T) {
	log := make(lines, 100)
	logger := slog.New(slog.NewTextHandler(log, nil))
	path := filepath.Join(t.TempDir(), "tokens.json")
	_, token, err := auth.Create(path, auth.Grant{Name: "ro", Rights: principal.Read}, time.Time{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	keeper, err := auth.NewKeeper(auth.Config{Enabled: true, ProxyHeader: "X-Forwarded-User"},
		auth.Options{TokenFile: path, Registerer: prometheus.NewRegistry(), Logger: logger, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, func(o *Options) {
		o.Keeper, o.Log = keeper, logger
		o.Routes = []httpapi.Route{
			httpapi.On("POST", "/write", httpapi.Write, whoami),
			httpapi.On("GET", "/read", httpapi.Read, whoami),
			httpapi.On("GET", "/part", httpapi.Read, func(w http.ResponseWriter, _ *http.Request) {
				httpapi.WriteErrors(w, http.StatusForbidden, "not this metric")
			}),
		}
	})
	for _, c := range []struct {
		method, path, origin string
		token                bool
		status               int
		want                 []string
	}{
		{"GET", "/read", "", false, 401, []string{`"auth: refused"`, "reason=no_credential", "method=GET path=/read"}},
		{"POST", "/write", "", true, 403, []string{`"auth: refused"`, "reason=missing_right", "sender=ro", "method=POST path=/write"}},
		{"GET", "/part", "", true, 403, []string{`"request forbidden"`, "method=GET path=/part", "sender=ro", "not this metric"}},
		{"GET", "/read", "http://evil.example", true, 403, []string{`"request forbidden"`, "method=GET path=/read", "web pages of another origin"}},
	} {
		for len(log) > 0 {
			<-log
		}
		r, _ := http.NewRequest(c.method, "http://"+s.Addr("http")+c.path, nil)
		if c.token {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if status, body, _ := do(t, r); status != c.status {
			t.Fatalf("%s %s: %d %s", c.method, c.path, status, body)
		}
		select {
		case line := <-log:
			for _, want := range c.want {
				if !strings.Contains(line, want) {
					t.Errorf("%s %s: log has %s, not %s", c.method, c.path, line, want)
				}
			}
		case <-time.After(2 * time.Minute):
			t.Errorf("%s %s: nothing in the log", c.method, c.path)
		}
	}
	if len(log) > 0 {
		t.Errorf("a further line: %s", <-log)
	}
}
