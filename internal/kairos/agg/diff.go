package agg

// diffSpec is the change between neighbouring points.
func diffSpec() AggregatorSpec {
	return AggregatorSpec{
		Name: "diff", Doc: "Change between two points.",
		New: func(Args) (Step, error) {
			return &pairStep{compute: func(was, now *Point) (float64, error) {
				return now.Float() - was.Float(), nil
			}}, nil
		},
	}
}
