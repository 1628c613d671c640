package agg

// leastSquaresSpec fits a line through a bucket and gives its two ends.
var leastSquaresSpec = AggregatorSpec{
	Name: "least_squares", Doc: "Line of best fit: its values at the first and last time of a bucket.",
	Properties: rangeProperties,
	New: func(a Args) (Step, error) {
		return &collectStep{Range: rangeOf(a), several: true, collector: func(*Env) collector {
			return &lineCollector{}
		}}, nil
	},
}

// lineCollector keeps the sums of a regression. Times are relative to the first point
// and means are subtracted as points arrive, so that large times do not lose the slope
// to rounding. One or two points stay as they are.
type lineCollector struct {
	n           float64
	first, last Point
	meanT       float64 // ms after the first point
	meanV       float64
	varT, covTV float64 // sums, not divided by n
}

func (c *lineCollector) add(p *Point) error {
	if c.n == 0 {
		*c = lineCollector{first: *p}
	}
	c.last = *p
	c.n++
	t, v := elapsedMS(c.first.TimeMS, p.TimeMS), p.Float()
	dt := t - c.meanT
	c.meanT += dt / c.n
	c.meanV += (v - c.meanV) / c.n
	c.varT += dt * (t - c.meanT)
	c.covTV += dt * (v - c.meanV)
	return nil
}

func (c *lineCollector) emit(_ int64, out []Point) ([]Point, error) {
	switch {
	case c.n == 1:
		out = append(out, c.first)
	case c.n == 2:
		out = append(out, c.first, c.last)
	default:
		out = append(out, c.at(c.first.TimeMS), c.at(c.last.TimeMS))
	}
	c.n = 0
	return out, nil
}

// at is the line's value at a time.
func (c *lineCollector) at(ms int64) (p Point) {
	slope := 0.0
	if c.varT > 0 { // else all points have one time
		slope = c.covTV / c.varT
	}
	p.setDouble(ms, c.meanV+slope*(elapsedMS(c.first.TimeMS, ms)-c.meanT))
	return p
}
