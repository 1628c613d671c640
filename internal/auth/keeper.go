package auth

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/collectors"
	"varve/internal/principal"
)

// A Claim is what a sender shows.
type Claim struct {
	Stream        string
	Kind          Kind
	Remote        netip.Addr
	Connection    Connection // nil: without a certificate
	Authorization string     // the header
	User          string     // the header that proxies set; ignored unless Remote is a proxy
	Tenant        string     // that the sender asks for; "" leaves it open
	Method, Path  string     // of the request, for the log; empty on a connection of lines

	// The header was sent several times, and Authorization or User is its first value.
	// A client may have sent one value and a proxy another, so none of them counts.
	SeveralAuthorizations, SeveralUsers bool
}

// A Connection has the certificate that its client has shown.
type Connection interface {
	// Certificate returns the certificate, nil if there is none. It was verified when
	// the client showed it.
	Certificate() *x509.Certificate

	// Trusted reports whether a currently configured authority vouches for Certificate.
	Trusted() bool
}

// An Identity is who a sender is.
type Identity struct {
	principal.Principal
	Whole bool // has its rights on the server as a whole, not on some tenants
	By    string

	// Ambient is set if the sender has shown nothing: every program at its address has
	// these rights, including web pages in a browser.
	Ambient bool

	until   time.Time // end of its validity; zero: without an end
	version uint64    // of the tokens and rules that it is derived from
}

// Ways in which a sender is identified.
const (
	ByToken       = "token"
	ByProxy       = "proxy"
	ByCertificate = "certificate"
	ByAddress     = "address"
)

// A Keeper holds tokens and rules. All methods may be called by many goroutines at
// once.
type Keeper struct {
	path        string
	proxyHeader string
	now         func() time.Time
	log         *slog.Logger
	tokens      atomic.Pointer[tokenSet]
	rules       atomic.Pointer[ruleSet]
	failures    failures
	holds       holds
	written     map[string]time.Time   // uses as in the file; used by Run only
	refused     *prometheus.CounterVec // stream, reason
	ended       *prometheus.CounterVec // stream
}

// A tokenSet is the content of a token file.
type tokenSet struct {
	byID  map[string]*heldToken
	state fileState
}

// A heldToken is a token with its last use, in seconds since 1970.
type heldToken struct {
	Token
	used atomic.Int64
}

type ruleSet struct {
	rules   []rule
	proxies []netip.Prefix
}

// A fileState detects whether a file has changed. Its info is nil if the file does not
// exist.
type fileState struct{ info os.FileInfo }

func stateOf(path string) fileState {
	info, _ := os.Stat(path) // nil after an error
	return fileState{info}
}

func (s fileState) there() bool { return s.info != nil }

// same reports whether a file is unchanged. A new file in its place may have the same
// size, and the same time if the clock of the file system is coarse, so the files'
// identities are compared too.
func (s fileState) same(before fileState) bool {
	if s.info == nil || before.info == nil {
		return s.info == before.info
	}
	return os.SameFile(s.info, before.info) && s.info.Size() == before.info.Size() && s.info.ModTime().Equal(before.info.ModTime())
}

// Options are what a Keeper needs besides its settings.
type Options struct {
	TokenFile  string // used if Config names none
	Registerer prometheus.Registerer
	Logger     *slog.Logger
	Now        func() time.Time
}

// NewKeeper reads the token file. c must be valid.
func NewKeeper(c Config, o Options) (*Keeper, error) {
	k := &Keeper{path: c.Path(o.TokenFile), proxyHeader: c.ProxyHeader, now: o.Now, log: o.Logger}
	k.holds.mu.all = map[*Held]struct{}{}
	set := collectors.Named("varve_auth_")
	k.refused = set.CounterVec("refused_total", "Requests and connections that were refused for lack of a credential or right, by stream and reason.", "stream", "reason")
	k.ended = set.CounterVec("ended_total", "Requests and connections that were ended because the token or rule of their sender was revoked, expired or changed, by stream.", "stream")
	set.GaugeFunc("tokens", "Tokens in the token file, including expired ones.", func() float64 { return float64(len(k.tokens.Load().byID)) })
	if _, err := set.Register(o.Registerer); err != nil {
		return nil, err
	}
	apply, err := k.Read(c)
	if err != nil {
		return nil, err
	}
	if apply != nil {
		apply()
	}
	k.written = k.uses()
	return k, nil
}

