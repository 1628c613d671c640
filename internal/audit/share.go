package audit

import (
	"net/netip"
	"time"

	"golang.org/x/time/rate"

	"varve/internal/principal"
)

// One sender may write a quarter of a file at once, and in the long run as much as fills all
// files in a day. So it cannot push the events of other senders out of the log.
const (
	burstShare = 4
	turnover   = 24 * time.Hour
)

// A sender is told apart by how it authenticated and by its name: the user of a proxy and the owner of
// a client certificate may have the name of a token.
type sender struct{ by, name string }

// maxSenders bounds the number of senders with a share of their own. All others have one share
// together.
const maxSenders = 1000

// RoomIn returns after which time the sender of events with By and Sender has some of its share of the log left, 0 if it has some
// now. If it has none, the caller must refuse the request that would be logged: the request must not
// happen without an event in the log, and its event must not push out older ones. RoomIn counts such
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

// chargeLocked takes n bytes that were written from the share of a sender. l.mu must be held.
func (l *Log) chargeLocked(s sender, n int, now time.Time) {
	if s.name == "" {
		return
	}
	share := l.shareLocked(s, now)
	share.ReserveN(now, min(n, share.Burst()))
}

// shareOf returns whose share a sender uses, which is its own. Under a rule for addresses, the name of a
// sender is its address.
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
