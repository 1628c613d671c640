package auth

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/principal"
)

// Invalid settings are refused with their key. A start and a reload accept the same
// settings.
func TestConfigWithFaults(t *testing.T) {
	tooMany := slices.Repeat([]string{"cn=a role=read"}, maxRules+1)
	for _, tc := range []struct {
		change func(*Config)
		want   string
	}{
		{func(*Config) {}, ""},
		{func(c *Config) { c.Rules = []string{"cn=a"} }, `rules: "cn=a": role= is missing`},
		{func(c *Config) { c.Rules = tooMany }, "rules: 1001 are given; want at most 1000"},
		{func(c *Config) { c.Rules = tooMany[1:] }, ""},
		{func(c *Config) { c.Rules = []string{"address=, role=read"} }, "address: want at least one"},
		{func(c *Config) {
			c.Rules = []string{"cn=a role=read name=" + strings.Repeat("a", maxRuleBytes-len("cn=a role=read name="))}
		}, "want at most 100 bytes"},
		{func(c *Config) { c.Rules = []string{"cn=a role=read name=" + strings.Repeat("a", maxRuleBytes)} }, "it has 4116 bytes; want at most 4096"},
		{func(c *Config) { c.Rules = []string{"cn=a role=read", "san=b", "user=c"} }, "\nrules: \"user=c\""},
		{func(c *Config) { c.Rules = []string{"cn=a role=read tenant=*,b"} }, `rules: "cn=a role=read tenant=*,b": tenants: * stands for all; leave out the others`},
		{func(c *Config) { c.Proxies = []string{"10.0.0.0/8", "x"} }, `proxies: address "x": want an address or a range`},
		{func(c *Config) { c.Proxies = []string{"10.0.0.0/8"} }, ""},
		{func(c *Config) { c.ProxyHeader = "" }, "proxy_header: empty"},
		{func(c *Config) { c.ProxyHeader = "X-User:" }, `proxy_header: "X-User:": want the name of a header`},
	} {
		c := DefaultConfig()
		tc.change(&c)
		err := c.Validate()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), `tenant "*"`)) {
			t.Errorf("%.100v: %v, want %q", c, err, tc.want)
		}
		if err == nil || c.ProxyHeader != DefaultConfig().ProxyHeader {
			continue
		}
		h := hold(t, filepath.Join(t.TempDir(), "none"), DefaultConfig())
		if apply, err := h.Read(c); apply != nil || err == nil || !strings.Contains(err.Error(), "auth.") {
			t.Errorf("%.100v: a reload takes it: %v", c, err)
		}
	}
}

func TestTenantsThatAreMissing(t *testing.T) {
	c := DefaultConfig()
	c.Rules = []string{"cn=a role=read tenant=a", "cn=b role=read tenant=a,b", "cn=c role=read tenant=*", "cn=d role=read tenant=c"}
	there := func(name string) bool { return name == "a" }
	errs := c.CheckTenants(there)
	if len(errs) != 2 || !strings.Contains(errs[0].Error(), `"cn=b role=read tenant=a,b": there is no tenant "b"`) || !strings.Contains(errs[1].Error(), `no tenant "c"`) {
		t.Error(errs)
	}
	if got := Missing([]string{"*", "a", "b", "a", "c"}, there); !slices.Equal(got, []string{"b", "c"}) {
		t.Error(got)
	}
}

func TestPathOfTheTokenFile(t *testing.T) {
	if got := (Config{}).Path("data/tokens.json"); got != "data/tokens.json" {
		t.Error(got)
	}
	if got := (Config{TokenFile: "own.json"}).Path("data/tokens.json"); got != "own.json" {
		t.Error(got)
	}
	c := DefaultConfig()
	c.ProxyHeader = "X-User"
	if got := hold(t, filepath.Join(t.TempDir(), "none"), c).ProxyHeader(); got != "X-User" {
		t.Error(got)
	}
}

