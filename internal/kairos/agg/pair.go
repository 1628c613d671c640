package agg

import (
	"fmt"

	"varve/internal/query"
)

// A pairStep makes one double from each pair of neighbouring points, at the time of the
// later one. n points give n-1.
type pairStep struct {
	numeric
	compute func(was, now *Point) (float64, error)

	// bind, if not nil, makes compute for a group.
	bind func(env *Env) func(was, now *Point) (float64, error)
}

func (s *pairStep) Apply(env *Env, in Stream) Stream {
	compute := s.compute
	if s.bind != nil {
		compute = s.bind(env)
	}
	return &pairStream{in: in, compute: compute}
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
