package agg

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"varve/internal/model"
	"varve/internal/query"
)

func newGroupBy(t testing.TB, name string, args Args) GroupBy {
	t.Helper()
	for _, spec := range GroupBys() {
		if spec.Name == name {
			g, err := spec.New(args)
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
	}
	t.Fatalf("no group-by %s", name)
	return nil
}

func TestSplitterNumbers(t *testing.T) {
	hour := Args{"range_size": Sampling{1, Hours}, "group_count": int64(3)}
	tests := []struct {
		name string
		args Args
		in   []sample
		want []int64
	}{
		{"value", Args{"range_size": int64(10)}, []sample{{0, 9}, {0, 10}, {0, -15}, {0, 10.9}, {0, 1e12}, {0, 5_000_000_000_0}, {0, "x"}},
			[]int64{0, 1, -1, 1, 214748364, 705032704, -1}},
		{"bin", Args{"bins": []float64{10, 20}}, []sample{{0, 9.9}, {0, 10}, {0, 20}, {0, "x"}}, []int64{0, 1, 2, -1}},
		{"bin", Args{"bins": []float64{8, 4}}, []sample{{0, 6}, {0, 9}}, []int64{0, 2}},
		{"time", hour, []sample{{0, 1}, {hourMS, 1}, {4*hourMS - 1, 1}, {5 * hourMS, 1}}, []int64{0, 1, 0, 2}},
		{"time", Args{"range_size": Sampling{1, Years}, "group_count": int64(5)}, []sample{{52*weekMS - 1, 1}, {52 * weekMS, 1}}, []int64{0, 1}},
		{"time", Args{"range_size": Sampling{7, Months}, "group_count": int64(12)}, []sample{{31*dayMS - 1, 1}, {31 * dayMS, 1}, {366 * dayMS, 1}}, []int64{0, 1, 0}},
	}
	for _, tt := range tests {
		by := newGroupBy(t, tt.name, tt.args).(Splitter)
		var got []int64
		l := listed(tt.in)
		for {
			var p Point
			if ok, _ := l.Next(&p); !ok {
				break
			}
			n, err := by.number(&Env{}, &p)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, n)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s %v:\n%s", tt.name, tt.args, diff)
		}
	}
}

func TestGroupByArguments(t *testing.T) {
	for _, spec := range GroupBys() {
		_, err := spec.New(nil)
		if bad, ok := err.(*ArgumentError); spec.Name != "bin" && !ok || spec.Name == "time" && len(bad.Reasons) != 2 {
			t.Errorf("%s: %v", spec.Name, err)
		}
	}
	bin := newGroupBy(t, "bin", nil).(Splitter)
	if _, err := bin.number(&Env{}, &Point{}); err == nil {
		t.Error("bin without bins took a point")
	}
	zero := newGroupBy(t, "time", Args{"range_size": Sampling{0, Hours}, "group_count": int64(1)}).(Splitter)
	if _, err := zero.number(&Env{}, &Point{}); err == nil {
		t.Error("time without a size took a point")
	}
}

// Bins in any order number a point as the first pair of neighbours that holds it.
func TestBinsInAnyOrder(t *testing.T) {
	pairs := func(bins []float64, v float64) int64 {
		if v < bins[0] {
			return 0
		}
		for i := range len(bins) - 1 {
			if bins[i] <= v && v < bins[i+1] {
				return int64(i + 1)
			}
		}
		return int64(len(bins))
	}
	rng := rand.New(rand.NewPCG(3, 4))
	borders := []float64{minusZero, 0, 1, 2.5, -2.5, 7, 1e308, -1e308}
	values := append(slices.Clone(borders), 0.5, 3, -3, 8, math.MaxFloat64, -math.MaxFloat64, math.NaN())
	for range 5000 {
		bins := make([]float64, 1+rng.IntN(7))
		for i := range bins {
			bins[i] = borders[rng.IntN(len(borders))]
		}
		by := newGroupBy(t, "bin", Args{"bins": bins}).(Splitter)
		for _, v := range values {
			var p Point
			p.setDouble(0, v)
			if n, err := by.number(&Env{}, &p); err != nil || n != pairs(bins, v) {
				t.Fatalf("bins %v number %v %d, %v, want %d", bins, v, n, err, pairs(bins, v))
			}
		}
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if _, err := binSpec.New(Args{"bins": []float64{1, v}}); err == nil {
			t.Errorf("a bin of %v was taken", v)
		}
	}
}

// Splitters combine with each other and with tags, in order of first appearance.
func TestSplitGroups(t *testing.T) {
	f := newFixture(t, query.DefaultConfig())
	f.put("m", model.MustTags("h", "a"), sample{0, 5}, sample{1000, 15}, sample{2000, 6})
	f.put("m", model.MustTags("h", "b"), sample{500, 7})
	m := MetricQuery{Metric: "m", WithoutTags: true, GroupBy: []GroupBy{
		newGroupBy(t, "value", Args{"range_size": int64(10)}),
		&TagGroupBy{Tags: []string{"h"}},
		newGroupBy(t, "time", Args{"range_size": Sampling{1, Seconds}, "group_count": int64(2)}),
	}, Steps: []Step{newStep(t, "count", Args{"sampling": Sampling{1, Hours}})}}
	labels := func(a, b int64, h string) []Label {
		return []Label{{By: m.GroupBy[0], Number: a}, {By: m.GroupBy[2], Number: b}, {By: m.GroupBy[1], Tags: []string{h}}}
	}
	type result struct {
		Labels []Label
		Points []sample
	}
	want := []result{
		{labels(0, 0, "a"), []sample{{0, 2}}},
		{labels(1, 1, "a"), []sample{{1000, 1}}},
		{labels(0, 0, "b"), []sample{{500, 1}}},
	}
	run, err := f.Start(t.Context(), Query{Range: model.TimeRange{StartMS: 0, EndMS: 5000}, Metrics: []MetricQuery{m}})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close(nil)
	r, err := run.Metric(0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got []result
	for {
		g, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if g == nil {
			break
		}
		points, err := drainPoints(g.Points)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, result{g.Labels, points})
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(sample{})); diff != "" {
		t.Error(diff)
	}
}

// A repeated tag counts once in the sort key of groups: "ha" sorts before "ha b",
// although "haha" would not sort before "ha bha b".
func TestGroupsOfOneTagTwice(t *testing.T) {
	by := &TagGroupBy{Tags: []string{"h", "h"}}
	if got := joined(by, by.Distinct(), []string{"a", "a"}); got != "ha" {
		t.Errorf("groups are ordered by %q", got)
	}
}
