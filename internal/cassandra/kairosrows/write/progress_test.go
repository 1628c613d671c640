package write

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/rowtime"
	"varve/internal/spool"
	"varve/internal/store"
)

var errAway = &store.UnavailableError{Reason: "too few replicas"}

func keyHas(part string) func([]cql.Entry) bool {
	return func(entries []cql.Entry) bool {
		return slices.ContainsFunc(entries, func(e cql.Entry) bool { return strings.Contains(string(e.Args[0].([]byte)), part) })
	}
}

// TestOneRangeAway: while some rows cannot be written, all others are, at the
// first attempt. Later attempts send only what is left.
func TestOneRangeAway(t *testing.T) {
	away := keyHas("77:")
	r := &recorder{refuse: func(entries []cql.Entry) error {
		if away(entries) {
			return errAway
		}
		return nil
	}}
	c := DefaultConfig()
	c.Parallel = 4
	w := unconnected(t, rowtime.Default, c, r, time.UnixMilli(keyspacetest.SomeTime))
	w.replicaSet = func(e cql.Entry) string {
		if away([]cql.Entry{e}) {
			return "away"
		}
		return "here"
	}
	src := keyspacetest.ManySeries("m", 10_000) // 100 of them away
	believe(w, src)
	for i := range 3 {
		err := w.WriteSource(t.Context(), 1, src)
		var partial *spool.PartialError
		if !errors.As(err, &partial) || !errors.Is(err, errAway) || partial.Left != 100 || partial.Written != (i == 0) {
			t.Fatalf("attempt %d: %v", i+1, err)
		}
		if len(r.rows) != 9900 {
			t.Fatalf("after attempt %d %d of 9900 samples that can be written are, some perhaps twice", i+1, len(r.rows))
		}
	}
	r.refuse = nil
	if err := w.WriteSource(t.Context(), 1, src); err != nil {
		t.Fatal(err)
	}
	if len(r.rows) != 10_000 || len(w.begun) != 0 {
		t.Errorf("%d samples at the end, and %d sources count as begun", len(r.rows), len(w.begun))
	}
}

