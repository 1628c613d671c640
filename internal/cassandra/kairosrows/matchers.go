package kairosrows

import (
	"slices"

	"varve/internal/model"
)

// maxLiterals is the most values of a matcher that are looked up one by one.
const maxLiterals = 64

// isLiteral reports whether the series of a matcher can be found by values.
func isLiteral(m model.Matcher) bool {
	return m.Plain() && len(m.Patterns) == 0 && len(m.Values) > 0 && len(m.Values) <= maxLiterals
}

// impossible reports whether one of the matchers selects nothing.
func impossible(matchers []model.Matcher) bool {
	return slices.ContainsFunc(matchers, model.Matcher.Nothing)
}

// distinct returns the values, each once. It does not change them.
func distinct(values []string) []string {
	if len(values) < 2 {
		return values
	}
	sorted := slices.Sorted(slices.Values(values))
	return slices.Compact(sorted)
}

func literalsOf(matchers []model.Matcher) []model.Matcher {
	var literals []model.Matcher
	for _, m := range matchers {
		if isLiteral(m) {
			literals = append(literals, m)
		}
	}
	return literals
}
