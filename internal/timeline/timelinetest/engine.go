package timelinetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"varve/internal/timeline"
)

// engine opens an engine over a shelf.
func (s *suite) engine(shelf timeline.Shelf, now func() time.Time) *timeline.Engine {
	s.t.Helper()
	e, err := timeline.Open(shelf, timeline.Options{Now: now, Upkeep: -1})
	s.must(err)
	s.t.Cleanup(func() { e.Close() })
	return e
}

// propose proposes a layout, which must be accepted.
func (s *suite) propose(e *timeline.Engine, name string, p timeline.Proposal) {
	s.t.Helper()
	_, err := e.Propose(s.ctx(), name, p)
	s.must(err)
}

// retain sets how long the events of a timeline are kept.
func (s *suite) retain(e *timeline.Engine, name string, d time.Duration) {
	s.t.Helper()
	_, err := e.SetRetention(s.ctx(), name, d)
	s.must(err)
}

// append appends events that must all be accepted.
func (s *suite) append(e *timeline.Engine, events ...timeline.Addressed) {
	s.t.Helper()
	r, err := e.Append(s.ctx(), events)
	s.must(err)
	if len(r.Rejected) > 0 || r.Accepted != len(events) {
		s.t.Fatalf("%d of %d accepted, rejected: %+v", r.Accepted, len(events), r.Rejected)
	}
}

func event(time int64, id string, timelines ...string) timeline.Addressed {
	return timeline.Addressed{Event: timeline.Event{Time: time, ID: id, Type: "t", Data: []byte("data of " + id)}, Timelines: timelines}
}

// row returns n events with the ids e0, e1 and so on, and the texts that want compares them with.
func row(n int, at func(i int64) int64, timelines ...string) (events []timeline.Addressed, texts []string) {
	for i := range int64(n) {
		events = append(events, event(at(i), fmt.Sprint("e", i), timelines...))
		texts = append(texts, fmt.Sprintf("%d/e%d", at(i), i))
	}
	return events, texts
}

// pages reads to the end, and returns the events and the number of pages.
func (s *suite) pages(e *timeline.Engine, q timeline.Query, each func(timeline.Page)) (all []timeline.Found, n int) {
	s.t.Helper()
	for {
		p, err := e.Read(s.ctx(), q)
		s.must(err)
		n++
		all = append(all, p.Events...)
		if each != nil {
			each(p)
		}
		if p.End {
			return all, n
		}
		if p.Cursor == "" || p.Cursor == q.Cursor {
			s.t.Fatalf("page %d is not the last one, but its cursor does not advance: %q", n, p.Cursor)
		}
		q.Cursor = p.Cursor
	}
}

// names returns the events as texts, time/id.
func names(found []timeline.Found) []string {
	all := make([]string, len(found))
	for i, f := range found {
		all[i] = fmt.Sprintf("%d/%s", f.Time, f.ID)
	}
	return all
}

// want reads a timeline in both directions, by pages of several sizes.
func (s *suite) want(e *timeline.Engine, q timeline.Query, want []string) {
	s.t.Helper()
	for _, limit := range []int{3, 1000} {
		q.Limit, q.Order = limit, timeline.Ascending
		up, _ := s.pages(e, q, nil)
		q.Order = timeline.Descending
		down, _ := s.pages(e, q, nil)
		slices.Reverse(down)
		if got := names(up); !slices.Equal(got, want) {
			s.t.Errorf("ascending by %d: %s", limit, difference(got, want))
		}
		if got := names(down); !slices.Equal(got, want) {
			s.t.Errorf("descending by %d, reversed: %s", limit, difference(got, want))
		}
	}
}

func difference(got, want []string) string {
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	cut := func(s []string) string { return strings.Join(s[i:min(len(s), i+5)], " ") }
	return fmt.Sprintf("got %d, want %d events, from number %d on: got %s ..., want %s ...", len(got), len(want), i, cut(got), cut(want))
}

func floor(t, size int64) int64 { return t - ((t%size)+size)%size }

// eras creates a timeline with a history.
func (s *suite) eras(n string, layouts ...timeline.Layout) string {
	s.t.Helper()
	name := s.name(n)
	for i := range layouts {
		layouts[i].Mode, layouts[i].Placement = timeline.Materialised, max(layouts[i].Placement, timeline.Hash)
		layouts[i].Factor = max(1, layouts[i].Factor)
	}
	s.must(s.shelf.SetHistory(s.ctx(), name, 0, timeline.History{Version: 1, Layouts: layouts}))
	return name
}
