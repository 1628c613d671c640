package timelinetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"varve/internal/store"
	"varve/internal/timeline"
)

// testModes: data that is stored separately, referenced by several timelines, or lost.
func testModes(t *testing.T, s *suite) {
	e := s.engine(s.shelf, time.Now)
	index, hybrid, plain := s.name("index"), s.name("hybrid"), s.name("plain")
	s.propose(e, index, timeline.Proposal{Mode: timeline.Index, Factor: 2})
	s.propose(e, hybrid, timeline.Proposal{Mode: timeline.Hybrid, Threshold: 100})
	base := time.Now().Add(-time.Hour).UnixMicro()
	large := timeline.Addressed{Event: timeline.Event{Time: base, ID: "large", Data: []byte(strings.Repeat("x", 1000))}, Timelines: []string{index, hybrid, plain}}
	small := timeline.Addressed{Event: timeline.Event{Time: base + 1, ID: "small", Data: []byte("y")}, Timelines: []string{index, hybrid, plain}}
	s.append(e, large, small)
	want := func(name string, n, bytes, missing int) {
		t.Helper()
		all, _ := s.pages(e, timeline.Query{Timelines: []string{name}}, nil)
		got, gone := 0, 0
		for _, f := range all {
			got += len(f.Data)
			if f.Missing {
				gone++
			}
		}
		if len(all) != n || got != bytes || gone != missing {
			t.Errorf("%s: %d events with %d bytes, %d without data; want %d, %d, %d", name, len(all), got, gone, n, bytes, missing)
		}
	}
	for _, name := range []string{index, hybrid, plain} {
		want(name, 2, 1001, 0)
	}
	s.must(e.Delete(s.ctx(), index, timeline.Deletion{ID: "large"}))
	want(index, 1, 1, 0)
	want(hybrid, 2, 1001, 0)

	// Data that was lost is a gap, not the end of the page.
	out, err := s.shelf.Slice(s.ctx(), timeline.Part{Timeline: hybrid, Start: floor(base, 10*second), EndExcl: floor(base, 10*second) + 10*second}, timeline.All(), timeline.Ascending, timeline.Limit{Entries: 1, Bytes: 1})
	s.must(err)
	s.must(s.shelf.DropPayloads(s.ctx(), []timeline.PayloadKey{out.Entries[0].Pointer}, hybrid, time.Now().Add(time.Second)))
	want(hybrid, 2, 1, 1)
	want(plain, 2, 1001, 0)
}

// testDeleteInterrupted: if a client disconnects while events with separate data are deleted, each
// event is either complete or completely deleted.
func testDeleteInterrupted(t *testing.T, s *suite) {
	const n = 1200
	e := s.engine(s.shelf, time.Now)
	name := s.name("a")
	s.propose(e, name, timeline.Proposal{Mode: timeline.Index, Size: 86_400 * second})
	base := time.Now().Add(-time.Hour).UnixMicro()
	events, _ := row(n, func(i int64) int64 { return base + i }, name)
	s.append(e, events...)
	ctx, cancel := context.WithCancel(s.ctx())
	defer cancel()
	var calls atomic.Int64
	impatient := s.engine(&Hooked{Shelf: s.shelf, Before: Hooks{"DropPayloads": func(c Call) error {
		if calls.Add(int64(len(c.Keys))) >= n/3 {
			cancel()
		}
		return nil
	}}}, time.Now)
	if err := impatient.Delete(ctx, name, timeline.Deletion{From: &base}); !errors.Is(err, context.Canceled) {
		t.Errorf("a delete that is broken off: %v", err)
	}
	left, _ := s.pages(e, timeline.Query{Timelines: []string{name}, Limit: n}, nil)
	for _, f := range left {
		if f.Missing {
			t.Fatalf("of %d events that are left, %s has lost its data", len(left), f.ID)
		}
	}
	if len(left) == 0 || len(left) == n {
		t.Errorf("%d events are left, want some", len(left))
	}
	s.must(e.Delete(s.ctx(), name, timeline.Deletion{From: &base}))
	s.want(e, timeline.Query{Timelines: []string{name}}, nil)
}

