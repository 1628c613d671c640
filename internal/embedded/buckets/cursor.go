package buckets

import (
	"context"
	"math"
	"sync"

	"varve/internal/model"
	"varve/internal/retention"
	"varve/internal/store"
)

const (
	blockSize   = 1024      // samples, runs or buckets
	sketchBytes = 256 << 10 // of the sketches of a block
)

// A Query says what a Cursor reads.
type Query struct {
	Context context.Context
	Series  model.SeriesNumber
	Kind    model.Kind
	Policy  retention.Policy // of the series; it says which value stands for a bucket
	Options store.ReadOptions
	Sources []*Source
	LastMS  int64 // the last instant of all sources

	Sketches bool // the caller will look at the sketches of buckets

	// Samples opens a cursor over the samples of the series.
	Samples func(store.ReadOptions) store.Cursor

	Failed func(error) // is called with an error of reading
}

// A Cursor reads a series of which some samples were folded into buckets. It
// implements [store.Cursor].
// Up to the last instant of the buckets it merges both by time. Later samples are passed through
// unmerged, so that statistics of chunks can be used there.
type Cursor struct {
	q Query
	*memory
	parts []model.TimeRange // still to be read, each with its own cursor over samples
	mixed bool              // the current part has buckets
	raw   store.Cursor      // of the current part, nil between parts
	left  int
	err   error

	block *store.Block // of raw, with samples from at on
	at    int
	next  store.Bucket
	more  bool // next is one

	out    model.Columns
	runs   []model.Stats
	shown  store.Buckets     // a run of buckets
	whole  []model.Aggregate // the aggregates that samples of out stand for, if the caller asked for them
	bytes  int               // of sketches in the block
	result store.Block
}

// memory has buffers that one cursor after another uses.
type memory struct {
	reader  Reader
	buckets store.Buckets
	steps   []int64 // of a run of buckets
}

var memories = sync.Pool{New: func() any { return &memory{} }}

// NewCursor opens a cursor. The sources belong to it until it is closed.
func NewCursor(q Query) *Cursor {
	c := &Cursor{q: q, memory: memories.Get().(*memory), left: math.MaxInt}
	if q.Options.Limit > 0 {
		c.left = q.Options.Limit
	}
	c.reader.Sketches, c.reader.Needs = q.Sketches, model.AllStats
	if q.Options.Buckets == store.BucketsOnly {
		c.reader.Needs = q.Options.Needs
	}
	r := q.Options.Range
	old, young := r, r
	old.EndMS = min(old.EndMS, q.LastMS)
	young.StartMS = max(young.StartMS, min(q.LastMS, math.MaxInt64-1)+1)
	c.parts = []model.TimeRange{old, young}
	if q.Options.Descending {
		c.parts = []model.TimeRange{young, old}
	}
	if q.Options.Buckets == store.BucketsOnly {
		c.parts = []model.TimeRange{old}
	}
	return c
}

// Close implements store.Cursor.
func (c *Cursor) Close() {
	c.closePart()
	c.err = store.ErrClosed
	if m := c.memory; m != nil {
		m.reader.release()
		m.buckets.Reset()
		memories.Put(m)
		c.memory = nil
	}
}

func (c *Cursor) closePart() {
	if c.raw != nil {
		c.raw.Close()
		c.raw = nil
	}
	c.block, c.at = nil, 0
}

// Next implements store.Cursor.
func (c *Cursor) Next() (*store.Block, error) {
	if c.err != nil {
		return nil, c.err
	}
	b, err := c.advance()
	if c.err = err; err != nil {
		c.q.Failed(err)
	}
	return b, err
}

func (c *Cursor) advance() (*store.Block, error) {
	for c.left > 0 {
		if c.raw == nil && !c.mixed {
			if len(c.parts) == 0 {
				return nil, nil
			}
			if err := c.open(); err != nil {
				return nil, err
			}
		}
		b, err := c.read()
		if err != nil {
			return nil, err
		}
		if b != nil {
			c.left -= b.Len()
			return b, nil
		}
		c.closePart()
		c.mixed = false
	}
	return nil, nil
}

