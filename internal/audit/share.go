package audit

import (
	"net/netip"
	"time"

	"golang.org/x/time/rate"

	"varve/internal/principal"
)

// One sender may write a quarter of a file at once, and in the long run so much that all
// files fill in a day. So it cannot push the recent events of other senders out of the log.
const (
	burstShare = 4
	turnover   = 24 * time.Hour
)

// A sender is identified by how it authenticated and by its name, because the user of a proxy, the
// owner of a client certificate and a token may have the same name.
type sender struct{ by, name string }

// maxSenders bounds the number of senders with a share of their own. All others have one share
// together.
const maxSenders = 1000

// RoomIn returns how long a sender, as in By and Sender of events, must wait until some of its share of the log
// is free; 0 if some is free now. If none is free, the caller must refuse the request that would be logged: it
// must not happen without an event in the log, and its event must not push out older ones. RoomIn counts such
// refusals.
//
// Without authentication all senders have the name "". They cannot be told apart, so their
// events are not limited.
func (l *Log) RoomIn(by, name string, now time.Time) time.Duration {
	if l == nil || name == "" {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	share := l.shareLocked(sender{by, name}, now)
	missing := -share.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	l.held.Inc()
	return max(1, time.Duration(missing/float64(share.Limit())*float64(time.Second)))
}

// chargeLocked charges n written bytes to the share of a sender. l.mu must be held.
func (l *Log) chargeLocked(s sender, n int, now time.Time) {
	if s.name == "" {
		return
	}
	share := l.shareLocked(s, now)
	share.ReserveN(now, min(n, share.Burst()))
}

// shareOf returns the owner of the share that a sender uses: the sender itself or, if a rule for
// addresses applies, so that its name is its address, the network of this address.
func shareOf(s sender) sender {
	if a, err := netip.ParseAddr(s.name); err == nil {
		s.name = principal.Network(a).String()
	}
	return s
}

// shareLocked returns the share of a sender, in bytes. l.mu must be held.
func (l *Log) shareLocked(of sender, now time.Time) *rate.Limiter {
	of = shareOf(of)
	if s := l.shares[of]; s != nil {
		return s
	}
	if len(l.shares) >= maxSenders {
		for other, s := range l.shares {
			if s.TokensAt(now) >= float64(s.Burst()) {
				delete(l.shares, other)
			}
		}
	}
	if len(l.shares) >= maxSenders {
		of = sender{}
	}
	if l.shares[of] == nil {
		l.shares[of] = rate.NewLimiter(rate.Limit(float64(l.c.MaxBytes)*float64(l.c.MaxFiles)/turnover.Seconds()), int(l.c.MaxBytes/burstShare))
	}
	return l.shares[of]
}
