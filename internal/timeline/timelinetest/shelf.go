package timelinetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/store"
	"varve/internal/timeline"
)

var layout = timeline.Layout{From: timeline.Beginning, Size: 10 * second, Factor: 2, Mode: timeline.Materialised, Placement: timeline.Hash}

// create creates a timeline.
func (s *suite) create(n string) string {
	s.t.Helper()
	name := s.name(n)
	s.must(s.shelf.SetHistory(s.ctx(), name, 0, timeline.History{Version: 1, Layouts: []timeline.Layout{layout}}))
	return name
}

func partOf(name string, start int64, p int) timeline.Part {
	return timeline.Part{Timeline: name, Start: start, EndExcl: start + 10*second, Partition: p}
}

func placed(p timeline.Part, time int64, id, data string) timeline.Placed {
	return timeline.Placed{Part: p, Entry: timeline.Entry{Event: timeline.Event{Time: time, ID: id, Type: "kind", Data: []byte(data)}}}
}

var large = timeline.Limit{Entries: 1000, Bytes: 1 << 20}

// texts writes entries as time id=data.
func texts(entries []timeline.Entry) []string {
	all := []string{}
	for _, e := range entries {
		all = append(all, fmt.Sprintf("%d %s=%s", e.Time, e.ID, e.Data))
	}
	return all
}

func (s *suite) wantSlice(p timeline.Part, r timeline.Range, d timeline.Direction, want ...string) {
	s.t.Helper()
	out, err := s.shelf.Slice(s.ctx(), p, r, d, large)
	s.must(err)
	if got := texts(out.Entries); !slices.Equal(got, want) || out.More {
		s.t.Errorf("%v, more %v, want %v", got, out.More, want)
	}
}

func testSlice(t *testing.T, s *suite) {
	name, other := s.create("a"), s.create("b")
	p0, p1, next := partOf(name, -10*second, 0), partOf(name, -10*second, 1), partOf(name, 0, 0)
	s.must(s.shelf.Put(s.ctx(), []timeline.Placed{
		placed(p0, -3, "b", "2"), placed(p0, -3, "a", "1"), placed(p0, -3, "ab", "3"), placed(p0, -3, "é", "4"), placed(p0, -5, "z", "0"),
		placed(p1, -3, "c", "other partition"), placed(next, 0, "a", "next bucket"), placed(partOf(other, -10*second, 0), -3, "a", "other timeline"),
	}))
	all := []string{"-5 z=0", "-3 a=1", "-3 ab=3", "-3 b=2", "-3 é=4"}
	s.wantSlice(p0, timeline.All(), timeline.Ascending, all...)
	back := slices.Clone(all)
	slices.Reverse(back)
	s.wantSlice(p0, timeline.All(), timeline.Descending, back...)
	s.wantSlice(p1, timeline.All(), timeline.Ascending, "-3 c=other partition")
	s.wantSlice(next, timeline.All(), timeline.Descending, "0 a=next bucket")
	s.wantSlice(partOf(name, 0, 1), timeline.All(), timeline.Descending)
	s.wantSlice(partOf(s.name("none"), 0, 0), timeline.All(), timeline.Descending)

	a, b := timeline.Position{Time: -3, ID: "a"}, timeline.Position{Time: -3, ID: "b"}
	for _, d := range []timeline.Direction{timeline.Ascending, timeline.Descending} {
		for _, c := range []struct {
			from, to timeline.Position
			want     []string
		}{
			{a, b, all[1:3]}, {a.Next(), b, all[2:3]}, {a.Next(), b.Next(), all[2:4]}, {timeline.At(-5), timeline.At(-3), all[:1]},
			{timeline.At(-4), timeline.At(-2), all[1:]}, {b, a, nil}, {a, a, nil},
		} {
			want := slices.Clone(c.want)
			if d == timeline.Descending {
				slices.Reverse(want)
			}
			s.wantSlice(p0, timeline.Range{From: c.from, To: c.to}, d, want...)
		}
	}
}

