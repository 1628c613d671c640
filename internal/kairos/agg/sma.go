package agg

import (
	"varve/internal/model"
	"varve/internal/query"
)

var smaSpec = AggregatorSpec{
	Name: "sma", Doc: "Simple moving average: mean of the last points.",
	Properties: []Property{{Name: "size", Kind: IntProperty, Doc: "number of points, at least 1"}},
	New: func(a Args) (Step, error) {
		size := a.Long("size", 0)
		if size < 1 {
			return nil, &ArgumentError{[]string{"size must be greater than or equal to 1"}}
		}
		return &smaStep{size: size}, nil
	},
}

type smaStep struct {
	numeric
	size int64
}

func (s *smaStep) Apply(env *Env, in Stream) Stream {
	return &smaStream{in: in, size: s.size, lease: env.lease}
}

// smaStream holds the last size values. The first size-1 points have no result.
//
// The cost of a mean does not depend on the size of the window. Nothing is ever
// subtracted, since that would keep rounding errors and infinities for ever:
//
//	ring    new new new old old old     at = 3
//	sum   = back (of the new) + suffix[at] (of the old)
type smaStream struct {
	in     Stream
	size   int64
	lease  *query.Lease
	ring   []float64
	suffix []float64 // suffix[i] is the sum of ring[i:] when the ring was full last
	back   float64
	at     int
	null   bool // a null has arrived, which is refused only at the first mean
}

func (s *smaStream) Next(p *Point) (bool, error) {
	for {
		ok, err := s.in.Next(p)
		if !ok || err != nil {
			return false, err
		}
		v := 0.0
		if p.Kind == model.Null {
			s.null = true
		} else {
			v = p.Float()
		}
		if err := s.push(v); err != nil {
			return false, err
		}
		if int64(len(s.ring)) == s.size {
			if s.null {
				return false, errNull
			}
			p.setDouble(p.TimeMS, (s.suffix[s.at]+s.back)/float64(s.size))
			return true, nil
		}
	}
}

func (s *smaStream) push(v float64) error {
	if int64(len(s.ring)) < s.size {
		if err := s.lease.Take(16); err != nil {
			return err
		}
		s.ring = append(s.ring, v)
		s.at = len(s.ring)
	} else {
		s.ring[s.at] = v
		s.at++
	}
	s.back += v
	if int64(s.at) == s.size {
		s.turn()
	}
	return nil
}

// turn makes all values of a full ring old ones.
func (s *smaStream) turn() {
	if s.suffix == nil {
		s.suffix = make([]float64, len(s.ring))
	}
	var sum float64
	for i := len(s.ring) - 1; i >= 0; i-- {
		sum += s.ring[i]
		s.suffix[i] = sum
	}
	s.back, s.at = 0, 0
}