// Path is the path of the token file.
func (c Config) Path(otherwise string) string {
	return cmp.Or(c.TokenFile, otherwise)
}

// ProxyHeader is the header in which proxies name the user.
func (k *Keeper) ProxyHeader() string { return k.proxyHeader }

// Read reads rules and tokens again. The returned function puts them in force; it is
// nil if nothing has changed.
func (k *Keeper) Read(c Config) (apply func(), err error) {
	next := &ruleSet{}
	if next.rules, err = parseRules(c.Rules); err != nil {
		return nil, fmt.Errorf("auth.%w", err)
	}
	if len(c.Proxies) > 0 {
		if next.proxies, err = ParseNetworks(c.Proxies); err != nil {
			return nil, fmt.Errorf("auth.proxies: %w", err)
		}
	}
	before := k.tokens.Load()
	tokens, err := k.readTokens(before)
	if err != nil {
		return nil, err
	}
	old := k.rules.Load()
	same := reflect.DeepEqual(old, next)
	if same && tokens == nil {
		return nil, nil
	}
	return func() {
		k.rules.Store(next)
		if !same {
			k.log.Info("auth: rules are in force", "rules", len(next.rules), "proxies", len(next.proxies))
		}
		k.take(before, tokens)
		k.Recheck()
	}, nil
}

// readTokens reads the token file if it has changed since old was read; otherwise it returns nil.
func (k *Keeper) readTokens(old *tokenSet) (*tokenSet, error) {
	state := stateOf(k.path)
	if old != nil && old.state.same(state) {
		return nil, nil
	}
	if old != nil && old.state.there() && !state.there() {
		return nil, fmt.Errorf("token file %s was removed; the tokens read from it remain valid. Restore it; to invalidate all tokens, revoke each", k.path)
	}
	tokens, err := readTokens(k.path)
	if err != nil {
		return nil, err
	}
	uses := map[string]time.Time{}
	if old == nil {
		uses = readUses(k.path)
	}
	next := &tokenSet{byID: map[string]*heldToken{}, state: state}
	for _, t := range tokens {
		held := &heldToken{Token: t}
		if used := uses[t.ID]; !used.IsZero() {
			held.used.Store(used.Unix())
		}
		if old != nil && old.byID[t.ID] != nil {
			held.used.Store(old.byID[t.ID].used.Load())
		}
		next.byID[t.ID] = held
	}
	return next, nil
}

// take puts tokens in force and logs which were added and revoked. It does nothing if old is no
// longer in force: another reader may have read the file later, and the next look will tell.
func (k *Keeper) take(old, next *tokenSet) {
	if next == nil || !k.tokens.CompareAndSwap(old, next) {
		return
	}
	if old == nil {
		k.log.Info("auth: tokens are in force", "file", k.path, "tokens", len(next.byID))
		return
	}
	var added, gone []string
	for id, t := range next.byID {
		if old.byID[id] == nil {
			added = append(added, id+" "+t.Grant.Name)
		}
	}
	for id, t := range old.byID {
		if next.byID[id] == nil {
			gone = append(gone, id+" "+t.Grant.Name)
		}
	}
	const shown = 20
	slices.Sort(added)
	slices.Sort(gone)
	k.log.Info("auth: the token file has changed", "tokens", len(next.byID), "added", len(added), "revoked", len(gone),
		"first_added", added[:min(shown, len(added))], "first_revoked", gone[:min(shown, len(gone))])
}

const (
	lookEvery  = time.Second      // interval of checks of the token file
	writeEvery = 10 * time.Minute // interval of writing when tokens were last used
)

// Run reads the token file whenever it has changed, and periodically writes when tokens
// were last used, until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	write := time.NewTicker(writeEvery)
	defer write.Stop()
	var failed *fileState // of a file that could not be read; its error is logged once
	for {
		select {
		case <-look.C:
			if state := stateOf(k.path); failed == nil || !state.same(*failed) {
				failed = k.refresh(state)
			}
			k.expire()
			continue
		case <-write.C:
		case <-ctx.Done():
		}
		k.writeUses()
		if ctx.Err() != nil {
			return
		}
	}
}