func testSliceLimits(t *testing.T, s *suite) {
	name := s.create("a")
	p := partOf(name, 0, 0)
	var some []timeline.Placed
	for i := range 10 {
		some = append(some, placed(p, int64(i), "x", "1234567890"))
	}
	s.must(s.shelf.Put(s.ctx(), some))
	for _, c := range []struct {
		limit timeline.Limit
		want  int
		more  bool
	}{
		{timeline.Limit{Entries: 3, Bytes: 1 << 20}, 3, true},
		{timeline.Limit{Entries: 11, Bytes: 1 << 20}, 10, false},
		{timeline.Limit{Entries: 100, Bytes: 1}, 1, true},
	} {
		for _, d := range []timeline.Direction{timeline.Ascending, timeline.Descending} {
			out, err := s.shelf.Slice(s.ctx(), p, timeline.All(), d, c.limit)
			s.must(err)
			if len(out.Entries) != c.want || out.More != c.more {
				t.Errorf("%v %+v: %d entries, more %v", d, c.limit, len(out.Entries), out.More)
			}
		}
	}
	// A reader that continues after the last entry of each slice gets each entry once, and
	// reaches the end.
	r, n := timeline.All(), 0
	for {
		out, err := s.shelf.Slice(s.ctx(), p, r, timeline.Descending, timeline.Limit{Entries: 3, Bytes: 1 << 20})
		s.must(err)
		n += len(out.Entries)
		if !out.More {
			break
		}
		r.To = out.Entries[len(out.Entries)-1].Position()
	}
	if n != 10 {
		t.Errorf("%d entries in pieces, want 10", n)
	}
}

func testPutAgain(t *testing.T, s *suite) {
	name := s.create("a")
	p := partOf(name, 0, 1)
	e := placed(p, 7, "x", "first")
	s.must(s.shelf.Put(s.ctx(), []timeline.Placed{e}))
	s.must(s.shelf.Put(s.ctx(), []timeline.Placed{e}))
	s.wantSlice(p, timeline.All(), timeline.Ascending, "7 x=first")
	e.Data, e.Type = []byte("second"), ""
	s.must(s.shelf.Put(s.ctx(), []timeline.Placed{e}))
	s.wantSlice(p, timeline.All(), timeline.Ascending, "7 x=second")

	pointer := placed(p, 8, "y", "")
	pointer.Data, pointer.Pointer, pointer.Size, pointer.Type = nil, timeline.PayloadKey{1, 2, 3}, 4711, "a type, ü"
	s.must(s.shelf.Put(s.ctx(), []timeline.Placed{pointer}))
	out, err := s.shelf.Slice(s.ctx(), p, timeline.All(), timeline.Descending, timeline.Limit{Entries: 1, Bytes: 1})
	s.must(err)
	got := out.Entries[0]
	if got.Pointer != pointer.Pointer || got.Size != pointer.Size || got.Type != pointer.Type || len(got.Data) > 0 {
		t.Errorf("got %+v, want %+v", got, pointer.Entry)
	}
}

func testDelete(t *testing.T, s *suite) {
	name := s.create("a")
	p0, p1 := partOf(name, 0, 0), partOf(name, 0, 1)
	put := func() {
		s.must(s.shelf.Put(s.ctx(), []timeline.Placed{placed(p0, 1, "a", ""), placed(p0, 2, "a", ""), placed(p0, 2, "b", ""), placed(p0, 3, "a", ""), placed(p1, 2, "c", "")}))
	}
	put()
	a := timeline.Position{Time: 2, ID: "a"}
	s.must(s.shelf.Delete(s.ctx(), p0, []timeline.Range{{From: a, To: a.Next()}}, time.Now()))
	s.wantSlice(p0, timeline.All(), timeline.Ascending, "1 a=", "2 b=", "3 a=")
	s.must(s.shelf.Delete(s.ctx(), p0, []timeline.Range{{From: timeline.At(2), To: timeline.At(9)}}, time.Now()))
	s.wantSlice(p0, timeline.All(), timeline.Ascending, "1 a=")
	s.wantSlice(p1, timeline.All(), timeline.Ascending, "2 c=")
	s.must(s.shelf.Delete(s.ctx(), p0, []timeline.Range{timeline.All()}, time.Now()))
	s.must(s.shelf.Delete(s.ctx(), p0, []timeline.Range{timeline.All()}, time.Now()))
	s.wantSlice(p0, timeline.All(), timeline.Ascending)
	put() // entries that are put after the deletion stay
	s.wantSlice(p0, timeline.All(), timeline.Ascending, "1 a=", "2 a=", "2 b=", "3 a=")

	ranges := []timeline.Range{{From: timeline.At(1), To: timeline.At(2)}, {From: a, To: a.Next()}}
	for i := range int64(100) { // only the last one has entries
		p := timeline.Position{Time: 2, ID: fmt.Sprintf("a%02d", i)}
		ranges = append(ranges, timeline.Range{From: p, To: p.Next()})
	}
	ranges = append(ranges, timeline.Range{From: timeline.Position{Time: 3, ID: "a"}, To: timeline.At(9)})
	s.must(s.shelf.Delete(s.ctx(), p0, ranges, time.Now()))
	s.wantSlice(p0, timeline.All(), timeline.Ascending, "2 b=")
}

