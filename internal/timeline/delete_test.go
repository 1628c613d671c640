package timeline

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A largeShelf has one timeline of events with one id and data of 1 MiB each, which it generates
// when they are read. It records how much memory is in use when the first one is deleted.
type largeShelf struct {
	Shelf
	events  int64
	heap    uint64
	deleted int
	calls   int // of Delete
}

func (s *largeShelf) History(context.Context, string) (History, error) {
	return History{Version: 1, Layouts: []Layout{defaultLayout}}, nil
}

func (s *largeShelf) Slice(_ context.Context, _ Part, r Range, _ Direction, l Limit) (Slice, error) {
	var out Slice
	for at := max(0, r.From.Time); at < s.events; at++ {
		e := Entry{Event: Event{Time: at, ID: "x", Data: make([]byte, 1<<20)}}
		if !r.Contains(e.Position()) {
			continue
		}
		if l.Entries <= 0 || l.Bytes <= 0 {
			out.More = true
			break
		}
		out.Entries = append(out.Entries, e)
		l.Entries, l.Bytes = l.Entries-1, l.Bytes-e.Bytes()
	}
	return out, nil
}

func (s *largeShelf) Delete(_ context.Context, _ Part, ranges []Range, _ time.Time) error {
	if s.deleted == 0 {
		s.heap = heapInUse()
	}
	s.deleted += len(ranges)
	s.calls++
	return nil
}

