package rowkey

import (
	"slices"

	"varve/internal/model"
)

// maxLiterals is the maximum number of values of a matcher that are looked up one by one.
const maxLiterals = 64

// IsLiteral reports whether the series of a matcher can be found by looking up its values.
func IsLiteral(m model.Matcher) bool {
	return m.Plain() && len(m.Patterns) == 0 && len(m.Values) > 0 && len(m.Values) <= maxLiterals
}

// Impossible reports whether one of the matchers can match no series.
func Impossible(matchers []model.Matcher) bool {
	return slices.ContainsFunc(matchers, model.Matcher.Nothing)
}

// Distinct returns the values without duplicates. It does not change its argument.
func Distinct(values []string) []string {
	if len(values) < 2 {
		return values
	}
	sorted := slices.Sorted(slices.Values(values))
	return slices.Compact(sorted)
}

// Literals returns the literal matchers among matchers.
func Literals(matchers []model.Matcher) []model.Matcher {
	var literals []model.Matcher
	for _, m := range matchers {
		if IsLiteral(m) {
			literals = append(literals, m)
		}
	}
	return literals
}
