package write

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
)

// announcements are what this process and others have announced. See [Writer] for why.
type announcements struct {
	ks      *schema.Keyspace
	now     func() time.Time
	known   *known
	process string        // in announcements of this process
	sending chan struct{} // holds one while one is sent: they arrive in order

	mu       sync.Mutex
	sequence int64            // of the last announcement of this process
	lastMS   int64            // stamp of it
	seen     map[string]int64 // the highest sequence of each other process
	looked   time.Time        // at those
	floorMS  int64            // above the stamps of all that are known
}

func newAnnouncements(ks *schema.Keyspace, k *known, now func() time.Time) *announcements {
	return &announcements{ks: ks, now: now, known: k, process: rand.Text(), sending: make(chan struct{}, 1)}
}

// announce tells all nodes, this one first, that index rows of a span may be removed.
// It returns the write timestamp to remove them with: processes that know of
// the announcement write index rows with later ones.
//
// Without the table service_index nobody else can be told.
func (a *announcements) announce(ctx context.Context, s rowkey.Span) (stampMS int64, err error) {
	select {
	case a.sending <- struct{}{}:
		defer func() { <-a.sending }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	an := a.next(s)
	a.known.forget(s)
	if !a.ks.Tables.ServiceIndex || a.ks.Session == nil {
		return an.StampMS, nil
	}
	if err := an.Write(ctx, a.ks, a.process); err != nil {
		return 0, err
	}
	return an.StampMS, nil
}

func (a *announcements) next(s rowkey.Span) rowkey.Announcement {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lastMS = max(a.now().UnixMilli(), a.lastMS+1, a.floorMS)
	a.floorMS = a.lastMS + 1
	a.sequence++
	return rowkey.Announcement{StampMS: a.lastMS, Sequence: a.sequence, Span: s}
}

// begin looks for announcements for the first time, before anything is known that
// they could be about.
func (a *announcements) begin(ctx context.Context) error {
	a.mu.Lock()
	begun := !a.looked.IsZero()
	a.mu.Unlock()
	if begun {
		return nil
	}
	return a.look(ctx)
}

// look forgets what other processes have announced since the last look.
func (a *announcements) look(ctx context.Context) error {
	if !a.ks.Tables.ServiceIndex || a.ks.Session == nil {
		return nil
	}
	began := a.now()
	found, err := rowkey.ReadAnnounced(ctx, a.ks)
	if err != nil {
		return err
	}
	for _, s := range a.take(began, found) {
		a.known.forget(s)
	}
	return nil
}

// wallTime is t without the monotonic clock, which stands still while the machine is
// suspended. Announcements expire meanwhile.
func wallTime(t time.Time) time.Time { return t.Round(0) }

// take notes what was found and returns what is to be forgotten.
func (a *announcements) take(began time.Time, found rowkey.Announced) (forget []rowkey.Span) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if silent := wallTime(began).Sub(wallTime(a.looked)); silent < 0 || silent > rowkey.MaxUnlooked || began.Sub(a.looked) > rowkey.MaxUnlooked {
		forget = append(forget, rowkey.Everything)
	}
	seen := map[string]int64{}
	for process, all := range found {
		if process == a.process {
			continue
		}
		last, there := a.seen[process], 0
		highest := last
		for _, an := range all {
			a.floorMS = max(a.floorMS, an.StampMS+1)
			switch {
			case an.Sequence == 0:
				forget = append(forget, rowkey.Everything)
			case an.Sequence > last:
				forget = append(forget, an.Span)
				highest = max(highest, an.Sequence)
				there++
			}
		}
		if highest-last != int64(there) {
			forget = append(forget, rowkey.Everything)
		}
		seen[process] = highest
	}
	a.seen, a.looked = seen, began
	return forget
}

// stamp is the write timestamp for index rows: above those of all removals that are
// known, and not that of their samples, which may be of long ago.
func (a *announcements) stamp() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(a.now().UnixMilli(), a.floorMS)
}
