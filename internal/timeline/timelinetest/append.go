package timelinetest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/store"
	"varve/internal/timeline"
)

// testStart is acceptance tests 1 and 2: the start of a timeline to which many writers append ever
// older events, and writers that are killed between mark, event and acknowledgement.
func testStart(t *testing.T, s *suite) {
	name := s.name("a")
	base := floor(time.Now().UnixMicro(), 1000*second)
	s.must(s.shelf.SetHistory(s.ctx(), name, 0, timeline.History{Version: 1, Layouts: []timeline.Layout{layout}}))
	var least atomic.Int64
	least.Store(base)
	var group sync.WaitGroup
	for w := range 8 {
		e := s.engine(s.shelf, time.Now)
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			at := base
			for i := range 12 {
				at -= random.Int64N(20 * second)
				r, err := e.Append(s.ctx(), []timeline.Addressed{event(at, fmt.Sprintf("w%d-%d", w, i), name)})
				if err != nil || r.Accepted != 1 {
					t.Errorf("append: %+v, %v", r, err)
					return
				}
				for old := least.Load(); at < old && !least.CompareAndSwap(old, at); old = least.Load() {
				}
			}
		})
	}
	group.Wait()
	e := s.engine(s.shelf, time.Now)
	start, err := e.Start(s.ctx(), name)
	s.must(err)
	if start.First.Time != least.Load() || start.Bucket != floor(least.Load(), 10*second) {
		t.Errorf("the start is %+v, the first event at %d", start, least.Load())
	}
	all, _ := s.pages(e, timeline.Query{Timelines: []string{name}}, nil)
	if len(all) != 8*12 {
		t.Errorf("%d events", len(all))
	}
	marks, err := s.shelf.Marks(s.ctx(), name, timeline.MinTime, base+second, timeline.Ascending, 1000)
	s.must(err)
	occupied := map[int64]bool{}
	for _, f := range all {
		occupied[floor(f.Time, 10*second)] = true
	}
	if len(marks) != len(occupied) {
		t.Errorf("%d marks for %d buckets", len(marks), len(occupied))
	}

	// A writer that is killed after the mark leaves an empty bucket, which costs a read; the events
	// beyond it are found. A writer that is killed before the acknowledgement has put the event.
	killed := errors.New("killed")
	dead := s.engine(&Hooked{Shelf: s.shelf, Before: Hooks{"Put": failing(killed)}}, time.Now)
	if _, err := dead.Append(s.ctx(), []timeline.Addressed{event(least.Load()-100*second, "never", name)}); !errors.Is(err, killed) {
		t.Fatal(err)
	}
	dead = s.engine(&Hooked{Shelf: s.shelf, After: Hooks{"Put": failing(killed)}}, time.Now)
	early := event(least.Load()-200*second, "early", name)
	if _, err := dead.Append(s.ctx(), []timeline.Addressed{early}); !errors.Is(err, killed) {
		t.Fatal(err)
	}
	s.append(e, early) // the client sends it again
	again, _ := s.pages(e, timeline.Query{Timelines: []string{name}}, nil)
	if len(again) != len(all)+1 || again[len(all)].ID != "early" {
		t.Errorf("%d events, the last %+v", len(again), again[len(again)-1])
	}
	start, err = e.Start(s.ctx(), name)
	if err != nil || start.First.ID != "early" {
		t.Errorf("start %+v, %v", start, err)
	}
}

// testReplaced: if events of a call have the same time and id, the last one replaces the others, even
// if it equals the stored one, and also if their data is large. A shelf may write all of them with the
// same timestamp.
func testReplaced(t *testing.T, s *suite) {
	at := time.Now().Add(-time.Hour).UnixMicro()
	e := s.engine(s.shelf, time.Now)
	of := func(name, data string, n int) timeline.Addressed {
		a := event(at, "x", name)
		a.Data = bytes.Repeat([]byte(data), n)
		return a
	}
	for i, test := range []struct {
		first string // "" if nothing is stored before
		then  string // one letter an event
		n     []int  // how often
	}{
		{"", "ba", []int{1, 1}},
		{"", "zam", []int{1, 1, 1}},
		{"a", "ba", []int{1, 1}},
		{"", "ab", []int{600_000, 300_000}},
		{"", "ba", []int{600_000, 300_000}},
		{"", "ba", []int{300_000, 600_000}},
		{"", "ba", []int{600_000, 5}},
	} {
		for _, placement := range []timeline.Placement{timeline.Hash, timeline.RoundRobin} {
			name, other := s.eras(fmt.Sprint(i, placement), timeline.Layout{From: timeline.Beginning, Size: 60 * second, Factor: 3, Placement: placement}), s.name(fmt.Sprint(i, placement, "other"))
			if test.first != "" {
				s.append(e, of(name, test.first, 1))
			}
			var events []timeline.Addressed
			for at, letter := range test.then {
				events = append(events, of(name, string(letter), test.n[at]))
			}
			events[0].Timelines = append(events[0].Timelines, other) // which has the first one only
			s.append(e, events...)
			s.acceptsOnce(e, events)
			last := events[len(events)-1]
			want := map[string][]byte{name: last.Data, other: events[0].Data}
			for name, data := range want {
				found, _ := s.pages(e, timeline.Query{Timelines: []string{name}}, nil)
				if len(found) != 1 || !bytes.Equal(found[0].Data, data) {
					t.Errorf("%v: %d events in %s, want the last one", test, len(found), name)
				}
			}
		}
	}
}

