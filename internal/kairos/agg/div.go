package agg

// divSpec divides by a divisor.
func divSpec() AggregatorSpec {
	return AggregatorSpec{
		Name: "div", Doc: "Value by a divisor.",
		Properties: []Property{{Name: "divisor", Kind: DoubleProperty, Doc: "number to divide by, not zero"}},
		New: func(a Args) (Step, error) {
			divisor := a.Double("divisor", 0)
			if divisor == 0 {
				return nil, &ArgumentError{[]string{"m_divisor may not be zero"}}
			}
			return &mapStep{compute: func(v float64) float64 { return v / divisor }}, nil
		},
	}
}
