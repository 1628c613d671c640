package agg

// A collectStep is a range aggregator of numbers that needs more of a bucket than a
// tally.
type collectStep struct {
	Range
	numeric
	collector func(env *Env) collector
	several   bool // a bucket may have several results
	wholes    bool // the collector uses Point.Whole
}

// A collector collects one bucket at a time.
type collector interface {
	// add adds the next number of the bucket.
	add(p *Point) error

	// emit appends the results of the bucket and resets the collector. stamp is the
	// time that the range sets.
	emit(stamp int64, out []Point) ([]Point, error)
}

func (s *collectStep) Apply(env *Env, in Stream) Stream {
	return &collectStream{step: s, in: in, buckets: s.buckets(env), collector: s.collector(env)}
}

// collectStream reads one point ahead, and holds the results of one bucket.
type collectStream struct {
	step      *collectStep
	in        Stream
	buckets   *buckets
	collector collector
	ahead     Point
	begun     bool
	done      bool
	out       []Point
	at        int
}

func (s *collectStream) Next(p *Point) (bool, error) {
	if !s.begun {
		s.begun = true
		ok, err := nextNumber(s.in, &s.ahead)
		if !ok || err != nil {
			s.done = true
			return false, err
		}
		if err := s.buckets.check(); err != nil {
			return false, err
		}
	}
	for s.at == len(s.out) {
		if s.done {
			return false, nil
		}
		if err := s.fill(); err != nil {
			return false, err
		}
	}
	*p = s.out[s.at]
	s.at++
	return true, nil
}

// fill collects the bucket of the point ahead.
func (s *collectStream) fill() error {
	b, firstMS := s.buckets.find(s.ahead.TimeMS), s.ahead.TimeMS
	for {
		if err := s.collector.add(&s.ahead); err != nil {
			return err
		}
		ok, err := nextNumber(s.in, &s.ahead)
		if err != nil {
			return err
		}
		if s.done = !ok; s.done || s.ahead.TimeMS > b.finalMS {
			break
		}
	}
	var err error
	s.at = 0
	s.out, err = s.collector.emit(s.step.stamp(b, firstMS), s.out[:0])
	return err
}
