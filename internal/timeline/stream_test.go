package timeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A bucketShelf has one timeline, with buckets of an hour and three partitions. Tests add buckets,
// and functions that run before a read returns.
type bucketShelf struct {
	Shelf
	mu      sync.Mutex
	entries map[int64]map[int][]Entry // by bucket and partition, newest first

	marking func(context.Context) error
	slicing func(Part) error
}

const hour = 3600 * second

func (b *bucketShelf) History(context.Context, string) (History, error) {
	return History{Version: 1, Layouts: []Layout{{From: Beginning, Size: hour, Factor: 3, Mode: Materialised, Placement: Hash}}}, nil
}

func (b *bucketShelf) Marks(ctx context.Context, _ string, from, toExcl int64, d Direction, limit int) ([]int64, error) {
	if b.marking != nil {
		if err := b.marking(ctx); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []int64
	for start := range b.entries {
		if from <= start && start < toExcl {
			all = append(all, start)
		}
	}
	slices.Sort(all)
	if d == Descending {
		slices.Reverse(all)
	}
	return all[:min(limit, len(all))], nil
}

func (b *bucketShelf) Slice(_ context.Context, p Part, r Range, d Direction, l Limit) (out Slice, err error) {
	if b.slicing != nil {
		if err := b.slicing(p); err != nil {
			return Slice{}, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	all := slices.Clone(b.entries[p.Start][p.Partition])
	if d == Ascending {
		slices.Reverse(all)
	}
	for _, e := range all {
		if r.Contains(e.Position()) {
			out.Entries = append(out.Entries, e)
		}
	}
	out.More = len(out.Entries) > l.Entries
	out.Entries = out.Entries[:min(len(out.Entries), l.Entries)]
	return out, nil
}

// add puts n events into a bucket, the newest at its end.
func (b *bucketShelf) add(start int64, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.entries == nil {
		b.entries = map[int64]map[int][]Entry{}
	}
	parts := map[int][]Entry{}
	for i := n - 1; i >= 0; i-- {
		e := Entry{Event: Event{Time: start + int64(i), ID: fmt.Sprint("e", i)}}
		p := hashPartition(e.ID, 3)
		parts[p] = append(parts[p], e)
	}
	b.entries[start] = parts
}

func (b *bucketShelf) engine(t *testing.T, now func() time.Time) *Engine {
	t.Helper()
	e, err := Open(b, Options{Upkeep: -1, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func mustRead(t *testing.T, e *Engine, q Query) Page {
	t.Helper()
	q.Timelines = []string{"a"}
	p, err := e.Read(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPageWaitsOnce: if the first bucket is known from the page before, its partitions are read at
// the same time as the directory. This holds in both directions, after a cursor, and in a range that
// begins at the end of the timeline.
func TestPageWaitsOnce(t *testing.T) {
	for _, order := range []Direction{Descending, Ascending} {
		b := &bucketShelf{}
		b.add(0, 400)
		b.add(5*hour, 400)
		now := 5*hour + 500
		early, late := int64(-hour), now-1
		e := b.engine(t, func() time.Time { return time.UnixMicro(now) })
		before := Query{Order: order}
		if order == Descending { // an end at the present has the same effect
			before.Until = &late
		}
		cursor := mustRead(t, e, before).Cursor
		for _, q := range []Query{{Order: order, From: &early, Until: &late}, {Order: order}, {Order: order, Cursor: cursor}} {
			var slices atomic.Int64
			all := make(chan struct{})
			b.slicing = func(Part) error {
				if slices.Add(1) == 3 {
					close(all)
				}
				return nil
			}
			b.marking = func(context.Context) error {
				select {
				case <-all:
					return nil
				case <-time.After(time.Minute):
					return errors.New("the directory is read before the partitions, not along with them")
				}
			}
			if p := mustRead(t, e, q); len(p.Events) != PageEvents {
				t.Errorf("%v: %d events", order, len(p.Events))
			}
			b.slicing, b.marking = nil, nil
		}
	}
}

// TestWrongGuess: if the bucket that was the first one no longer is, the page begins with the right
// one, and an error of reading the old one does not fail the page.
func TestWrongGuess(t *testing.T) {
	b := &bucketShelf{}
	b.add(0, 200)
	e := b.engine(t, time.Now)
	mustRead(t, e, Query{})
	b.add(hour, 200) // by another server
	failed := 0
	b.slicing = func(p Part) error {
		if p.Start == 0 {
			b.mu.Lock()
			defer b.mu.Unlock()
			failed++
			return errors.New("away")
		}
		return nil
	}
	if p := mustRead(t, e, Query{}); len(p.Events) != PageEvents || p.Events[0].Time != hour+199 {
		t.Errorf("%d events, the first at %d", len(p.Events), p.Events[0].Time)
	}
	if failed == 0 {
		t.Error("the bucket of the page before was not read")
	}
	if p := mustRead(t, e, Query{}); len(p.Events) != PageEvents { // the expected bucket is the new one
		t.Errorf("%d events", len(p.Events))
	}
	b.slicing = func(p Part) error {
		if p.Start == hour && p.Partition == 2 {
			return errors.New("away")
		}
		return nil
	}
	if p, err := e.Read(t.Context(), Query{Timelines: []string{"a"}}); err == nil {
		t.Errorf("a partition of the guessed bucket failed, and the page has %d events, end %v", len(p.Events), p.End)
	}
}

// TestSlowDirectory: each page makes progress, however slow the directory is.
func TestSlowDirectory(t *testing.T) {
	b := &bucketShelf{}
	b.add(0, 10)
	b.add(hour, 0)
	b.add(2*hour, 0)
	var mu sync.Mutex
	at := time.Now()
	now := func() time.Time { mu.Lock(); defer mu.Unlock(); return at }
	e := b.engine(t, now)
	b.marking = func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		at = at.Add(2 * pageTime)
		return nil
	}
	found := 0
	q := Query{}
	for n := 0; ; n++ {
		p := mustRead(t, e, q)
		found += len(p.Events)
		if p.End {
			break
		}
		if n == 5 || p.Cursor == q.Cursor {
			t.Fatalf("the page after page %d begins where that one began", n)
		}
		q.Cursor = p.Cursor
	}
	if found != 10 {
		t.Errorf("%d events", found)
	}
}

// shelves are timelines by name.
type shelves struct {
	Shelf
	by map[string]*bucketShelf
}

func (s shelves) History(ctx context.Context, name string) (History, error) {
	return s.by[name].History(ctx, name)
}

func (s shelves) Marks(ctx context.Context, name string, from, toExcl int64, d Direction, limit int) ([]int64, error) {
	return s.by[name].Marks(ctx, name, from, toExcl, d, limit)
}

func (s shelves) Slice(ctx context.Context, p Part, r Range, d Direction, l Limit) (Slice, error) {
	return s.by[p.Timeline].Slice(ctx, p, r, d, l)
}

// TestMergedPagesProgress: a page of several timelines makes progress even if, between the events of
// one timeline, another one has more empty buckets than a page may read.
func TestMergedPagesProgress(t *testing.T) {
	sparse, dense := &bucketShelf{}, &bucketShelf{}
	const empty = 3 * pageBuckets
	sparse.add(0, 1)
	for i := range empty {
		sparse.add(int64(i+1)*hour, 0)
	}
	sparse.add((empty+1)*hour, 1)
	for _, at := range []int64{0, 1, empty / 2, empty, empty + 1} {
		dense.add(at*hour, 4)
	}
	e, err := Open(shelves{by: map[string]*bucketShelf{"sparse": sparse, "dense": dense}}, Options{Upkeep: -1, Now: func() time.Time { return time.UnixMicro((empty + 2) * hour) }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, order := range []Direction{Ascending, Descending} {
		from := int64(0)
		q := Query{Timelines: []string{"sparse", "dense"}, Order: order, From: &from}
		var found []Found
		for pages := 0; ; pages++ {
			p, err := e.Read(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if found = append(found, p.Events...); p.End {
				break
			}
			if pages == 50 || p.Cursor == q.Cursor {
				t.Fatalf("%v: the page after page %d begins where that one began", order, pages)
			}
			q.Cursor = p.Cursor
		}
		if len(found) != 22 {
			t.Errorf("%v: %d events, want 22", order, len(found))
		}
		for i := range found[1:] {
			if order.compare(found[i].Position(), found[i+1].Position()) > 0 {
				t.Errorf("%v: event %d is out of order", order, i+1)
			}
		}
	}
}
