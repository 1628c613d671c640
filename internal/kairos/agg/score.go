package agg

import (
	"cmp"
	"slices"
	"sort"

	"varve/internal/clip"
)

// scoreSpec counts how many thresholds a value passes.
func scoreSpec() AggregatorSpec {
	return AggregatorSpec{
		Name: "score", Doc: "Number of thresholds that the value passes.",
		Properties: []Property{
			{Name: "thresholds", Kind: ThresholdsProperty, Doc: "values, each with a boundary: superior or inferior"},
			{Name: "order", Kind: TextProperty, Doc: "ascending or descending"},
		},
		New: newScore,
	}
}

// A Threshold is passed by a greater value and, if Inferior, by an equal one.
type Threshold struct {
	Value    float64
	Inferior bool
}

func newScore(a Args) (Step, error) {
	if !a.Has("thresholds") {
		return nil, &ArgumentError{[]string{"thresholds may not be null"}}
	}
	order := a.Text("order", "ascending")
	if order != "ascending" && order != "descending" {
		return nil, &ArgumentError{[]string{"order must be 'ascending' or 'descending', not " + clip.Text(order, clippedBytes)}}
	}
	thresholds := slices.Clone(argument[[]Threshold](a, "thresholds", nil))
	slices.SortStableFunc(thresholds, func(x, y Threshold) int {
		if c := cmp.Compare(x.Value, y.Value); c != 0 || x.Inferior == y.Inferior {
			return c
		}
		if x.Inferior {
			return -1
		}
		return 1
	})
	return &mapStep{compute: func(v float64) float64 {
		n := scoreOf(v, thresholds)
		if order == "descending" {
			n = len(thresholds) - n
		}
		return float64(n)
	}}, nil
}

// scoreOf counts the leading thresholds that are passed.
func scoreOf(v float64, thresholds []Threshold) int {
	return sort.Search(len(thresholds), func(i int) bool {
		t := &thresholds[i]
		return v < t.Value || (v == t.Value && !t.Inferior)
	})
}
