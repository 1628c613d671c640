package model

import (
	"fmt"
	"regexp"
	"slices"
)

// TimeRange is a span of time in milliseconds, both ends inclusive. It is empty
// when StartMS > EndMS.
type TimeRange struct{ StartMS, EndMS int64 }

// AllTime holds every representable time.
var AllTime = TimeRange{-1 << 63, 1<<63 - 1}

// Contains reports whether ms lies in r.
func (r TimeRange) Contains(ms int64) bool { return r.StartMS <= ms && ms <= r.EndMS }

// Overlaps reports whether r and o have a time in common.
func (r TimeRange) Overlaps(o TimeRange) bool {
	return max(r.StartMS, o.StartMS) <= min(r.EndMS, o.EndMS)
}

// Matcher selects series by one tag: the tag must be there, and its value must
// equal one of Values or be matched as a whole by one of Patterns. A Matcher
// with neither selects nothing.
type Matcher struct {
	Tag      string
	Values   []string
	Patterns []*Pattern
}

// Matches reports whether a tag value satisfies m.
func (m Matcher) Matches(value string) bool {
	if slices.Contains(m.Values, value) {
		return true
	}
	for _, p := range m.Patterns {
		if p.MatchString(value) {
			return true
		}
	}
	return false
}

// MatchesAll reports whether tags satisfy every matcher.
func MatchesAll(matchers []Matcher, tags Tags) bool {
	for _, m := range matchers {
		v, ok := tags.Get(m.Tag)
		if !ok || !m.Matches(v) {
			return false
		}
	}
	return true
}

// Pattern is a regular expression (RE2 syntax) that must match a whole text.
type Pattern struct {
	source string
	re     *regexp.Regexp
}

// NewPattern compiles expr, at most MaxPatternBytes long.
func NewPattern(expr string) (*Pattern, error) {
	if len(expr) > MaxPatternBytes {
		return nil, fmt.Errorf("pattern of %d bytes is longer than %d", len(expr), MaxPatternBytes)
	}
	// By itself first: x)|(?:y would be fine only inside of the parentheses.
	_, err := regexp.Compile(expr)
	var re *regexp.Regexp
	if err == nil {
		re, err = regexp.Compile("^(?:" + expr + ")$")
	}
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", expr, err)
	}
	return &Pattern{source: expr, re: re}, nil
}

// MaxPatternBytes bounds the source of a Pattern, and with it compile time.
const MaxPatternBytes = 4096

// String returns the expression as it was given.
func (p *Pattern) String() string { return p.source }

// MatchString reports whether the whole of s is matched.
func (p *Pattern) MatchString(s string) bool { return p.re.MatchString(s) }
