package timelinetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"varve/internal/store"
	"varve/internal/timeline"
)

// testSlow: if a Put takes longer than a mark is valid, its events are put once, and their bucket is
// marked again. The Put is not repeated: the storage may be that slow each time.
func testSlow(t *testing.T, s *suite) {
	c := &clock{at: time.Now().Add(-time.Hour)}
	name, at, puts := s.name("a"), c.at.UnixMicro(), 0
	ctx, cancel := context.WithCancel(s.ctx())
	defer cancel()
	e := s.engine(&Hooked{Shelf: s.shelf, After: Hooks{"Put": Doing(func() {
		if puts++; puts == 5 {
			cancel()
		}
		c.at = c.at.Add(5 * time.Minute)
	})}}, c.now)
	_, before := s.arrived(name, nil, large)
	r, err := e.Append(ctx, []timeline.Addressed{event(at, "x", name)})
	if err != nil || r.Accepted != 1 || puts != 1 {
		t.Errorf("after %d puts: %+v, %v", puts, r, err)
	}
	s.wantArrived(name, before, large, fmt.Sprintf("%d x=data of x", at))
	h, err := e.Layout(s.ctx(), name)
	s.must(err)
	start, _ := h.Bucket(at)
	s.must(s.shelf.Unmark(s.ctx(), name, []int64{start}, c.at))
	s.want(e, timeline.Query{Timelines: []string{name}}, []string{fmt.Sprintf("%d/x", at)})
}

// testReplacedMeanwhile: an event is not accepted for a timeline that was deleted, and created again
// with other buckets, while the event was put.
func testReplacedMeanwhile(t *testing.T, s *suite) {
	c := &clock{at: time.Now().Add(-time.Hour)}
	other := s.engine(Buckets(s.shelf), c.now)
	name, at := s.name("a"), c.at.UnixMicro()
	_, err := other.Propose(s.ctx(), name, timeline.Proposal{Size: 60 * second})
	s.must(err)
	replace := sync.OnceFunc(func() {
		s.must(other.DeleteTimeline(s.ctx(), name))
		for range 2 {
			c.at = c.at.Add(5 * time.Minute)
			s.must(other.Upkeep(s.ctx()))
		}
		_, err := other.Propose(s.ctx(), name, timeline.Proposal{Size: 10 * second, Factor: 5})
		s.must(err)
	})
	e := s.engine(&Hooked{Shelf: s.shelf, After: Hooks{"Put": Doing(replace)}}, c.now)
	r, err := e.Append(s.ctx(), []timeline.Addressed{event(at, "x", name)})
	if !errors.As(err, new(*store.UnavailableError)) {
		t.Errorf("%+v, %v", r, err)
	}
}
