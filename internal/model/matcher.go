package model

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"sync"
)

// TimeRange is a span of time in milliseconds, both ends inclusive. It is empty
// when StartMS > EndMS.
type TimeRange struct{ StartMS, EndMS int64 }

// AllTime contains every representable time.
var AllTime = TimeRange{-1 << 63, 1<<63 - 1}

// Contains reports whether ms lies in r.
func (r TimeRange) Contains(ms int64) bool { return r.StartMS <= ms && ms <= r.EndMS }

// Overlaps reports whether r and o have a time in common.
func (r TimeRange) Overlaps(o TimeRange) bool {
	return max(r.StartMS, o.StartMS) <= min(r.EndMS, o.EndMS)
}

// Matcher selects series by one tag. A value of the tag satisfies it if it equals one
// of Values or one of Patterns matches all of it, so no value does if both are empty.
// Not inverts that. A series without the tag is selected if Absent is set. [NewMatcher]
// makes the four operators of Prometheus and Graphite, for which an absent tag equals
// an empty one.
type Matcher struct {
	Tag      string
	Values   []string
	Patterns []*Pattern
	Not      bool
	Absent   bool
}

// An Operator compares a tag with a text.
type Operator string

const (
	Equal      Operator = "="
	NotEqual   Operator = "!="
	Matches    Operator = "=~"
	NotMatches Operator = "!~"
)

// NewMatcher returns the matcher of a tag, an operator and a text. An absent tag equals
// an empty one. NewMatcher fails if the text of =~ or !~ is not a valid pattern.
func NewMatcher(tag string, op Operator, text string) (Matcher, error) {
	m := Matcher{Tag: tag, Not: op == NotEqual || op == NotMatches}
	switch op {
	case Equal, NotEqual:
		m.Values = []string{text}
	case Matches, NotMatches:
		p, err := NewPattern(text)
		if err != nil {
			return Matcher{}, err
		}
		m.Patterns = []*Pattern{p}
	default:
		return Matcher{}, fmt.Errorf("unknown operator %q of a matcher; there are =, !=, =~ and !~", op)
	}
	m.Absent = m.MatchesValue("")
	return m, nil
}

// Plain reports whether m selects only series that have the tag with a value of Values
// or Patterns.
func (m Matcher) Plain() bool { return !m.Not && !m.Absent }

// Nothing reports whether m selects no series at all.
func (m Matcher) Nothing() bool { return m.Plain() && len(m.Values) == 0 && len(m.Patterns) == 0 }

// MatchesValue reports whether a value of the tag satisfies m.
func (m Matcher) MatchesValue(value string) bool {
	return m.names(value) != m.Not
}

// names reports whether value is one of Values or matches one of Patterns.
func (m Matcher) names(value string) bool {
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
		v, there := tags.Get(m.Tag)
		if there && !m.MatchesValue(v) || !there && !m.Absent {
			return false
		}
	}
	return true
}

// Pattern is a regular expression (RE2 syntax) that must match a whole text.
type Pattern struct {
	source string
	size   int
	re     *regexp.Regexp

	once sync.Once
	plan any
}

// NewPattern compiles expr, at most MaxPatternBytes long and of at most
// MaxPatternSize instructions.
func NewPattern(expr string) (*Pattern, error) {
	if len(expr) > MaxPatternBytes {
		return nil, fmt.Errorf("pattern of %d bytes is longer than %d", len(expr), MaxPatternBytes)
	}
	// Parse expr alone first: x)|(?:y would be valid inside the parentheses. Parsing is
	// cheap, while compiling writes out all repeats.
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", expr, err)
	}
	size := programSize(tree)
	if size > MaxPatternSize {
		return nil, fmt.Errorf("pattern %.64q... has %d instructions when its repeats are written out, which is more than %d; repeat less",
			expr, size, MaxPatternSize)
	}
	re, err := regexp.Compile("^(?:" + expr + ")$")
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", expr, err)
	}
	return &Pattern{source: expr, size: size, re: re}, nil
}

const (
	// MaxPatternBytes bounds the source of a Pattern.
	MaxPatternBytes = 4096

	// MaxPatternSize bounds the instructions that a Pattern is compiled to. At
	// worst, matching executes all of them for each character of a text. Any
	// literal text of MaxPatternBytes fits.
	MaxPatternSize = 5000
)

// programSize estimates how many instructions an expression compiles to. A character
// class counts by the size of its table.
func programSize(re *syntax.Regexp) int {
	n := 1
	for _, sub := range re.Sub {
		n += programSize(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpCharClass:
		n += len(re.Rune) / 8
	case syntax.OpCapture:
		n++
	case syntax.OpConcat:
		n--
	case syntax.OpAlternate:
		n += len(re.Sub)
	case syntax.OpRepeat:
		times := max(re.Max, re.Min) // Max is -1 for no bound
		n *= max(times, 1)           // the parser allows 1000, nested repeats multiplied
	}
	return n
}

// Size is an estimate of the number of instructions that p is compiled to.
func (p *Pattern) Size() int { return p.size }

// Plan returns the result of plan(p). Only the first call runs plan, and p keeps
// the result, so that an index plans once how to search for p. Since the first
// plan wins, only one package may call Plan.
func (p *Pattern) Plan(plan func(*Pattern) any) any {
	p.once.Do(func() { p.plan = plan(p) })
	return p.plan
}

// String returns the expression as it was given.
func (p *Pattern) String() string { return p.source }

// MatchString reports whether the whole of s is matched.
func (p *Pattern) MatchString(s string) bool { return p.re.MatchString(s) }
