package agg

import (
	"cmp"
	"math"
	"strings"

	"varve/internal/clip"
	"varve/internal/model"
	"varve/internal/store"
)

// filterSpec removes the points for which a comparison holds.
var filterSpec = AggregatorSpec{
	Name: "filter", Doc: "Removes the points for which the comparison is true.",
	Properties: []Property{
		{Name: "filter_op", Kind: TextProperty, Doc: "lte, lt, gte, gt, equal or ne"},
		{Name: "threshold", Kind: ScalarProperty, Doc: "number or text to compare with"},
	},
	New: newFilter,
}

var comparisons = map[string]func(order int) bool{
	"lt":    func(order int) bool { return order < 0 },
	"lte":   func(order int) bool { return order <= 0 },
	"gt":    func(order int) bool { return order > 0 },
	"gte":   func(order int) bool { return order >= 0 },
	"equal": func(order int) bool { return order == 0 },
	"ne":    func(order int) bool { return order != 0 },
}

func newFilter(a Args) (Step, error) {
	s := &filterStep{threshold: 0.0}
	if a.Has("threshold") {
		s.threshold = a["threshold"]
	}
	if a.Has("filter_op") {
		name := a.Text("filter_op", "")
		if s.holds = comparisons[strings.ToLower(name)]; s.holds == nil {
			// KairosDB says "trim type" here too.
			return nil, &ArgumentError{[]string{
				clip.Text(name, clippedBytes) + " is not a valid trim type, must be 'lte', 'lt', 'gte', 'gt', 'equal' or 'ne'. This is filter_op of filter."}}
		}
	}
	return s, nil
}

type filterStep struct {
	anyType
	holds     func(order int) bool // nil if not given, an error once there are points
	threshold any                  // float64 and string are compared; any other threshold removes everything
}

func (s *filterStep) Apply(_ *Env, in Stream) Stream { return &filterStream{in, s} }

type filterStream struct {
	in   Stream
	step *filterStep
}

func (s *filterStream) Next(p *Point) (bool, error) {
	for {
		ok, err := s.in.Next(p)
		if !ok || err != nil {
			return false, err
		}
		if s.step.holds == nil {
			return false, &store.InputError{Reason: "filter_op may not be null"}
		}
		if _, number := s.step.threshold.(float64); number {
			if err := notNull(p); err != nil {
				return false, err
			}
		}
		if !s.step.removes(p) {
			return true, nil
		}
	}
}

// removes reports whether a point is removed. A point of another kind than the
// threshold always is.
func (s *filterStep) removes(p *Point) bool {
	switch threshold := s.threshold.(type) {
	case float64:
		return p.Kind == model.String || s.holds(compareFloats(p.Float(), threshold))
	case string:
		return p.Kind != model.String || s.holds(model.CompareNames(string(p.Data), threshold))
	}
	return true
}

// compareFloats puts -0, which scale makes of negative values, before 0, as
// KairosDB does.
func compareFloats(a, b float64) int {
	if a == 0 && b == 0 {
		return cmp.Compare(math.Copysign(1, a), math.Copysign(1, b))
	}
	return cmp.Compare(a, b)
}