// testDeletedWhileRead: an event that is deleted after its row was read, but before its data was,
// is left out of pages and tails. It does not count as an event that lost its data.
func testDeletedWhileRead(t *testing.T, s *suite) {
	e := s.engine(s.shelf, time.Now)
	name := s.name("a")
	s.propose(e, name, timeline.Proposal{Mode: timeline.Index})
	var meanwhile func()
	reader := s.engine(&Hooked{Shelf: s.shelf, Before: Hooks{"Payload": Doing(func() { meanwhile() })}}, time.Now)
	base := time.Now().Add(-time.Hour).UnixMicro()
	for _, id := range []string{"e1", "e2", "e3"} {
		s.append(e, event(base, id, name))
	}
	var once sync.Once
	meanwhile = func() { once.Do(func() { s.must(e.Delete(s.ctx(), name, timeline.Deletion{ID: "e2"})) }) }
	p, err := reader.Read(s.ctx(), timeline.Query{Timelines: []string{name}, Limit: 2})
	s.must(err)
	all := p.Events
	if p.Cursor != "" {
		p, err = reader.Read(s.ctx(), timeline.Query{Timelines: []string{name}, Limit: 2, Cursor: p.Cursor})
		s.must(err)
		all = append(all, p.Events...)
	}
	if got := fmt.Sprint(names(all)); got != fmt.Sprintf("[%d/e3 %d/e1]", base, base) || all[0].Missing || all[1].Missing {
		t.Errorf("events %+v", all)
	}

	sub, err := reader.Tail(s.ctx(), timeline.TailQuery{Timeline: name})
	s.must(err)
	defer sub.Close()
	once = sync.Once{}
	s.append(e, event(base, "e2", name), event(base, "e4", name))
	got, err := sub.Next(s.ctx())
	s.must(err)
	if len(got) != 1 || got[0].ID != "e4" || got[0].Missing {
		t.Errorf("a reader that follows got %+v", got)
	}
}

// testDeleteSlowly: a delete by id alone that takes too long is not reported as the fault of the client.
func testDeleteSlowly(t *testing.T, s *suite) {
	c := &clock{at: time.Now()}
	var slow atomic.Bool
	e := s.engine(s.shelf, func() time.Time {
		if slow.Load() {
			c.looks.Add(10 * second)
		}
		return c.now()
	})
	name, base := s.name("a"), c.at.Add(-time.Hour).UnixMicro()
	events, _ := row(1100, func(i int64) int64 { return base + i*second }, name)
	s.append(e, events...)
	slow.Store(true)
	if err := e.Delete(s.ctx(), name, timeline.Deletion{ID: "e1099"}); !errors.As(err, new(*store.UnavailableError)) {
		t.Errorf("a delete that takes too long: %v", err)
	}
}

// testRetentionElsewhere: after another process has made the retention longer, nothing is removed or
// finally rejected by the former one, which this process may still remember.
func testRetentionElsewhere(t *testing.T, s *suite) {
	for _, mode := range []timeline.Mode{timeline.Materialised, timeline.Index} {
		this, other := s.engine(Buckets(s.shelf), time.Now), s.engine(Buckets(s.shelf), time.Now)
		name := s.name(string(mode))
		s.propose(other, name, timeline.Proposal{Mode: mode})
		s.retain(other, name, time.Hour)
		now := time.Now().UnixMicro()
		s.append(this, event(now, "new", name)) // this process now knows the retention
		s.retain(other, name, 24*time.Hour)
		old := now - 7200*second
		s.append(other, event(old, "old", name))
		s.must(this.Upkeep(s.ctx()))
		s.want(other, timeline.Query{Timelines: []string{name}}, []string{fmt.Sprintf("%d/old", old), fmt.Sprintf("%d/new", now)})

		s.append(this, event(now, "newer", name))
		s.retain(other, name, 0)
		ancient := now - 3*86_400*second
		r, err := this.AppendAccepted(s.ctx(), []timeline.Accepted{{Addressed: event(ancient, "ancient", name), At: time.Now()}})
		if err != nil || r.Accepted != 1 {
			t.Errorf("an event that was accepted after the retention was lifted: %+v, %v", r.Rejected, err)
		}
	}
}

