package write

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
)

// announcements are the removals of index rows that this process and others have announced.
// [Writer] says why they are needed.
type announcements struct {
	ks      *schema.Keyspace
	now     func() time.Time
	known   *known
	process string        // names this process in its announcements
	sending chan struct{} // holds a token while an announcement is sent, so that they arrive in order

	mu       sync.Mutex
	sequence int64            // of the last announcement of this process
	lastMS   int64            // its stamp
	seen     map[string]int64 // the highest sequence of each other process
	looked   time.Time        // when the announcements of others were last read
	floorMS  int64            // above the stamps of all known announcements
}

func newAnnouncements(ks *schema.Keyspace, k *known, now func() time.Time) *announcements {
	return &announcements{ks: ks, now: now, known: k, process: rand.Text(), sending: make(chan struct{}, 1)}
}

// announce tells all nodes, this one first, that index rows of a span may be removed. It
// returns the write timestamp for the removal. Processes that have read the announcement write
// index rows with later timestamps.
//
// Without the table service_index no other process can be told.
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

// begin reads the announcements for the first time, before this process knows of any index
// rows.
func (a *announcements) begin(ctx context.Context) error {
	a.mu.Lock()
	begun := !a.looked.IsZero()
	a.mu.Unlock()
	if begun {
		return nil
	}
	return a.look(ctx)
}

// look reads the announcements of other processes, and forgets the index rows that they may
// have removed since the last look.
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

// wallTime returns t without its monotonic reading. That clock stops while the machine is
// suspended, but announcements expire meanwhile.
func wallTime(t time.Time) time.Time { return t.Round(0) }

// take records the announcements found, and returns the spans to forget.
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

// stamp returns the write timestamp for index rows. It is above those of all known removals.
// The samples' own timestamps would not do: they may be from long ago.
func (a *announcements) stamp() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(a.now().UnixMilli(), a.floorMS)
}