func (s *suite) wantMarks(name string, from, to int64, d timeline.Direction, limit int, want ...int64) {
	s.t.Helper()
	got, err := s.shelf.Marks(s.ctx(), name, from, to, d, limit)
	s.must(err)
	if !slices.Equal(got, want) {
		s.t.Errorf("marks %v, want %v", got, want)
	}
}

func testMarks(t *testing.T, s *suite) {
	name, other := s.create("a"), s.create("b")
	now := time.Now()
	s.must(s.shelf.Mark(s.ctx(), name, []int64{20, -10, 0, 10}, now))
	s.must(s.shelf.Mark(s.ctx(), name, []int64{0}, now))
	s.must(s.shelf.Mark(s.ctx(), other, []int64{5}, now))
	s.wantMarks(name, -100, 100, timeline.Ascending, 9, -10, 0, 10, 20)
	s.wantMarks(name, -100, 100, timeline.Descending, 9, 20, 10, 0, -10)
	s.wantMarks(name, -10, 20, timeline.Descending, 9, 10, 0, -10)
	s.wantMarks(name, -9, 20, timeline.Ascending, 1, 0)
	s.wantMarks(name, 1, 1, timeline.Ascending, 1)
	s.wantMarks(s.name("none"), -100, 100, timeline.Ascending, 1)

	s.must(s.shelf.Mark(s.ctx(), name, []int64{10}, now.Add(time.Minute))) // again, later
	s.must(s.shelf.Unmark(s.ctx(), name, []int64{-10, 10, 20}, now.Add(time.Second)))
	s.wantMarks(name, -100, 100, timeline.Ascending, 9, 0, 10)
	s.must(s.shelf.Mark(s.ctx(), name, []int64{20}, now.Add(2*time.Minute)))
	s.wantMarks(name, -100, 100, timeline.Ascending, 9, 0, 10, 20)
}

func testHistory(t *testing.T, s *suite) {
	name := s.name("a")
	h, err := s.shelf.History(s.ctx(), name)
	if err != nil || h.Version != 0 {
		t.Errorf("a timeline that is not there has history %+v, %v", h, err)
	}
	first := timeline.History{Version: 1, Layouts: []timeline.Layout{layout}, Retention: time.Hour}
	s.must(s.shelf.SetHistory(s.ctx(), name, 0, first))
	if err := s.shelf.SetHistory(s.ctx(), name, 0, first); !errors.Is(err, timeline.ErrConflict) {
		t.Errorf("it was created twice: %v", err)
	}
	second := timeline.History{Version: 2, Layouts: append([]timeline.Layout{layout}, timeline.Layout{From: 100 * second, Size: second, Factor: 3, Mode: timeline.Hybrid, Threshold: 5, Placement: timeline.RoundRobin}), Deleted: 7}
	s.must(s.shelf.SetHistory(s.ctx(), name, 1, second))
	if err := s.shelf.SetHistory(s.ctx(), name, 1, second); !errors.Is(err, timeline.ErrConflict) {
		t.Errorf("version 1 was replaced twice: %v", err)
	}
	if h, err := s.shelf.History(s.ctx(), name); err != nil || !reflect.DeepEqual(h, second) {
		t.Errorf("history %+v, %v, want %+v", h, err, second)
	}
	if err := s.shelf.SetHistory(s.ctx(), name, 1, timeline.History{}); !errors.Is(err, timeline.ErrConflict) {
		t.Errorf("an old version was removed: %v", err)
	}
	s.must(s.shelf.SetHistory(s.ctx(), name, 2, timeline.History{}))
	if h, err := s.shelf.History(s.ctx(), name); err != nil || h.Version != 0 {
		t.Errorf("removed, it is %+v, %v", h, err)
	}
	s.must(s.shelf.SetHistory(s.ctx(), name, 0, first))
}