// testAsleep: the machine of a process sleeps, so that its monotonic clock stops. Meanwhile a timeline
// that the process has written to is deleted, and what is left of it is removed. What the process
// acknowledges then is found.
func testAsleep(t *testing.T, s *suite) {
	const slept = 10 * time.Minute
	later := func() time.Time { return time.Now().Add(slept) }
	var asleep atomic.Bool
	this := s.engine(Buckets(s.shelf), func() time.Time {
		now := time.Now()
		if asleep.Load() {
			setWall(&now, slept)
		}
		return now
	})
	other, upkeep := s.engine(Buckets(s.shelf), time.Now), s.engine(Buckets(s.shelf), later)
	name, base := s.name("a"), time.Now().UnixMicro()
	s.append(this, event(base, "before", name))
	s.must(other.DeleteTimeline(s.ctx(), name))
	s.must(upkeep.Upkeep(s.ctx()))
	asleep.Store(true)
	s.append(this, event(base, "after", name))
	s.want(s.engine(Buckets(s.shelf), later), timeline.Query{Timelines: []string{name}}, []string{fmt.Sprintf("%d/after", base)})
}

// setWall sets the wall clock of a reading forward and not its monotonic clock, which no function of
// package time does: bits 30 to 62 of its first word are seconds.
func setWall(t *time.Time, d time.Duration) {
	*(*uint64)(unsafe.Pointer(t)) += uint64(d/time.Second) << 30
}

// testRetentionDuringUpkeep: an event that is accepted by a longer retention, which this process got
// while its upkeep removed events by the former one, stays.
func testRetentionDuringUpkeep(t *testing.T, s *suite) {
	for _, mode := range []timeline.Mode{timeline.Materialised, timeline.Index} {
		h := &Hooked{Shelf: s.shelf}
		e, name, old := s.engine(h.whole(), time.Now), s.name(string(mode)), time.Now().Add(-2*time.Hour).UnixMicro()
		s.propose(e, name, timeline.Proposal{Mode: mode})
		s.append(e, event(old, "gone", name))
		s.retain(e, name, time.Hour)
		h.Before = Hooks{"Marks": Doing(sync.OnceFunc(func() {
			s.retain(e, name, 24*time.Hour)
			s.append(e, event(old, "kept", name))
		}))}
		s.must(e.Upkeep(s.ctx()))
		all, _ := s.pages(e, timeline.Query{Timelines: []string{name}}, nil)
		if !slices.ContainsFunc(all, func(f timeline.Found) bool { return f.ID == "kept" && !f.Missing }) {
			t.Errorf("%s: events %+v", mode, all)
		}
	}
}

// testDeleteManyByID: all events of an id are deleted, wherever they are, with their data. The
// others stay.
func testDeleteManyByID(t *testing.T, s *suite) {
	for _, mode := range []timeline.Mode{timeline.Materialised, timeline.Index} {
		var dropped atomic.Int64
		e := s.engine(&Hooked{Shelf: s.shelf, Before: Hooks{"DropPayloads": func(c Call) error {
			dropped.Add(int64(len(c.Keys)))
			return nil
		}}}, time.Now)
		name := s.name(string(mode))
		s.propose(e, name, timeline.Proposal{Mode: mode, Factor: 3})
		base := time.Now().Add(-time.Hour).UnixMicro()
		const n = 70
		var events []timeline.Addressed
		var want []string
		for i := range int64(n) {
			at := base + i*second
			events = append(events, event(at, "x", name), event(at, "y", name))
			want = append(want, fmt.Sprintf("%d/y", at))
		}
		s.append(e, events...)
		s.must(e.Delete(s.ctx(), name, timeline.Deletion{ID: "x"}))
		s.want(e, timeline.Query{Timelines: []string{name}}, want)
		if got := dropped.Load(); got != 0 && mode == timeline.Materialised || got != n && mode == timeline.Index {
			t.Errorf("mode %s: the data of %d events was dropped", mode, got)
		}
		s.must(e.Delete(s.ctx(), name, timeline.Deletion{ID: "y"}))
		s.want(e, timeline.Query{Timelines: []string{name}}, nil)
	}
}

