package numeric

import "math"

// Smoothing factors of the level, of the trend, and of season and deviation.
const (
	holtAlpha = 0.1
	holtBeta  = 0.0035
	holtGamma = 0.1
)

// HoltWinters forecasts each value from those before it, with a given number of
// values per season, and computes the deviations of values from their forecasts.
// All slices must be as long as values. seasonals is a buffer of zeros. It calls
// check regularly and ends with its error.
func HoltWinters(values []float64, season int, predictions, deviations, seasonals []float64, check func() error) error {
	ago := func(list []float64, i int) float64 {
		if i < season {
			return 0
		}
		return list[i-season]
	}
	level, slope, next := Null, 0.0, Null
	for i, v := range values {
		if i%slidingLook == slidingLook-1 {
			if err := check(); err != nil {
				return err
			}
		}
		if IsNull(v) {
			predictions[i], level, slope, next = next, Null, 0, Null
			continue
		}
		predictions[i] = next
		if i == 0 {
			predictions[i] = v
		}
		lastLevel := level
		if IsNull(lastLevel) {
			lastLevel = v
		}
		lastSeasonal := ago(seasonals, i)
		level = holtAlpha*(v-lastSeasonal) + (1-holtAlpha)*(lastLevel+slope)
		slope = holtBeta*(level-lastLevel) + (1-holtBeta)*slope
		seasonals[i] = holtGamma*(v-level) + (1-holtGamma)*lastSeasonal
		next = level + slope + ago(seasonals, i+1)
		expected := predictions[i]
		if IsNull(expected) {
			expected = 0
		}
		deviations[i] = holtGamma*math.Abs(v-expected) + (1-holtGamma)*ago(deviations, i)
	}
	return nil
}
