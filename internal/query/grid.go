package query

import (
	"fmt"
	"math"
	"math/bits"
	"unsafe"

	"varve/internal/model"
	"varve/internal/store"
)

// A Grid cuts time into N spans of StepMS each. Span i begins at StartMS + i*StepMS.
// Spans beyond the last representable time are empty.
type Grid struct {
	StartMS int64
	StepMS  int64
	N       int
}

// Range is the time from the first instant of a grid to its last. The grid must
// have spans.
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
	Min   []float64 // NaN if a sample is NaN, like Max and Sum; -0 is less than 0
	Max   []float64
	First []float64
	Last  []float64
}

// A GridFold aggregates numbers by the spans of grids, one number after the other. It
// reuses the memory of one number for the next one. It is used by one goroutine.
type GridFold struct {
	Scan
	lease   *Lease
	grid    Grid
	needs   model.StatSet
	columns Columns
	sums    []Sum // of the spans, if they are needed
	kept    Columns
}

// GridFold returns a GridFold that takes its memory from l.
func (s *Session) GridFold(l *Lease) *GridFold {
	f := &GridFold{lease: l}
	f.Scan = Scan{Session: s, Into: f, Buckets: store.WithoutBuckets}
	return f
}

// Fold aggregates a number by the spans of a grid. It leaves out samples that the store
// has downsampled; see Session.AppendBuckets. needs are the columns wanted beside Count.
// The columns are valid until the next call. Fold uses statistics of the store instead of
// samples, except for a number that has both a long and a double series.
func (f *GridFold) Fold(n Number, g Grid, needs model.StatSet) (Columns, error) {
	if g.StepMS <= 0 || g.N < 0 {
		return Columns{}, &store.InputError{Reason: fmt.Sprintf("a grid of %d ms by %d spans: the step must be more than 0, the number not negative", g.StepMS, g.N)}
	}
	f.grid, f.needs, f.columns, f.sums = g, needs, Columns{}, f.sums[:0]
	if g.N == 0 {
		return f.columns, nil
	}
	f.Summary = store.Summary{Final: g.final, Needs: needs}
	err := f.fold(n)
	return f.columns, f.Session.Cause(err)
}

func (f *GridFold) fold(n Number) error {
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

// merge adds the samples of a number of two types one by one, since the statistics of
// the long series may include samples that the double series overrides.
func (f *GridFold) merge(n Number) error {
	cursor := f.Session.OpenNumber(n, f.grid.Range())
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

// begin makes the columns, at the first sample.
func (f *GridFold) begin() error {
	if f.columns.Count != nil {
		return nil
	}
	var err error
	if f.columns.Count, err = zeros(f.lease, &f.kept.Count, f.grid.N); err != nil {
		return err
	}
	for _, c := range []struct {
		stat         model.StatSet
		column, kept *[]float64
	}{
		{model.StatSum, &f.columns.Sum, &f.kept.Sum}, {model.StatMin, &f.columns.Min, &f.kept.Min}, {model.StatMax, &f.columns.Max, &f.kept.Max},
		{model.StatFirst, &f.columns.First, &f.kept.First}, {model.StatLast, &f.columns.Last, &f.kept.Last},
	} {
		if f.needs&c.stat != 0 {
			if *c.column, err = zeros(f.lease, c.kept, f.grid.N); err != nil {
				return err
			}
		}
	}
	if f.needs&model.StatSum != 0 {
		f.sums, err = zeros(f.lease, &f.sums, f.grid.N)
	}
	return err
}

// zeros returns n zeros in the memory of kept, or in new memory that it takes from l and
// keeps.
func zeros[T any](l *Lease, kept *[]T, n int) ([]T, error) {
	if more := n - cap(*kept); more > 0 {
		if err := l.Take(min(int64(more), 1<<40) * int64(unsafe.Sizeof(*new(T)))); err != nil {
			return nil, err
		}
		*kept = make([]T, n)
	}
	all := (*kept)[:n]
	clear(all)
	return all, nil
}

// AddBlock adds samples of a series of one type.
func (f *GridFold) AddBlock(kind model.Kind, block *store.Block) (samples int64, err error) {
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
	if f.needs == model.StatLast {
		f.addLast(kind, block.Times, block.Values)
		return int64(len(block.Times)), nil
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

// addLast adds samples one by one. Most often there is one in a span where only the last
// one counts.
func (f *GridFold) addLast(kind model.Kind, times []int64, values []uint64) {
	count, last, step := f.columns.Count, f.columns.Last, uint64(f.grid.StepMS)
	values = values[:len(times)]
	span, final := f.grid.span(times[0]), f.grid.final(times[0])
	for i, ms := range times {
		switch {
		case ms <= final:
		case uint64(ms)-uint64(final) <= step && final <= math.MaxInt64-f.grid.StepMS: // without a division
			span, final = span+1, final+f.grid.StepMS
		default:
			span, final = f.grid.span(ms), f.grid.final(ms)
		}
		count[span]++
		last[span] = model.Float(kind, values[i])
	}
}

// add adds samples to a span, after those that the span has.
func (f *GridFold) add(span int, kind model.Kind, values []uint64) {
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
func (f *GridFold) addStats(span int, kind model.Kind, s *model.Stats) {
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
