package event

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/store"
	"varve/internal/timeline"
)

var errFault = errors.New("this call fails")

// faults let one call fail once they are armed, counted from there.
type faults struct{ at, calls atomic.Int64 }

func (f *faults) arm(n int64) { f.calls.Store(0); f.at.Store(n) }

// disarm ends the faults and reports whether a call has failed.
func (f *faults) disarm() bool { return f.at.Swap(0) <= f.calls.Load() }

func (f *faults) fault() error {
	if at := f.at.Load(); at > 0 && f.calls.Add(1) == at {
		return errFault
	}
	return nil
}

// A faultyShelf is one whose calls fail.
type faultyShelf struct {
	timeline.Shelf
	*faults
}

func (s faultyShelf) Put(ctx context.Context, entries []timeline.Placed) error {
	return errors.Join(s.fault(), s.Shelf.Put(ctx, entries)) // whether it was done is unknown
}

func (s faultyShelf) Slice(ctx context.Context, p timeline.Part, r timeline.Range, d timeline.Direction, l timeline.Limit) (timeline.Slice, error) {
	if err := s.fault(); err != nil {
		return timeline.Slice{}, err
	}
	return s.Shelf.Slice(ctx, p, r, d, l)
}

func (s faultyShelf) Delete(ctx context.Context, p timeline.Part, ranges []timeline.Range, before time.Time) error {
	if err := s.fault(); err != nil {
		return err
	}
	return s.Shelf.Delete(ctx, p, ranges, before)
}

// faultyValues are those of older versions and the tags, whose calls fail.
type faultyValues struct {
	store.KeyValues
	*faults
}

func (v faultyValues) Get(ctx context.Context, service, serviceKey, key string) (store.Value, error) {
	if err := v.fault(); err != nil {
		return store.Value{}, err
	}
	return v.KeyValues.Get(ctx, service, serviceKey, key)
}

func (v faultyValues) Set(ctx context.Context, service, serviceKey, key, value string) error {
	if err := v.fault(); err != nil {
		return err
	}
	return v.KeyValues.Set(ctx, service, serviceKey, key, value)
}

func (v faultyValues) Unset(ctx context.Context, service, serviceKey, key string) error {
	if err := v.fault(); err != nil {
		return err
	}
	return v.KeyValues.Unset(ctx, service, serviceKey, key)
}

func (v faultyValues) Modified(ctx context.Context, service, serviceKey string) (time.Time, error) {
	if err := v.fault(); err != nil {
		return time.Time{}, err
	}
	return v.KeyValues.Modified(ctx, service, serviceKey)
}

func (v faultyValues) Keys(ctx context.Context, service, serviceKey, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := v.fault(); err != nil {
			yield("", err)
			return
		}
		v.KeyValues.Keys(ctx, service, serviceKey, prefix)(yield)
	}
}

// TestErrorAtEachCall: a call to the store that fails is an error of the request, and the request can
// be sent again. Without an error it was done.
func TestErrorAtEachCall(t *testing.T) {
	s := openEmbedded(t, vfs.NewMem(), "data")
	f := &faults{}
	s.shelf, s.values = faultyShelf{s.shelf, f}, faultyValues{s.values, f}
	if err := s.values.Set(t.Context(), service, daysKey, "1970-01-01", ""); err != nil { // of an older version
		t.Fatal(err)
	}
	search := Search{From: 5, Until: 1000, Tags: []string{"x", "unknown"}}
	count := func(l *Log) (n int, err error) {
		err = l.Find(t.Context(), search, func(Event) error { n++; return nil })
		return n, err
	}
	failed := false
	// run does something with a new log, in which call n fails, for each n until there is none.
	run := func(what string, do func(l *Log, fault func(func() error) error)) {
		for n := int64(1); ; n++ {
			failed = false
			do(s.newLog(t, 1000), func(request func() error) error {
				f.arm(n)
				err := request()
				failed = f.disarm()
				if err != nil && (!failed || !errors.Is(err, errFault)) {
					t.Errorf("%s, call %d fails: %v", what, n, err)
				}
				return err
			})
			if !failed || t.Failed() {
				if n < 3 && !t.Failed() {
					t.Errorf("%s makes %d calls", what, n-1)
				}
				return
			}
		}
	}
	want := 0
	run("Add", func(l *Log, fault func(func() error) error) {
		err := fault(func() error { return l.Add(t.Context(), Event{When: 5, Tags: []string{"x", fmt.Sprint(want)}}) })
		n, findErr := count(l)
		if findErr != nil || n < want || n > want+1 || err == nil && n != want+1 {
			t.Errorf("Add: %v; there are %d events, before %d: %v", err, n, want, findErr)
		}
		want = n
	})
	run("Find", func(l *Log, fault func(func() error) error) {
		n := 0
		if err := fault(func() (err error) { n, err = count(l); return err }); err == nil && n != want {
			t.Errorf("Find: no error, and %d of %d events", n, want)
		}
	})
	id := int64(5 << numberBits)
	run("ByID", func(l *Log, fault func(func() error) error) {
		if err := fault(func() error { _, err := l.ByID(t.Context(), id); return err }); errors.Is(err, store.ErrNotFound) {
			t.Errorf("ByID: %v", err)
		}
	})
	run("Delete", func(l *Log, fault func(func() error) error) {
		err := fault(func() error { return l.Delete(t.Context(), id) })
		n, findErr := count(l)
		if findErr != nil || n < want-1 || n > want || err == nil && n != want-1 {
			t.Errorf("Delete: %v; there are %d events, before %d: %v", err, n, want, findErr)
		}
		if want = n; err == nil {
			id++
		}
	})
}

