package query

import (
	"sync/atomic"
	"time"

	"varve/internal/store"
)

// Stats say what a query did and where its time went.
type Stats struct {
	Wait    time.Duration // for a free place
	Index   time.Duration // finding series and sorting them into groups
	Series  int64
	Samples int64

	// The rest is measured for a Request with Trace only. Series are read side
	// by side, so that Read and Aggregate, which add up what each goroutine took,
	// may be more than the time that passed.
	Read      time.Duration // in the store: reading and decoding
	Aggregate time.Duration // merging, grouping, steps
	Work      time.Duration // all of the above but Wait, as time passed
	Blocks    int64
	Bytes     int64 // of decoded samples
	Points    int64 // that came out

	Store []store.Count // what the store tells of itself, if it does
}

// A trace is where a Run counts. All are nanoseconds but the last three.
type trace struct {
	wait, index atomic.Int64

	next  atomic.Int64 // in Result.Next, reading included
	load  atomic.Int64 // of that, while groups are read in parallel
	tasks atomic.Int64 // what the goroutines took that read in parallel
	pull  atomic.Int64 // in streams of groups
	read  atomic.Int64 // in cursors, by all goroutines

	blocks, bytes, points atomic.Int64
}

// Stats returns what the query did so far.
func (r *Run) Stats() Stats {
	t := &r.trace
	of := func(n *atomic.Int64) time.Duration { return time.Duration(n.Load()) }
	stats := Stats{
		Wait: of(&t.wait), Index: of(&t.index), Series: r.series.Load(), Samples: r.samples.Load(),
		Read:      of(&t.read),
		Aggregate: max(0, of(&t.next)-of(&t.load)+of(&t.tasks)+of(&t.pull)-of(&t.read)),
		Work:      of(&t.index) + of(&t.next) + of(&t.pull),
		Blocks:    t.blocks.Load(), Bytes: t.bytes.Load(), Points: t.points.Load(),
	}
	if view, ok := r.view.(store.Tracer); ok && r.request.Trace {
		stats.Store = view.Trace()
	}
	return stats
}

// since adds the time since began to n.
func since(n *atomic.Int64, began time.Time) { n.Add(int64(time.Since(began))) }

// cursor opens a series, so that reading is counted if the query is traced.
func (r *Run) cursor(s store.Series, o store.ReadOptions) store.Cursor {
	c := r.view.Read(r.ctx, s, o)
	if r.request.Trace {
		return &tracedCursor{c, &r.trace}
	}
	return c
}

type tracedCursor struct {
	store.Cursor
	trace *trace
}

func (c *tracedCursor) Next() (*store.Block, error) {
	defer since(&c.trace.read, time.Now())
	block, err := c.Cursor.Next()
	if block != nil {
		c.trace.blocks.Add(1)
		c.trace.bytes.Add(int64(len(block.Times)+len(block.Values))*8 + int64(len(block.Data)))
	}
	return block, err
}

// tracedPoints is how many points are pulled between two looks at the clock,
// which costs about as much as a point.
const tracedPoints = 256

// A tracedStream pulls points in runs and counts the time that takes.
type tracedStream struct {
	in     Stream
	trace  *trace
	points []Point
	data   []byte
	at     int
	done   bool
	err    error
}

// traced wraps the points of a group if the query is traced.
func (r *Run) traced(in Stream) Stream {
	if !r.request.Trace {
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
