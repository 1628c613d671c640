package index

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"varve/internal/model"
)

// users is n series of one metric, each with a user of its own, and ten to a
// group.
func users(n int) []model.Series {
	list := make([]model.Series, n)
	for i := range list {
		list[i] = model.Series{Metric: "requests", Type: model.TypeLong, Tags: model.MustTags(
			"group", fmt.Sprintf("group-%05d", i/10), "user", fmt.Sprintf("user-%06d", i))}
	}
	return list
}

func likeUser(t testing.TB, expr string) []model.Matcher {
	p, err := model.NewPattern(expr)
	if err != nil {
		t.Fatal(err)
	}
	return []model.Matcher{{Tag: "user", Patterns: []*model.Pattern{p}}}
}

// TestEntriesRead compares the cost of a selection with the size of its result.
func TestEntriesRead(t *testing.T) {
	const n = 50_000
	x := New()
	for i, s := range users(n) {
		x.Add(model.SeriesNumber(i), s)
	}
	is := func(tag, value string) []model.Matcher { return []model.Matcher{{Tag: tag, Values: []string{value}}} }
	for _, tc := range []struct {
		name  string
		ms    []model.Matcher
		found uint64
		most  int64
	}{
		{"one", is("user", "user-000777"), 1, 1 + 2*1},
		{"ten", is("group", "group-00077"), 10, 1 + 2*10},
		{"none", is("user", "nobody"), 0, 1},
		{"both", append(is("user", "user-000777"), is("group", "group-00077")...), 1, 2 + 2*1 + 10},
		{"prefix", likeUser(t, "user-0007.*"), 100, 2 * 100},
		{"set", likeUser(t, "user-00(0777|1777)"), 2, 2 * 2},
		{"scan", likeUser(t, ".*0777"), 5, n + 2*5},
		{"the same scan again", likeUser(t, ".*0777"), 5, 2 * 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := x.EntriesRead()
			ids, err := x.Select(context.Background(), "requests", tc.ms, nil)
			if err != nil || ids.GetCardinality() != tc.found {
				t.Fatalf("%d ids, %v; want %d", ids.GetCardinality(), err, tc.found)
			}
			if read := x.EntriesRead() - before; read > tc.most || read < int64(tc.found) {
				t.Errorf("%d entries read for %d ids, want at most %d", read, tc.found, tc.most)
			}
		})
	}
}

// TestScanKeepsUp compares cached scans with new ones while values are added and
// removed, and their numbers reused.
func TestScanKeepsUp(t *testing.T) {
	const n = 3 * directMax
	x, all := New(), users(n)
	there := make([]bool, n)
	rng := rand.New(rand.NewPCG(1, 2))
	change := func(i int) {
		if there[i] {
			x.Remove(model.SeriesNumber(i), all[i])
		} else {
			x.Add(model.SeriesNumber(i), all[i])
		}
		there[i] = !there[i]
	}
	for i := range n - 100 {
		change(i)
	}
	exprs := []string{".*7.*", ".*[13]+", ".*", "user-.*9"}
	for round := range 12 {
		for _, expr := range exprs {
			m := likeUser(t, expr)
			got, err := x.Select(context.Background(), "requests", m, nil)
			if err != nil {
				t.Fatal(err)
			}
			var want []uint32
			for i, s := range all {
				if user, _ := s.Tags.Get("user"); there[i] && m[0].Patterns[0].MatchString(user) {
					want = append(want, uint32(i))
				}
			}
			if !slices.Equal(got.ToArray(), want) {
				t.Fatalf("round %d: %s selects %d series, want %d", round, expr, got.GetCardinality(), len(want))
			}
		}
		changes := []int{0, 1, 100, changesMax, changesMax + 1, 3 * changesMax}[round%6]
		for range changes {
			change(rng.IntN(n))
		}
	}
	if kept := len(x.scans.scans); kept != len(exprs) {
		t.Errorf("%d scans are kept, want %d", kept, len(exprs))
	}
}

// TestScanOfAnotherMetricsValues: of the values that match, most are of another metric.
func TestScanOfAnotherMetricsValues(t *testing.T) {
	const own, others = directMax + 1, 3 * directMax
	x := New()
	for i, s := range users(own + others) {
		if i >= own {
			s.Metric = "errors"
		}
		x.Add(model.SeriesNumber(i), s)
	}
	for _, expr := range []string{".*[0-8]", ".*[13]"} {
		m := likeUser(t, expr)
		var want []uint32
		for i, s := range users(own) {
			if user, _ := s.Tags.Get("user"); m[0].Patterns[0].MatchString(user) {
				want = append(want, uint32(i))
			}
		}
		got, err := x.Select(context.Background(), "requests", m, nil)
		if err != nil || !slices.Equal(got.ToArray(), want) {
			t.Errorf("%s selects %d series, %v, want %d", expr, got.GetCardinality(), err, len(want))
		}
	}
}

// TestScanCacheIsBounded: the most recently used scans stay.
func TestScanCacheIsBounded(t *testing.T) {
	var c scanCache
	const large = scanCacheBytes / 4
	for i := range 10 {
		c.put(fmt.Sprint(i), &scan{bits: make([]uint64, large/8)})
		c.get(nil, "0")
		if c.bytes > scanCacheBytes {
			t.Fatalf("the cache holds %d bytes, its bound is %d", c.bytes, scanCacheBytes)
		}
	}
	if c.get(nil, "0").bits == nil || c.get(nil, "9").bits == nil || c.get(nil, "5").bits != nil {
		t.Error("the wrong scans were dropped")
	}
	c.put("too large", &scan{bits: make([]uint64, scanCacheBytes/8)})
	if c.get(nil, "too large").bits != nil {
		t.Error("a scan that fills the cache alone is kept")
	}
}
