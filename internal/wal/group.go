package wal

import "time"

// A group decides whether a sync waits for appenders that the one before has just
// acknowledged, so that it serves them too. Without that, two appenders that each wait
// for their record get a sync each, in turn: one appends while the other's record is
// synced. A sync costs 70 to 85 µs of CPU time and, on some disks, milliseconds.
//
// A sync waits until three quarters of the appenders have a record queued, but only for a
// short time after the one before. Appenders that do not return cost little: after each
// wait in vain, twice as many waits as before are omitted.
type group struct {
	until  time.Time // end of waiting
	enough int       // records for which the next sync waits

	// There are two kinds of waits: for appenders that were just acknowledged, while the
	// records of others are queued, and for the rest of a group, once the first of the
	// group has returned. If one appender is busy and another writes now and then, the
	// first kind succeeds and the second fails, so they are counted apart.
	queued   bool        // the next wait is of the first kind
	patience [2]patience // of the second kind, and of the first
}

// patience is how often a kind of wait was in vain.
type patience struct {
	inVain int // times since the last success, up to maxInVain
	skip   int // waits to omit
}

const (
	// While records are queued, a sync waits after the previous one for at most gatherSyncs
	// times the duration of that one, and at most maxGather.
	gatherSyncs = 2
	maxGather   = 5 * time.Millisecond

	maxInVain  = 8
	largeGroup = 256 << 10 // bytes that are worth a sync of their own
)

// synced notes the end of a sync and its duration.
func (g *group) synced(end time.Time, took time.Duration) {
	g.until = end.Add(min(gatherSyncs*took, maxGather))
}

// acknowledged notes how many records the sync served, and how many were queued by then.
// If each appender waits for its record, their sum is the number of appenders.
func (g *group) acknowledged(served, queued int) {
	g.enough, g.queued = (3*(served+queued)+3)/4, queued > 0
}

// wait returns how long the sync of a buffer waits for more records.
func (g *group) wait(b *buffer, now time.Time) time.Duration {
	if b.records >= g.enough || len(b.data) >= largeGroup || len(b.cuts) > 0 || b.sync || !now.Before(g.until) {
		return 0
	}
	if p := g.kind(); p.skip > 0 {
		p.skip--
		return 0
	}
	return g.until.Sub(now)
}

// waited notes whether a wait brought a record.
func (g *group) waited(more bool) {
	p := g.kind()
	if more {
		p.inVain = 0
		return
	}
	p.inVain = min(p.inVain+1, maxInVain)
	p.skip = 1 << p.inVain
}

func (g *group) kind() *patience {
	if g.queued {
		return &g.patience[1]
	}
	return &g.patience[0]
}
