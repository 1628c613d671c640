package timelinetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/store"
	"varve/internal/timeline"
)

// testClockSetBack: after its clock is set back, a server still orders its writes as it acknowledged
// them: events that replace others, even large ones, deletes, and events after deletes.
func testClockSetBack(t *testing.T, s *suite) {
	var clock atomic.Int64
	start := time.Now().Add(-time.Hour).UnixMicro()
	clock.Store(start)
	e := s.engine(s.shelf, func() time.Time { return time.UnixMicro(clock.Load()) })
	back := func() { clock.Add(-second) }
	name, at := s.name("a"), start-60*second
	want := func(data []byte) {
		t.Helper()
		found, _ := s.pages(e, timeline.Query{Timelines: []string{name}}, nil)
		switch {
		case data == nil && len(found) > 0:
			t.Errorf("a deleted event is there, with %d bytes", len(found[0].Data))
		case data != nil && (len(found) != 1 || !bytes.Equal(found[0].Data, data)):
			t.Errorf("%d events, want the one of %d bytes that was sent last", len(found), len(data))
		}
	}
	send := func(letter string, n int) {
		t.Helper()
		a := event(at, "x", name)
		a.Data = bytes.Repeat([]byte(letter), n)
		s.append(e, a)
		want(a.Data)
	}
	for i, remove := range []func() error{
		func() error { return e.Delete(s.ctx(), name, timeline.Deletion{ID: "x"}) },
		func() error { return e.Delete(s.ctx(), name, timeline.Deletion{From: new(at)}) },
		func() error { return e.DeleteTimeline(s.ctx(), name) },
	} {
		for _, n := range []int{1, 600_000} {
			t.Log(fmt.Sprint("delete ", i, ", ", n, " bytes"))
			send("b", n)
			send("a", n) // at the same moment
			back()
			send("c", n)
			back()
			s.must(remove())
			want(nil)
			send("d", n)
			s.must(remove())
			want(nil)
		}
	}
	var last time.Time
	for range 3 { // accepted events are put with the time of their acceptance
		sound, _, err := e.Accept(s.ctx(), []timeline.Addressed{event(at, "x", name)})
		s.must(err)
		if !sound[0].At.After(last) {
			t.Errorf("an event was accepted at %v, the one before at %v", sound[0].At, last)
		}
		last = sound[0].At
		back()
	}
	s.must(e.Delete(s.ctx(), name, timeline.Deletion{ID: "x"}))
	_, err := e.AppendAccepted(s.ctx(), []timeline.Accepted{{Addressed: event(at, "x", name), At: last}})
	s.must(err)
	if _, log := s.shelf.(timeline.DeletionLog); log {
		want(nil)
	}
}

// unset opens an engine of a server whose clock is wrong by ahead, until set sets it.
func (s *suite) unset(ahead time.Duration) (e *timeline.Engine, set func()) {
	s.t.Helper()
	var right atomic.Bool
	e, err := timeline.Open(s.shelf, timeline.Options{
		Upkeep: -1,
		Now: func() time.Time {
			if right.Load() {
				return time.Now()
			}
			return time.Now().Add(ahead)
		},
		Changeable: func(context.Context) error {
			if !right.Load() {
				return &store.UnavailableError{Reason: "the clock is not set"}
			}
			return nil
		},
	})
	s.must(err)
	s.t.Cleanup(func() { e.Close() })
	return e, func() { right.Store(true) }
}