// open begins the next part.
func (c *Cursor) open() error {
	o := c.q.Options
	o.Range, c.parts = c.parts[0], c.parts[1:]
	c.mixed = o.Range.EndMS <= c.q.LastMS && o.Range.StartMS <= o.Range.EndMS
	if o.Limit > 0 {
		o.Limit = c.left
	}
	if !c.mixed {
		c.raw = c.q.Samples(o)
		return nil
	}
	if o.Buckets != store.BucketsOnly {
		o.Summarize, o.Limit = nil, 0
		c.raw = c.q.Samples(o)
	}
	c.reader.Open(c.q.Series, o.Range, o.Descending, c.q.Sources)
	if o.Buckets == store.BucketsOnly {
		return nil
	}
	return c.pull()
}

// pull reads the next bucket.
func (c *Cursor) pull() (err error) {
	c.next, c.more, err = c.reader.Next()
	if c.more {
		c.noteStage(c.next.StepMS, c.next.StartMS, c.next.StartMS, 1)
	}
	return err
}

// noteStage records buckets of a step that were read, for a reader that wants to know.
func (c *Cursor) noteStage(stepMS, firstMS, lastMS int64, n int) {
	if log := c.q.Options.Stages; log != nil {
		log.Add(store.StageUse{StepMS: stepMS, FirstMS: firstMS, LastMS: lastInstant(lastMS, stepMS), Count: int64(n)})
	}
}

// read returns the next block of the current part, nil at its end.
func (c *Cursor) read() (*store.Block, error) {
	switch {
	case !c.mixed:
		return c.raw.Next()
	case c.q.Options.Buckets == store.BucketsOnly:
		return c.readBuckets()
	}
	return c.merge()
}

// readBuckets returns a run of buckets of one source, or gathers those of several.
func (c *Cursor) readBuckets() (*store.Block, error) {
	cols, stepMS, err := c.reader.Run()
	if err != nil {
		return nil, err
	}
	if n := cols.Len(); n > 0 {
		c.noteStage(stepMS, cols.StartMS[0], cols.StartMS[n-1], n)
		c.shown = store.Buckets{StepMS: c.repeat(stepMS, n), Aggregates: cols}
		c.result = store.Block{Buckets: &c.shown}
		return &c.result, c.q.Context.Err()
	}
	c.buckets.Reset()
	for bytes := 0; c.buckets.Len() < blockSize && bytes < sketchBytes; {
		b, ok, err := c.reader.Next()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		c.noteStage(b.StepMS, b.StartMS, b.StartMS, 1)
		c.buckets.Add(b, c.reader.Needs)
		bytes += len(b.Sketch)
	}
	if c.buckets.Len() == 0 {
		return nil, nil
	}
	c.result = store.Block{Buckets: &c.buckets}
	return &c.result, c.q.Context.Err()
}

// repeat returns a step n times.
func (c *Cursor) repeat(stepMS int64, n int) []int64 {
	if len(c.steps) > 0 && c.steps[0] != stepMS {
		c.steps = c.steps[:0]
	}
	for len(c.steps) < n {
		c.steps = append(c.steps, stepMS)
	}
	return c.steps[:n]
}