func testRetention(t *testing.T, s *suite) {
	now := time.Now()
	c := &clock{at: now}
	e := s.engine(s.shelf, c.now)
	name := s.name("a")
	events, want := row(20, func(i int64) int64 { return now.Add(time.Duration(i-20) * time.Minute).UnixMicro() }, name)
	s.append(e, events[:10]...)
	s.append(e, events[10:]...)
	s.retain(e, name, 5*time.Minute+time.Second)
	s.want(e, timeline.Query{Timelines: []string{name}}, want[15:])
	start, err := e.Start(s.ctx(), name)
	s.must(err)
	h, err := e.Layout(s.ctx(), name)
	s.must(err)
	oldest := now.Add(-5*time.Minute - time.Second).UnixMicro()
	if size := h.At(oldest).Size; start.Bucket < floor(oldest, size) || start.Bucket > floor(oldest, size)+size || start.First.ID != "e15" {
		t.Errorf("start %+v, want the bucket of %d", start, oldest)
	}
	r, err := e.Append(s.ctx(), events[:1])
	if err != nil || len(r.Rejected) != 1 {
		t.Errorf("an event that is too old: %+v, %v", r, err)
	}
	c.at = now.Add(10 * time.Second) // events that were just put stay until the next time
	s.retain(e, name, 5*time.Minute+11*time.Second)
	s.must(e.Upkeep(s.ctx()))
	s.retain(e, name, 0)
	s.want(e, timeline.Query{Timelines: []string{name}}, want[15:]) // removed events do not reappear

	// The marks of the buckets are removed once no writer can rely on them.
	s.retain(e, name, 5*time.Minute)
	c.at = now.Add(3*time.Minute + 30*time.Second)
	s.must(e.Upkeep(s.ctx()))
	start, err = e.Start(s.ctx(), name)
	if err != nil || start.First.ID != "e19" || now.UnixMicro()-start.Bucket > 70*second {
		t.Errorf("start %+v, %v, want that of e19", start, err)
	}
}

func testDeletion(t *testing.T, s *suite) {
	now := time.Now()
	c := &clock{at: now}
	e := s.engine(s.shelf, c.now)
	name, kept := s.name("a"), s.name("b")
	base := now.Add(-time.Hour).UnixMicro()
	events, want := row(30, func(i int64) int64 { return base + i*9*second }, name, kept)
	s.append(e, events...)
	query := timeline.Query{Timelines: []string{name}}
	s.must(e.Delete(s.ctx(), name, timeline.Deletion{ID: "e3"}))
	s.must(e.Delete(s.ctx(), name, timeline.Deletion{ID: "e4", From: new(base + 4*9*second), Until: new(base + 4*9*second)}))
	s.must(e.Delete(s.ctx(), name, timeline.Deletion{ID: "nothing"}))
	s.want(e, query, slices.Concat(want[:3], want[5:]))
	s.must(e.Delete(s.ctx(), name, timeline.Deletion{From: new(base + 10*9*second), Until: new(base + 19*9*second)}))
	s.want(e, query, slices.Concat(want[:3], want[5:10], want[20:]))
	if err := e.Delete(s.ctx(), name, timeline.Deletion{}); !errors.As(err, new(*store.InputError)) {
		t.Errorf("a deletion without conditions: %v", err)
	}
	s.append(e, events[12])
	s.want(e, query, slices.Concat(want[:3], want[5:10], want[12:13], want[20:]))

	s.retain(e, name, time.Minute) // its events are older
	s.must(e.DeleteTimeline(s.ctx(), name))
	s.must(e.DeleteTimeline(s.ctx(), name))
	s.want(e, query, nil)
	if _, err := e.Stats(s.ctx(), name); !errors.Is(err, timeline.ErrNotFound) {
		t.Errorf("stats of a deleted timeline: %v", err)
	}
	if list, _, err := e.Names(s.ctx(), s.prefix, "", 10, nil); err != nil || len(list) != 1 || list[0].Name != kept {
		t.Errorf("names %+v, %v", list, err)
	}
	s.append(e, events[5]) // it is sent again, into a new timeline, which has no retention
	s.want(e, query, want[5:6])
	s.want(e, timeline.Query{Timelines: []string{kept}}, want)

	// What is left of a deleted timeline is removed later.
	s.must(e.DeleteTimeline(s.ctx(), name))
	for range 3 {
		c.at = c.at.Add(10 * time.Minute)
		s.must(e.Upkeep(s.ctx()))
	}
	h, err := s.shelf.History(s.ctx(), name)
	if err != nil || h.Version != 0 {
		t.Errorf("its history stays: %+v, %v", h, err)
	}
	s.append(e, events[6])
	s.want(e, query, want[6:7])
}

