package agg

// scaleSpec multiplies by a factor. Without one everything becomes zero, as in
// KairosDB.
func scaleSpec() AggregatorSpec {
	return AggregatorSpec{
		Name: "scale", Doc: "Value times a factor.",
		Properties: []Property{{Name: "factor", Kind: DoubleProperty, Doc: "number to multiply by"}},
		New: func(a Args) (Step, error) {
			factor := a.Double("factor", 0)
			return &mapStep{compute: func(v float64) float64 { return v * factor }}, nil
		},
	}
}

// A mapStep makes one double of each number.
type mapStep struct {
	numeric
	compute func(v float64) float64
}

func (s *mapStep) Apply(_ *Env, in Stream) Stream { return &mapStream{in, s.compute} }

type mapStream struct {
	in      Stream
	compute func(v float64) float64
}

func (s *mapStream) Next(p *Point) (bool, error) {
	ok, err := nextNumber(s.in, p)
	if !ok || err != nil {
		return false, err
	}
	p.setDouble(p.TimeMS, s.compute(p.Float()))
	return true, nil
}