// Each change of a rule or of the proxies takes effect on a reload.
func TestEachChangeOfARuleCounts(t *testing.T) {
	before := DefaultConfig()
	before.Proxies = []string{"10.0.0.1"}
	before.Rules = []string{"address=10.0.0.0/8 role=read name=n prefix=p tenant=a stream=http"}
	for _, rules := range [][]string{
		{"address=10.1.0.0/16 role=read name=n prefix=p tenant=a stream=http"},
		{"address=10.0.0.0/8 role=write name=n prefix=p tenant=a stream=http"},
		{"address=10.0.0.0/8 role=read name=m prefix=p tenant=a stream=http"},
		{"address=10.0.0.0/8 role=read name=n prefix=q tenant=a stream=http"},
		{"address=10.0.0.0/8 role=read name=n prefix=p tenant=b stream=http"},
		{"address=10.0.0.0/8 role=read name=n prefix=p tenant=a stream=carbon"},
		{"cn=x role=read name=n prefix=p tenant=a stream=http"},
		{"san=x role=read name=n prefix=p tenant=a stream=http"},
		{"user=x role=read name=n prefix=p tenant=a stream=http"},
		{},
		nil,
		{before.Rules[0], before.Rules[0]},
	} {
		h := hold(t, filepath.Join(t.TempDir(), "none"), before)
		after := before
		after.Rules = rules
		if apply, err := h.Read(after); apply == nil || err != nil {
			t.Errorf("%v: nothing has changed, %v", rules, err)
		}
	}
	for _, one := range []string{"cn=", "san=", "user="} {
		c := DefaultConfig()
		c.Rules = []string{one + "a role=read"}
		h := hold(t, filepath.Join(t.TempDir(), "none"), c)
		c.Rules = []string{one + "b role=read"}
		if apply, err := h.Read(c); apply == nil || err != nil {
			t.Errorf("%s: nothing has changed, %v", one, err)
		}
	}
	h := hold(t, filepath.Join(t.TempDir(), "none"), before)
	after := before
	after.Proxies = []string{"10.0.0.2"}
	if apply, err := h.Read(after); apply == nil || err != nil {
		t.Errorf("other proxies: nothing has changed, %v", err)
	}
	if apply, err := h.Read(before); apply != nil || err != nil {
		t.Errorf("the same settings: something has changed, %v", err)
	}
}

// unsure is a connection with a certificate whose authority is no longer trusted.
type unsure struct{ certified }

func (unsure) Trusted() bool { return false }

