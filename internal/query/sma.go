package query

import "varve/internal/store"

// smaSpec is the mean of the last points.
func smaSpec() AggregatorSpec {
	return AggregatorSpec{
		Name: "sma", Doc: "Simple moving average: mean of the last points.",
		Properties: []Property{{Name: "size", Kind: IntProperty, Doc: "number of points, at least 1"}},
		New: func(a Args) (Step, error) {
			return &smaStep{size: a.Long("size", 0)}, nil
		},
	}
}

type smaStep struct {
	numeric
	size int64
}

func (s *smaStep) Apply(env *Env, in Stream) Stream {
	return &smaStream{in: in, size: s.size, lease: env.lease}
}

// smaStream holds the last size values. The first size-1 points give nothing.
type smaStream struct {
	in    Stream
	size  int64
	lease *lease
	ring  []float64
	at    int
}

func (s *smaStream) Next(p *Point) (bool, error) {
	for {
		ok, err := nextNumber(s.in, p)
		if !ok || err != nil {
			return false, err
		}
		if s.size < 1 {
			return false, &store.InputError{Reason: "size must be greater than or equal to 1"}
		}
		if err := s.push(p.Float()); err != nil {
			return false, err
		}
		if int64(len(s.ring)) == s.size {
			p.setDouble(p.TimeMS, s.mean())
			return true, nil
		}
	}
}

func (s *smaStream) push(v float64) error {
	if int64(len(s.ring)) < s.size {
		s.ring = append(s.ring, v)
		return s.lease.take(8)
	}
	s.ring[s.at] = v
	s.at = (s.at + 1) % len(s.ring)
	return nil
}

// mean adds from the oldest value on: a running sum would collect rounding
// errors and never get rid of an infinity.
func (s *smaStream) mean() float64 {
	var sum float64
	for i := range s.ring {
		sum += s.ring[(s.at+i)%len(s.ring)]
	}
	return sum / float64(len(s.ring))
}
