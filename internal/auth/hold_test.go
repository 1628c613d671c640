package auth

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"varve/internal/principal"
)

// A request or connection ends when its sender's token is revoked or expires, its
// certificate expires, or its rule is removed or grants something else. Otherwise it
// continues.
func TestHold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	_, revoked := create(t, path, Grant{Name: "revoked", Rights: principal.Read}, time.Time{})
	_, expires := create(t, path, Grant{Name: "expires", Rights: principal.Read}, noon.Add(time.Hour))
	_, stays := create(t, path, Grant{Name: "stays", Rights: principal.Read}, time.Time{})
	c := DefaultConfig()
	c.Rules = []string{"address=10.0.0.0/8 role=write", "address=10.1.0.0/16 role=write", "address=192.0.2.0/24 role=write", "cn=old role=write", "cn=new role=write"}
	h := hold(t, path, c)
	of := func(cn string, until time.Duration) Connection {
		return certified{&x509.Certificate{Subject: pkix.Name{CommonName: cn}, NotAfter: noon.Add(until)}}
	}
	type open struct {
		*Held
		*told
	}
	all := map[string]open{}
	for name, claim := range map[string]Claim{
		"revoked":     {Stream: "http", Authorization: "Bearer " + revoked},
		"expires":     {Stream: "http", Authorization: "Bearer " + expires},
		"stays":       {Stream: "http", Authorization: "Bearer " + stays},
		"released":    {Stream: "http", Authorization: "Bearer " + revoked},
		"changed":     {Stream: "telnet", Kind: Lines, Remote: netip.MustParseAddr("192.0.2.1")},
		"other rule":  {Stream: "telnet", Kind: Lines, Remote: netip.MustParseAddr("10.1.1.1")},
		"gone":        {Stream: "telnet", Kind: Lines, Remote: netip.MustParseAddr("10.2.1.1")},
		"certificate": {Stream: "telnet", Kind: Lines, Connection: of("old", time.Minute)},
		"renewed":     {Stream: "telnet", Kind: Lines, Connection: of("new", 24*time.Hour)},
	} {
		id, err := h.Identify(claim)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ender := &told{}
		all[name] = open{h.Hold(t.Context(), claim, id, ender), ender}
	}
	all["released"].Release()
	asked, cancel := context.WithCancel(all["revoked"])
	defer cancel()
	check := func(when string, want ...string) {
		t.Helper()
		for name, o := range all {
			ended := errors.Is(context.Cause(o.Held), ErrEnded)
			should := false
			for _, w := range want {
				should = should || w == name
			}
			if ended != should || ended != (o.times == 1) || ended && o.Err() == nil {
				t.Errorf("%s: %s ended %t, told %d times", when, name, ended, o.times)
			}
		}
	}
	h.expire()
	check("before anything changes")
	h.now = h.now.Add(time.Minute)
	h.expire()
	check("a minute later", "certificate")
	if got := h.reason(Claim{Stream: "telnet", Kind: Lines, Connection: of("old", time.Second)}); got != ReasonExpired {
		t.Errorf("a certificate that has expired: %q", got)
	}
	if _, err := Revoke(path, "revoked"); err != nil {
		t.Fatal(err)
	}
	if h.refresh(stateOf(path)) != nil {
		t.Fatal(h.log)
	}
	check("after the revocation", "certificate", "revoked")
	if <-asked.Done(); !errors.Is(context.Cause(asked), ErrEnded) {
		t.Errorf("what has begun below it ended for %v", context.Cause(asked))
	}
	c.Rules = []string{"address=10.1.0.0/16 role=write", "address=192.0.2.0/24 role=write prefix=own.", "cn=new role=write"}
	apply, err := h.Read(c)
	if err != nil {
		t.Fatal(err)
	}
	apply()
	check("after a reload", "certificate", "revoked", "gone", "changed")
	h.now = h.now.Add(time.Hour)
	h.expire()
	check("an hour later", "certificate", "revoked", "gone", "changed", "expires")
	stayed := all["stays"].Done()
	for _, o := range all {
		o.Release()
	}
	if len(h.holds.mu.all) > 0 {
		t.Error("some are held after their end")
	}
	if <-stayed; errors.Is(context.Cause(all["stays"].Held), ErrEnded) {
		t.Error("what has ended by itself lost its rights")
	}
}

// If the expiry of a token is changed in the file, open requests end at the new time,
// not at the time that was valid when they began.
func TestHoldChangedExpiry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	_, sooner := create(t, path, Grant{Name: "sooner", Rights: principal.Read}, time.Time{})
	_, later := create(t, path, Grant{Name: "later", Rights: principal.Read}, noon.Add(time.Hour))
	h := hold(t, path, DefaultConfig())
	open := func(shown string) *Held {
		claim := Claim{Stream: "http", Authorization: "Bearer " + shown}
		id, err := h.Identify(claim)
		if err != nil {
			t.Fatal(err)
		}
		held := h.Hold(t.Context(), claim, id, nil)
		t.Cleanup(held.Release)
		return held
	}
	first, second := open(sooner), open(later)
	err := change(path, func(tokens []Token) ([]Token, error) {
		tokens[0].Expires, tokens[1].Expires = noon.Add(time.Hour), time.Time{}
		return tokens, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if h.refresh(stateOf(path)) != nil {
		t.Fatal(h.log)
	}
	if h.expire(); first.Ended() || second.Ended() {
		t.Error("something ended before its time")
	}
	h.now = h.now.Add(2 * time.Hour)
	if h.expire(); !first.Ended() || second.Ended() {
		t.Errorf("ended: of the token that expires sooner now %t, later %t", first.Ended(), second.Ended())
	}
}

// certified is a connection with a certificate, whose authority is trusted.
type certified struct{ cert *x509.Certificate }

func (s certified) Certificate() *x509.Certificate { return s.cert }
func (s certified) Trusted() bool                  { return true }

// told counts calls of EndOfRights.
type told struct{ times int }

func (o *told) EndOfRights() { o.times++ }

// A request that begins while its token is being revoked ends too.
func TestHoldAfterRevocation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	_, shown := create(t, path, Grant{Name: "late", Rights: principal.Read}, time.Time{})
	h := hold(t, path, DefaultConfig())
	claim := Claim{Stream: "http", Authorization: "Bearer " + shown}
	id, err := h.Identify(claim)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Revoke(path, "late"); err != nil {
		t.Fatal(err)
	}
	h.refresh(stateOf(path))
	ctx := h.Hold(t.Context(), claim, id, nil)
	defer ctx.Release()
	if !errors.Is(context.Cause(ctx), ErrEnded) || !errors.Is(context.Cause(ctx), context.Canceled) {
		t.Errorf("it goes on: %v", context.Cause(ctx))
	}
}
