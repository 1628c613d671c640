package timelinetest

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/timeline"
)

// testClockSetBack: a server whose clock is set back still orders its writes as it acknowledged
// them: events that replace others, also large ones, deletes, and events after deletes.
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
	for range 3 { // what is accepted is put with the time at which it was
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