// testStartWithAClockAhead: the clock of a server is a year ahead at its start. It changes nothing
// until it knows that the clock was set. What it accepted meanwhile, or before a restart, is then put
// in the order in which it was accepted, and hides nothing that is changed later.
func testStartWithAClockAhead(t *testing.T, s *suite) {
	const year = 365 * 24 * time.Hour
	e, setClock := s.unset(year)
	other := s.engine(s.shelf, nil) // of a server whose clock is right
	name, at := s.name("a"), time.Now().Add(-time.Minute).UnixMicro()
	with := func(data string) timeline.Addressed {
		a := event(at, "x", name)
		a.Data = []byte(data)
		return a
	}
	want := func(when, data string) {
		t.Helper()
		found, _ := s.pages(other, timeline.Query{Timelines: []string{name}}, nil)
		switch {
		case data == "" && len(found) > 0:
			t.Errorf("%s: the event is there, with %q", when, found[0].Data)
		case data != "" && (len(found) != 1 || string(found[0].Data) != data):
			t.Errorf("%s: there are %d events %+v, want the one with %q", when, len(found), found, data)
		}
	}
	s.append(other, with("before"))
	s.retain(other, name, time.Hour)

	var accepted []timeline.Accepted
	accept := func(data string) {
		t.Helper()
		sound, _, err := e.Accept(s.ctx(), []timeline.Addressed{with(data)})
		s.must(err)
		accepted = append(accepted, sound...)
	}
	e.NoteAccepted(time.Now().Add(2 * year))
	accept("first")
	accept("second")
	for what, change := range map[string]func() error{
		"append": func() error { _, err := e.Append(s.ctx(), []timeline.Addressed{with("early")}); return err },
		"append what was accepted": func() error {
			_, err := e.AppendAccepted(s.ctx(), accepted)
			return err
		},
		"delete":              func() error { return e.Delete(s.ctx(), name, timeline.Deletion{From: new(at)}) },
		"delete the timeline": func() error { return e.DeleteTimeline(s.ctx(), name) },
		"propose":             func() error { _, err := e.Propose(s.ctx(), s.name("b"), timeline.Proposal{Factor: 2}); return err },
		"set a retention":     func() error { _, err := e.SetRetention(s.ctx(), name, 0); return err },
	} {
		if err := change(); !errors.As(err, new(*store.UnavailableError)) {
			t.Errorf("%s with a clock that is ahead: %v", what, err)
		}
	}
	want("with a clock that is ahead", "before")

	setClock()
	put := func() {
		t.Helper()
		r, err := e.AppendAccepted(s.ctx(), accepted)
		s.must(err)
		if r.Accepted != len(accepted) {
			t.Errorf("%d of %d accepted events were put: %+v", r.Accepted, len(accepted), r.Rejected)
		}
	}
	put()
	want("what was accepted", "second")
	s.append(other, with("late"))
	want("after another server has put the event", "late")
	s.append(e, with("later"))
	want("after this server has put it", "later")
	if _, log := s.shelf.(timeline.DeletionLog); log { // only such a shelf compares write timestamps
		put()
		want("what was accepted, again", "later")
	}
	s.must(other.Delete(s.ctx(), name, timeline.Deletion{From: new(at)}))
	want("after another server has deleted it", "")
	s.append(other, with("new"))
	s.must(e.Delete(s.ctx(), name, timeline.Deletion{From: new(at)}))
	s.append(other, with("newer"))
	want("after this server has deleted it and another one has put it", "newer")
}

// testStartWithAClockBehind: the clock of a server is an hour behind at its start. What it accepts
// until the clock is set is not removed by what another server deleted before, but by what is
// deleted after.
func testStartWithAClockBehind(t *testing.T, s *suite) {
	e, setClock := s.unset(-time.Hour)
	other := s.engine(s.shelf, nil) // of a server whose clock is right
	at := time.Now().Add(-2 * time.Hour).UnixMicro()
	events, whole := s.name("a"), s.name("b")
	with := func(id string) timeline.Addressed { return event(at, id, events, whole) }
	want := func(when string, ids ...string) {
		t.Helper()
		for _, name := range []string{events, whole} {
			found, _ := s.pages(other, timeline.Query{Timelines: []string{name}}, nil)
			var there []string
			for i := range found {
				there = append(there, found[i].ID)
			}
			slices.Sort(there) // pages may be of either order
			if !slices.Equal(there, ids) {
				t.Errorf("%s: timeline %s has %q, want %q", when, name, there, ids)
			}
		}
	}
	remove := func() {
		t.Helper()
		s.must(other.Delete(s.ctx(), events, timeline.Deletion{From: new(at)}))
		s.must(other.DeleteTimeline(s.ctx(), whole))
	}
	s.append(other, with("before"))
	remove()
	var accepted []timeline.Accepted
	for _, id := range []string{"x", "y"} {
		sound, _, err := e.Accept(s.ctx(), []timeline.Addressed{with(id)})
		s.must(err)
		accepted = append(accepted, sound...)
	}
	setClock()
	for range 2 {
		r, err := e.AppendAccepted(s.ctx(), accepted)
		s.must(err)
		if r.Accepted != 4 && r.Accepted != 2 || len(r.Rejected) > 0 {
			t.Errorf("%d events of 2 were put into two timelines each: %+v", r.Accepted, r.Rejected)
		}
		want("what was accepted", "x", "y")
	}
	remove()
	if _, log := s.shelf.(timeline.DeletionLog); log { // only such a shelf compares write timestamps
		_, err := e.AppendAccepted(s.ctx(), accepted)
		s.must(err)
		want("after another server has deleted it")
	}
}
