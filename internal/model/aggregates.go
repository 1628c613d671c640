package model

import (
	"math"

	"varve/internal/quantile"
)

// Aggregates holds aggregates of buckets, column by column. StartMS, Count and LastMS are
// always filled; the other columns are filled if the reader asked for them. The words are
// those of an encoded Aggregate: IEEE-754 bits in Sum, Min, Max and Last, int64 in Count
// and LastMS.
type Aggregates struct {
	StartMS                            []int64 // ms since the Unix epoch, where each bucket begins
	Sum, Count, Min, Max, Last, LastMS []uint64
	Sketches                           []quantile.Sketch
}

// words are the columns with one word per bucket.
func (c *Aggregates) words() [6]*[]uint64 {
	return [...]*[]uint64{&c.Sum, &c.Count, &c.Min, &c.Max, &c.Last, &c.LastMS}
}

// Len returns the number of buckets.
func (c *Aggregates) Len() int { return len(c.StartMS) }

// Reset empties c and keeps its memory.
func (c *Aggregates) Reset() {
	c.StartMS = c.StartMS[:0]
	for _, w := range c.words() {
		*w = (*w)[:0]
	}
	clear(c.Sketches)
	c.Sketches = c.Sketches[:0]
}

// At returns the aggregate of a bucket. Fields without a column are 0.
func (c *Aggregates) At(i int) Aggregate {
	a := Aggregate{Count: int64(c.Count[i]), LastMS: int64(c.LastMS[i])}
	if len(c.Sum) > 0 {
		a.Sum = math.Float64frombits(c.Sum[i])
	}
	if len(c.Min) > 0 {
		a.Min = math.Float64frombits(c.Min[i])
	}
	if len(c.Max) > 0 {
		a.Max = math.Float64frombits(c.Max[i])
	}
	if len(c.Last) > 0 {
		a.Last = math.Float64frombits(c.Last[i])
	}
	if len(c.Sketches) > 0 {
		a.Sketch = c.Sketches[i]
	}
	return a
}

// Add adds a bucket to the columns of needs and to those that are always filled. The
// column of sketches is filled once a bucket has a sketch.
func (c *Aggregates) Add(startMS int64, a Aggregate, needs StatSet) {
	if a.Sketch != "" || len(c.Sketches) > 0 {
		c.padSketches()
		c.Sketches = append(c.Sketches, a.Sketch)
	}
	c.StartMS = append(c.StartMS, startMS)
	c.Count = append(c.Count, uint64(a.Count))
	c.LastMS = append(c.LastMS, uint64(a.LastMS))
	if needs&StatSum != 0 {
		c.Sum = append(c.Sum, math.Float64bits(a.Sum))
	}
	if needs&StatMin != 0 {
		c.Min = append(c.Min, math.Float64bits(a.Min))
	}
	if needs&StatMax != 0 {
		c.Max = append(c.Max, math.Float64bits(a.Max))
	}
	if needs&StatLast != 0 {
		c.Last = append(c.Last, math.Float64bits(a.Last))
	}
}

// padSketches extends the column of sketches to the length of the others.
func (c *Aggregates) padSketches() {
	for len(c.Sketches) < len(c.StartMS) {
		c.Sketches = append(c.Sketches, "")
	}
}

// Append adds the buckets of another Aggregates with the same columns. Only the column of
// sketches may be missing in one of the two.
func (c *Aggregates) Append(o *Aggregates) {
	if len(c.Sketches)+len(o.Sketches) > 0 {
		c.padSketches()
		c.Sketches = append(c.Sketches, o.Sketches...)
	}
	c.StartMS = append(c.StartMS, o.StartMS...)
	if len(c.Sketches) > 0 {
		c.padSketches()
	}
	from := o.words()
	for i, to := range c.words() {
		*to = append(*to, *from[i]...)
	}
}

// Slice returns the buckets with indexes in [from, to). They share c's memory.
func (c *Aggregates) Slice(from, to int) Aggregates {
	s := *c
	s.StartMS = s.StartMS[from:to]
	for _, w := range s.words() {
		if len(*w) > 0 {
			*w = (*w)[from:to]
		}
	}
	if len(s.Sketches) > 0 {
		s.Sketches = s.Sketches[from:to]
	}
	return s
}
