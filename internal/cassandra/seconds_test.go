package cassandra

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/model"
	"varve/internal/store"
)

// TestDeleteInSeconds: in a keyspace of seconds with rows of KairosDB's default width, most points
// are stored with an earlier time than they were sent with. A delete of a range deletes exactly
// what a query of the range returns, and among that the point that was sent with the time of its start.
func TestDeleteInSeconds(t *testing.T) {
	c := clustersConfig(t)
	dropAfter(t, c)
	c.Schema.RowTimeUnit, c.Schema.RowWidth = "SECONDS", 1_814_400
	s := ready(t, openStore(t, c, Options{}))
	const minute = int64(60_000)
	first := 1_700_000_000_000 / minute * minute
	samples := map[int64]int64{}
	for i := range int64(100) {
		samples[first+i*minute] = i
	}
	put(t, s, "m", "x", samples)
	flushed(t, s)
	for i := int64(99); i >= 0; i-- {
		from := first + i*minute
		shown := answer(t, s, "m", between(from, from+minute-1001))
		if len(shown) != 1 {
			t.Fatalf("a query from minute %d on returns %q", i, shown)
		}
		if err := s.Delete(t.Context(), store.Deletion{Metric: "m", Range: model.TimeRange{StartMS: from, EndMS: from + minute - 1001}}); err != nil {
			t.Fatal(err)
		}
		left := answer(t, s, "m", all())
		if n := len(left); n > 1 || n == 1 && i == 0 {
			t.Fatalf("%d series are left", n)
		}
		if got := answer(t, s, "m", between(from, from+minute-1001)); len(got) != 0 {
			t.Fatalf("a delete from minute %d on leaves %q", i, got)
		}
		if i > 0 && fmt.Sprint(left) == fmt.Sprint(shown) {
			t.Fatalf("the delete from minute %d on deleted more", i)
		}
	}
}

// TestWaitingInSeconds: in a keyspace of seconds, points that wait in the spool have the times at
// which they are stored: a query finds the same before, while and after they are written, and none
// of them twice.
func TestWaitingInSeconds(t *testing.T) {
	c := clustersConfig(t)
	dropAfter(t, c)
	c.Schema.RowTimeUnit, c.Schema.RowWidth = "SECONDS", 1_814_400
	s := ready(t, openStore(t, c, Options{}))
	const second = int64(1000)
	const first = int64(1_700_000_000_123)
	samples := map[int64]int64{}
	for i := range int64(30) {
		samples[first+i*10*second] = i
	}
	put(t, s, "m", "x", samples)
	laterOn()
	put(t, s, "m", "x", map[int64]int64{first + 300: 100, first + 10*second - 100: 101}) // the seconds of two of them
	laterOn()
	put(t, s, "m", "x", map[int64]int64{first + 100: 102})
	put(t, s, "m", "y", map[int64]int64{-5: 1, -1: 2, 1234: 3})
	ranges := []store.ReadOptions{all()}
	for from := first - 2*second; from < first+22*second; from += 333 {
		ranges = append(ranges, between(from, from), between(from, from+700), between(from, from+15*second))
	}
	last := all()
	last.Descending, last.Limit = true, 3
	ranges = append(ranges, last)
	v, err := s.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	var before [][]string
	for _, o := range ranges {
		before = append(before, answer(t, s, "m", o))
	}
	flushed(t, s)
	for i, o := range ranges {
		after := answer(t, s, "m", o)
		same(t, fmt.Sprintf("before the points of %v were written", o.Range), before[i], after...)
		while, err := askView(t.Context(), v, "m", o)
		if err != nil {
			t.Fatal(err)
		}
		same(t, fmt.Sprintf("while the points of %v were written", o.Range), while, after...)
	}
}

// TestCurrentInSeconds: readers that store what they compute from samples, such as roll-ups, read
// one range after the other. Each point is in one of them, whether it waits or not.
func TestCurrentInSeconds(t *testing.T) {
	c := clustersConfig(t)
	dropAfter(t, c)
	c.Schema.RowTimeUnit, c.Schema.RowWidth = "SECONDS", 1_814_400
	s := ready(t, openStore(t, c, Options{}))
	const minute = int64(60_000)
	first := 1_700_000_000_000 / minute * minute
	samples := map[int64]int64{}
	for i := range int64(100) {
		samples[first+i*minute] = i
	}
	put(t, s, "m", "x", samples)
	check := func(what string) {
		t.Helper()
		v, err := store.OpenCurrent(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		var pieces string
		for from := first - minute; from < first+100*minute; from += 10 * minute {
			got, err := askView(t.Context(), v, "m", between(from, from+10*minute-1))
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range got {
				pieces += strings.TrimPrefix(line, "x:")
			}
		}
		same(t, what, []string{"x:" + pieces}, answer(t, s, "m", all())...)
	}
	check("while they wait")
	flushed(t, s)
	check("once they are stored")
}

// TestLimitInSeconds: a read with a limit that has met staleness markers continues after its last sample.
func TestLimitInSeconds(t *testing.T) {
	c := clustersConfig(t)
	dropAfter(t, c)
	c.Schema.RowTimeUnit, c.Schema.RowWidth = "SECONDS", 1_814_400
	c.Write.KairosDBOnly = false
	s := ready(t, openStore(t, c, Options{}))
	ref, err := s.Create(t.Context(), model.Series{Metric: "m", Tags: model.MustTags("host", "x"), Type: model.TypeDouble})
	if err != nil {
		t.Fatal(err)
	}
	const samples = 10
	var b store.Batch
	b.Reset(s.Epoch())
	for i := range int64(samples) {
		value := float64(i)
		if i == 1 || i == 4 || i == 5 {
			value = math.Float64frombits(model.StaleMarker)
		}
		b.AddDouble(ref, 1_700_000_000_123+i*10_000, value, 0)
	}
	if err := s.Append(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	check := func(what string) {
		t.Helper()
		for _, descending := range []bool{false, true} {
			whole := store.ReadOptions{Range: model.AllTime, Descending: descending}
			want := strings.Fields(answer(t, s, "m", whole)[0])
			for limit := 1; limit <= samples; limit++ {
				o := whole
				o.Limit = limit
				ctx, cancel := context.WithTimeout(t.Context(), cqltest.Patience)
				got, err := ask(ctx, s, "m", o)
				cancel()
				if err != nil {
					t.Fatalf("%s, limit %d: %v", what, limit, err)
				}
				same(t, fmt.Sprintf("%s, limit %d, descending %t", what, limit, descending), got, strings.Join(want[:min(len(want), limit+1)], " "))
			}
		}
	}
	check("while they wait")
	flushed(t, s)
	check("once they are stored")
}
