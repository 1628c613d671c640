package query

import (
	"varve/internal/model"
)

// A fold is an aggregate of a bucket that does not depend on the order in which
// its samples are met, up to the rounding of sums. Folds are all computed from
// one tally, so that a series can be reduced before series are merged.
type fold struct {
	needs fieldSet
	value func(t *tally) (model.Kind, uint64)

	any        bool // takes groups of every type, else numbers only
	number     bool // makes numbers of every type
	ownStamp   bool // stamped with the last point's time unless aligned
	skipsNulls bool // takes numbers and leaves nulls out; without it nulls are refused
}

// A fieldSet says which fields of a tally a fold needs beyond count and first time.
type fieldSet uint8

const (
	needSum  fieldSet = 1 << iota
	needEnds          // min and max
	needFirst
	needLast
)

// An edge is the first or last value of a tally.
type edge struct {
	ms    int64
	bits  uint64
	order int32 // position of the series in the group, decides between equal values
	kind  model.Kind
}

// before is the order of merged points: by time, value, series.
func (e *edge) before(o *edge) bool {
	if e.ms != o.ms {
		return e.ms < o.ms
	}
	if x, y := model.Float(e.kind, e.bits), model.Float(o.kind, o.bits); x != y {
		return x < y
	}
	return e.order < o.order
}

// A tally is the running aggregate of one bucket. The zero value is empty.
type tally struct {
	bucket
	count       int64
	firstMS     int64
	sum         float64
	min, max    float64
	first, last edge
}

// tallyBytes is what a tally takes in memory.
const tallyBytes = 120

func (t *tally) reset(b bucket) { *t = tally{bucket: b} }

func (t *tally) addCount(n, firstMS int64) {
	if t.count == 0 || firstMS < t.firstMS {
		t.firstMS = firstMS
	}
	t.count += n
}

func (t *tally) addEnds(lo, hi float64) {
	if t.count == 0 {
		t.min, t.max = lo, hi
		return
	}
	t.min, t.max = min(t.min, lo), max(t.max, hi)
}

func (t *tally) addFirst(e edge) {
	if t.count == 0 || e.before(&t.first) {
		t.first = e
	}
}

func (t *tally) addLast(e edge) {
	if t.count == 0 || t.last.before(&e) {
		t.last = e
	}
}

// addRun adds samples [i,j) of a block, j > i. order is the position of the
// series in its group.
func (t *tally) addRun(need fieldSet, kind model.Kind, c *model.Columns, i, j int, order int32) {
	if need != 0 {
		values := c.Values[i:j]
		if need&needSum != 0 {
			t.sum += sumOf(kind, values)
		}
		if need&needEnds != 0 {
			t.addEnds(endsOf(kind, values))
		}
		if need&needFirst != 0 {
			t.addFirst(edge{c.Times[i], values[0], order, kind})
		}
		if need&needLast != 0 {
			t.addLast(edge{c.Times[j-1], values[j-i-1], order, kind})
		}
	}
	t.addCount(int64(j-i), c.Times[i])
}

// addStats adds a run of samples by its statistics.
func (t *tally) addStats(kind model.Kind, s *model.Stats, order int32) {
	t.sum += s.Sum
	t.addEnds(s.Min, s.Max)
	t.addFirst(edge{s.FirstMS, s.First, order, kind})
	t.addLast(edge{s.LastMS, s.Last, order, kind})
	t.addCount(int64(s.Count), s.FirstMS)
}

// addTally adds a tally of the same bucket.
func (t *tally) addTally(o *tally) {
	t.sum += o.sum
	t.addEnds(o.min, o.max)
	t.addFirst(o.first)
	t.addLast(o.last)
	t.addCount(o.count, o.firstMS)
}

// addPoint adds the next point of a merged stream.
func (t *tally) addPoint(need fieldSet, p *Point) {
	if need&(needSum|needEnds) != 0 {
		v := p.Float()
		t.sum += v
		t.addEnds(v, v)
	}
	if t.count == 0 {
		t.first = edge{p.TimeMS, p.Bits, 0, p.Kind}
	}
	t.last = edge{p.TimeMS, p.Bits, 0, p.Kind}
	t.addCount(1, p.TimeMS)
}

func sumOf(kind model.Kind, values []uint64) float64 {
	var sum float64
	if kind == model.Long {
		for _, v := range values {
			sum += float64(int64(v))
		}
		return sum
	}
	for _, v := range values {
		sum += model.Float(model.Double, v)
	}
	return sum
}

func endsOf(kind model.Kind, values []uint64) (lo, hi float64) {
	lo = model.Float(kind, values[0])
	hi = lo
	for _, bits := range values[1:] {
		v := model.Float(kind, bits)
		lo, hi = min(lo, v), max(hi, v)
	}
	return lo, hi
}
