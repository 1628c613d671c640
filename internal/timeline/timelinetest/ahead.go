package timelinetest

import (
	"fmt"
	"testing"
	"time"

	"varve/internal/timeline"
)

// testAhead: if another process puts events into a bucket of a layout that this process has not
// read yet, they are found and deleted, whether buckets became smaller or larger.
func testAhead(t *testing.T, s *suite) {
	from := floor(time.Now().UnixMicro(), 86_400*second) + 86_400*second
	for _, test := range []struct {
		name   string
		before int64 // size of the buckets, seconds
		next   timeline.Proposal
		at     int64 // when the events are, after the change
	}{
		{"more partitions", 10, timeline.Proposal{Factor: 8}, 0},
		{"smaller buckets", 60, timeline.Proposal{Size: 10 * second, Factor: 2}, 9 * second},
		{"larger buckets", 10, timeline.Proposal{Size: 30 * second, Factor: 3}, 25 * second},
	} {
		for how, remove := range map[string]func(e *timeline.Engine, name, id string, at int64) error{
			"until": func(e *timeline.Engine, name, _ string, at int64) error {
				return e.Delete(s.ctx(), name, timeline.Deletion{Until: new(at)})
			},
			"from": func(e *timeline.Engine, name, _ string, at int64) error {
				return e.Delete(s.ctx(), name, timeline.Deletion{From: new(at)})
			},
			"one": func(e *timeline.Engine, name, id string, at int64) error {
				return e.Delete(s.ctx(), name, timeline.Deletion{From: new(at), Until: new(at), ID: id})
			},
			"id": func(e *timeline.Engine, name, id string, _ int64) error {
				return e.Delete(s.ctx(), name, timeline.Deletion{ID: id})
			},
			"timeline": func(e *timeline.Engine, name, _ string, _ int64) error {
				return e.DeleteTimeline(s.ctx(), name)
			},
		} {
			t.Run(test.name+" "+how, func(t *testing.T) {
				s := &suite{t: t, shelf: s.shelf, prefix: s.prefix}
				c := &clock{at: time.UnixMicro(from - 65*second)}
				name := s.eras(test.name+how, timeline.Layout{From: timeline.Beginning, Size: test.before * second})
				stale, reader, other := s.engine(s.shelf, c.now), s.engine(s.shelf, c.now), s.engine(s.shelf, c.now)
				s.append(stale, event(c.at.UnixMicro(), "past", name))
				s.append(reader, event(c.at.UnixMicro(), "past", name))
				test.next.From = from
				_, err := other.Propose(s.ctx(), name, test.next)
				s.must(err)

				c.at = c.at.Add(13 * time.Second) // within which a layout is not read again
				at := from + test.at
				events, all := row(9, func(int64) int64 { return at }, name)
				s.append(s.engine(s.shelf, c.now), events...)
				s.want(reader, timeline.Query{Timelines: []string{name}, From: new(at)}, all)
				for n := range 9 {
					s.must(remove(stale, name, fmt.Sprint("e", n), at))
				}
				s.want(s.engine(s.shelf, c.now), timeline.Query{Timelines: []string{name}, From: new(at)}, nil)
			})
		}
	}
}