// TestSmallWrite: the cost of a write depends on its samples, not on how many of them may be written
// concurrently; and the memory of a batch is used again by later writes.
func TestSmallWrite(t *testing.T) {
	const (
		mostFirst = 400 << 10 // two batches, and the write itself
		writes    = 100
		most      = 80 << 10 // less than a batch; with the race detector, the pool forgets a quarter of them
	)
	w := unconnected(t, rowtime.Default, DefaultConfig(), new(recorder), time.UnixMilli(keyspacetest.SomeTime))
	src := keyspacetest.ManySeries("m", 1)
	believe(w, src)
	allocated := func(writes int) int {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range writes {
			if err := w.WriteSource(t.Context(), 1, src); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		return int(after.TotalAlloc - before.TotalAlloc)
	}
	if n := allocated(1); n > mostFirst {
		t.Errorf("a write of one sample allocates %d bytes, want %d at most", n, mostFirst)
	}
	if n := allocated(writes); n > writes*most {
		t.Errorf("%d further ones allocate %d bytes, want %d each at most", writes, n, most)
	}
}

// TestHopelessPlace: an attempt does not try all series of replicas that are down.
func TestHopelessPlace(t *testing.T) {
	var mu sync.Mutex
	failed := 0
	r := &recorder{refuse: func(entries []cql.Entry) error {
		if keyHas("aw")(entries) {
			mu.Lock()
			failed++
			mu.Unlock()
			return errAway
		}
		return nil
	}}
	c := DefaultConfig()
	c.Parallel = 4
	w := unconnected(t, rowtime.Default, c, r, time.UnixMilli(keyspacetest.SomeTime))
	w.replicaSet = func(e cql.Entry) string { return string(e.Args[0].([]byte)[:2]) }
	src := keyspacetest.ManySeries("aw", 5000)
	for i := range 5000 {
		src.Longs(keyspacetest.LongSeries("here", "host", fmt.Sprint(i)), 0, keyspacetest.SomeTime)
	}
	believe(w, src)
	err := w.WriteSource(t.Context(), 1, src)
	var partial *spool.PartialError
	if !errors.As(err, &partial) || partial.Left != 5000 || len(r.rows) != 5000 {
		t.Fatalf("%d rows, %v", len(r.rows), err)
	}
	if failed > hopelessAfter+2*c.Parallel {
		t.Errorf("%d batches were sent to nodes that are away", failed)
	}
}

// TestSampleThatIsRefusedForAnUnknownReason: it waits for refusalPatience, and is then dropped
// alone; if Cassandra accepts nothing else, it waits for ever.
func TestSampleThatIsRefusedForAnUnknownReason(t *testing.T) {
	for _, reason := range []cql.Reason{cql.GuardrailHit, cql.Invalid} {
		now := time.UnixMilli(keyspacetest.SomeTime)
		var all bool
		r := &recorder{refuse: func(entries []cql.Entry) error {
			if all || keyHas("h00042")(entries) {
				return &cql.RefusedError{Statement: "insert_sample", Reason: reason, Err: errors.New("because")}
			}
			return nil
		}}
		c := DefaultConfig()
		c.IndexRefresh = time.Hour
		w := unconnected(t, rowtime.Default, c, r, now)
		w.now = func() time.Time { return now }
		w.index.now = w.now
		first := keyspacetest.ManySeries("m", 100)
		believe(w, first)
		var partial *spool.PartialError
		attempt := func(src *keyspacetest.Memory) error { return w.WriteSource(context.Background(), 1, src) }
		left := func(want int64) {
			t.Helper()
			if err := attempt(first); !errors.As(err, &partial) || partial.Left != want || len(w.Refusals()) != 0 {
				t.Fatalf("%s: %v, refused %v", reason, err, w.Refusals())
			}
		}
		all = true
		left(100)
		now = now.Add(2 * refusalPatience)
		left(100) // nothing at all is taken: that is not the sample's fault
		all = false
		other := keyspacetest.ManySeries("other", 1) // as of a later generation
		believe(w, other)
		if err := attempt(other); err != nil {
			t.Fatal(err)
		}
		left(1)
		now = now.Add(refusalPatience - time.Second)
		left(1)
		now = now.Add(2 * time.Second)
		left(1) // nothing was taken lately
		if err := attempt(other); err != nil {
			t.Fatal(err)
		}
		if err := attempt(first); err != nil {
			t.Fatalf("%s: %v", reason, err)
		}
		if refusals := w.Refusals(); len(refusals) != 1 || refusals[0].Count != 1 || refusals[0].Reason != string(reason) ||
			!strings.Contains(refusals[0].Last, "h00042") || !strings.Contains(refusals[0].Last, "because") {
			t.Errorf("%s: refused %+v", reason, refusals)
		}
		if len(r.rows) != 99+2 {
			t.Errorf("%s: %d rows are written", reason, len(r.rows))
		}
	}
}

// TestCachesOfPartBatches: of a batch from which one series is left, the others count as
// written and are read from their rows. So caches must be told of these rows.
func TestCachesOfPartBatches(t *testing.T) {
	r := &recorder{}
	w := unconnected(t, rowtime.Default, DefaultConfig(), r, time.UnixMilli(keyspacetest.SomeTime))
	var mu sync.Mutex
	changed := map[string]bool{}
	w.wrote = func(key []byte) {
		mu.Lock()
		defer mu.Unlock()
		changed[string(key)] = true
	}
	other := keyspacetest.ManySeries("other", 1) // Cassandra takes some samples
	believe(w, other)
	if err := w.WriteSource(t.Context(), 1, other); err != nil {
		t.Fatal(err)
	}
	r.batches, r.refuse = nil, func(entries []cql.Entry) error {
		if keyHas("h00042")(entries) {
			return &cql.RefusedError{Statement: "insert_sample", Reason: cql.GuardrailHit}
		}
		return nil
	}
	src := keyspacetest.ManySeries("m", 100)
	believe(w, src)
	var partial *spool.PartialError
	if err := w.WriteSource(t.Context(), 1, src); !errors.As(err, &partial) || partial.Series.GetCardinality() != 1 {
		t.Fatalf("%v, want one series left", err)
	}
	told := 0
	for _, batch := range r.batches {
		for _, key := range batch.keys {
			if changed[key] {
				told++
			}
		}
	}
	if told != 99 {
		t.Errorf("caches are told of %d rows, want the 99 that were written", told)
	}
}

// TestSeriesThatTheIndexRefuses: a series whose index rows Cassandra refuses costs
// its own samples.
func TestSeriesThatTheIndexRefuses(t *testing.T) {
	node, ks := newFailingBench(t)
	writer := ks.newWriter(DefaultConfig(), time.Now)
	node.Fail(refuseIndexRowsOf("h00042"))
	metric := ks.Name("m")
	src := keyspacetest.ManySeries(metric, 100)
	src.Longs(keyspacetest.LongSeries(ks.Name("other"), "host", "a"), 0, keyspacetest.SomeTime)
	if err := writer.WriteSource(ks.Ctx, time.Now().UnixMilli(), src); err != nil {
		t.Fatal(err)
	}
	if refusals := writer.Refusals(); len(refusals) != 1 || refusals[0].Count != 1 || refusals[0].Reason != string(cql.KeyTooLong) {
		t.Errorf("refused %+v", refusals)
	}
	if n, keys := ks.Count("data_points"), ks.Count("row_keys"); n != 100 || keys != 100 {
		t.Errorf("%d samples, %d row keys", n, keys)
	}
}

// TestOneRowFails: a row that cannot be written costs its neighbours in the batch
// one attempt.
func TestOneRowFails(t *testing.T) {
	r := &recorder{refuse: func(entries []cql.Entry) error {
		if keyHas("h00042")(entries) {
			return errAway
		}
		return nil
	}}
	w := unconnected(t, rowtime.Default, DefaultConfig(), r, time.UnixMilli(keyspacetest.SomeTime))
	src := keyspacetest.ManySeries("m", 100)
	believe(w, src)
	var partial *spool.PartialError
	for i := range 3 {
		if err := w.WriteSource(t.Context(), 1, src); !errors.As(err, &partial) || partial.Left > 10 || i > 0 && partial.Left != 1 {
			t.Fatalf("attempt %d: %v", i+1, err)
		}
	}
	if len(r.rows) != 99 {
		t.Errorf("%d rows are written", len(r.rows))
	}
}

// TestForgottenWhileAway: index rows that are left out after the samples were written,
// since no node answers, keep a source from counting as written.
func TestForgottenWhileAway(t *testing.T) {
	w := unconnected(t, rowtime.Default, DefaultConfig(), &recorder{}, time.UnixMilli(keyspacetest.SomeTime))
	src := keyspacetest.ManySeries("m", 3)
	believe(w, src)
	pass := w.begin(keyspacetest.SomeTime, src)
	if err := pass.samples(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.known.forget(rowkey.Span{Metric: "m", LowMS: 0, HighMS: keyspacetest.SomeTime})
	pass.failed[indexDomain] = hopelessIndex
	if err := pass.settleWritten(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := pass.leftBy(); !errors.Is(err, cql.ErrAway) {
		t.Errorf("index rows that were not written: %v", err)
	}
	if left := pass.unwritten(src.Series()); left.GetCardinality() != 3 {
		t.Errorf("%v count as not written", left)
	}
}