func (s *largeShelf) IsWhole() {}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestDeleteByIDKeepsNoData: the memory of a delete by id does not grow with the data of the
// events that it finds.
func TestDeleteByIDKeepsNoData(t *testing.T) {
	s := &largeShelf{events: 100}
	at := time.Now() // a clock that stands: on a busy machine the search takes longer than pageTime
	e, err := Open(s, Options{Upkeep: -1, Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	before := heapInUse()
	if err := e.Delete(t.Context(), "t", Deletion{ID: "x"}); err != nil {
		t.Fatal(err)
	}
	if s.deleted != int(s.events) {
		t.Errorf("%d events were deleted, want %d", s.deleted, s.events)
	}
	if s.calls != 1 {
		t.Errorf("%d calls delete the events, each of which is a sync, want 1", s.calls)
	}
	if s.heap > before+20<<20 {
		t.Errorf("%d MiB are held while %d MiB of events are deleted, want 20 MiB at most", (s.heap-before)>>20, s.events)
	}
}

// A bucketsShelf stores one event in each of some buckets of a day, from 1970 on. fail says which calls
// fail.
type bucketsShelf struct {
	Shelf
	buckets int64
	fail    func(call string, start int64) error

	mu      sync.Mutex
	deleted map[int64]bool
}

const day = 86400 * second

func (s *bucketsShelf) History(context.Context, string) (History, error) {
	l := defaultLayout
	l.Size = day
	return History{Version: 1, Layouts: []Layout{l}}, s.fail("History", 0)
}

func (s *bucketsShelf) Marks(_ context.Context, _ string, from, toExcl int64, _ Direction, limit int) (starts []int64, err error) {
	for start := max(0, from+day-1) / day * day; start < min(toExcl, s.buckets*day) && len(starts) < limit; start += day {
		starts = append(starts, start)
	}
	return starts, s.fail("Marks", from)
}

func (s *bucketsShelf) Slice(_ context.Context, p Part, r Range, _ Direction, _ Limit) (out Slice, err error) {
	if e := (Entry{Event: Event{Time: p.Start, ID: "x"}}); r.Contains(e.Position()) {
		out.Entries = append(out.Entries, e)
	}
	return out, s.fail("Slice", p.Start)
}

func (s *bucketsShelf) Delete(_ context.Context, p Part, _ []Range, _ time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleted[p.Start] = true
	return s.fail("Delete", p.Start)
}

// TestDeleteOverBuckets: a delete reaches all buckets, however many there are, or says that it failed.
func TestDeleteOverBuckets(t *testing.T) {
	const buckets = 2*marksAtOnce + 10
	broken := errors.New("the node is away")
	from, ahead, histories := int64(0), time.Now().Add(time.Hour).UnixMicro(), 0
	for _, c := range []struct {
		name string
		d    Deletion
		fail func(call string, start int64) error
	}{
		{"a range", Deletion{From: &from}, nil},
		{"an id", Deletion{ID: "x"}, nil},
		{"a range, the last bucket fails", Deletion{From: &from}, func(call string, start int64) error {
			if call == "Delete" && start == (buckets-1)*day {
				return broken
			}
			return nil
		}},
		{"an id, the last bucket fails", Deletion{ID: "x"}, func(call string, start int64) error {
			if call == "Delete" && start == (buckets-1)*day {
				return broken
			}
			return nil
		}},
		{"the directory fails", Deletion{From: &from}, func(call string, start int64) error {
			if call == "Marks" && start > 0 {
				return broken
			}
			return nil
		}},
		{"a range ahead, for which the layout is read again, fails", Deletion{From: &ahead}, func(call string, _ int64) error {
			if call != "History" {
				return nil
			}
			if histories++; histories == 2 {
				return broken
			}
			return nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &bucketsShelf{buckets: buckets, fail: c.fail, deleted: map[int64]bool{}}
			if c.fail == nil {
				s.fail = func(string, int64) error { return nil }
			}
			e, err := Open(s, Options{Upkeep: -1})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			err = e.Delete(t.Context(), "t", c.d)
			if c.fail != nil && (!errors.Is(err, broken) || !strings.Contains(err.Error(), "some events may be deleted; repeat the delete")) {
				t.Errorf("got %v, want the error of the shelf, and that some events may be deleted", err)
			}
			if c.fail == nil && (err != nil || len(s.deleted) != buckets) {
				t.Errorf("events of %d of %d buckets were deleted, %v", len(s.deleted), buckets, err)
			}
		})
	}
}

// A notedShelf is a bucketsShelf whose deletes others apply to events that wait.
type notedShelf struct{ *bucketsShelf }

func (s notedShelf) NoteDeletion(context.Context, string, Deleted) error { return s.fail("Note", 0) }

func (s notedShelf) Deletions(context.Context, string, time.Time, func(Deleted) error) error {
	return nil
}

// TestDeletesThatHadNotBegun: the error of a delete says that some events may be deleted only if that
// is so. If it is noted for events that wait, it is so from then on.
func TestDeletesThatHadNotBegun(t *testing.T) {
	broken := errors.New("the node is away")
	byID := func(e *Engine) error { return e.Delete(t.Context(), "t", Deletion{ID: "x"}) }
	all := func(e *Engine) error { return e.DeleteTimeline(t.Context(), "t") }
	for _, c := range []struct {
		call   string
		change func(*Engine) error
		begun  [2]bool // without notes, with them
	}{
		{"Slice", byID, [2]bool{false, true}},
		{"History", byID, [2]bool{false, true}},
		{"History", all, [2]bool{false, true}},
		{"Delete", byID, [2]bool{true, true}},
		{"Delete", all, [2]bool{true, true}},
		{"Note", byID, [2]bool{false, true}},
		{"Note", all, [2]bool{false, true}},
	} {
		for i, begun := range c.begun {
			if c.call == "Note" && i == 0 {
				continue
			}
			s := &bucketsShelf{buckets: 1, deleted: map[int64]bool{}, fail: func(call string, _ int64) error {
				if call == c.call {
					return broken
				}
				return nil
			}}
			shelf := []Shelf{s, notedShelf{s}}[i]
			e, err := Open(shelf, Options{Upkeep: -1})
			if err != nil {
				t.Fatal(err)
			}
			err = c.change(e)
			if !errors.Is(err, broken) || strings.Contains(err.Error(), "some events may be deleted") != begun {
				t.Errorf("%s fails, notes %t: %v, had begun: %t", c.call, i == 1, err, begun)
			}
			e.Close()
		}
	}
}

// TestFailuresAreTold: a change that was not stored is not reported as done.
func TestFailuresAreTold(t *testing.T) {
	broken := errors.New("the node is away")
	for _, c := range []struct {
		name, call string
		change     func(*Engine) error
	}{
		{"delete a timeline whose layout cannot be read", "History", func(e *Engine) error { return e.DeleteTimeline(t.Context(), "t") }},
		{"delete a timeline whose events cannot be deleted", "Delete", func(e *Engine) error { return e.DeleteTimeline(t.Context(), "t") }},
		{"delete a timeline that cannot be marked as deleted", "SetHistory", func(e *Engine) error { return e.DeleteTimeline(t.Context(), "t") }},
		{"propose a layout that cannot be stored", "SetHistory", func(e *Engine) error {
			_, err := e.Propose(t.Context(), "t", Proposal{Factor: 2})
			return err
		}},
		{"set a retention that cannot be stored", "SetHistory", func(e *Engine) error {
			_, err := e.SetRetention(t.Context(), "t", time.Hour)
			return err
		}},
	} {
		s := &bucketsShelf{buckets: 1, deleted: map[int64]bool{}, fail: func(call string, _ int64) error {
			if call == c.call {
				return broken
			}
			return nil
		}}
		e, err := Open(s, Options{Upkeep: -1})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.change(e); !errors.Is(err, broken) {
			t.Errorf("%s: got %v, want the error of the shelf", c.name, err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A deadlineShelf notes whether histories are to be stored until a time.
type deadlineShelf struct {
	*bucketsShelf
	until []bool
}

func (s *deadlineShelf) SetHistory(ctx context.Context, _ string, _ uint64, _ History) error {
	_, ok := ctx.Deadline()
	s.until = append(s.until, ok)
	return nil
}

// TestOnlyLayoutsAreStoredInTime: a new layout has to be stored within the skew, since it begins at a
// time. A retention may take as long as the shelf needs.
func TestOnlyLayoutsAreStoredInTime(t *testing.T) {
	s := &deadlineShelf{bucketsShelf: &bucketsShelf{buckets: 1, fail: func(string, int64) error { return nil }}}
	e, err := Open(s, Options{Upkeep: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	_, retained := e.SetRetention(t.Context(), "t", time.Hour)
	_, proposed := e.Propose(t.Context(), "t", Proposal{Factor: 2})
	if err := errors.Join(retained, proposed); err != nil || !slices.Equal(s.until, []bool{false, true}) {
		t.Errorf("%v, with a deadline: %v, want only the second", err, s.until)
	}
}

func (s *bucketsShelf) SetHistory(context.Context, string, uint64, History) error {
	return s.fail("SetHistory", 0)
}

func (s *bucketsShelf) Arrivals(context.Context, string, []byte, Limit) (Arrivals, error) {
	return Arrivals{Next: []byte("x")}, nil
}

// TestLinesAreReleased: what a call has used of a timeline may be forgotten after it. Otherwise memory
// would grow with the names that clients send.
func TestLinesAreReleased(t *testing.T) {
	e, err := Open(&bucketsShelf{buckets: 1, deleted: map[int64]bool{}, fail: func(string, int64) error { return nil }}, Options{Upkeep: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx, names, from := t.Context(), []string{"t"}, int64(0)
	one := []Addressed{{Event: Event{Time: time.Now().UnixMicro(), ID: "x"}, Timelines: names}}
	for name, call := range map[string]func() error{
		"accept":           func() error { _, _, err := e.Accept(ctx, one); return err },
		"read":             func() error { _, err := e.Read(ctx, Query{Timelines: names}); return err },
		"read in vain":     func() error { e.Read(ctx, Query{Timelines: names, Cursor: "x"}); return nil },
		"delete":           func() error { return e.Delete(ctx, "t", Deletion{From: &from}) },
		"delete nothing":   func() error { return e.Delete(ctx, "t", Deletion{From: new(int64(MaxTime)), Until: &from}) },
		"show the layout":  func() error { _, err := e.Layout(ctx, "t"); return err },
		"set the layout":   func() error { _, err := e.Propose(ctx, "t", Proposal{Factor: 2}); return err },
		"set a retention":  func() error { _, err := e.SetRetention(ctx, "t", 0); return err },
		"stats":            func() error { _, err := e.Stats(ctx, "t"); return err },
		"start":            func() error { _, err := e.Start(ctx, "t"); return err },
		"latest":           func() error { _, err := e.Latest(ctx, "t"); return err },
		"delete all of it": func() error { return e.DeleteTimeline(ctx, "t") },
		"follow": func() error {
			s, err := e.Tail(ctx, TailQuery{Timeline: "t"})
			s.Close()
			return err
		},
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if l := e.use("t"); l.uses != 1 {
			t.Fatalf("%s: the timeline is in use %d times", name, l.uses-1)
		} else {
			e.release(l)
		}
	}
}

// An endlessShelf has a timeline that returns events until one is put. Their data is stored separately.
type endlessShelf struct {
	largeShelf
	put   chan struct{}
	begun chan struct{} // events are being deleted
	once  sync.Once
}

func (s *endlessShelf) History(context.Context, string) (History, error) {
	l := defaultLayout
	l.Mode = Index
	return History{Version: 1, Layouts: []Layout{l}}, nil
}

func (s *endlessShelf) Slice(ctx context.Context, _ Part, r Range, _ Direction, l Limit) (Slice, error) {
	select {
	case <-s.put:
		return Slice{}, nil
	default:
	}
	out := Slice{More: true}
	for i := range l.Entries {
		out.Entries = append(out.Entries, Entry{Event: Event{Time: r.From.Time + int64(i), ID: fmt.Sprint("e", i)}, Pointer: PayloadKey{1}})
	}
	return out, ctx.Err()
}

func (s *endlessShelf) DropPayloads(context.Context, []PayloadKey, string, time.Time) error {
	s.once.Do(func() { close(s.begun) })
	return nil
}

func (s *endlessShelf) Mark(context.Context, string, []int64, time.Time) error { return nil }

func (s *endlessShelf) Marks(context.Context, string, int64, int64, Direction, int) ([]int64, error) {
	return []int64{0}, nil
}

func (s *endlessShelf) Unmark(context.Context, string, []int64, time.Time) error { return nil }

func (s *endlessShelf) SetHistory(context.Context, string, uint64, History) error { return nil }

func (s *endlessShelf) Put(context.Context, []Placed) error {
	close(s.put)
	return nil
}

// TestAppendsBesideDeletes: an append does not wait until all events of a timeline are deleted.
func TestAppendsBesideDeletes(t *testing.T) {
	until := int64(MaxTime)
	for name, remove := range map[string]func(context.Context, *Engine) error{
		"events":   func(ctx context.Context, e *Engine) error { return e.Delete(ctx, "t", Deletion{Until: &until}) },
		"timeline": func(ctx context.Context, e *Engine) error { return e.DeleteTimeline(ctx, "t") },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			s := &endlessShelf{put: make(chan struct{}), begun: make(chan struct{})}
			e, err := Open(s, Options{Upkeep: -1})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			deleted := make(chan error, 1)
			go func() { deleted <- remove(ctx, e) }()
			<-s.begun
			now := time.Now().UnixMicro()
			if _, err := e.Append(ctx, []Addressed{{Event: Event{Time: now, ID: "new"}, Timelines: []string{"t"}}}); err != nil {
				t.Error(err)
			}
			if err := <-deleted; err != nil {
				t.Error(err)
			}
		})
	}
}
