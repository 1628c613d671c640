package model

import (
	"fmt"
	"testing"
)

// A filter selects what its matchers select, however many values they have and in whatever order.
func TestFilter(t *testing.T) {
	pattern, err := NewPattern("v1.*")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, fewValues, fewValues + 1, 100} {
		for _, step := range []int{1, 7, 99} { // in order and out of it
			var values []string
			for i := range n {
				values = append(values, fmt.Sprintf("v%03d", i*step%100))
			}
			for _, m := range []Matcher{{}, {Not: true}, {Absent: true}, {Not: true, Absent: true}, {Patterns: []*Pattern{pattern}}, {Patterns: []*Pattern{pattern}, Not: true}} {
				m.Tag, m.Values = "h", values
				matchers := []Matcher{m, {Tag: "g", Values: []string{"x"}, Absent: true}}
				f := NewFilter(matchers)
				for i := range 120 {
					for _, tags := range []Tags{MustTags("h", fmt.Sprintf("v%03d", i)), MustTags("h", fmt.Sprintf("v%03d", i), "g", "y"), MustTags("g", "x")} {
						if got, want := f.Matches(tags), MatchesAll(matchers, tags); got != want {
							t.Fatalf("%d values, %+v: %v matches: %v, want %v", n, m, tags, got, want)
						}
					}
				}
			}
		}
	}
	if !NewFilter(nil).Matches(MustTags("a", "b")) {
		t.Error("an empty filter does not match everything")
	}
}

// BenchmarkFilter compares a series with as many values as a request may have.
func BenchmarkFilter(b *testing.B) {
	m := Matcher{Tag: "h"}
	for i := range 130_000 {
		m.Values = append(m.Values, fmt.Sprintf("h%d", i))
	}
	matchers, tags := []Matcher{m}, MustTags("h", "none")
	b.Run("one by one", func(b *testing.B) {
		for b.Loop() {
			MatchesAll(matchers, tags)
		}
	})
	b.Run("filter", func(b *testing.B) {
		f := NewFilter(matchers)
		for b.Loop() {
			f.Matches(tags)
		}
	})
}
