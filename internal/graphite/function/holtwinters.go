package function

import (
	"fmt"
	"strings"

	"varve/internal/graphite/numeric"
)

func init() {
	const group = "Calculate"
	const rest = "[bootstrapInterval:interval=\"7d\"], [seasonality:interval=\"1d\"])"
	define(group, "holtWintersForecast(seriesList, "+rest, "Forecasts each value by the Holt-Winters method from those before it.", holtWintersForecast)
	define(group, "holtWintersConfidenceBands(seriesList, [delta:integer=3], "+rest, "Draws the band of delta deviations around the Holt-Winters forecast.", holtWintersConfidenceBands)
	define(group, "holtWintersConfidenceArea(seriesList, [delta:integer=3], "+rest, "Fills the band of delta deviations around the Holt-Winters forecast.", holtWintersConfidenceArea)
	define(group, "holtWintersAberration(seriesList, [delta:integer=3], "+rest, "Draws by how much values are outside the Holt-Winters band.", holtWintersAberration)
}

// A forecast is what the Holt-Winters method says of each value of a series.
type forecast struct {
	series                  *Series // with the tags
	predictions, deviations []float64
	lead                    int // values before the range
}

// forecasts analyses the series of the first argument from a bootstrap
// interval before the range on. The intervals are the arguments at place i.
func (c *call) forecasts(i int) ([]forecast, int64, error) {
	_, bootstrap := c.interval(i, "7d")
	_, season := c.interval(i+1, "1d")
	if c.err != nil {
		return nil, 0, c.err
	}
	if bootstrap < 0 || season <= 0 {
		return nil, 0, badParam("the intervals must be positive")
	}
	earlier, err := c.before(bootstrap)
	if err != nil {
		return nil, 0, err
	}
	out := make([]forecast, 0, len(earlier))
	for _, s := range earlier {
		length := season / s.Step
		if length < 2 && numeric.Present(s.Values) > 0 {
			return nil, 0, badParam("the seasonality must be two steps of %d seconds at least", s.Step)
		}
		f := forecast{series: s, lead: int(min(bootstrap/s.Step, int64(len(s.Values))))}
		if err := c.holtWinters(&f, int(min(length, int64(len(s.Values)+1)))); err != nil {
			return nil, 0, err
		}
		s.Tags["holtWintersForecast"], s.Tags["holtWintersDeviation"] = "1", "1"
		out = append(out, f)
	}
	return out, bootstrap, nil
}

// holtWinters fills in predictions and deviations.
func (c *call) holtWinters(f *forecast, season int) (err error) {
	values := f.series.Values
	arrays := make([][]float64, 3)
	for i := range arrays {
		if arrays[i], err = c.array(int64(len(values))); err != nil {
			return err
		}
	}
	f.predictions, f.deviations = arrays[0], arrays[1]
	return numeric.HoltWinters(values, season, f.predictions, f.deviations, arrays[2], c.look)
}

// after returns a series that begins behind the bootstrap interval.
func (f forecast) after(bootstrap int64, name string, values []float64) *Series {
	s := f.series.derive(name, values)
	s.Consolidation = "average"
	s.Start += bootstrap
	return s
}

func holtWintersForecast(c *call) (any, error) {
	c.list(0)
	found, bootstrap, err := c.forecasts(1)
	if err != nil {
		return nil, err
	}
	out := make([]*Series, len(found))
	for i, f := range found {
		out[i] = f.after(bootstrap, "holtWintersForecast("+f.series.Name+")", f.predictions[f.lead:])
	}
	return out, nil
}

// bands returns the lower and the upper band of each series, in turn.
func (c *call) bands() ([]*Series, error) {
	c.list(0)
	delta := c.float(1, 3)
	found, bootstrap, err := c.forecasts(2)
	if err != nil {
		return nil, err
	}
	out := make([]*Series, 0, 2*len(found))
	for _, f := range found {
		lower, err := c.array(int64(len(f.predictions) - f.lead))
		if err != nil {
			return nil, err
		}
		upper, err := c.array(int64(len(lower)))
		if err != nil {
			return nil, err
		}
		for i := range lower {
			width := delta * f.deviations[f.lead+i]
			lower[i], upper[i] = f.predictions[f.lead+i]-width, f.predictions[f.lead+i]+width
		}
		f.series.Tags["holtWintersConfidenceUpper"], f.series.Tags["holtWintersConfidenceLower"] = "1", "1"
		for _, band := range [...]struct {
			name   string
			values []float64
		}{{"Lower", lower}, {"Upper", upper}} {
			s := f.after(bootstrap, fmt.Sprintf("holtWintersConfidence%s(%s)", band.name, f.series.Name), band.values)
			s.PathExpression = f.series.PathExpression
			out = append(out, s)
		}
	}
	return out, nil
}

func holtWintersConfidenceBands(c *call) (any, error) {
	bands, err := c.bands()
	return bands, err
}

func holtWintersConfidenceArea(c *call) (any, error) {
	bands, err := c.bands()
	if err != nil {
		return nil, err
	}
	if err := between(bands); err != nil {
		return nil, err
	}
	for _, s := range bands {
		delete(s.Tags, "areaBetween")
		s.Tags["holtWintersConfidenceArea"] = "1"
		s.rename(strings.ReplaceAll(s.Name, "areaBetween", "holtWintersConfidenceArea"))
	}
	return bands, nil
}

func holtWintersAberration(c *call) (any, error) {
	list := c.list(0)
	bands, err := c.bands()
	if err != nil {
		return nil, err
	}
	named := map[string][]float64{}
	for _, s := range bands {
		named[s.Name] = s.Values
	}
	at := func(values []float64, i int) float64 {
		if i >= len(values) {
			return numeric.Null
		}
		return values[i]
	}
	out, err := c.derive(list, func(s *Series, values []float64) string {
		lower, upper := named["holtWintersConfidenceLower("+s.Name+")"], named["holtWintersConfidenceUpper("+s.Name+")"]
		for i, v := range s.Values {
			if high := at(upper, i); v > high {
				values[i] = v - high
			} else if low := at(lower, i); v < low {
				values[i] = v - low
			}
		}
		s.Tags["holtWintersAberration"] = "1"
		return "holtWintersAberration(" + s.Name + ")"
	})
	if err != nil {
		return nil, err
	}
	for _, s := range out.([]*Series) {
		s.Consolidation = "average"
	}
	return out, nil
}
