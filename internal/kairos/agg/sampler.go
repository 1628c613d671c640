package agg

// samplerSpec is the value of a point per unit of the time since the one before.
func samplerSpec() AggregatorSpec {
	return AggregatorSpec{
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
}
