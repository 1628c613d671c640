package query

import (
	"math"
	"sort"

	"varve/internal/model"
	"varve/internal/store"
)

// A Number is a series of numbers as a language without value types sees it: the
// samples of the long and of the double series of one metric and tag set, as doubles.
// If both have a sample at the same time, that of the double series counts. The type
// decides because it is the same in every store and after every replay; a reader does
// not know which of the two samples was written last.
type Number struct {
	Metric string
	Tags   model.Tags
	parts  []store.Series // of a type each: one or two
}

// numberBytes is the memory of a Number.
const numberBytes = 64

// SelectNumbers returns the numbers among the series that match, in the order of
// model.Series.Compare. The memory of the lists is taken from l.
func (s *Session) SelectNumbers(want store.Selection, l *Lease) ([]Number, error) {
	want.AnyOrder = false
	series, err := s.Collect(want, l, isNumber)
	if err != nil {
		return nil, err
	}
	if err := l.Take(int64(series.Len()) * numberBytes); err != nil {
		return nil, err
	}
	numbers := make([]Number, 0, series.Len())
	for at := range series.pieces() {
		piece := series.piece(at)
		if err := s.Tick(len(piece)); err != nil {
			return nil, err
		}
		for i := range piece {
			one := &piece[i]
			if n := len(numbers); n > 0 && numbers[n-1].Tags == one.Tags && numbers[n-1].Metric == one.Metric {
				numbers[n-1].parts = append(numbers[n-1].parts, *one)
				continue
			}
			numbers = append(numbers, Number{one.Metric, one.Tags, piece[i : i+1 : i+1]})
		}
	}
	return numbers, nil
}

func isNumber(t model.Type) bool { return t.Kind().Fixed() }

// A NumberCursor walks the samples of a Number in order of time. It is used by one
// goroutine.
type NumberCursor struct {
	session *Session
	within  model.TimeRange
	buckets store.BucketMode
	parts   [2]numberPart
	n       int // of parts
	at      *numberPart
	ended   bool
}

// OpenNumber returns a cursor before the first sample of a range, with buckets as
// samples or without them. It must be closed.
func (s *Session) OpenNumber(n Number, within model.TimeRange, buckets store.BucketMode) *NumberCursor {
	c := &NumberCursor{session: s, within: within, buckets: buckets, n: len(n.parts)}
	for i, series := range n.parts {
		c.parts[i].series = series
	}
	c.ended = within.StartMS > within.EndMS
	return c
}

// Next moves to the next sample and reports whether there is one. After an error or
// the end it reports false.
func (c *NumberCursor) Next() (bool, error) {
	switch {
	case c.ended:
		return false, nil
	case c.at == nil:
		return c.move(c.within.StartMS)
	case c.at.ms() == math.MaxInt64:
		c.ended = true
		return false, nil
	}
	return c.move(c.at.ms() + 1)
}

// SeekMS moves on to the first sample at ms or later and reports whether there is one.
// It stays where it is if that sample is not before ms.
func (c *NumberCursor) SeekMS(ms int64) (bool, error) {
	if c.ended {
		return false, nil
	}
	return c.move(max(ms, c.within.StartMS))
}

// At returns the sample that Next or SeekMS moved to.
func (c *NumberCursor) At() (ms int64, v float64) {
	p := c.at
	return p.ms(), model.Float(p.series.Type.Kind(), p.block.Values[p.i])
}

// Close releases the cursor.
func (c *NumberCursor) Close() {
	for i := range c.parts {
		c.parts[i].cursor.Close()
	}
	c.ended = true
}

// move moves all parts on to samples at ms or later.
func (c *NumberCursor) move(ms int64) (bool, error) {
	var first *numberPart
	for i := range c.parts[:c.n] {
		p := &c.parts[i]
		has, err := p.seek(c.session, store.ReadOptions{Range: model.TimeRange{StartMS: ms, EndMS: c.within.EndMS}, Buckets: c.buckets})
		if err != nil {
			c.ended = true
			return false, c.session.Cause(err)
		}
		if has && (first == nil || p.before(first)) {
			first = p
		}
	}
	c.at, c.ended = first, first == nil
	return first != nil, nil
}

// A numberPart is the series of one type, positioned at a sample of its block.
type numberPart struct {
	series store.Series
	cursor Cursor
	block  *store.Block // nil before the first one and at the end
	i      int
	opened bool
}

// seekBlocks is how many blocks a seek reads to get to a time. If that is not enough,
// it opens the series again at the time.
const seekBlocks = 2

func (p *numberPart) ms() int64 { return p.block.Times[p.i] }

// before is the order of samples of different types. At the same time, the double
// comes first, and the long is skipped.
func (p *numberPart) before(o *numberPart) bool {
	if p.ms() != o.ms() {
		return p.ms() < o.ms()
	}
	return p.series.Type.Kind() == model.Double
}

// seek moves on to the first sample of a range. It stays where it is if the range
// begins before that.
func (p *numberPart) seek(s *Session, o store.ReadOptions) (bool, error) {
	within := o.Range
	for read := 0; !p.opened || p.block != nil; read++ {
		if p.block != nil && p.block.Times[p.block.Len()-1] >= within.StartMS {
			p.i = indexFrom(p.block.Times, p.i, within.StartMS)
			return true, nil
		}
		if !p.opened || read == seekBlocks {
			p.cursor.Close()
			if within.StartMS > within.EndMS {
				p.opened, p.block = true, nil
				return false, nil
			}
			p.cursor, p.opened = s.Open(p.series, o), true
		}
		var err error
		if p.block, err = p.cursor.Next(); err != nil {
			return false, err
		}
		p.i = 0
	}
	return false, nil
}

// indexFrom returns the first index from i on whose time is not before ms. There is
// one. It doubles its stride, so that a near one costs little and a far one log n.
func indexFrom(times []int64, i int, ms int64) int {
	if times[i] >= ms {
		return i
	}
	stride := 1
	for i+stride < len(times) && times[i+stride] < ms {
		i += stride
		stride *= 2
	}
	hi := min(i+stride, len(times)-1)
	return i + 1 + sort.Search(hi-i-1, func(k int) bool { return times[i+1+k] >= ms })
}