func testTail(t *testing.T, s *suite) {
	e := s.engine(s.shelf, time.Now)
	name := s.name("a")
	base := time.Now().Add(-time.Hour).UnixMicro()
	s.append(e, event(base, "before", name))
	sub, err := e.Tail(s.ctx(), timeline.TailQuery{Timeline: name})
	s.must(err)
	defer sub.Close()
	const n = 200
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		for i := range n {
			e.Append(s.ctx(), []timeline.Addressed{event(base-int64(i%7)*second, fmt.Sprint("e", i), name)})
		}
	})
	seen := map[string]bool{}
	ctx, cancel := context.WithTimeout(s.ctx(), time.Minute)
	defer cancel()
	for len(seen) < n {
		some, err := sub.Next(ctx)
		if err != nil {
			t.Fatalf("after %d events: %v", len(seen), err)
		}
		for i, f := range some {
			if seen[f.ID] || f.ID == "before" {
				t.Fatalf("%s came twice, or before", f.ID)
			}
			seen[f.ID] = true
			if rand.IntN(10) == 0 { // the connection is cut, and taken up again
				sub.Close()
				if sub, err = e.Tail(s.ctx(), timeline.TailQuery{Timeline: name, Cursor: some[i].Cursor}); err != nil {
					t.Fatal(err)
				}
				break
			}
		}
	}
	short, stop := context.WithTimeout(s.ctx(), 50*time.Millisecond)
	defer stop()
	if some, err := sub.Next(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("more arrived: %+v, %v", some, err)
	}
	p, err := e.Read(s.ctx(), timeline.Query{Timelines: []string{name}, Limit: 1})
	s.must(err)
	if _, err := e.Tail(s.ctx(), timeline.TailQuery{Timeline: name, Cursor: p.Cursor}); !errors.As(err, new(*store.InputError)) {
		t.Errorf("the cursor of a page: %v", err)
	}
	sub.Close()
}