// merge gathers samples, and buckets as samples or as statistics.
func (c *Cursor) merge() (*store.Block, error) {
	c.out.Reset()
	c.runs, c.whole, c.bytes = c.runs[:0], c.whole[:0], 0
	for c.out.Len()+len(c.runs) < min(blockSize, c.left) && c.bytes < sketchBytes {
		if err := c.fill(); err != nil {
			return nil, err
		}
		bucket, sample := c.lowest()
		if !bucket && !sample {
			break
		}
		if !bucket {
			if len(c.runs) > 0 {
				break
			}
			c.out.AppendFrom(c.q.Kind, &c.block.Columns, c.at)
			c.note(model.Aggregate{})
			c.at++
			continue
		}
		run := c.summarizes()
		if run && c.out.Len() > 0 || !run && len(c.runs) > 0 {
			break
		}
		if err := c.take(run, sample); err != nil {
			return nil, err
		}
	}
	if err := c.q.Context.Err(); err != nil {
		return nil, err
	}
	switch {
	case c.out.Len() > 0:
		c.result = store.Block{Columns: c.out}
		if c.q.Options.Sketches {
			c.result.Aggregates = c.whole
		}
	case len(c.runs) > 0:
		c.result = store.Block{Stats: c.runs, Folded: true}
	default:
		return nil, nil
	}
	return &c.result, nil
}

// note records what the sample that was just appended stands for.
func (c *Cursor) note(a model.Aggregate) {
	if c.q.Options.Sketches {
		c.whole = append(c.whole, a)
		c.bytes += len(a.Sketch)
	}
}

// fill reads the next block of samples when the one before is used up.
func (c *Cursor) fill() (err error) {
	if c.block != nil && c.at == c.block.Len() {
		c.block, c.at = nil, 0
	}
	if c.block == nil && c.raw != nil {
		if c.block, err = c.raw.Next(); err == nil && c.block == nil {
			c.raw.Close()
			c.raw = nil
		}
	}
	return err
}

// lowest reports what comes next: a bucket, a sample, or both, if the sample is at
// the very beginning of the bucket and so is added to it.
func (c *Cursor) lowest() (bucket, sample bool) {
	switch {
	case c.block == nil:
		return c.more, false
	case !c.more:
		return false, true
	}
	flip := int64(0)
	if c.q.Options.Descending {
		flip = -1
	}
	b, s := c.next.StartMS^flip, c.block.Times[c.at]^flip
	return b <= s, s <= b
}

// summarizes reports whether statistics may stand for the next bucket.
func (c *Cursor) summarizes() bool {
	s := c.q.Options.Summarize
	return s != nil && c.q.Options.Limit == 0 && s.Needs&model.StatFirst == 0 && lastInstant(c.next.StartMS, c.next.StepMS) <= s.Final(c.next.StartMS)
}

// take takes the next bucket, all other buckets with the same beginning, and the
// sample there.
func (c *Cursor) take(run, sample bool) error {
	b := c.next
	for {
		if err := c.pull(); err != nil {
			return err
		}
		if !c.more || c.next.StartMS != b.StartMS {
			break
		}
		b.Merge(c.next.Aggregate) // a narrower bucket
	}
	if sample {
		if b.Count == 1 && b.LastMS == c.block.Times[c.at] { // sent again: the newer one is valid
			b.Aggregate = model.Aggregate{}
		}
		b.Add(c.block.Times[c.at], model.Float(c.q.Kind, c.block.Values[c.at]))
		c.at++
	}
	if run {
		c.runs = append(c.runs, model.Stats{
			Count: int(b.Count), FirstMS: b.StartMS, LastMS: b.LastMS, Min: b.Min, Max: b.Max, Sum: b.Sum, Last: model.Bits(c.q.Kind, b.Last),
		})
		return nil
	}
	c.out.AppendFixed(b.StartMS, model.Bits(c.q.Kind, Value(b, c.q.Policy)), 0)
	if f := c.q.Options.Final; f != nil && lastInstant(b.StartMS, b.StepMS) > f(b.StartMS) {
		b.Aggregate = model.Aggregate{}
	}
	c.note(b.Aggregate)
	return nil
}

// Value is the value that stands for a bucket.
func Value(b store.Bucket, p retention.Policy) float64 {
	return p.Aggregation.Method.Of(b.Aggregate, p.Expected(b.StepMS))
}
