package auth

import (
	"net/netip"
	"sync"
	"time"

	"varve/internal/clip"
	"varve/internal/principal"
)

// Reasons of a Refusal, also in the metric varve_auth_refused_total.
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

var reasons = []string{ReasonNone, ReasonMalformed, ReasonToken, ReasonExpired, ReasonUntrusted, ReasonNoRule, ReasonTenant, ReasonRight, ReasonPrefix}

// ShowMetrics lets metrics have the labels of a stream before something is counted there.
func (k *Keeper) ShowMetrics(stream string) {
	for _, reason := range reasons {
		k.refused.WithLabelValues(stream, reason)
	}
	k.ended.WithLabelValues(stream)
}

// A Refusal says why a sender is refused.
type Refusal struct {
	Reason string
	Name   string // of the sender, if known
	Text   string // for the sender

	// Throttled is set if so many senders at the same address were refused that this
	// refusal is not logged.
	Throttled bool
}

func (r *Refusal) Error() string { return r.Text }

// Known reports whether the sender is known. If so, another credential does not help.
func (r *Refusal) Known() bool {
	return r.Reason == ReasonTenant || r.Reason == ReasonRight || r.Reason == ReasonPrefix || r.Reason == ReasonNoRule
}

// Refuse refuses a known sender that lacks a right.
func (k *Keeper) Refuse(c Claim, id Identity, reason, text string) *Refusal {
	return k.refuse(&c, &Refusal{Reason: reason, Name: id.Name, Text: text})
}

// refuse counts a refusal, and logs it unless there are too many.
func (k *Keeper) refuse(c *Claim, r *Refusal) *Refusal {
	k.refused.WithLabelValues(c.Stream, r.Reason).Inc()
	r.Throttled = !k.failures.note(c.Remote, k.now())
	if !r.Throttled {
		k.log.Warn("auth: refused", "reason", r.Reason, "stream", c.Stream, "remote", c.Remote.String(), "sender", clip.Text(r.Name, maxName), "tenant", clip.Text(c.Tenant, maxName),
			"method", clip.Text(c.Method, maxName), "path", clip.Text(c.Path, maxName), "text", r.Text)
	}
	return r
}

// Bounds on refusals.
const (
	failuresPerMinute = 60   // per address; further ones are throttled
	maxFailing        = 4096 // addresses counted separately within a minute; all others count as one
)

// failures count refusals by address. Requests that are not refused do not use it.
type failures struct {
	mu    sync.Mutex
	since time.Time
	count map[netip.Prefix]int
}

// note counts a refusal. It returns true for the first failuresPerMinute of an address
// within a minute.
func (f *failures) note(a netip.Addr, now time.Time) bool {
	network := principal.Network(a)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count == nil || now.Sub(f.since) >= time.Minute || now.Before(f.since) {
		f.since, f.count = now, map[netip.Prefix]int{}
	}
	if _, there := f.count[network]; !there && len(f.count) >= maxFailing {
		network = netip.Prefix{} // shared by all addresses beyond maxFailing
	}
	f.count[network]++
	return f.count[network] <= failuresPerMinute
}
