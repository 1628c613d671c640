package query

import (
	"fmt"
	"math"
	"math/bits"
	"sync"

	"varve/internal/model"
	"varve/internal/store"
)

// A Grid cuts time into N spans of StepMS each. Span i begins at StartMS + i*StepMS.
// What lies beyond the end of time is empty.
type Grid struct {
	StartMS int64
	StepMS  int64
	N       int
}

// Range is the time from the first instant of a grid, which has spans, to its last.
func (g Grid) Range() model.TimeRange {
	within := model.TimeRange{StartMS: g.StartMS, EndMS: math.MaxInt64}
	if over, length := bits.Mul64(uint64(g.N), uint64(g.StepMS)); over == 0 && length <= uint64(math.MaxInt64)-uint64(g.StartMS) {
		within.EndMS = int64(uint64(g.StartMS) + length - 1)
	}
	return within
}

// span returns the number of the span that ms is in.
func (g Grid) span(ms int64) int { return int((uint64(ms) - uint64(g.StartMS)) / uint64(g.StepMS)) }

// final returns the last instant of the span that ms is in.
func (g Grid) final(ms int64) int64 {
	rest := g.StepMS - 1 - int64((uint64(ms)-uint64(g.StartMS))%uint64(g.StepMS))
	if ms > math.MaxInt64-rest {
		return math.MaxInt64
	}
	return ms + rest
}

// Columns are aggregates of one series by span. A column that was not asked for is
// nil, and all are if the series has no sample.
type Columns struct {
	Count []int64 // always asked for; where it is 0, the others are, too
	Sum   []float64
	Min   []float64 // NaN if a sample is, as Max and Sum are; -0 is less than 0
	Max   []float64
	First []float64
	Last  []float64
}

// Fold aggregates numbers by the spans of a grid, side by side, and returns the
// columns of each. What a store has thinned out is left out; see Session.Buckets. needs are those wanted beside Count. Statistics of the store serve
// instead of samples, but for numbers of two types. What the columns take is taken
// from l.
func (s *Session) Fold(numbers []Number, g Grid, needs model.StatSet, l *Lease) ([]Columns, error) {
	if g.StepMS <= 0 || g.N < 0 {
		return nil, &store.InputError{Reason: fmt.Sprintf("a grid of %d ms by %d spans: the step must be more than 0, the number not negative", g.StepMS, g.N)}
	}
	all := make([]Columns, len(numbers))
	if g.N == 0 {
		return all, nil
	}
	scratch := s.Lease()
	defer scratch.Release()
	if needs&model.StatSum != 0 {
		if err := scratch.Take(int64(s.Workers()) * gridBytes(g, 2)); err != nil {
			return nil, err
		}
	}
	err := s.Parallel(len(numbers), "fold series", func(i int) (bool, error) {
		f := gridFolds.Get().(*gridFold)
		defer f.giveBack()
		f.grid, f.needs, f.lease, f.columns = g, needs, l, &all[i]
		f.Scan = Scan{Session: s, Into: f, Summary: store.Summary{Final: g.final, Needs: needs}, Buckets: store.WithoutBuckets}
		return true, f.fold(numbers[i])
	})
	if err != nil {
		return nil, s.Cause(err)
	}
	return all, nil
}

// gridBytes is the memory of so many columns. It does not overflow: a budget has less.
func gridBytes(g Grid, columns int) int64 { return int64(min(g.N, 1<<40)) * 8 * int64(columns) }

// A gridFold folds one series.
type gridFold struct {
	Scan
	grid    Grid
	needs   model.StatSet
	lease   *Lease
	columns *Columns
	sums    []Sum // of the spans, if they are needed
}

// gridFolds keep their sums from one series to the next.
var gridFolds = sync.Pool{New: func() any { return &gridFold{} }}

// keptSums bounds the memory that a gridFold keeps: 256 KiB.
const keptSums = 16 << 10

func (f *gridFold) giveBack() {
	sums := f.sums
	if cap(sums) > keptSums {
		sums = nil
	}
	*f = gridFold{sums: sums[:0]}
	gridFolds.Put(f)
}

func (f *gridFold) fold(n Number) error {
	var err error
	if len(n.parts) == 1 {
		err = f.Read(n.parts[0], f.grid.Range())
		if e := f.Count(); err == nil {
			err = e
		}
	} else {
		err = f.merge(n)
	}
	for i := range f.sums {
		f.columns.Sum[i] = f.sums[i].Total()
	}
	return err
}

