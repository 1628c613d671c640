package model

import "slices"

// fewValues is the number of values of a matcher up to which they are compared
// one by one.
const fewValues = 16

// A Filter is a list of matchers for comparison with many series. A matcher may have 100,000
// values: the filter searches among many values instead of comparing them one by one.
type Filter struct{ matchers []filtering }

type filtering struct {
	Matcher
	sorted []string // the values, if they are many
}

// NewFilter returns the filter of matchers that all must be satisfied. The values may not change while it
// is used. They are copied only if they are many and not in order.
func NewFilter(matchers []Matcher) Filter {
	var f Filter
	for _, m := range matchers {
		of := filtering{Matcher: m}
		if len(m.Values) > fewValues {
			of.sorted, of.Values = m.Values, nil
			if !slices.IsSorted(of.sorted) {
				of.sorted = slices.Sorted(slices.Values(of.sorted))
			}
		}
		f.matchers = append(f.matchers, of)
	}
	return f
}

// Matches reports whether tags satisfy every matcher, as MatchesAll does.
func (f Filter) Matches(tags Tags) bool {
	for i := range f.matchers {
		m := &f.matchers[i]
		v, there := tags.Get(m.Tag)
		if there && !m.matches(v) || !there && !m.Absent {
			return false
		}
	}
	return true
}

func (m *filtering) matches(value string) bool {
	if _, found := slices.BinarySearch(m.sorted, value); found {
		return !m.Not
	}
	return m.MatchesValue(value)
}
