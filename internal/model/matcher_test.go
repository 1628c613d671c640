package model

import (
	"regexp"
	"strings"
	"testing"
)

func TestPattern(t *testing.T) {
	for _, test := range []struct {
		expr, text string
		want       bool
	}{
		{"a", "a", true},
		{"a", "ab", false}, // a pattern matches the whole text
		{"a", "ba", false},
		{"a|b", "b", true},
		{"a|b", "bc", false}, // both alternatives do
		{"a.*", "abc", true},
		{"", "", true},
		{"", "a", false},
		{".*", "a\nb", false}, // a dot is not a line feed
		{"(?s).*", "a\nb", true},
		{"a", "a\n", false}, // and the end is the end
		{"(?i)LGA", "lga", true},
		{"日.", "日本", true},
	} {
		p, err := NewPattern(test.expr)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.MatchString(test.text); got != test.want || p.String() != test.expr {
			t.Errorf("pattern %q (%s) matches %q: %v, want %v", test.expr, p, test.text, got, test.want)
		}
	}
	for _, expr := range []string{"(", "a{2000}", `\Qa`, strings.Repeat("a", MaxPatternBytes+1)} {
		if p, err := NewPattern(expr); err == nil {
			t.Errorf("NewPattern(%.20q) = %.20v, want an error", expr, p)
		}
	}
	if _, err := NewPattern(strings.Repeat("a", MaxPatternBytes)); err != nil {
		t.Errorf("longest pattern: %v", err)
	}
}

func TestMatchesAll(t *testing.T) {
	pattern, err := NewPattern("l.*")
	if err != nil {
		t.Fatal(err)
	}
	tags := MustTags("dc", "lga", "host", "a")
	for name, test := range map[string]struct {
		ms   []Matcher
		want bool
	}{
		"no matcher":        {nil, true},
		"value":             {[]Matcher{{Tag: "host", Values: []string{"b", "a"}}}, true},
		"other value":       {[]Matcher{{Tag: "host", Values: []string{"b"}}}, false},
		"pattern":           {[]Matcher{{Tag: "dc", Patterns: []*Pattern{pattern}}}, true},
		"value or pattern":  {[]Matcher{{Tag: "dc", Values: []string{"x"}, Patterns: []*Pattern{pattern}}}, true},
		"one of two":        {[]Matcher{{Tag: "dc", Patterns: []*Pattern{pattern}}, {Tag: "host", Values: []string{"b"}}}, false},
		"tag is not there":  {[]Matcher{{Tag: "rack", Values: []string{""}}}, false},
		"neither":           {[]Matcher{{Tag: "host"}}, false},
		"not":               {[]Matcher{{Tag: "host", Values: []string{"b"}, Not: true}}, true},
		"not, but it is":    {[]Matcher{{Tag: "dc", Patterns: []*Pattern{pattern}, Not: true}}, false},
		"not of none":       {[]Matcher{{Tag: "rack", Values: []string{"b"}, Not: true}}, false},
		"absent":            {[]Matcher{{Tag: "rack", Values: []string{"b"}, Absent: true}}, true},
		"absent or other":   {[]Matcher{{Tag: "host", Values: []string{"b"}, Absent: true}}, false},
		"not, or absent":    {[]Matcher{{Tag: "rack", Values: []string{"b"}, Not: true, Absent: true}}, true},
		"the same tag, and": {[]Matcher{{Tag: "host", Values: []string{"a"}}, {Tag: "host", Values: []string{"b"}}}, false},
	} {
		if got := MatchesAll(test.ms, tags); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestNewMatcher holds the four operators against a comparison of the tag's value,
// empty if the tag is absent, with the text.
func TestNewMatcher(t *testing.T) {
	compare := map[Operator]func(value, text string) bool{
		Equal:    func(value, text string) bool { return value == text },
		NotEqual: func(value, text string) bool { return value != text },
		Matches:  func(value, text string) bool { return regexp.MustCompile("^(?:" + text + ")$").MatchString(value) },
		NotMatches: func(value, text string) bool {
			return !regexp.MustCompile("^(?:" + text + ")$").MatchString(value)
		},
	}
	for op, want := range compare {
		for _, text := range []string{"", "a", "b", ".*", ".+", "a|", "a.*"} {
			m, err := NewMatcher("host", op, text)
			if err != nil {
				t.Fatal(err)
			}
			for _, tags := range []Tags{MustTags(), MustTags("dc", "a"), MustTags("host", "a"), MustTags("host", "ab"), MustTags("host", ".*")} {
				value, _ := tags.Get("host")
				if got := MatchesAll([]Matcher{m}, tags); got != want(value, text) {
					t.Errorf("host%s%q selects %v: %v, want %v", op, text, tags, got, want(value, text))
				}
			}
			if plain := op == Equal && text != ""; plain && !m.Plain() || m.Nothing() {
				t.Errorf("host%s%q: plain %v, nothing %v", op, text, m.Plain(), m.Nothing())
			}
		}
	}
	for op, text := range map[Operator]string{Matches: "(", NotMatches: "(", "==": "a"} {
		if m, err := NewMatcher("host", op, text); err == nil {
			t.Errorf("host%s%q: %v, want an error", op, text, m)
		}
	}
}

func TestTimeRange(t *testing.T) {
	r := TimeRange{10, 20}
	for ms, want := range map[int64]bool{9: false, 10: true, 20: true, 21: false} {
		if r.Contains(ms) != want || AllTime.Contains(ms) != true || (TimeRange{20, 10}).Contains(ms) {
			t.Errorf("Contains(%d) is wrong", ms)
		}
	}
	for _, test := range []struct {
		o    TimeRange
		want bool
	}{
		{TimeRange{0, 9}, false}, {TimeRange{0, 10}, true}, {TimeRange{20, 30}, true}, {TimeRange{21, 30}, false},
		{TimeRange{12, 13}, true}, {AllTime, true}, {TimeRange{15, 14}, false}, {TimeRange{30, 0}, false},
	} {
		if r.Overlaps(test.o) != test.want || test.o.Overlaps(r) != test.want {
			t.Errorf("%v.Overlaps(%v): want %v", r, test.o, test.want)
		}
	}
}

func TestKinds(t *testing.T) {
	for k := Kind(0); k < 10; k++ {
		typ := TypeOf(k)
		if builtIn := k >= Long && k <= Null; builtIn != (typ != "") || builtIn && typ.Kind() != k {
			t.Errorf("TypeOf(%v) = %q of kind %v", k, typ, typ.Kind())
		}
		if k.Valid() == (k.String() == "invalid") || k.Fixed() && k.Variable() {
			t.Errorf("kind %d (%v): Valid %v, Fixed %v, Variable %v", k, k, k.Valid(), k.Fixed(), k.Variable())
		}
	}
	for _, typ := range []Type{"", "long", "kairos_long_nano", "KAIROS_LONG"} {
		if typ.Kind() != Custom {
			t.Errorf("type %q is of kind %v, want custom", typ, typ.Kind())
		}
	}
}