func testConcurrentHistories(t *testing.T, s *suite) {
	name := s.create("a")
	var done atomic.Int64
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for n := 0; n < 3; {
				h, err := s.shelf.History(s.ctx(), name)
				if err == nil {
					h.Version++
					err = s.shelf.SetHistory(s.ctx(), name, h.Version-1, h)
				}
				switch {
				case err == nil:
					n++
					done.Add(1)
				case !errors.Is(err, timeline.ErrConflict):
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	if h, err := s.shelf.History(s.ctx(), name); err != nil || h.Version != 1+12 || done.Load() != 12 {
		t.Errorf("version %d after %d changes, %v", h.Version, done.Load(), err)
	}
}

func testNames(t *testing.T, s *suite) {
	before, err := s.shelf.Count(s.ctx())
	s.must(err)
	for _, n := range []string{"b", "a", "ab", "é", "c"} {
		s.create(n)
	}
	want := func(prefix, after string, limit int, want ...string) {
		t.Helper()
		got, err := s.shelf.Names(s.ctx(), s.name(prefix), after, limit)
		s.must(err)
		for i := range want {
			want[i] = s.name(want[i])
		}
		if !slices.Equal(got, want) {
			t.Errorf("names %q after %q: %q, want %q", prefix, after, got, want)
		}
	}
	want("", "", 9, "a", "ab", "b", "c", "é")
	want("", "", 2, "a", "ab")
	want("", s.name("ab"), 2, "b", "c")
	want("a", "", 9, "a", "ab")
	want("a", s.name("a"), 9, "ab")
	want("x", "", 9)
	s.must(s.shelf.SetHistory(s.ctx(), s.name("c"), 1, timeline.History{}))
	want("", s.name("b"), 9, "é")
	if n, err := s.shelf.Count(s.ctx()); err != nil || n < before || n > before+1000 {
		t.Errorf("%d timelines, %v, before there were %d", n, err, before)
	}
}

func testPayloads(t *testing.T, s *suite) {
	a, b := s.create("a"), s.create("b")
	key := timeline.PayloadKey(fmt.Appendf(nil, "%-16.16x", time.Now().UnixNano()))
	if _, err := s.shelf.Payload(s.ctx(), key); !errors.Is(err, timeline.ErrNoPayload) {
		t.Errorf("what was never put: %v", err)
	}
	data := []byte{0, 1, 2, 255}
	in := func(name string) timeline.Placed {
		return timeline.Placed{Part: partOf(name, 0, 0), MayPoint: true, Payload: data,
			Entry: timeline.Entry{Event: timeline.Event{Time: 1, ID: "e"}, Pointer: key, Size: len(data)}}
	}
	s.must(s.shelf.Put(s.ctx(), []timeline.Placed{in(a)}))
	s.must(s.shelf.Put(s.ctx(), []timeline.Placed{in(a), in(b)}))
	want := func(there bool) {
		t.Helper()
		switch got, err := s.shelf.Payload(s.ctx(), key); {
		case there && (err != nil || string(got) != string(data)):
			t.Errorf("got %v, %v", got, err)
		case !there && !errors.Is(err, timeline.ErrNoPayload):
			t.Errorf("it is still there: %v, %v", got, err)
		}
	}
	want(true)
	later := time.Now().Add(time.Second)
	s.must(s.shelf.DropPayloads(s.ctx(), []timeline.PayloadKey{key}, a, later))
	want(true)
	s.must(s.shelf.DropPayloads(s.ctx(), []timeline.PayloadKey{key}, b, later))
	want(false)
	s.must(s.shelf.DropPayloads(s.ctx(), []timeline.PayloadKey{key}, b, later))
}

// arrived reads all arrivals after a position.
func (s *suite) arrived(name string, after []byte, l timeline.Limit) ([]string, []byte) {
	s.t.Helper()
	var all []string
	for {
		a, err := s.shelf.Arrivals(s.ctx(), name, after, l)
		s.must(err)
		if a.Next == nil || len(a.After) != len(a.Entries) || len(a.Next) > timeline.ArrivalBytesMax {
			s.t.Fatalf("%d entries, %d positions, next %x", len(a.Entries), len(a.After), a.Next)
		}
		all, after = append(all, texts(a.Entries)...), a.Next
		if !a.More {
			return all, after
		}
	}
}

// wantArrived waits until the arrivals are the expected ones: on shelves to which several
// processes write, an arrival may be listed some time after Put.
func (s *suite) wantArrived(name string, after []byte, l timeline.Limit, want ...string) (next []byte) {
	s.t.Helper()
	var all []string
	for deadline := time.Now().Add(time.Minute); ; {
		var some []string
		some, after = s.arrived(name, after, l)
		if all = append(all, some...); len(all) >= len(want) || time.Now().After(deadline) {
			break
		}
	}
	got := slices.Sorted(slices.Values(all))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.t.Errorf("arrived %v, want %v", got, want)
	}
	return after
}

func testArrivals(t *testing.T, s *suite) {
	name, other := s.create("a"), s.create("b")
	p0, p1 := partOf(name, 0, 0), partOf(name, 0, 1)
	s.must(s.shelf.Put(s.ctx(), []timeline.Placed{placed(p0, 5, "before", "")}))
	_, now := s.arrived(name, nil, large)
	s.must(s.shelf.Put(s.ctx(), []timeline.Placed{placed(p0, 9, "a", "1"), placed(p1, 8, "b", "2"), placed(partOf(other, 0, 0), 1, "o", "")}))
	s.must(s.shelf.Put(s.ctx(), []timeline.Placed{placed(p1, 2, "late", "3")}))
	next := s.wantArrived(name, now, large, "9 a=1", "8 b=2", "2 late=3")
	s.wantArrived(name, next, large)
	s.wantArrived(name, now, timeline.Limit{Entries: 1, Bytes: 1}, "9 a=1", "8 b=2", "2 late=3")

	// The position of an entry continues after it.
	a, err := s.shelf.Arrivals(s.ctx(), name, now, large)
	s.must(err)
	for i := range a.Entries {
		s.wantArrived(name, a.After[i], large, texts(a.Entries[i+1:])...)
	}

	position := timeline.Position{Time: 8, ID: "b"}
	s.must(s.shelf.Delete(s.ctx(), p1, []timeline.Range{{From: position, To: position.Next()}}, time.Now()))
	s.wantArrived(name, now, large, "9 a=1", "2 late=3")
	s.must(s.shelf.Put(s.ctx(), []timeline.Placed{placed(p0, 1, "c", "4")}))
	s.wantArrived(name, next, large, "1 c=4")

	for _, bad := range []string{"x", "no position of this shelf", string(make([]byte, 400))} {
		if _, err := s.shelf.Arrivals(s.ctx(), name, []byte(bad), large); !errors.As(err, new(*store.InputError)) {
			t.Errorf("after %q: %v, want an input error", bad, err)
		}
	}
}

func testCancelled(t *testing.T, s *suite) {
	name := s.create("a")
	ctx, cancel := context.WithCancel(s.ctx())
	cancel()
	if err := s.shelf.Put(ctx, []timeline.Placed{placed(partOf(name, 0, 0), 1, "a", "")}); !errors.Is(err, context.Canceled) {
		t.Errorf("put: %v", err)
	}
	if _, err := s.shelf.History(ctx, name); !errors.Is(err, context.Canceled) {
		t.Errorf("history: %v", err)
	}
}