// acceptsOnce: of the events accepted in one call, no two have the same position in a timeline.
func (s *suite) acceptsOnce(e *timeline.Engine, events []timeline.Addressed) {
	s.t.Helper()
	sound, r, err := e.Accept(s.ctx(), events)
	s.must(err)
	if r.Accepted != len(events) {
		s.t.Errorf("%d of %d events were accepted", r.Accepted, len(events))
	}
	data := map[string][]byte{}
	for _, a := range sound {
		for _, name := range a.Timelines {
			if data[name] != nil {
				s.t.Errorf("two events with the same time and id are accepted for %s", name)
			}
			data[name] = a.Data
		}
	}
	if last := events[len(events)-1]; !bytes.Equal(data[last.Timelines[0]], last.Data) {
		s.t.Error("the event that is accepted is not the last one")
	}
}

// testCreatedAtOnce: of many concurrent appends to timelines that do not exist, the first one
// creates them, and the others do not change their history.
func testCreatedAtOnce(t *testing.T, s *suite) {
	slow := Doing(func() { // lets other goroutines run before it stores a history, as a shelf on a disk does
		for range 1000 {
			runtime.Gosched()
		}
	})
	e := s.engine(&Hooked{Shelf: s.shelf, Before: Hooks{"SetHistory": slow}}, time.Now)
	names := []string{s.name("a"), s.name("b"), s.name("c")}
	const many = 100
	var group sync.WaitGroup
	begin := make(chan struct{})
	for i := range many {
		group.Go(func() {
			<-begin
			r, err := e.Append(s.ctx(), []timeline.Addressed{event(int64(i), "x", names...)})
			if err != nil || r.Accepted != 1 {
				t.Errorf("%d accepted, %v, %+v", r.Accepted, err, r.Rejected)
			}
		})
	}
	close(begin)
	group.Wait()
	for _, name := range names {
		if h, err := e.Layout(s.ctx(), name); err != nil || h.Version != 1 {
			t.Errorf("%s has version %d, %v", name, h.Version, err)
		}
		if found, _ := s.pages(e, timeline.Query{Timelines: []string{name}}, nil); len(found) != many {
			t.Errorf("%s has %d events, want %d", name, len(found), many)
		}
	}
}

// testRefusedFirst: events that are invalid or too far ahead neither create a timeline nor revive a
// deleted one.
func testRefusedFirst(t *testing.T, s *suite) {
	e := s.engine(s.shelf, time.Now)
	now := time.Now().UnixMicro()
	name, other := s.name("a"), s.name("b")
	refused := func(events ...timeline.Addressed) {
		t.Helper()
		r, err := e.Append(s.ctx(), events)
		if err != nil || r.Accepted != 0 || len(r.Rejected) != len(events) {
			t.Errorf("%+v, %v", r, err)
		}
		for i, one := range r.Rejected {
			if !errors.As(one.Err, new(*store.InputError)) {
				t.Errorf("event %d: %v", i, one.Err)
			}
		}
		if _, err := e.Stats(s.ctx(), name); !errors.Is(err, timeline.ErrNotFound) {
			t.Errorf("the timeline: %v", err)
		}
	}
	refused(event(now+3600*second, "x", name), event(now+7200*second, "y", name))
	refused(event(now, "an id with a \x00", name))
	if list, err := s.shelf.Names(s.ctx(), s.prefix, "", 10); err != nil || len(list) > 0 {
		t.Errorf("names %v, %v", list, err)
	}
	if r, err := e.Append(s.ctx(), []timeline.Addressed{event(now+3600*second, "x", name), event(now, "y", other)}); err != nil || r.Accepted != 1 {
		t.Errorf("beside another timeline: %+v, %v", r, err)
	}

	s.append(e, event(now, "y", name))
	s.must(e.DeleteTimeline(s.ctx(), name))
	refused(event(now+3600*second, "x", name))
	s.append(e, event(now, "y", name))
	s.want(e, timeline.Query{Timelines: []string{name}}, []string{fmt.Sprintf("%d/y", now)})
}
