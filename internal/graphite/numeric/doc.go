// Package numeric computes with the values of series: aggregations, rows of
// several series, moving windows, buckets, forecasts. It knows no names, tags or
// requests.
//
// A series is a []float64 with one value per step; null is NaN, see [IsNull]. All
// functions treat nulls as Graphite does.
//
// Results go into slices of the caller, which has reserved their memory. Functions
// whose work grows faster than their input have a parameter check. They call it
// regularly and end with its error.
package numeric

import "math"

// Null is no value.
var Null = math.NaN()

// Infinity is a limit that no value reaches.
var Infinity = math.Inf(1)

// IsNull reports whether v is no value.
func IsNull(v float64) bool { return v != v }

// Fill sets all values to v.
func Fill(values []float64, v float64) {
	for i := range values {
		values[i] = v
	}
}
