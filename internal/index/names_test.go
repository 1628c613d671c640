package index

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
)

// Names are listed in slices; the result does not show where one slice ends and the
// next begins.
func TestNamesInSlices(t *testing.T) {
	const count = 2*namesSlice + 100
	x := New()
	var metrics, hosts []string
	for i := range count {
		metric, host := fmt.Sprintf("metric.%05d", i), fmt.Sprintf("host-%05d", i)
		x.Add(model.SeriesNumber(i), model.Series{Metric: metric, Tags: model.MustTags("host", host), Type: model.TypeLong})
		metrics, hosts = append(metrics, metric), append(hosts, host)
		if i%3 == 0 { // a metric with a third of the hosts
			x.Add(model.SeriesNumber(count+i), model.Series{Metric: "a", Tags: model.MustTags("host", host), Type: model.TypeLong})
		}
	}
	var third []string
	for i := 0; i < count; i += 3 {
		third = append(third, hosts[i])
	}
	metrics = append([]string{"a"}, metrics...)
	pattern := func(expr string) *model.Pattern {
		p, err := model.NewPattern(expr)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		q   store.NamesQuery
		all []string
	}{
		{store.NamesQuery{Kind: store.MetricNames}, metrics},
		{store.NamesQuery{Kind: store.TagValues, Tag: "host"}, hosts},
		{store.NamesQuery{Kind: store.TagValues, Metric: "a", Tag: "host"}, third},
		{store.NamesQuery{Kind: store.TagValues, Metric: "metric.00007", Tag: "host"}, []string{"host-00007"}},
		{store.NamesQuery{Kind: store.TagValues, Metric: "gone", Tag: "host"}, nil},
	} {
		for _, prefix := range []string{"", "metric.0", "host-04"} {
			for _, expr := range []string{"", ".*7", "host-0000[0-9]"} {
				for _, after := range []string{"", nth(c.all, namesSlice-1), "zz"} {
					for _, limit := range []int{0, 100, namesSlice} {
						q := c.q
						q.Prefix, q.After, q.Limit = prefix, after, limit
						if expr != "" {
							q.Pattern = pattern(expr)
						}
						checkNames(t, x, q, c.all)
					}
				}
			}
		}
	}
}

// TestLevelsInSlices lists levels of a tree that take several slices: one of leaves, and one of
// branches.
func TestLevelsInSlices(t *testing.T) {
	x := New()
	add := func(name string) {
		x.Add(model.SeriesNumber(x.Len()), model.Series{Metric: name, Type: model.TypeLong})
	}
	var leaves, branches []string
	for i := range 2*namesSlice + 100 {
		leaves = append(leaves, fmt.Sprintf("flat.%05d", i))
		add(leaves[i])
	}
	for i := range namesSlice / 5 { // finding a branch counts as 16 leaves
		branch := fmt.Sprintf("tree.%05d.", i)
		branches = append(branches, branch)
		add(branch + "a")
		add(branch + "b.c")
	}
	for prefix, all := range map[string][]string{"": {"flat.", "tree."}, "flat.": leaves, "tree.": branches} {
		for _, after := range []int{-1, 0, namesSlice/16 - 1, namesSlice - 1, namesSlice} {
			for _, limit := range []int{0, 1, namesSlice/16 + 1, namesSlice} {
				q := store.NamesQuery{Prefix: prefix, Delimiter: '.', Limit: limit}
				if after >= 0 {
					q.After = nth(all, after)
				}
				checkNames(t, x, q, all)
			}
		}
	}
}

func checkNames(t *testing.T, x *Index, q store.NamesQuery, all []string) {
	t.Helper()
	var want []string
	for _, name := range all {
		if strings.HasPrefix(name, q.Prefix) && (q.After == "" || name > q.After) && (q.Pattern == nil || q.Pattern.MatchString(name)) {
			want = append(want, name)
		}
	}
	more := q.Limit > 0 && len(want) > q.Limit
	if more {
		want = want[:q.Limit]
	}
	got, gotMore, err := x.Names(context.Background(), q)
	if err != nil || gotMore != more || !slices.Equal(got, want) {
		t.Fatalf("%+v: %d names, more %v, %v; want %d, %v", q, len(got), gotMore, err, len(want), more)
	}
}

func nth(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return ""
}
