package cassandra

import (
	"math"
	"testing"
	"time"

	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/storetest"
)

// TestFinishedRowsAreKept: what was asked for twice is answered from packed
// chunks the next time, in each form of question, with the same samples; and
// from their statistics where these will do.
func TestFinishedRowsAreKept(t *testing.T) {
	c := clustersConfig(t)
	dropAfter(t, c)
	s := ready(t, openStore(t, c, Options{}))
	row := time.Now().Add(-90 * 24 * time.Hour).UnixMilli()
	samples := map[int64]int64{}
	for i := range int64(3000) {
		samples[row+i*1000] = i
	}
	for _, host := range []string{"a", "b", "c"} {
		put(t, s, "m", host, samples)
	}
	flushed(t, s)

	forms := map[string]store.ReadOptions{
		"ascending":  all(),
		"descending": {Range: model.AllTime, Descending: true},
		"part":       between(row+1500, row+9999),
		"limited":    {Range: model.AllTime, Limit: 7},
	}
	fresh := map[string][]string{}
	for name, o := range forms {
		fresh[name] = answer(t, s, "m", o)
	}
	// Rows are kept for as long as nothing was written in them before: longer each
	// time, until all forms are asked meanwhile.
	deadline := time.Now().Add(5 * time.Minute)
	for read := int64(1); read > 0; {
		if time.Now().After(deadline) {
			t.Fatalf("the last time %d slices were read from Cassandra", read)
		}
		read = 0
		answer(t, s, "m", all())
		for name, o := range forms {
			v, err := s.View(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			lines, err := askView(t.Context(), v, "m", o)
			if err != nil {
				t.Fatal(err)
			}
			same(t, name, lines, fresh[name]...)
			read += count(v, "slices")
			v.Close()
		}
	}

	// What was kept may have aged meanwhile: then it is read, and kept, once more.
	for {
		count, sum, whole := summary(t, s, "m")
		if whole {
			if count != 3000 || sum != 2999*1500 {
				t.Errorf("statistics of %d samples, sum %v", count, sum)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("blocks of samples, want statistics")
		}
		answer(t, s, "m", all())
	}
}

// summary adds up the statistics of the three series of metric. It is not whole
// where a block came with its samples instead.
func summary(t *testing.T, s *Store, metric string) (n int, sum float64, whole bool) {
	t.Helper()
	o := all()
	o.Summarize = &store.Summary{Final: func(int64) int64 { return math.MaxInt64 }, Needs: model.AllStats}
	v, err := s.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	found, err := storetest.Select(t.Context(), v, store.Selection{Metric: metric, Range: o.Range})
	if err != nil || len(found) != 3 {
		t.Fatalf("%d series, %v", len(found), err)
	}
	cursor := v.Read(t.Context(), found[0], o)
	defer cursor.Close()
	for {
		b, err := cursor.Next()
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			return n, sum, true
		}
		if b.Stats == nil {
			return 0, 0, false
		}
		for _, s := range b.Stats {
			n, sum = n+s.Count, sum+s.Sum
		}
	}
}

func count(v store.View, name string) (n int64) {
	for _, c := range v.(store.Tracer).Trace() {
		if c.Name == name {
			n += c.N
		}
	}
	return n
}
