package auth

import (
	"net/netip"
	"sync"
	"time"

	"varve/internal/clip"
)

// Reasons of a Refusal, also as the metric varve_auth_refused_total has them.
const (
	ReasonNone      = "no_credential"
	ReasonMalformed = "malformed"
	ReasonToken     = "unknown_token"
	ReasonExpired   = "expired_token"
	ReasonUntrusted = "untrusted_certificate"
	ReasonNoRule    = "no_rule"
	ReasonTenant    = "tenant"
	ReasonRight     = "missing_right"
	ReasonPrefix    = "prefix"
)

// A Refusal says why a sender is turned away.
type Refusal struct {
	Reason string
	Name   string // of the sender, if it is known
	Text   string // for the sender

	// Throttled is set if so many were refused from the sender's address that this one is
	// not written to the log.
	Throttled bool
}

func (r *Refusal) Error() string { return r.Text }

// Known reports whether it is known who the sender is: another credential does not help.
func (r *Refusal) Known() bool {
	return r.Reason == ReasonTenant || r.Reason == ReasonRight || r.Reason == ReasonPrefix || r.Reason == ReasonNoRule
}

// Lacks refuses a sender that is known and lacks a right.
func (k *Keeper) Lacks(c Claim, id Identity, reason, text string) *Refusal {
	return k.refuse(&c, &Refusal{Reason: reason, Name: id.Name, Text: text})
}

// refuse counts a refusal, and writes it to the log unless there are too many.
func (k *Keeper) refuse(c *Claim, r *Refusal) *Refusal {
	k.refused.WithLabelValues(c.Stream, r.Reason).Inc()
	r.Throttled = !k.failures.note(c.Remote, k.now())
	if !r.Throttled {
		k.log.Warn("auth: refused", "reason", r.Reason, "stream", c.Stream, "remote", c.Remote.String(), "sender", clip.Text(r.Name, maxName), "tenant", clip.Text(c.Tenant, maxName), "text", r.Text)
	}
	return r
}

// Bounds on failures.
const (
	failuresPerMinute = 60   // of one address, before further ones are throttled
	maxFailing        = 4096 // addresses that are told apart within a minute; all others count as one
)

// failures count refusals by address. Requests that are not refused cost nothing here.
type failures struct {
	mu    sync.Mutex
	since time.Time
	count map[netip.Prefix]int
}

// note counts a refusal and reports whether it is one of the first of its address within a
// minute.
func (f *failures) note(a netip.Addr, now time.Time) bool {
	network := netip.Prefix{} // that of all others
	bits := a.BitLen()
	if a.Is6() {
		bits = 64 // a single sender may have all addresses of a /64
	}
	if n, err := a.Prefix(bits); err == nil {
		network = n
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count == nil || now.Sub(f.since) >= time.Minute || now.Before(f.since) {
		f.since, f.count = now, map[netip.Prefix]int{}
	}
	if _, there := f.count[network]; !there && len(f.count) >= maxFailing {
		network = netip.Prefix{}
	}
	f.count[network]++
	return f.count[network] <= failuresPerMinute
}
