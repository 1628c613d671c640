package agg

import (
	"sync/atomic"
	"time"

	"varve/internal/query"
)

// Stats are what a query did and where its time went.
type Stats struct {
	query.Stats // Index includes sorting series into groups

	// The rest is measured only for a query.Request with Trace. Series are read in
	// parallel, so Aggregate, which adds up the time of each goroutine, may exceed the
	// elapsed time.
	Aggregate time.Duration // merging, grouping, steps
	Work      time.Duration // elapsed time of Index, Read and Aggregate
	Points    int64         // points of the result
}

// A runTrace has the counters of a Run. All but the last are nanoseconds.
type runTrace struct {
	plan   atomic.Int64 // sorting series into groups
	next   atomic.Int64 // in Result.Next, reading included
	load   atomic.Int64 // the part of next in which groups are read in parallel
	tasks  atomic.Int64 // total time of the goroutines that read in parallel
	pull   atomic.Int64 // in streams of groups
	points atomic.Int64
}

// query.Stats returns what the query did so far.
func (r *Run) Stats() Stats {
	t := &r.trace
	of := func(n *atomic.Int64) time.Duration { return time.Duration(n.Load()) }
	stats := Stats{Stats: r.Session.Stats(), Points: t.points.Load()}
	stats.Index += of(&t.plan)
	stats.Aggregate = max(0, of(&t.next)-of(&t.load)+of(&t.tasks)+of(&t.pull)-stats.Read)
	stats.Work = stats.Index + of(&t.next) + of(&t.pull)
	return stats
}

// tracedPoints is how many points are pulled between two readings of the clock, which
// costs about as much as a point.
const tracedPoints = 256

// A tracedStream pulls points in runs and measures the time.
type tracedStream struct {
	in     Stream
	trace  *runTrace
	points []Point
	data   []byte
	at     int
	done   bool
	err    error
}

// traced wraps the points of a group if the query is traced.
func (r *Run) traced(in Stream) Stream {
	if !r.query.Trace {
		return in
	}
	return &tracedStream{in: in, trace: &r.trace}
}

func (s *tracedStream) Next(p *Point) (bool, error) {
	if s.at == len(s.points) {
		if s.done {
			return false, s.err
		}
		s.fill()
		if len(s.points) == 0 {
			return false, s.err
		}
	}
	*p = s.points[s.at]
	s.at++
	return true, nil
}

func (s *tracedStream) fill() {
	defer since(&s.trace.pull, time.Now())
	s.points, s.data, s.at = s.points[:0], s.data[:0], 0
	var p Point
	for len(s.points) < tracedPoints {
		ok, err := s.in.Next(&p)
		if s.done = !ok || err != nil; s.done {
			s.err = err
			break
		}
		if len(p.Data) > 0 {
			from := len(s.data)
			s.data = append(s.data, p.Data...)
			p.Data = s.data[from:]
		}
		s.points = append(s.points, p)
	}
	s.trace.points.Add(int64(len(s.points)))
}

func since(n *atomic.Int64, began time.Time) { n.Add(int64(time.Since(began))) }
