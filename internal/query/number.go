package query

import (
	"math"

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
	parts   [2]numberPart
	n       int // of parts
	at      *numberPart
	ended   bool
}

// OpenNumber returns a cursor before the first sample of a range, without buckets. It must be
// closed.
func (s *Session) OpenNumber(n Number, within model.TimeRange) *NumberCursor {
	c := &NumberCursor{session: s, within: within, n: len(n.parts)}
	for i, series := range n.parts {
		c.parts[i].series = series
		if within.StartMS <= within.EndMS {
			c.parts[i].cursor = s.Open(series, store.ReadOptions{Range: within, Buckets: store.WithoutBuckets})
		}
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

// At returns the sample that Next moved to.
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
		has, err := p.moveTo(ms)
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
	opened bool // the first block was read
}

func (p *numberPart) ms() int64 { return p.block.Times[p.i] }

// before is the order of samples of different types. At the same time, the double
// comes first, and the long is skipped.
func (p *numberPart) before(o *numberPart) bool {
	if p.ms() != o.ms() {
		return p.ms() < o.ms()
	}
	return p.series.Type.Kind() == model.Double
}

// moveTo moves on to the first sample at ms or later. It stays where it is if that sample is not
// before ms.
func (p *numberPart) moveTo(ms int64) (bool, error) {
	for p.block != nil || !p.opened {
		for ; p.block != nil && p.i < p.block.Len(); p.i++ {
			if p.ms() >= ms {
				return true, nil
			}
		}
		var err error
		p.opened = true
		if p.block, err = p.cursor.Next(); err != nil {
			return false, err
		}
		p.i = 0
	}
	return false, nil
}
