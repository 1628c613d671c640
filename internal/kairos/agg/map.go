package agg

import (
	"cmp"
	"slices"
	"sort"

	"varve/internal/clip"
)

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

// scaleSpec multiplies by a factor. Without one everything becomes zero, as in
// KairosDB.
var scaleSpec = AggregatorSpec{
	Name: "scale", Doc: "Value times a factor.",
	Properties: []Property{{Name: "factor", Kind: DoubleProperty, Doc: "number to multiply by"}},
	New: func(a Args) (Step, error) {
		factor := a.Double("factor", 0)
		return &mapStep{compute: func(v float64) float64 { return v * factor }}, nil
	},
}

// divSpec divides by a divisor.
var divSpec = AggregatorSpec{
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

// scoreSpec counts how many thresholds a value passes.
var scoreSpec = AggregatorSpec{
	Name: "score", Doc: "Number of thresholds that the value passes.",
	Properties: []Property{
		{Name: "thresholds", Kind: ThresholdsProperty, Doc: "values, each with a boundary: superior or inferior"},
		{Name: "order", Kind: TextProperty, Doc: "ascending or descending"},
	},
	New: newScore,
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
