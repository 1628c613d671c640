package query

import (
	"fmt"
	"time"
)

// rateSpec is the change between neighbouring points per sampling.
func rateSpec() AggregatorSpec {
	return AggregatorSpec{
		Name: "rate", Doc: "Change between two points per unit of time.",
		Properties: []Property{
			{Name: "sampling", Kind: SamplingProperty, Doc: "time that the change is given for"},
			{Name: "unit", Kind: UnitProperty, Doc: "the same as a sampling of one unit", Hidden: true},
			{Name: "time_zone", Kind: ZoneProperty, Doc: "zone of days and longer units", Hidden: true},
		},
		New: func(a Args) (Step, error) {
			return &rateStep{sampling: a.SamplingOrUnit(), zone: a.Zone("time_zone")}, nil
		},
	}
}

type rateStep struct {
	numeric
	sampling Sampling
	zone     *time.Location
}

func (s *rateStep) Apply(env *Env, in Stream) Stream {
	return &rateStream{in: in, span: span{s.sampling, calendar{env.zone(s.zone)}}}
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
	return float64(s.cal.add(startMS, s.sampling.Value, s.sampling.Unit) - startMS)
}

type rateStream struct {
	in       Stream
	span     span
	begun    bool
	previous Point
}

func (r *rateStream) Next(p *Point) (bool, error) {
	if !r.begun {
		r.begun = true
		if ok, err := r.next(&r.previous); !ok || err != nil {
			return false, err
		}
	}
	var now Point
	if ok, err := r.next(&now); !ok || err != nil {
		return false, err
	}
	was := r.previous
	if now.TimeMS == was.TimeMS {
		return false, sameTime("rate")
	}
	change := (now.Float() - was.Float()) / float64(now.TimeMS-was.TimeMS)
	p.setDouble(now.TimeMS, change*r.span.lengthMS(was.TimeMS))
	r.previous = now
	return true, nil
}

func (r *rateStream) next(p *Point) (bool, error) {
	ok, err := r.in.Next(p)
	if ok && err == nil {
		err = notNull(p)
	}
	return ok, err
}

// sameTime is KairosDB's text, with its two blanks: clients match on it.
func sameTime(name string) error {
	return &ComputeError{fmt.Sprintf("The %s aggregator cannot compute rate for data points with the same time stamp.  "+
		"You must precede %s with another aggregator.", name, name)}
}
