// Package numeric computes on the values of series: aggregations, rows of
// several series, moving windows, buckets, forecasts. It knows nothing of names,
// tags, or requests.
//
// A series is a []float64 with one value per step; null is NaN, see [IsNull].
// What a function says of nulls is what Graphite does with them.
//
// Results go into slices of the caller, who has charged their memory. Functions
// whose work grows faster than their input take a function that is called now
// and then and ends the work by an error.
package numeric

import "math"

// Null is no value.
var Null = math.NaN()

// Infinity is a limit that nothing reaches.
var Infinity = math.Inf(1)

// IsNull reports whether v is no value.
func IsNull(v float64) bool { return v != v }

// Fill sets all values to v.
func Fill(values []float64, v float64) {
	for i := range values {
		values[i] = v
	}
}
