package retention

import (
	"math"

	"varve/internal/model"
)

// A Span is a part of a Plan.
type Span struct {
	FromMS int64 // start; the next span begins where this one ends
	StepMS int64 // width of buckets; 0: samples as they were sent
}

// A Plan is the resolution at which samples are to be kept at one instant, by their
// time: spans from the oldest and coarsest to the newest. Samples older than the first
// span are removed.
//
//	  1 h buckets       60 s buckets      samples
//	|------------------|-----------------|----------------> time
//	now - 5 y          now - 30 d        now - 6 h
//
// Spans meet where a bucket of the coarser one ends, so that a bucket is made when the
// last of its samples is old enough.
type Plan []Span

// Plan returns the plan of stages at an instant. There must be at least one stage.
func (s Stages) Plan(nowMS int64) Plan {
	p := make(Plan, len(s))
	newer := int64(math.MaxInt64)
	for i, stage := range s {
		border := stage.Step // step of the coarser stage: its buckets begin where this stage's data ends
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

// SamplesFromMS is the time from which samples stay as they were sent: the Border of samples of a plan.
// Without stages, all do.
func (s Stages) SamplesFromMS(nowMS int64) int64 {
	if len(s) == 0 {
		return math.MinInt64
	}
	return model.Floor(nowMS-s[0].Keep*1000, s[min(1, len(s)-1)].Step*1000)
}

// At returns the index of the span that contains ms, -1 before the first span.
func (p Plan) At(ms int64) int {
	i := len(p) - 1
	for i >= 0 && p[i].FromMS > ms {
		i--
	}
	return i
}

// Target returns the step at which data of a step (0: samples) is to be kept in span i.
// The data keeps its own step if that is at least as coarse. It also does if its step
// divides the step of neither span i nor any older span, as is possible after a change
// of the stages.
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

// Border returns the time before which data of a step has to be downsampled or removed.
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

// Of returns the value of a bucket by a method. expected is the number of samples that
// the bucket should have. NaN is no value. [AbsoluteMin] considers only the least and
// the greatest value of the bucket, so with values of both signs it may miss one that
// is nearer to 0.
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

// Needs returns the statistics that Of reads besides the count and the sketch.
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
	return model.AllStats // absmax and absmin read Min and Max; percentiles also read Sum
}

// OfAll appends the value of each bucket to dst, as Of does. a has the columns of
// Needs.
func (m Method) OfAll(dst []float64, a *model.Aggregates, expected float64) []float64 {
	switch m {
	case Average:
		for i, sum := range a.Sum {
			dst = append(dst, math.Float64frombits(sum)/float64(int64(a.Count[i]))) // NaN for an empty bucket: 0/0
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

// known appends the values of a column, with NaN for empty buckets.
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
