package audit

import (
	"time"

	"golang.org/x/time/rate"
)

// What one sender may write, so that it cannot push out what others did: a quarter of a file
// at once, and in the long run as much as fills all files in a day.
const (
	burstShare = 4
	turnover   = 24 * time.Hour
)

// maxSenders bounds the senders that are told apart. All others count as one.
const maxSenders = 1000

// HasRoom reports whether the events that a sender has caused lately leave room for more. If
// not, the caller is to refuse what would be written: neither may it happen without a
// trace, nor push out older traces. It counts what was refused.
func (l *Log) HasRoom(sender string, now time.Time) bool {
	if l == nil || sender == "" { // nobody is asked who he is, so there is nobody to keep apart
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

// chargeLocked counts what was written for a sender. l.mu must be held.
func (l *Log) chargeLocked(sender string, n int, now time.Time) {
	if sender == "" {
		return
	}
	share := l.shareLocked(sender, now)
	share.ReserveN(now, min(n, share.Burst()))
}

// shareLocked returns what a sender has left. l.mu must be held.
func (l *Log) shareLocked(sender string, now time.Time) *rate.Limiter {
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
