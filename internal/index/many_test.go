package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
)

func manyMatchers(t *testing.T, n int, op model.Operator, text func(i int) string) []model.Matcher {
	t.Helper()
	ms := make([]model.Matcher, n)
	for i := range ms {
		m, err := model.NewMatcher("user", op, text(i))
		if err != nil {
			t.Fatal(err)
		}
		ms[i] = m
	}
	return ms
}

// Thousands of expressions that are compared with all values of a tag would take
// gigabytes, and keep the index locked. Equally many values that are only looked up are
// accepted.
func TestComparisonsAreBounded(t *testing.T) {
	x := New()
	for i, s := range users(100) {
		x.Add(model.SeriesNumber(i), s)
	}
	like := manyMatchers(t, maxComparisons+1, model.Matches, func(i int) string { return fmt.Sprintf(".*%d.*", i) })
	one := model.Matcher{Tag: "user"}
	for _, m := range like {
		one.Patterns = append(one.Patterns, m.Patterns...)
	}
	for name, ms := range map[string][]model.Matcher{
		"patterns":         manyMatchers(t, maxComparisons+1, model.NotMatches, func(i int) string { return fmt.Sprintf(".*%dx", i) }),
		"patterns of one":  {one},
		"not empty":        manyMatchers(t, maxComparisons+1, model.NotEqual, func(int) string { return "" }),
		"empty or another": slices.Repeat([]model.Matcher{{Tag: "user", Values: []string{"a"}, Absent: true}}, maxComparisons+1),
	} {
		var input *store.InputError
		if _, err := x.Select(context.Background(), "requests", ms, nil); !errors.As(err, &input) || !strings.Contains(input.Reason, "join several by |") {
			t.Errorf("%s: %v, want an input error with a way out", name, err)
		}
	}
	others := manyMatchers(t, 20*maxComparisons, model.NotEqual, func(i int) string { return fmt.Sprint("nobody-", i) })
	ids, err := x.Select(context.Background(), "requests", others, nil)
	if err != nil || ids.GetCardinality() != 100 {
		t.Errorf("values that are looked up: %v, %v; want all 100 series", ids, err)
	}
}

// However many patterns are matched with many values, one hold of the lock covers only
// a slice of values and a group of matchers.
func TestManyPatternsAreMatchedInSlices(t *testing.T) {
	x := New()
	for i, s := range users(2*directMax + 100) {
		x.Add(model.SeriesNumber(i), s)
	}
	todo := 0
	ms := manyMatchers(t, 3*groupMax, model.NotMatches, func(i int) string { return fmt.Sprintf(".*7%02d.*", i) })
	want := 0
	for _, s := range users(2*directMax + 100) {
		if model.MatchesAll(ms, s.Tags) {
			want++
		}
	}
	conditions, err := newConditions(ms)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, done := x.try("requests", conditions, nil); done {
		t.Fatal("nothing was to be matched")
	}
	for i := range conditions {
		todo += len(conditions[i].patterns[0].todo)
	}
	if todo > 2*scanSlice {
		t.Errorf("%d values were copied while the index was locked once, want %d at most", todo, 2*scanSlice)
	}
	ids, err := x.Select(context.Background(), "requests", ms, nil)
	if err != nil || int(ids.GetCardinality()) != want {
		t.Errorf("%v, %v; want %d series", ids.GetCardinality(), err, want)
	}
	// The union of scans of one matcher.
	one := model.Matcher{Tag: "user"}
	for _, m := range ms {
		one.Patterns = append(one.Patterns, m.Patterns...)
	}
	ids, err = x.Select(context.Background(), "requests", []model.Matcher{one}, nil)
	if err != nil || int(ids.GetCardinality()) != 2*directMax+100-want {
		t.Errorf("%v, %v; want %d series", ids.GetCardinality(), err, 2*directMax+100-want)
	}
}