// refresh reads the token file if it has changed. It returns the state of a file that
// could not be read, otherwise nil.
func (k *Keeper) refresh(state fileState) (failed *fileState) {
	old := k.tokens.Load()
	next, err := k.readTokens(old)
	if err != nil {
		k.log.Error("auth: cannot reload the token file; the tokens read before remain valid", "error", err)
		return &state
	}
	if next != nil {
		k.take(old, next)
		k.Recheck()
	}
	return nil
}

// uses returns when tokens were last used.
func (k *Keeper) uses() map[string]time.Time {
	uses := map[string]time.Time{}
	for id, t := range k.tokens.Load().byID {
		if at := t.used.Load(); at != 0 {
			uses[id] = time.Unix(at, 0).UTC()
		}
	}
	return uses
}

// writeUses writes when tokens were last used, if that has changed.
func (k *Keeper) writeUses() {
	uses := k.uses()
	if maps.EqualFunc(uses, k.written, time.Time.Equal) {
		return
	}
	text, err := json.Marshal(uses)
	if err != nil {
		panic(err) // texts and times always marshal
	}
	if err := replace(usesPath(k.path), text); err != nil {
		k.log.Warn("auth: cannot store when tokens were last used", "error", err)
		return
	}
	k.written = uses
}

// Identify identifies a sender. The error is a *Refusal. If it has a token or a rule applies to it, the
// Identity then has its name and how it authenticated.
func (k *Keeper) Identify(c Claim) (Identity, error) {
	id, refusal := k.identify(&c)
	if refusal != nil {
		return id, k.refuse(&c, refusal)
	}
	return id, nil
}

// identify is Identify without counting a refusal.
func (k *Keeper) identify(c *Claim) (Identity, *Refusal) {
	version := k.holds.version.Load() // read before tokens and rules
	g, id, refusal := k.grant(c)
	if refusal != nil {
		return id, refusal
	}
	tenant, ok := g.tenant(c.Tenant)
	if !ok {
		return id, &Refusal{Reason: ReasonTenant, Name: id.Name, Text: "this sender may not use the tenant " + c.Tenant}
	}
	id.Tenant, id.Rights, id.Prefix, id.Whole, id.version = tenant, g.Rights, g.Prefix, g.whole(), version
	return id, nil
}

// grant finds the grant of a sender. Credentials are tried in a fixed order, and an
// invalid token is refused even if another credential would be valid.
func (k *Keeper) grant(c *Claim) (*Grant, Identity, *Refusal) {
	if c.SeveralAuthorizations {
		return nil, Identity{}, &Refusal{Reason: ReasonMalformed, Text: "the request has more than one Authorization header"}
	}
	if c.Authorization != "" {
		t, refusal := k.token(c.Authorization)
		if refusal != nil {
			return nil, Identity{}, refusal
		}
		return &t.Grant, Identity{Principal: principal.Principal{Name: t.title()}, By: ByToken, until: t.Expires}, nil
	}
	cert, refusal := k.certificate(c)
	if refusal != nil {
		return nil, Identity{}, refusal
	}
	rules := k.rules.Load()
	if (c.User != "" || c.SeveralUsers) && contains(rules.proxies, c.Remote) {
		if c.SeveralUsers {
			return nil, Identity{}, &Refusal{Reason: ReasonMalformed, Text: "the proxy sent the header of auth.proxy_header more than once; it has to remove what its clients send"}
		}
		for i := range rules.rules {
			if r := &rules.rules[i]; r.user != "" && r.on(c.Stream, c.Kind) && matches(r.user, c.User) {
				return &r.grant, named(r, c.User, ByProxy), nil
			}
		}
		return nil, Identity{}, &Refusal{Reason: ReasonNoRule, Name: c.User, Text: "no rule of auth.rules matches this user of a proxy"}
	}
	for i := range rules.rules {
		r := &rules.rules[i]
		if !r.on(c.Stream, c.Kind) {
			continue
		}
		if cert != nil {
			if name := r.ofCertificate(cert); name != "" {
				id := named(r, name, ByCertificate)
				id.until = cert.NotAfter
				return &r.grant, id, nil
			}
		}
		if contains(r.networks, c.Remote) {
			id := named(r, c.Remote.String(), ByAddress)
			id.Ambient = true
			return &r.grant, id, nil
		}
	}
	if cert != nil {
		return nil, Identity{}, &Refusal{Reason: ReasonNoRule, Name: cert.Subject.CommonName, Text: "no rule of auth.rules matches this client certificate"}
	}
	switch c.Kind {
	case Datagrams:
		return nil, Identity{}, &Refusal{Reason: ReasonNone, Text: "no rule of auth.rules matches this address; datagrams need one with address= and stream=" + c.Stream}
	case Lines:
		return nil, Identity{}, &Refusal{Reason: ReasonNone, Text: "no rule of auth.rules matches this address or its client certificate; lines need one with address=, cn= or san="}
	}
	return nil, Identity{}, &Refusal{Reason: ReasonNone, Text: "this needs a credential: a token as Authorization: Bearer TOKEN, or as the password of basic authentication; varve token create creates one"}
}

