package local

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/store"
	"varve/internal/timeline"
)

// TestBehind: the log of arrivals is bounded. A reader that is further behind gets an error
// instead of missing events silently; one that is less far behind continues.
func TestBehind(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs, Options{})
	if err := s.SetHistory(t.Context(), "t", 0, timeline.History{Version: 1}); err != nil {
		t.Fatal(err)
	}
	put := func(i int64) {
		t.Helper()
		if err := s.Put(t.Context(), []timeline.Placed{{Part: timeline.Part{Timeline: "t"}, Entry: timeline.Entry{Event: timeline.Event{Time: i, ID: "x"}}}}); err != nil {
			t.Fatal(err)
		}
	}
	var places [][]byte
	const n = floorSteps + 5
	for i := range int64(n) {
		a, err := s.Arrivals(t.Context(), "t", nil, timeline.Limit{Entries: 1, Bytes: 1})
		if err != nil {
			t.Fatal(err)
		}
		places = append(places, a.Next)
		put(i)
		s.order.Lock()
		s.order.logs[0].events = floorStep - 1 // as if many had come
		s.order.Unlock()
	}
	for round := range 2 {
		behind := 0
		for i, after := range places {
			a, err := s.Arrivals(t.Context(), "t", after, timeline.Limit{Entries: 1000, Bytes: 1 << 20})
			if errors.Is(err, timeline.ErrBehind) {
				behind++
				continue
			}
			if err != nil || len(a.Entries) != n-i || a.Entries[0].Time != int64(i) {
				t.Errorf("after event %d: %d events, %v", i-1, len(a.Entries), err)
			}
		}
		if behind == 0 || behind > n-floorSteps {
			t.Errorf("%d of %d readers are behind", behind, n)
		}
		if round == 0 { // the same after a restart
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, fs, Options{})
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestBehindAfterRestarts: a reader that was behind stays behind after the store was opened so often
// that the first Put of an opening removes what earlier openings left.
func TestBehindAfterRestarts(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs, Options{})
	if err := s.SetHistory(t.Context(), "t", 0, timeline.History{Version: 1}); err != nil {
		t.Fatal(err)
	}
	reopen := func() {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, fs, Options{})
	}
	for range generationsOld {
		reopen()
	}
	slow := &follower{t: t}
	if _, err := slow.read(s); err != nil {
		t.Fatal(err)
	}
	for range floorSteps + 2 {
		putIDs(t, s, "x")
		s.order.Lock()
		s.order.logs[0].events = floorStep - 1 // as if many had come
		s.order.Unlock()
		if err := s.Delete(t.Context(), timeline.Everything("t"), []timeline.Range{timeline.All()}, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	for opening := range 3 {
		if ids, err := slow.read(s); !errors.Is(err, timeline.ErrBehind) {
			t.Errorf("%d openings later the reader got %v, %v", opening, ids, err)
		}
		reopen()
		putIDs(t, s, fmt.Sprint("later ", opening))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestBehindWhileReading: arrivals that are removed while a reader looks for them are not missed silently.
func TestBehindWhileReading(t *testing.T) {
	var removing atomic.Pointer[func()]
	s := open(t, vfs.NewMem(), Options{tune: func(o *pebble.Options) { o.Comparer = comparing(tableFloor, &removing) }})
	defer s.Close()
	if err := s.SetHistory(t.Context(), "t", 0, timeline.History{Version: 1}); err != nil {
		t.Fatal(err)
	}
	a, err := s.Arrivals(t.Context(), "t", nil, timeline.Limit{Entries: 1, Bytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	put := func(id string) {
		putIDs(t, s, id)
		s.order.Lock()
		s.order.logs[0].events = floorStep - 1 // as if many had come
		s.order.Unlock()
	}
	for i := range floorSteps {
		put(fmt.Sprint("e", i))
	}
	remove := func() {
		put("later")
		put("even later")
	}
	removing.Store(&remove)
	got, err := s.Arrivals(t.Context(), "t", a.Next, timeline.Limit{Entries: 1000, Bytes: 1 << 20})
	if !errors.Is(err, timeline.ErrBehind) && (err != nil || len(got.Entries) == 0 || got.Entries[0].ID != "e0") {
		t.Errorf("the reader got %+v, %v", got.Entries, err)
	}
	if removing.Load() != nil {
		t.Error("nothing was removed meanwhile")
	}
	if _, err := s.Arrivals(t.Context(), "t", a.Next, timeline.Limit{Entries: 1000, Bytes: 1 << 20}); !errors.Is(err, timeline.ErrBehind) {
		t.Errorf("later, the reader got %v", err)
	}
}

// comparing returns Pebble's comparer, which calls do once, when a key of a table is first looked for.
func comparing(table byte, do *atomic.Pointer[func()]) *pebble.Comparer {
	c := *pebble.DefaultComparer
	c.Compare = func(a, b []byte) int {
		if len(a) > 0 && len(b) > 0 && (a[0] == table || b[0] == table) {
			if f := do.Swap(nil); f != nil {
				(*f)()
			}
		}
		return bytes.Compare(a, b)
	}
	return &c
}

// TestFollowAcrossRestarts: cursors of a log that a power cut shortened, and of earlier
// openings, continue without a gap or a repeat.
func TestFollowAcrossRestarts(t *testing.T) {
	fs := vfs.NewMem()
	var after []byte
	var got, want []string
	for i := range generationsOld + 4 {
		s := open(t, fs, Options{})
		if i == 0 {
			if err := s.SetHistory(t.Context(), "t", 0, timeline.History{Version: 1}); err != nil {
				t.Fatal(err)
			}
			a, err := s.Arrivals(t.Context(), "t", nil, timeline.Limit{Entries: 1, Bytes: 1})
			if err != nil {
				t.Fatal(err)
			}
			after = a.Next
		}
		id := fmt.Sprint("e", i)
		want = append(want, id)
		if err := s.Put(t.Context(), []timeline.Placed{{Part: timeline.Part{Timeline: "t"}, Entry: timeline.Entry{Event: timeline.Event{Time: int64(-i), ID: id}}}}); err != nil {
			t.Fatal(err)
		}
		if i%3 == 2 || i == generationsOld+3 {
			a, err := s.Arrivals(t.Context(), "t", after, timeline.Limit{Entries: 100, Bytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range a.Entries {
				got = append(got, e.ID)
			}
			after = a.Next
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("arrived %v, want %v", got, want)
	}
}

// TestOpenedTooOften: a store whose openings have no numbers left does not open, because sequences of
// arrivals would begin again.
func TestOpenedTooOften(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs, Options{})
	b := s.db.NewBatch()
	if err := errors.Join(setMeta(b, "generation", 1<<(64-sequenceShift)-2), s.commit(b, nil), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, fs, Options{}) // the last time
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(fs, "timelines", Options{}); err == nil || !strings.Contains(err.Error(), "16 million times") {
		t.Errorf("got %v", err)
	}
}

// TestTailLatency measures the time from a request to append to the event at a reader. The
// bound is that of a hanging reader: the machine may be busy.
func TestTailLatency(t *testing.T) {
	_, e := benchEngine(t, Options{})
	sub, err := e.Tail(t.Context(), timeline.TailQuery{Timeline: "t"})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	var all []time.Duration
	for i := range 100 {
		from := time.Now()
		if _, err := e.Append(t.Context(), []timeline.Addressed{{Event: timeline.Event{Time: from.UnixMicro(), ID: fmt.Sprint(i)}, Timelines: []string{"t"}}}); err != nil {
			t.Fatal(err)
		}
		some, err := sub.Next(t.Context())
		if err != nil || len(some) != 1 || some[0].ID != fmt.Sprint(i) {
			t.Fatal(some, err)
		}
		all = append(all, time.Since(from))
	}
	slices.Sort(all)
	t.Logf("from append to reader: p50 %v, p99 %v", all[50], all[99])
	if all[50] > 5*time.Second {
		t.Errorf("half of the events took longer than %v", all[50])
	}
}

// TestPageOfLargeArrivals: a page of arrivals ends when its data has the bytes of the limit.
func TestPageOfLargeArrivals(t *testing.T) {
	s := open(t, vfs.NewMem(), Options{})
	defer s.Close()
	if err := s.SetHistory(t.Context(), "t", 0, timeline.History{Version: 1}); err != nil {
		t.Fatal(err)
	}
	a, err := s.Arrivals(t.Context(), "t", nil, timeline.Limit{})
	if err != nil {
		t.Fatal(err)
	}
	const events, size = 10, 1000
	for i := range events {
		e := timeline.Event{Time: 1, ID: fmt.Sprint(i), Data: make([]byte, size)}
		if err := s.Put(t.Context(), []timeline.Placed{{Part: timeline.Part{Timeline: "t"}, Entry: timeline.Entry{Event: e}}}); err != nil {
			t.Fatal(err)
		}
	}
	var pages []int
	for more := true; more; more = a.More {
		if a, err = s.Arrivals(t.Context(), "t", a.Next, timeline.Limit{Entries: 100, Bytes: 2*size + 1}); err != nil {
			t.Fatal(err)
		}
		pages = append(pages, len(a.Entries))
	}
	if want := []int{2, 2, 2, 2, 2}; !slices.Equal(pages, want) {
		t.Errorf("pages of %d events, want %d", pages, want)
	}
}

// TestDamagedEvents: each way to read an event tells that it is damaged.
func TestDamagedEvents(t *testing.T) {
	s := open(t, vfs.NewMem(), Options{})
	defer s.Close()
	if err := s.SetHistory(t.Context(), "t", 0, timeline.History{Version: 1}); err != nil {
		t.Fatal(err)
	}
	f := &follower{t: t}
	if _, err := f.read(s); err != nil {
		t.Fatal(err)
	}
	putIDs(t, s, "a", "b", "c")
	n, found, err := s.number("t")
	if err != nil || !found {
		t.Fatal(found, err)
	}
	if err := s.db.Set(eventKey(nil, n, timeline.Position{Time: 1, ID: "b"}), []byte{0xff}, nil); err != nil {
		t.Fatal(err)
	}
	var damage *store.CorruptionError
	if ids, err := f.read(s); !errors.As(err, &damage) {
		t.Errorf("arrivals: %q, %v", ids, err)
	}
	if slice, err := s.Slice(t.Context(), timeline.Everything("t"), timeline.All(), timeline.Ascending, timeline.Limit{Entries: 10, Bytes: 1 << 20}); !errors.As(err, &damage) {
		t.Errorf("events: %+v, %v", slice, err)
	}
}
