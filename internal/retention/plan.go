package retention

import (
	"math"

	"varve/internal/model"
)

// A Span is a part of a Plan.
type Span struct {
	FromMS int64 // where it begins; it ends where the next one begins
	StepMS int64 // the width of buckets; 0: samples as they were sent
}

// A Plan says how finely samples are to be kept at one instant, by the time that they
// are of: spans from the oldest and coarsest to the newest. What is older than the
// first one goes.
//
//	  1 h buckets       60 s buckets      samples
//	|------------------|-----------------|----------------> time
//	now - 5 y          now - 30 d        now - 6 h
//
// Spans meet where buckets of the coarser one end, so that a bucket is made when
// the last of its samples is old enough.
type Plan []Span

// Plan returns the plan of stages, of which there is at least one.
func (s Stages) Plan(nowMS int64) Plan {
	p := make(Plan, len(s))
	newer := int64(math.MaxInt64)
	for i, stage := range s {
		border := stage.Step // of the coarser stage, whose buckets begin where this one's data ends
		if i+1 < len(s) {
			border = s[i+1].Step
		}
		newer = min(newer, model.Floor(nowMS-stage.Keep*1000, border*1000))
		p[len(s)-1-i] = Span{FromMS: newer, StepMS: stage.Step * 1000}
	}
	p[len(p)-1].StepMS = 0
	return p
}

// OldestMS is the first time of a plan.
func (s Stages) OldestMS(nowMS int64) int64 { return s.Plan(nowMS)[0].FromMS }

// At returns the number of the span that ms is in, -1 before the first.
func (p Plan) At(ms int64) int {
	i := len(p) - 1
	for i >= 0 && p[i].FromMS > ms {
		i--
	}
	return i
}

// Target returns the step at which data of a step (0: samples) is to be kept in span
// i. It is the data's own if that is as coarse already, or divides no step from there
// on: stages may have been others once.
func (p Plan) Target(i int, stepMS int64) int64 {
	if p[i].StepMS <= stepMS {
		return stepMS
	}
	for ; i >= 0; i-- {
		if stepMS == 0 || p[i].StepMS%stepMS == 0 {
			return p[i].StepMS
		}
	}
	return stepMS
}

// Border returns the time before which data of a step has to be made coarser, or
// goes.
func (p Plan) Border(stepMS int64) int64 {
	i := len(p)
	for i > 0 && p.Target(i-1, stepMS) == stepMS {
		i--
	}
	if i == len(p) {
		return math.MaxInt64
	}
	return p[i].FromMS
}

// Of returns the value that a method makes of a bucket, in which so many samples are
// expected. NaN is no value. [AbsoluteMin] of values of both signs is that of the least
// and the greatest one.
func (m Method) Of(a model.Aggregate, expected float64) float64 {
	if a.Count == 0 {
		return math.NaN()
	}
	switch m {
	case Sum:
		return a.Sum
	case Last:
		return a.Last
	case Max:
		return a.Max
	case Min:
		return a.Min
	case Count:
		return float64(a.Count)
	case AverageZero:
		return a.Sum / max(expected, float64(a.Count))
	case AbsoluteMax:
		if math.Abs(a.Min) > math.Abs(a.Max) {
			return a.Min
		}
		return a.Max
	case AbsoluteMin:
		if math.Abs(a.Min) <= math.Abs(a.Max) {
			return a.Min
		}
		return a.Max
	}
	if percent, ok := m.Percentile(); ok {
		return a.Percentile(percent)
	}
	return a.Sum / float64(a.Count)
}

// Needs returns what Of looks at beside the count and the sketch.
func (m Method) Needs() model.StatSet {
	switch m {
	case Sum, Average, AverageZero:
		return model.StatSum
	case Last:
		return model.StatLast
	case Max:
		return model.StatMax
	case Min:
		return model.StatMin
	case Count:
		return 0
	}
	return model.AllStats // of two, and of percentiles
}

// OfAll appends to dst what Of makes of each bucket. a has the columns that Needs says.
func (m Method) OfAll(dst []float64, a *model.Aggregates, expected float64) []float64 {
	switch m {
	case Average:
		for i, sum := range a.Sum {
			dst = append(dst, math.Float64frombits(sum)/float64(int64(a.Count[i]))) // NaN for none of none, whose sum is 0
		}
		return dst
	case Sum:
		return known(dst, a, a.Sum)
	case Last:
		return known(dst, a, a.Last)
	case Max:
		return known(dst, a, a.Max)
	case Min:
		return known(dst, a, a.Min)
	}
	for i := range a.StartMS {
		dst = append(dst, m.Of(a.At(i), expected))
	}
	return dst
}

// known appends the values of a column, NaN for a bucket of nothing.
func known(dst []float64, a *model.Aggregates, column []uint64) []float64 {
	for i, bits := range column {
		v := math.Float64frombits(bits)
		if a.Count[i] == 0 {
			v = math.NaN()
		}
		dst = append(dst, v)
	}
	return dst
}