// certificate returns the certificate that c shows, nil if it shows none.
func (k *Keeper) certificate(c *Claim) (*x509.Certificate, *Refusal) {
	if c.Connection == nil {
		return nil, nil
	}
	cert := c.Connection.Certificate()
	switch {
	case cert == nil:
	case !cert.NotAfter.IsZero() && k.now().After(cert.NotAfter):
		return nil, &Refusal{Reason: ReasonExpired, Name: cert.Subject.CommonName, Text: "the client certificate of this connection has expired; connect again with a new one"}
	case !c.Connection.Trusted():
		return nil, &Refusal{Reason: ReasonUntrusted, Name: cert.Subject.CommonName, Text: "the authority of this client certificate is no longer trusted; connect again with a certificate of another one"}
	}
	return cert, nil
}

func named(r *rule, otherwise, by string) Identity {
	return Identity{Principal: principal.Principal{Name: cmp.Or(r.grant.Name, otherwise)}, By: by}
}

// title is the name of the token's sender, or else the token's ID.
func (t *Token) title() string { return cmp.Or(t.Grant.Name, t.ID) }

// token finds the token in a header.
func (k *Keeper) token(header string) (*heldToken, *Refusal) {
	shown, ok := shownIn(header)
	if !ok {
		return nil, &Refusal{Reason: ReasonMalformed, Text: "the header Authorization is neither Bearer TOKEN nor Basic with a token as the password"}
	}
	id, formed := IDOf(shown)
	held := k.tokens.Load().byID[id]
	hash := &noHash
	if held != nil {
		hash = &held.hash
	}
	if !shows(shown, hash) || held == nil || !formed {
		return nil, &Refusal{Reason: ReasonToken, Text: "this token is not known; it may have been revoked"}
	}
	now := k.now()
	if held.expired(now) {
		return nil, &Refusal{Reason: ReasonExpired, Name: held.title(), Text: "this token has expired"}
	}
	if at := now.Unix(); held.used.Load() != at { // writes shared memory at most once a second
		held.used.Store(at)
	}
	return held, nil
}

// maxAuthorization bounds the header that is decoded: a user name and a token.
const maxAuthorization = 1024

// shownIn returns the token in an Authorization header. With basic authentication it is
// the password, or the user name if the password is empty or "x": some clients send a
// token as the user name.
func shownIn(header string) (shown string, ok bool) {
	scheme, rest, _ := strings.Cut(header, " ")
	rest = strings.TrimSpace(rest)
	if rest == "" || len(rest) > maxAuthorization {
		return "", false
	}
	switch {
	case strings.EqualFold(scheme, "Bearer"), strings.EqualFold(scheme, "Token"):
		return rest, true
	case !strings.EqualFold(scheme, "Basic"):
		return "", false
	}
	text, err := base64.StdEncoding.DecodeString(rest)
	if err != nil {
		return "", false
	}
	user, password, ok := strings.Cut(string(text), ":")
	if password == "" || password == "x" {
		return user, ok
	}
	return password, ok
}
