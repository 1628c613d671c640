package auth

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/principal"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// A held is a Keeper under test with its token file, clock and log.
type held struct {
	*Keeper
	path string
	now  time.Time
	log  *logText
}

// A logText keeps a log that a test reads while Run writes it. The lock is for the race
// detector, which sees no order between a Sleep of the test and one of Run, not even in
// a bubble.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func hold(t testing.TB, path string, c Config) *held {
	t.Helper()
	h := &held{path: path, now: noon, log: &logText{}}
	var err error
	h.Keeper, err = NewKeeper(c, Options{TokenFile: path, Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.NewTextHandler(h.log, nil)), Now: func() time.Time { return h.now }})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func create(t testing.TB, path string, g Grant, expires time.Time) (id, shown string) {
	t.Helper()
	id, shown, err := Create(path, g, expires, noon)
	if err != nil {
		t.Fatal(err)
	}
	return id, shown
}

// reason returns why a claim is refused, "" if it is not.
func (h *held) reason(c Claim) string {
	_, err := h.Identify(c)
	if err == nil {
		return ""
	}
	return err.(*Refusal).Reason
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// A text that is not a token has no ID.
func TestIDOf(t *testing.T) {
	for shown, want := range map[string]string{
		"varve_0123456789ab_" + strings.Repeat("x", 20): "0123456789ab",
		"varve_0123456789ab":                            "", // no secret
		"varve_0123456789_x":                            "", // a short ID
		"varve_0123456789a":                             "",
		"0123456789ab_secret":                           "",
	} {
		if id, ok := IDOf(shown); ok != (want != "") || ok && id != want {
			t.Errorf("%s: %q %t, want %q", shown, id, ok, want)
		}
	}
}

// A rule for a stream that is not there is shown with the streams that are.
func TestCheckStreams(t *testing.T) {
	c := DefaultConfig()
	c.Rules = []string{"address=10.0.0.0/8 role=read stream=http", "address=10.0.0.0/8 role=read stream=htp"}
	errs := c.CheckStreams([]string{"http", "telnet"})
	if len(errs) != 1 || errs[0].Error() != `rules: "address=10.0.0.0/8 role=read stream=htp": stream "htp": want some of http, telnet` {
		t.Errorf("%v", errs)
	}
}

// A token can be shown in several ways; anything but the exact token is refused.
func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	id, shown := create(t, path, Grant{Name: "grafana", Rights: principal.Read}, time.Time{})
	_, ended := create(t, path, Grant{Name: "ended", Rights: principal.Read}, noon)
	h := hold(t, path, DefaultConfig())
	for header, want := range map[string]string{
		"Bearer " + shown:                         "",
		"bearer " + shown:                         "",
		"Token " + shown:                          "",
		basic("grafana", shown):                   "",
		basic(shown, ""):                          "",
		basic(shown, "x"):                         "",
		"":                                        ReasonNone,
		"Bearer":                                  ReasonMalformed,
		"Bearer ":                                 ReasonMalformed,
		"Digest " + shown:                         ReasonMalformed,
		"Basic !!!":                               ReasonMalformed,
		basic("grafana", shown+"x") + "!":         ReasonMalformed,
		basic("grafana", shown) + "!":             ReasonMalformed,
		"Bearer " + strings.Repeat("x", 2000):     ReasonMalformed,
		"Bearer " + shown[:len(shown)-1]:          ReasonToken,
		"Bearer " + shown + "x":                   ReasonToken,
		"Bearer " + strings.ToUpper(shown):        ReasonToken,
		"Bearer varve_" + id + "_":                ReasonToken,
		"Bearer varve_000000000000_" + shown[19:]: ReasonToken,
		basic("grafana", "grafana"):               ReasonToken,
		"Bearer " + ended:                         ReasonExpired,
	} {
		if got := h.reason(Claim{Stream: "http", Authorization: header}); got != want {
			t.Errorf("%.40q: %q, want %q", header, got, want)
		}
	}
	who, err := h.Identify(Claim{Authorization: "Bearer " + shown})
	if err != nil || who.Name != "grafana" || who.Tenant != principal.Default || who.Rights != principal.Read || who.Whole || who.By != ByToken {
		t.Errorf("%+v %v", who, err)
	}
	text, err := os.ReadFile(path)
	if err != nil || bytes.Contains(text, []byte(shown[19:])) || !bytes.Contains(text, []byte(id)) {
		t.Errorf("the file has the secret, or not the id: %s %v", text, err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("others may read the file: %v", info.Mode())
	}
	if strings.Contains(h.log.String(), shown[19:40]) {
		t.Error("the log has a secret")
	}
}

// A file that replaces another one is read, even if its size and time are the same.
func TestTokenFileInPlaceOfAnother(t *testing.T) {
	dir := t.TempDir()
	path, next := filepath.Join(dir, "tokens.json"), filepath.Join(dir, "next")
	_, first := create(t, path, Grant{Name: "first", Rights: principal.Read}, time.Time{})
	_, other := create(t, next, Grant{Name: "other", Rights: principal.Read}, time.Time{})
	for _, file := range []string{path, next} {
		if err := os.Chtimes(file, noon, noon); err != nil {
			t.Fatal(err)
		}
	}
	h := hold(t, path, DefaultConfig())
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
	h.refresh(stateOf(path))
	if h.reason(Claim{Authorization: "Bearer " + other}) != "" || h.reason(Claim{Authorization: "Bearer " + first}) != ReasonToken {
		t.Error("the new file is not in force")
	}
}

// Changes by the command take effect in a running server. If the file is damaged or
// missing, the server keeps its tokens.
func TestTokenFileChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	_, first := create(t, path, Grant{Name: "first", Rights: principal.Read}, time.Time{})
	h := hold(t, path, DefaultConfig())
	_, second := create(t, path, Grant{Name: "second", Rights: principal.Write}, time.Time{})
	if got := h.reason(Claim{Authorization: "Bearer " + second}); got != ReasonToken {
		t.Errorf("before it is read: %q", got)
	}
	read := func() error {
		old := h.tokens.Load()
		next, err := h.readTokens(old)
		h.take(old, next)
		return err
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	if got := h.reason(Claim{Authorization: "Bearer " + second}); got != "" {
		t.Errorf("after that: %q", got)
	}
	if _, err := Revoke(path, "first"); err != nil {
		t.Fatal(err)
	}
	if _, err := Revoke(path, "first"); err == nil {
		t.Error("a token is revoked twice")
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	if got := h.reason(Claim{Authorization: "Bearer " + first}); got != ReasonToken {
		t.Errorf("a revoked token: %q", got)
	}
	if log := h.log.String(); !strings.Contains(log, " second") || !strings.Contains(log, "revoked=1") {
		t.Error(log)
	}
	if err := os.WriteFile(path, []byte(`{"version":1,"tokens":[{"id":"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if read() == nil {
		t.Error("half a file is read")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if read() == nil {
		t.Error("a missing file is no error")
	}
	if got := h.reason(Claim{Authorization: "Bearer " + second}); got != "" {
		t.Errorf("after a fault: %q", got)
	}
	if _, _, err := Create(path, Grant{Name: "x", Rights: principal.Read | principal.Admin, Prefix: "p"}, time.Time{}, noon); err == nil {
		t.Error("an operator is limited to a prefix")
	}
	if _, _, err := Create(path, Grant{Name: "x"}, time.Time{}, noon); err == nil {
		t.Error("a token without a role")
	}
}

// A reload that has read the file before a token was revoked does not put that token in force
// again after another look has seen the change.
func TestReloadWithAnEarlierTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	h := hold(t, path, DefaultConfig())
	_, token := create(t, path, Grant{Name: "first", Rights: principal.Read}, time.Time{})
	apply, err := h.Read(DefaultConfig())
	if err != nil || apply == nil {
		t.Fatal(err)
	}
	if _, err := Revoke(path, "first"); err != nil {
		t.Fatal(err)
	}
	h.refresh(stateOf(path))
	apply()
	if got := h.reason(Claim{Authorization: "Bearer " + token}); got != ReasonToken {
		t.Errorf("a revoked token: %q", got)
	}
}

// Concurrent commands change the file one after the other, or report that they did not.
func TestTokensMadeAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	var made sync.Map
	var all sync.WaitGroup
	for _, name := range strings.Fields("a b c d e f") {
		all.Go(func() {
			if _, _, err := Create(path, Grant{Name: name, Rights: principal.Read}, time.Time{}, noon); err == nil {
				made.Store(name, true)
			}
		})
	}
	all.Wait()
	tokens, err := List(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range tokens {
		if _, ok := made.LoadAndDelete(k.Grant.Name); !ok {
			t.Errorf("token %s is there but was not made", k.Grant.Name)
		}
	}
	made.Range(func(name, _ any) bool { t.Errorf("token %s is lost", name); return true })
}

// The time of a token's last use survives a restart, and is listed.
func TestLastUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	_, shown := create(t, path, Grant{Name: "grafana", Rights: principal.Read}, time.Time{})
	h := hold(t, path, DefaultConfig())
	if got := h.reason(Claim{Authorization: "Bearer " + shown}); got != "" {
		t.Fatal(got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.Run(ctx)
	tokens, err := List(path)
	if err != nil || len(tokens) != 1 || !tokens[0].Used.Equal(noon) {
		t.Errorf("%+v %v", tokens, err)
	}
	if got := hold(t, path, DefaultConfig()).uses(); len(got) != 1 {
		t.Errorf("after a restart: %v", got)
	}
}

// The first matching rule grants the rights of a sender without a token.
func TestRules(t *testing.T) {
	c := DefaultConfig()
	c.Proxies = []string{"10.9.0.1"}
	c.Rules = []string{
		"address=10.0.0.5 role=read+write tenant=b,a name=first",
		"address=10.0.0.0/8,2001:db8::/32 stream=carbon role=write prefix=servers.",
		"address=::ffff:172.16.0.0/108,::ffff:192.0.2.7 role=write name=mapped",
		"cn=collector-*.example.org role=write",
		"san=*@example.org role=read tenant=*",
		"user=ali*e role=admin",
		"address=198.51.100.0/24 stream=carbon_udp role=write",
	}
	if !c.TakesDatagrams("carbon_udp") || c.TakesDatagrams("other_udp") || DefaultConfig().TakesDatagrams("carbon_udp") {
		t.Error("a rule for datagrams is not seen, or without one")
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	h := hold(t, filepath.Join(t.TempDir(), "none"), c)
	shown := func(cn string, mail ...string) Connection {
		return certified{&x509.Certificate{Subject: pkix.Name{CommonName: cn}, EmailAddresses: mail}}
	}
	for _, test := range []struct {
		claim Claim
		want  string // NAME@TENANT ROLES PREFIX, or why not
	}{
		{Claim{Stream: "telnet", Kind: Lines, Remote: netip.MustParseAddr("10.0.0.5")}, "first@b read,write "},
		{Claim{Stream: "telnet", Kind: Lines, Remote: netip.MustParseAddr("10.0.0.5"), Tenant: "a"}, "first@a read,write "},
		{Claim{Stream: "telnet", Kind: Lines, Remote: netip.MustParseAddr("10.0.0.5"), Tenant: "c"}, ReasonTenant},
		{Claim{Stream: "http", Remote: netip.MustParseAddr("10.0.0.5")}, ReasonNone},
		{Claim{Stream: "carbon", Kind: Lines, Remote: netip.MustParseAddr("10.0.0.6")}, "10.0.0.6@default write servers."},
		{Claim{Stream: "carbon", Kind: Lines, Remote: netip.MustParseAddr("2001:db8::1")}, "2001:db8::1@default write servers."},
		{Claim{Stream: "telnet", Kind: Lines, Remote: netip.MustParseAddr("10.0.0.6")}, ReasonNone},
		{Claim{Stream: "telnet", Kind: Lines}, ReasonNone},
		{Claim{Stream: "telnet", Kind: Lines, Remote: netip.MustParseAddr("172.31.0.1")}, "mapped@default write "},
		{Claim{Stream: "telnet", Kind: Lines, Remote: netip.MustParseAddr("172.32.0.1")}, ReasonNone},
		{Claim{Stream: "pickle", Kind: Lines, Remote: netip.MustParseAddr("192.0.2.7")}, "mapped@default write "},
		{Claim{Stream: "carbon_udp", Kind: Datagrams, Remote: netip.MustParseAddr("192.0.2.7")}, ReasonNone},
		{Claim{Stream: "carbon_udp", Kind: Datagrams, Remote: netip.MustParseAddr("198.51.100.1")}, "198.51.100.1@default write "},
		{Claim{Stream: "http", Connection: shown("collector-7.example.org")}, "collector-7.example.org@default write "},
		{Claim{Stream: "http", Connection: shown("collector-7.example.org.evil")}, ReasonNoRule},
		{Claim{Stream: "http", Connection: shown("")}, ReasonNoRule},
		{Claim{Stream: "http", Connection: shown("", "al@example.org"), Tenant: "c"}, "al@example.org@c read "},
		{Claim{Stream: "http", Connection: shown("collector-7.example.org"), Authorization: "Bearer x"}, ReasonToken},
		{Claim{Stream: "http", Remote: netip.MustParseAddr("10.9.0.1"), User: "alice"}, "alice@default admin "},
		{Claim{Stream: "http", Remote: netip.MustParseAddr("10.9.0.1"), User: "alic"}, ReasonNoRule},
		{Claim{Stream: "http", Remote: netip.MustParseAddr("10.9.0.2"), User: "alice"}, ReasonNone},
	} {
		id, err := h.Identify(test.claim)
		got := id.Name + "@" + id.Tenant + " " + id.Rights.String() + " " + id.Prefix
		if refusal := (*Refusal)(nil); errors.As(err, &refusal) {
			got = refusal.Reason
		}
		if got != test.want {
			t.Errorf("%+v: %q, want %q", test.claim, got, test.want)
		}
	}
	changed := c
	changed.Rules = []string{"address=10.0.0.0/8 role=read"}
	apply, err := h.Read(changed)
	if err != nil || apply == nil {
		t.Fatal(err)
	}
	apply()
	if got := h.reason(Claim{Stream: "telnet", Kind: Lines, Remote: netip.MustParseAddr("10.1.1.1")}); got != "" {
		t.Error("after a reload:", got)
	}
	if apply, err := h.Read(changed); apply != nil || err != nil {
		t.Error("rules that did not change have an effect:", err)
	}
}

// An invalid rule is reported.
func TestRulesWithFaults(t *testing.T) {
	for text, want := range map[string]string{
		"":                                        "want one of cn=",
		"role=read":                               "want one of cn=",
		"cn=a address=10.0.0.1 role=read":         "want one of cn=",
		"cn=a":                                    "role= is missing",
		"cn=a role=reader":                        `role "reader"`,
		"cn=a role=read role=write":               "role is given twice",
		"cn=a role=read tennant=b":                `unknown key "tennant"`,
		"cn= role=read":                           "want KEY=VALUE",
		"cn=a role=read tenant=B":                 `tenant "B"`,
		"cn=a role=read tenant=*,b":               "stands for all",
		"cn=a role=admin prefix=x":                "cannot be limited",
		"address=10.0.0.1/8 role=read":            "did you mean 10.0.0.0/8?",
		"address=::ffff:10.0.0.1/104 role=read":   "did you mean 10.0.0.0/8?",
		"address=::ffff:0.0.0.0/95 role=read":     "more than IPv4 addresses",
		"address=example.org role=read":           "want an address or a range",
		"cn=" + strings.Repeat("a", maxRuleBytes): "want at most",
	} {
		if _, err := parseRules([]string{text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

// Refusals of one address are logged until there are too many. This affects neither
// other addresses nor senders with a valid credential.
func TestThrottling(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	_, shown := create(t, path, Grant{Name: "grafana", Rights: principal.Read}, time.Time{})
	h := hold(t, path, DefaultConfig())
	bad, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	throttled := func(a netip.Addr) bool {
		_, err := h.Identify(Claim{Remote: a, Authorization: "Bearer x"})
		return err.(*Refusal).Throttled
	}
	for i := range failuresPerMinute {
		if throttled(bad) {
			t.Fatalf("refusal %d is throttled", i)
		}
	}
	if !throttled(bad) || throttled(other) {
		t.Error("throttling is not by address")
	}
	if got := h.reason(Claim{Remote: bad, Authorization: "Bearer " + shown}); got != "" {
		t.Error("a good token is refused:", got)
	}
	if got := strings.Count(h.log.String(), "auth: refused"); got != failuresPerMinute+1 {
		t.Errorf("%d lines in the log", got)
	}
	h.now = h.now.Add(time.Minute)
	if throttled(bad) {
		t.Error("it does not end")
	}
	six := netip.MustParseAddr("2001:db8::")
	for range failuresPerMinute {
		six = six.Next()
		throttled(six)
	}
	if !throttled(six) {
		t.Error("a sender with many addresses is not throttled")
	}
	for i := range 2 * maxFailing {
		throttled(netip.AddrFrom4([4]byte{1, 1, byte(i >> 8), byte(i)}))
	}
	if n := len(h.failures.count); n > maxFailing+1 {
		t.Errorf("%d addresses are kept", n)
	}
}

func TestMatches(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"a*", "ab", true}, {"*", "a", true}, {"*", "", false},
		{"a*c", "abc", true}, {"a*c", "ac", true}, {"a*a", "a", false}, {"*b*", "abc", true}, {"a*b*c", "axbxc", true},
		{"a*b*c", "acb", false}, {"**", "x", true}, {"*.example.org", "example.org", false}, {"a*b*b", "axb", false},
	} {
		if got := matches(test.pattern, test.name); got != test.want {
			t.Errorf("%s, %s: %t", test.pattern, test.name, got)
		}
	}
}

// FuzzAuthorization shows headers without the token: none is accepted.
func FuzzAuthorization(f *testing.F) {
	path := filepath.Join(f.TempDir(), "tokens.json")
	_, shown := create(f, path, Grant{Name: "a", Rights: principal.Read}, time.Time{})
	h := hold(f, path, DefaultConfig())
	h.log = &logText{}
	h.Keeper.log = slog.New(slog.DiscardHandler)
	for _, seed := range []string{"Bearer " + shown, basic("a", shown), basic(shown, "x"), "Bearer varve_", "Basic", "Basic Og==", " ", "Bearer  " + shown[:30]} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		_, err := h.Identify(Claim{Authorization: header})
		if got, ok := shownIn(header); err == nil && (!ok || got != shown) {
			t.Errorf("%q gets in", header)
		}
		if refusal := (*Refusal)(nil); err != nil && (!errors.As(err, &refusal) || strings.Contains(refusal.Text, shown)) {
			t.Errorf("%q: %v", header, err)
		}
	})
}

// FuzzTokenFile parses files; a valid file is unchanged after formatting and parsing
// again.
func FuzzTokenFile(f *testing.F) {
	path := filepath.Join(f.TempDir(), "tokens.json")
	create(f, path, Grant{Name: "a", Rights: principal.Read, Prefix: "p"}, noon)
	text, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"version":1,"tokens":[]}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		tokens, err := parseTokens(text)
		if err != nil {
			return
		}
		again, err := parseTokens(formatTokens(tokens))
		if err != nil || !slices.EqualFunc(tokens, again, func(a, b Token) bool { return a.ID == b.ID && a.hash == b.hash && reflect.DeepEqual(a.Grant, b.Grant) }) {
			t.Errorf("%s becomes %+v, %v", text, again, err)
		}
	})
}

// FuzzRule parses rules; a valid rule has a selector and grants something.
func FuzzRule(f *testing.F) {
	for _, seed := range []string{"cn=a role=read", "address=10.0.0.0/8,::1 stream=carbon role=write+read tenant=a prefix=b", "user=* role=admin", "san=x role=metrics name=y"} {
		f.Add(seed, "name")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		r, err := parseRule(text)
		if err != nil {
			return
		}
		if r.grant.Rights == 0 || len(r.grant.Tenants) == 0 || r.cn == "" && r.san == "" && r.user == "" && len(r.networks) == 0 {
			t.Errorf("%q is %+v", text, r)
		}
		r.ofCertificate(&x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}})
	})
}

// A token file that is not a regular file is refused, since reading it might never end.
func TestTokenFileIsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	if err := os.Symlink(os.DevNull, path); err != nil {
		t.Fatal(err)
	}
	if _, err := List(path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
}
