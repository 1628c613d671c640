package query

import (
	"sort"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

// A Cursor reads samples of a series for a Session, which counts them. It is used by one goroutine.
// A session may have many cursors, even of one series.
type Cursor struct {
	session *Session
	cursor  store.Cursor // nil once closed
}

// Open opens a cursor over a series that Select returned.
func (s *Session) Open(series store.Series, o store.ReadOptions) Cursor {
	if s.request.Trace && o.Stages == nil {
		o.Stages = &s.trace.stages
	}
	o.Hold = s.holds
	return Cursor{s, s.view.Read(s.ctx, series, o)}
}

// Next returns the next block, nil at the end and after Close. The block has samples,
// belongs to the cursor, and is overwritten by the following call.
func (c *Cursor) Next() (*store.Block, error) {
	block, err := c.next()
	if block == nil || err != nil {
		return nil, err
	}
	n := block.Len()
	if block.Buckets != nil {
		n += block.Buckets.Len()
	}
	return block, c.session.addSamples(int64(n))
}

// next is Next without counting.
func (c *Cursor) next() (*store.Block, error) {
	for c.cursor != nil {
		if err := c.session.ctx.Err(); err != nil {
			return nil, err
		}
		block, err := c.read()
		if err != nil || block == nil || block.Len()+len(block.Stats) > 0 || block.Buckets != nil {
			return block, err
		}
	}
	return nil, nil
}

// read reads a block, and measures that if the session is traced.
func (c *Cursor) read() (*store.Block, error) {
	if c.session.remote && c.session.engine.crowded() {
		wait := c.session.storeWait()
		wait.begin()
		defer wait.end()
	}
	if !c.session.request.Trace {
		return c.cursor.Next()
	}
	t := &c.session.trace
	defer since(&t.read, time.Now())
	block, err := c.cursor.Next()
	if block != nil {
		t.blocks.Add(1)
		t.bytes.Add(int64(len(block.Times)+len(block.Values))*8 + int64(len(block.Data)))
	}
	return block, err
}

// Close releases the cursor. It may be called at any time, and again.
func (c *Cursor) Close() {
	if c.cursor != nil {
		c.cursor.Close()
		c.cursor = nil
	}
}

// A Reducer takes the samples of a series, in order of time.
type Reducer interface {
	// AddBlock takes the next samples, columns or statistics of runs, and returns
	// their number. It keeps nothing of the block.
	AddBlock(kind model.Kind, block *store.Block) (samples int64, err error)
}

// A Scan reads whole series, one after the other, for a Reducer for which statistics of runs
// suffice. It is used by one goroutine.
type Scan struct {
	Session *Session
	Into    Reducer
	Summary store.Summary // how samples may be replaced by statistics
	Buckets store.BucketMode
	Stages  *store.StageLog // unless nil, notes the stages that were read, instead of the trace of the session

	counted int64 // samples that are not counted against the limit yet
	reduced int64 // runs that came as statistics
}

// Read gives the samples of a series to the Reducer. If the Reducer needs sums, the sum of
// each run of several samples is finite: where the statistics have no finite sum, Read
// reads the samples themselves. Only the sum of a bucket, whose samples are gone, may be infinite or NaN.
func (c *Scan) Read(series store.Series, within model.TimeRange) error {
	rest, err := c.read(series, store.ReadOptions{Range: within, Summarize: &c.Summary, Buckets: c.Buckets, Stages: c.Stages})
	if err == nil && rest != nil {
		_, err = c.read(series, store.ReadOptions{Range: *rest, Buckets: c.Buckets, Stages: c.Stages})
	}
	return err
}

// read reads what o asks for. rest, if not nil, is the range that it left out, because a run in it
// has no finite sum.
func (c *Scan) read(series store.Series, o store.ReadOptions) (rest *model.TimeRange, err error) {
	cursor := c.Session.Open(series, o)
	defer cursor.Close()
	for kind := series.Type.Kind(); ; {
		block, err := cursor.next()
		if err != nil || block == nil {
			return nil, err
		}
		if i := c.overflow(block); i >= 0 {
			rest = &model.TimeRange{StartMS: block.Stats[i].FirstMS, EndMS: o.Range.EndMS}
			block.Stats = block.Stats[:i]
		}
		n, err := c.Into.AddBlock(kind, block)
		if err != nil {
			return nil, err
		}
		c.reduced += int64(len(block.Stats))
		if block.Folded { // as without statistics, each bucket is one sample that was read
			n = int64(len(block.Stats))
		}
		if c.counted += n; c.counted >= countEvery {
			if err := c.Count(); err != nil {
				return nil, err
			}
		}
		if rest != nil {
			return rest, nil
		}
	}
}

// overflow returns the first run whose sum is needed but not finite, -1 if there is none.
// The sum does not fit a double, or a sample is not finite. Read then reads the samples of
// the run one by one, which may still give a sum. It never does this for buckets, whose
// samples are gone: without statistics, the bucket and all later ones would count as one
// sample each.
func (c *Scan) overflow(block *store.Block) int {
	if c.Summary.Needs&model.StatSum != 0 && !block.Folded {
		for i := range block.Stats {
			if s := &block.Stats[i]; s.Count > 1 && !finite(s.Sum) {
				return i
			}
		}
	}
	return -1
}

// countEvery is the number of samples after which a Scan adds its count to that of
// the session, which other goroutines see.
const countEvery = 16 << 10

// Count adds the samples that were read since the last call to those of the session.
func (c *Scan) Count() error {
	n := c.counted
	c.Session.engine.metrics.summarized.Add(float64(c.reduced))
	c.counted, c.reduced = 0, 0
	return c.Session.addSamples(n)
}

// RunEnd returns the first index after i whose time is after finalMS, which is
// not before that of i: a run is never empty. It doubles its stride, so that
// short runs cost little and long ones log n.
func RunEnd(times []int64, i int, finalMS int64) int {
	n := len(times)
	if times[n-1] <= finalMS {
		return n
	}
	lo, stride := i, 1
	for lo+stride < n && times[lo+stride] <= finalMS {
		lo += stride
		stride *= 2
	}
	hi := min(lo+stride, n)
	return lo + sort.Search(hi-lo, func(k int) bool { return times[lo+k] > finalMS })
}
