package agg

import (
	"fmt"
	"time"

	"varve/internal/query"
)

// A pairStep makes one double from each pair of neighbouring points, at the time of the
// later one. n points give n-1.
type pairStep struct {
	numeric
	compute func(env *Env) func(was, now *Point) (float64, error) // makes the function for a group
}

func (s *pairStep) Apply(env *Env, in Stream) Stream {
	return &pairStream{in: in, compute: s.compute(env)}
}

type pairStream struct {
	in      Stream
	compute func(was, now *Point) (float64, error)
	begun   bool
	was     Point
	now     Point // here so that it does not escape again for each point
}

func (s *pairStream) Next(p *Point) (bool, error) {
	if !s.begun {
		s.begun = true
		if ok, err := s.in.Next(&s.was); !ok || err != nil {
			return false, err
		}
	}
	if ok, err := nextNumber(s.in, &s.now); !ok || err != nil {
		return false, err
	}
	if err := notNull(&s.was); err != nil {
		return false, err
	}
	v, err := s.compute(&s.was, &s.now)
	if err != nil {
		return false, err
	}
	p.setDouble(s.now.TimeMS, v)
	s.was = s.now
	return true, nil
}

// nextNumber is Next for steps that accept only numbers.
func nextNumber(in Stream, p *Point) (bool, error) {
	ok, err := in.Next(p)
	if ok && err == nil {
		err = notNull(p)
	}
	return ok, err
}

// sameTime is KairosDB's text, with its two blanks: clients match on it.
func sameTime(name string) error {
	return &query.ComputeError{Reason: fmt.Sprintf("The %s aggregator cannot compute rate for data points with the same time stamp.  "+
		"You must precede %s with another aggregator.", name, name)}
}

// diffSpec is the change between neighbouring points.
var diffSpec = AggregatorSpec{
	Name: "diff", Doc: "Change between two points.",
	New: func(Args) (Step, error) {
		return &pairStep{compute: func(*Env) func(was, now *Point) (float64, error) {
			return func(was, now *Point) (float64, error) { return now.Float() - was.Float(), nil }
		}}, nil
	},
}

// rateSpec is the change between neighbouring points per sampling.
var rateSpec = AggregatorSpec{
	Name: "rate", Doc: "Change between two points per unit of time.",
	Properties: []Property{
		{Name: "sampling", Kind: SamplingProperty, Doc: "time for which the change is computed"},
		{Name: "unit", Kind: UnitProperty, Doc: "the same as a sampling of one unit", Hidden: true},
		{Name: "time_zone", Kind: ZoneProperty, Doc: "zone of days and longer units", Hidden: true},
	},
	New: func(a Args) (Step, error) {
		return perTime("rate", a.SamplingOrUnit(), a.Zone("time_zone"), func(was, now *Point) float64 {
			return now.Float() - was.Float()
		}), nil
	},
}

// samplerSpec is the value of a point per unit of the time since the one before.
var samplerSpec = AggregatorSpec{
	Name: "sampler", Doc: "Value divided by the time since the previous point.",
	Properties: []Property{
		{Name: "unit", Kind: UnitProperty, Doc: "time for which the value is computed"},
		{Name: "time_zone", Kind: ZoneProperty, Doc: "zone of days and longer units", Hidden: true},
	},
	New: func(a Args) (Step, error) {
		return perTime("sampler", a.SamplingOrUnit(), a.Zone("time_zone"), func(_, now *Point) float64 {
			return now.Float()
		}), nil
	},
}

// perTime divides the result of change by the time between two points and scales it to
// a sampling that starts at the first of them.
func perTime(name string, sampling Sampling, zone *time.Location, change func(was, now *Point) float64) *pairStep {
	return &pairStep{compute: func(env *Env) func(was, now *Point) (float64, error) {
		span := span{sampling, calendar{env.zone(zone)}}
		return func(was, now *Point) (float64, error) {
			if now.TimeMS == was.TimeMS {
				return 0, sameTime(name)
			}
			return change(was, now) / elapsedMS(was.TimeMS, now.TimeMS) * span.lengthMS(was.TimeMS), nil
		}
	}}
}

// elapsedMS is the time from one instant to another, negative if that is earlier. The
// difference may exceed int64.
func elapsedMS(fromMS, toMS int64) float64 {
	if toMS < fromMS {
		return -elapsedMS(toMS, fromMS)
	}
	return float64(uint64(toMS) - uint64(fromMS))
}

// A span is the length of a sampling that starts at a given time.
type span struct {
	sampling Sampling
	cal      calendar
}

func (s span) lengthMS(startMS int64) float64 {
	if f := s.sampling.Unit.fixedMS(); f > 0 {
		return float64(saturatingMul(f, s.sampling.Value))
	}
	if clampMS(startMS) != startMS { // beyond the calendar
		startMS = 0
	}
	return float64(s.cal.add(startMS, s.sampling.Value, s.sampling.Unit) - startMS)
}
