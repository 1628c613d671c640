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

// maxSenders bounds the number of senders with a share of their own. All others have one share
// together.
const maxSenders = 1000

// HasRoom reports whether a sender has some of its share of the log left. If it has not, the
// caller must refuse the request that would be logged: the request must not happen without an
// event in the log, and its event must not push out older ones. HasRoom counts such refusals.
//
// Without authentication all senders have the name "". They cannot be told apart, so their
// events are not limited.
func (l *Log) HasRoom(sender string, now time.Time) bool {
	if l == nil || sender == "" {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shareLocked(sender, now).TokensAt(now) >= 0 {
		return true
	}
	l.held.Inc()
	return false
}

// RoomIn returns after which time HasRoom allows the sender again.
func (l *Log) RoomIn(sender string, now time.Time) time.Duration {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	share := l.shareLocked(sender, now)
	return time.Duration(max(0, -share.TokensAt(now)) / float64(share.Limit()) * float64(time.Second))
}

// chargeLocked takes n bytes that were written from the share of a sender. l.mu must be held.
func (l *Log) chargeLocked(sender string, n int, now time.Time) {
	if sender == "" {
		return
	}
	share := l.shareLocked(sender, now)
	share.ReserveN(now, min(n, share.Burst()))
}

// shareOf returns the name of the share of a sender, which is the sender's own. Under a rule for
// addresses, the name of a sender is its address.
func shareOf(sender string) string {
	a, err := netip.ParseAddr(sender)
	if err != nil || !a.Unmap().Is6() {
		return sender
	}
	return principal.Network(a).String()
}

// shareLocked returns the share of a sender, in bytes. l.mu must be held.
func (l *Log) shareLocked(sender string, now time.Time) *rate.Limiter {
	sender = shareOf(sender)
	if s := l.shares[sender]; s != nil {
		return s
	}
	if len(l.shares) >= maxSenders {
		for name, s := range l.shares {
			if s.TokensAt(now) >= float64(s.Burst()) {
				delete(l.shares, name)
			}
		}
	}
	if len(l.shares) >= maxSenders {
		sender = ""
	}
	if l.shares[sender] == nil {
		l.shares[sender] = rate.NewLimiter(rate.Limit(float64(l.c.MaxBytes)*float64(l.c.MaxFiles)/turnover.Seconds()), int(l.c.MaxBytes/burstShare))
	}
	return l.shares[sender]
}
