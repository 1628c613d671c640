package cassandra

import (
	"fmt"
	"testing"

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