// A refusing shelf stores nothing.
type refusing struct{ timeline.Shelf }

func (refusing) Put(context.Context, []timeline.Placed) error { return errFault }

// TestEventsThatAreNotStored: an event that the store refuses is refused with its error.
func TestEventsThatAreNotStored(t *testing.T) {
	s := openEmbedded(t, vfs.NewMem(), "data")
	s.shelf = refusing{s.shelf}
	l := s.newLog(t, 1000)
	if err := l.Add(t.Context(), Event{When: 5}); !errors.Is(err, errFault) {
		t.Errorf("got %v", err)
	}
}

// A colliding shelf lets another server store an event at the same time as each event that is put.
type colliding struct {
	timeline.Shelf
	left       atomic.Int64 // how often
	cannotUndo bool
}

func (c *colliding) Put(ctx context.Context, entries []timeline.Placed) error {
	if c.left.Add(-1) >= 0 {
		other := entries[0]
		other.ID, other.Data = "other", []byte(`{"what":"other"}`)
		entries = append([]timeline.Placed{other}, entries...)
	}
	return c.Shelf.Put(ctx, entries)
}

func (c *colliding) Delete(ctx context.Context, p timeline.Part, ranges []timeline.Range, before time.Time) error {
	if c.cannotUndo {
		return errFault
	}
	return c.Shelf.Delete(ctx, p, ranges, before)
}

// TestNumbersThatOthersUse: an event whose number another server uses gets a later one, and is not
// stored twice. After some attempts the request fails, and leaves nothing.
func TestNumbersThatOthersUse(t *testing.T) {
	for _, collisions := range []int64{1, 3, putTries - 1, putTries} {
		s := openEmbedded(t, vfs.NewMem(), "data")
		shelf := &colliding{Shelf: s.shelf}
		s.shelf = shelf
		l := s.newLog(t, 1000)
		shelf.left.Store(collisions)
		err := l.Add(t.Context(), Event{When: 5, What: "own"})
		own, others, last := 0, 0, ""
		for _, e := range all(t, l, Search{Until: 9}) {
			if last = e.What; last == "own" {
				own++
			} else {
				others++
			}
		}
		if int64(others) != collisions {
			t.Errorf("%d events of the other server, want %d", others, collisions)
		}
		unavailable := (*store.UnavailableError)(nil)
		switch {
		case collisions < putTries && (err != nil || own != 1 || last != "own"):
			t.Errorf("after %d collisions: %v, %d events, and the last is %q", collisions, err, own, last)
		case collisions == putTries && (!errors.As(err, &unavailable) || own != 0):
			t.Errorf("after %d collisions: %v, and %d events", collisions, err, own)
		}
	}
	s := openEmbedded(t, vfs.NewMem(), "data")
	shelf := &colliding{Shelf: s.shelf, cannotUndo: true}
	s.shelf = shelf
	l := s.newLog(t, 1000)
	shelf.left.Store(1)
	if err := l.Add(t.Context(), Event{When: 5}); !errors.Is(err, errFault) {
		t.Errorf("an event that cannot be removed again: %v", err)
	}
}
