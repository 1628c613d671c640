package agg

import (
	"varve/internal/model"
	"varve/internal/query"
)

// A fold is an aggregate of a bucket that does not depend on the order of its samples,
// except for the rounding of sums. All folds are computed from one tally, so that a
// series can be reduced before series are merged.
type fold struct {
	needs model.StatSet // beyond count and first time
	value func(t *tally) (model.Kind, uint64)

	any        bool // accepts groups of every type, otherwise numbers only
	number     bool // results are numbers whatever the type
	ownStamp   bool // stamped with the last point's time unless aligned
	skipsNulls bool // skips nulls among numbers; without it nulls are refused
}

// An edge is the first or last value of a tally.
type edge struct {
	ms    int64
	bits  uint64
	order int32 // position of the series in the group; orders equal values
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
	sum         query.Sum
	min, max    float64
	first, last edge
}

// tallyBytes is the memory of a tally.
const tallyBytes = 120

func (t *tally) reset(b bucket) { *t = tally{bucket: b} }

func (t *tally) addCount(n, firstMS int64) {
	if t.count == 0 || firstMS < t.firstMS {
		t.firstMS = firstMS
	}
	t.count += n
}

func (t *tally) addMin(v float64) {
	if t.count == 0 {
		t.min = v
		return
	}
	t.min = min(t.min, v)
}

func (t *tally) addMax(v float64) {
	if t.count == 0 {
		t.max = v
		return
	}
	t.max = max(t.max, v)
}

func (t *tally) addFirst(e edge) {
	if t.count == 0 || e.before(&t.first) {
		t.first = e
	}
}

// addLast adds the last value of a run. A series has two values of one time if a sample was sent
// again after a bucket had counted it. The value that is read later is the newer one.
func (t *tally) addLast(e edge) {
	if t.count == 0 || t.last.before(&e) || t.last.ms == e.ms && t.last.order == e.order {
		t.last = e
	}
}

// addRun adds the needed statistics of samples [i,j) of a block, j > i. order is the
// position of the series in its group.
func (t *tally) addRun(need model.StatSet, kind model.Kind, c *model.Columns, i, j int, order int32) {
	if need != 0 {
		values := c.Values[i:j]
		if need&model.StatSum != 0 {
			t.sum.AddRun(kind, values)
		}
		if need&model.StatMin != 0 {
			t.addMin(model.Min(kind, values))
		}
		if need&model.StatMax != 0 {
			t.addMax(model.Max(kind, values))
		}
		if need&model.StatFirst != 0 {
			t.addFirst(edge{c.Times[i], values[0], order, kind})
		}
		if need&model.StatLast != 0 {
			t.addLast(edge{c.Times[j-1], values[j-i-1], order, kind})
		}
	}
	t.addCount(int64(j-i), c.Times[i])
}

// addStats adds the needed statistics of a run of samples. A needed sum is as that of [query.Scan].
func (t *tally) addStats(need model.StatSet, kind model.Kind, s *model.Stats, order int32) {
	if need&model.StatSum != 0 {
		t.sum.Add(s.Sum)
	}
	if need&model.StatMin != 0 {
		t.addMin(s.Min)
	}
	if need&model.StatMax != 0 {
		t.addMax(s.Max)
	}
	if need&model.StatFirst != 0 {
		t.addFirst(edge{s.FirstMS, s.First, order, kind})
	}
	if need&model.StatLast != 0 {
		t.addLast(edge{s.LastMS, s.Last, order, kind})
	}
	t.addCount(int64(s.Count), s.FirstMS)
}

// addTally adds a tally of the same bucket.
func (t *tally) addTally(o *tally) {
	t.sum.AddSum(&o.sum)
	t.addMin(o.min)
	t.addMax(o.max)
	t.addFirst(o.first)
	t.addLast(o.last)
	t.addCount(o.count, o.firstMS)
}

// addPoint adds the next point of a merged stream.
func (t *tally) addPoint(need model.StatSet, p *Point) {
	if need&(model.StatSum|model.StatMin|model.StatMax) != 0 {
		v := p.Float()
		t.sum.Add(v)
		t.addMin(v)
		t.addMax(v)
	}
	if t.count == 0 {
		t.first = edge{p.TimeMS, p.Bits, 0, p.Kind}
	}
	t.last = edge{p.TimeMS, p.Bits, p.order, p.Kind}
	t.addCount(1, p.TimeMS)
}

// addStored adds the next point of a merged stream of the store. The point stands for a bucket, or follows a
// point that does; the last sample of that bucket may be later than this point.
func (t *tally) addStored(need model.StatSet, p *Point) {
	last, counted := t.last, t.count
	if a := p.Whole; a != nil {
		t.sum.Add(a.Sum)
		t.addMin(a.Min)
		t.addMax(a.Max)
		t.last = edge{a.LastMS, model.Bits(p.Kind, a.Last), p.order, p.Kind}
		t.addCount(a.Count, p.TimeMS)
	} else {
		t.addPoint(need, p)
	}
	if e := t.last; counted > 0 {
		t.last = last
		t.addLast(e)
	}
}