// testGuard is acceptance test 15: no partition above 100 MB or 100,000 rows at 1, 100 and
// 10,000 events per second. The timelines begin with one event, so that their rate is
// unknown, and then get bursts at that rate.
func testGuard(t *testing.T, s *suite) {
	for _, rate := range []int64{1, 100, 10_000} {
		c := &clock{at: time.UnixMicro(floor(time.Now().UnixMicro(), 86400*second))}
		e, err := timeline.Open(s.shelf, timeline.Options{Now: c.now, Upkeep: -1, Config: timeline.Config{Adapt: true}})
		s.must(err)
		name := s.name(fmt.Sprint("rate", rate))
		s.append(e, event(c.at.UnixMicro(), "first", name))
		for i := range 4 {
			events := make([]timeline.Addressed, 1000)
			c.at = c.at.Add(2*time.Hour + time.Duration(int64(len(events))*second/rate)*time.Microsecond)
			for j := range events {
				at := c.at.UnixMicro() - int64(len(events)-j)*second/rate
				events[j] = timeline.Addressed{Event: timeline.Event{Time: at, ID: fmt.Sprintf("%d-%d", i, j), Data: make([]byte, 200)}, Timelines: []string{name}}
			}
			s.append(e, events...)
			s.must(e.Upkeep(s.ctx()))
		}
		h, err := e.Layout(s.ctx(), name)
		s.must(err)
		for _, l := range h.Layouts { // from the first one on
			rows := float64(rate) * float64(l.Size) / float64(second) / float64(l.Factor)
			if rows > 100_000 || rows*260 > 100e6 {
				t.Errorf("at %d events per second there is layout %+v: %.0f rows in a partition", rate, l, rows)
			}
		}
		want := map[int64]timeline.Layout{1: {Size: 3600 * second, Factor: 1}, 100: {Size: 60 * second, Factor: 1}, 10_000: {Size: 10 * second, Factor: 10}}[rate]
		if last := h.Layouts[len(h.Layouts)-1]; last.Size != want.Size || last.Factor != want.Factor {
			t.Errorf("at %d events per second the layout became %+v, want %+v", rate, last, want)
		}
		s.must(e.Close())
	}
}

// testBeginningOfTime: events of the first bucket, which begins before all times if its size does not
// divide them, are found, deleted and removed by retention like all others.
func testBeginningOfTime(t *testing.T, s *suite) {
	c := &clock{at: time.Now()}
	e := s.engine(s.shelf, c.now)
	name := s.name("a")
	s.propose(e, name, timeline.Proposal{Size: 7 * second, Mode: timeline.Index})
	first, later := event(timeline.MinTime, "first", name), event(timeline.MinTime+1, "later", name)
	query, both := timeline.Query{Timelines: []string{name}}, []string{fmt.Sprintf("%d/first", timeline.MinTime), fmt.Sprintf("%d/later", timeline.MinTime+1)}
	s.append(e, first, later)
	s.want(e, query, both)
	start, err := e.Start(s.ctx(), name)
	if err != nil || start.First.ID != "first" || start.Bucket >= timeline.MinTime {
		t.Errorf("start %+v, %v", start, err)
	}
	s.must(e.Delete(s.ctx(), name, timeline.Deletion{Until: new(int64(timeline.MinTime))}))
	s.want(e, query, both[1:])
	s.retain(e, name, time.Hour)
	c.at = c.at.Add(10 * time.Second) // events that were just put stay until the next time
	s.must(e.Upkeep(s.ctx()))
	s.retain(e, name, 0)
	s.want(e, query, nil)
	s.append(e, first)
	s.want(e, query, both[:1])
	s.must(e.DeleteTimeline(s.ctx(), name))
	s.want(e, query, nil)
}

// testOddSize: it may take years until a bucket of the size that an operator chose and one of a size
// that the engine chooses begin at the same time. Then the layout stays. After the time of this clock,
// two such buckets begin together eight months later.
func testOddSize(t *testing.T, s *suite) {
	c := &clock{at: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)}
	e, err := timeline.Open(s.shelf, timeline.Options{Now: c.now, Upkeep: -1, Config: timeline.Config{Adapt: true}})
	s.must(err)
	name := s.name("a")
	s.propose(e, name, timeline.Proposal{Size: 999_983 * second})
	events, _ := row(1000, func(i int64) int64 { return c.at.UnixMicro() - (1000-i)*second/100 }, name)
	s.append(e, events...)
	s.must(e.Upkeep(s.ctx()))
	if h, err := e.Layout(s.ctx(), name); err != nil || len(h.Layouts) != 1 {
		t.Errorf("%+v, %v", h, err)
	}
	s.must(e.Close())
}