// If a header was sent several times, none of its values counts. An invalid credential
// is refused even if another one is valid.
func TestWhatIsNotGoodCountsForNothing(t *testing.T) {
	c := DefaultConfig()
	c.Proxies = []string{"10.9.0.1"}
	c.Rules = []string{"user=a role=read", "user=b role=read stream=pprof", "san=spiffe://x/* role=read", "san=*.example.org role=write", "address=10.0.0.0/8 stream=http role=read"}
	h := hold(t, filepath.Join(t.TempDir(), "none"), c)
	proxy, other := netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("192.0.2.1")
	spiffe := &x509.Certificate{Subject: pkix.Name{CommonName: "x"}, URIs: []*url.URL{{Scheme: "spiffe", Host: "x", Path: "/y"}}}
	dns := &x509.Certificate{Subject: pkix.Name{CommonName: "x"}, DNSNames: []string{"other", "a.example.org"}}
	for name, tc := range map[string]struct {
		claim Claim
		want  string
	}{
		"two tokens":                   {Claim{Stream: "http", Authorization: "Bearer x", SeveralAuthorizations: true}, ReasonMalformed},
		"two users of a proxy":         {Claim{Stream: "http", Remote: proxy, User: "a", SeveralUsers: true}, ReasonMalformed},
		"two users, the first empty":   {Claim{Stream: "http", Remote: proxy, SeveralUsers: true}, ReasonMalformed},
		"two users of another address": {Claim{Stream: "http", Remote: other, User: "a", SeveralUsers: true}, ReasonNone},
		"a user":                       {Claim{Stream: "http", Remote: proxy, User: "a"}, ""},
		"a user of another stream":     {Claim{Stream: "http", Remote: proxy, User: "b"}, ReasonNoRule},
		"a proxy itself":               {Claim{Stream: "http", Remote: proxy}, ""},
		"a certificate with a URI":     {Claim{Stream: "http", Remote: other, Connection: certified{spiffe}}, ""},
		"a certificate with a name":    {Claim{Stream: "http", Remote: other, Connection: certified{dns}}, ""},
		"an untrusted certificate":     {Claim{Stream: "http", Remote: netip.MustParseAddr("10.0.0.1"), Connection: unsure{certified{dns}}}, ReasonUntrusted},
		"no certificate":               {Claim{Stream: "http", Remote: netip.MustParseAddr("10.0.0.1"), Connection: unsure{}}, ""},
	} {
		if got := h.reason(tc.claim); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if id, err := h.Identify(Claim{Stream: "http", Remote: netip.MustParseAddr("10.0.0.1")}); err != nil || !id.Ambient || id.By != ByAddress {
		t.Errorf("by address: %+v, %v", id, err)
	}
	if id, err := h.Identify(Claim{Stream: "http", Connection: certified{dns}}); err != nil || id.Ambient || id.By != ByCertificate || id.Name != "a.example.org" {
		t.Errorf("by certificate: %+v, %v", id, err)
	}
	kinds := map[string]Kind{"carbon_udp": Datagrams, "telnet": Lines}
	for stream, want := range map[string]string{"carbon_udp": "datagrams need one with address= and stream=carbon_udp", "telnet": "lines need one with address=, cn= or san=", "http": "this needs a credential"} {
		if _, err := h.Identify(Claim{Stream: stream, Kind: kinds[stream], Remote: other}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", stream, err, want)
		}
	}
}

// A certificate is valid up to and including its last moment.
func TestCertificateExpires(t *testing.T) {
	c := DefaultConfig()
	c.Rules = []string{"cn=x role=read"}
	h := hold(t, filepath.Join(t.TempDir(), "none"), c)
	claim := Claim{Stream: "http", Connection: certified{&x509.Certificate{Subject: pkix.Name{CommonName: "x"}, NotAfter: noon}}}
	for late, want := range map[time.Duration]string{-1: "", 0: "", 1: ReasonExpired} {
		h.now = noon.Add(late)
		if got := h.reason(claim); got != want {
			t.Errorf("%v after: %q, want %q", late, got, want)
		}
	}
}

// A sender without a name is identified by the id of its token.
func TestSenderWithoutAName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	id, shown := create(t, path, Grant{Rights: principal.Read}, time.Time{})
	h := hold(t, path, DefaultConfig())
	who, err := h.Identify(Claim{Authorization: "Bearer " + shown})
	if err != nil || who.Name != id {
		t.Errorf("%+v, %v", who, err)
	}
}

// Refusals are counted by stream and reason, and say whether another credential would
// help.
func TestRefusals(t *testing.T) {
	h := hold(t, filepath.Join(t.TempDir(), "none"), DefaultConfig())
	refusal := h.Refuse(Claim{Stream: "http", Remote: netip.MustParseAddr("10.0.0.1")}, Identity{Principal: principal.Principal{Name: "a"}}, ReasonRight, "this needs the role write")
	if refusal.Error() != "this needs the role write" || refusal.Reason != ReasonRight || refusal.Name != "a" || refusal.Throttled {
		t.Errorf("%+v", refusal)
	}
	if log := h.log.String(); !strings.Contains(log, "sender=a") || !strings.Contains(log, "reason=missing_right") {
		t.Error(log)
	}
	for reason, want := range map[string]bool{
		ReasonNone: false, ReasonMalformed: false, ReasonToken: false, ReasonExpired: false, ReasonUntrusted: false,
		ReasonNoRule: true, ReasonTenant: true, ReasonRight: true, ReasonPrefix: true,
	} {
		if got := (&Refusal{Reason: reason}).Known(); got != want {
			t.Errorf("%s: known %t", reason, got)
		}
	}
	if got := ErrEnded.Error(); !strings.Contains(got, "lost its rights") {
		t.Error(got)
	}
}

// A server with an unreadable token file or unreadable rules does not start.
func TestKeeperDoesNotStart(t *testing.T) {
	dir := t.TempDir()
	registry := prometheus.NewRegistry()
	for name, c := range map[string]Config{"the file": {TokenFile: dir}, "the rules": {Rules: []string{"x"}}} {
		if _, err := NewKeeper(c, Options{TokenFile: filepath.Join(dir, "none"), Registerer: registry, Now: time.Now}); err == nil {
			t.Errorf("%s: no error", name)
		}
		registry = prometheus.NewRegistry()
	}
}