// merge adds the samples of a number of two types one by one, since statistics of one
// may hold samples that do not count.
func (f *gridFold) merge(n Number) error {
	cursor := f.Session.OpenNumber(n, f.grid.Range(), store.WithoutBuckets)
	defer cursor.Close()
	var value [1]uint64
	for {
		ok, err := cursor.Next()
		if !ok || err != nil {
			return err
		}
		if err := f.begin(); err != nil {
			return err
		}
		ms, v := cursor.At()
		value[0] = math.Float64bits(v)
		f.add(f.grid.span(ms), model.Double, value[:])
	}
}

// begin makes the columns when there is a first sample.
func (f *gridFold) begin() error {
	if f.columns.Count != nil {
		return nil
	}
	if err := f.lease.Take(gridBytes(f.grid, 1+bits.OnesCount8(uint8(f.needs&model.AllStats)))); err != nil {
		return err
	}
	f.columns.Count = make([]int64, f.grid.N)
	for _, c := range []struct {
		stat   model.StatSet
		column *[]float64
	}{
		{model.StatSum, &f.columns.Sum}, {model.StatMin, &f.columns.Min}, {model.StatMax, &f.columns.Max},
		{model.StatFirst, &f.columns.First}, {model.StatLast, &f.columns.Last},
	} {
		if f.needs&c.stat != 0 {
			*c.column = make([]float64, f.grid.N)
		}
	}
	if f.needs&model.StatSum != 0 {
		f.sums = append(f.sums[:0], make([]Sum, f.grid.N)...)
	}
	return nil
}

// AddBlock adds samples of a series of one type.
func (f *gridFold) AddBlock(kind model.Kind, block *store.Block) (samples int64, err error) {
	if err := f.begin(); err != nil {
		return 0, err
	}
	for i := range block.Stats {
		run := &block.Stats[i]
		f.addStats(f.grid.span(run.FirstMS), kind, run)
		samples += int64(run.Count)
	}
	if block.Stats != nil {
		return samples, nil
	}
	times, step := block.Times, uint64(f.grid.StepMS)
	span, final := f.grid.span(times[0]), f.grid.final(times[0])
	for i := 0; ; {
		j := RunEnd(times, i, final)
		f.add(span, kind, block.Values[i:j])
		if i = j; i == len(times) {
			return int64(len(times)), nil
		}
		if uint64(times[i])-uint64(final) <= step && final <= math.MaxInt64-f.grid.StepMS { // without a division
			span, final = span+1, final+f.grid.StepMS
		} else {
			span, final = f.grid.span(times[i]), f.grid.final(times[i])
		}
	}
}

// add adds samples of a span that follow those it has.
func (f *gridFold) add(span int, kind model.Kind, values []uint64) {
	c, fresh := f.columns, f.columns.Count[span] == 0
	if c.Sum != nil {
		f.sums[span].AddRun(kind, values)
	}
	if c.Min != nil {
		lower(&c.Min[span], model.Min(kind, values), fresh)
	}
	if c.Max != nil {
		raise(&c.Max[span], model.Max(kind, values), fresh)
	}
	if c.First != nil && fresh {
		c.First[span] = model.Float(kind, values[0])
	}
	if c.Last != nil {
		c.Last[span] = model.Float(kind, values[len(values)-1])
	}
	c.Count[span] += int64(len(values))
}

// addStats is add for a run of samples that came as statistics.
func (f *gridFold) addStats(span int, kind model.Kind, s *model.Stats) {
	c, fresh := f.columns, f.columns.Count[span] == 0
	if c.Sum != nil {
		f.sums[span].Add(s.Sum)
	}
	if c.Min != nil {
		lower(&c.Min[span], s.Min, fresh)
	}
	if c.Max != nil {
		raise(&c.Max[span], s.Max, fresh)
	}
	if c.First != nil && fresh {
		c.First[span] = model.Float(kind, s.First)
	}
	if c.Last != nil {
		c.Last[span] = model.Float(kind, s.Last)
	}
	c.Count[span] += int64(s.Count)
}

func lower(to *float64, v float64, fresh bool) {
	if !fresh {
		v = min(v, *to)
	}
	*to = v
}

func raise(to *float64, v float64, fresh bool) {
	if !fresh {
		v = max(v, *to)
	}
	*to = v
}
