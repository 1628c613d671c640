package remove

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/keyspacetest/lookup"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/model"
	"varve/internal/store"
)

// TestHostsWithSkew: a KairosDB node that lists itself is seen, whatever clock is
// ahead or behind by a minute.
func TestHostsWithSkew(t *testing.T) {
	b := newBench(t, keyspacetest.OwnKeyspace(), write.DefaultConfig(), "")
	now := time.Now()
	if err := b.KS.Session.Exec(b.Ctx, &cql.Statement{Name: "test", Text: "INSERT INTO service_index (service, service_key, key, value, mtime) VALUES ('_Hosts', 'Active', ?, 'kairos1', now())"},
		now.Add(-25*time.Second).UnixMilli(), "guid"); err != nil {
		t.Fatal(err)
	}
	for skew, want := range map[time.Duration]bool{-time.Minute: true, 0: true, 40 * time.Second: true, time.Minute: true, 20 * time.Minute: false} {
		d := b.deleter(DefaultConfig(), func() time.Time { return now.Add(skew) })
		if keep, err := d.keepFrom(b.Ctx); err != nil || (keep != math.MaxInt64) != want {
			t.Errorf("%v ahead: index rows from %d on are kept, %v; want any: %v", skew, keep, err, want)
		}
	}
}

// TestDeletesByRuns: a delete of many series of a metric leaves few tombstones, in
// row_keys and in the inverted index: Cassandra refuses to read many.
func TestDeletesByRuns(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	metric := b.Name("wide")
	src := new(keyspacetest.Memory)
	n := 6 * runsFrom // in 4 shards
	for i := range n {
		dc := "a"
		if i%500 == 7 {
			dc = "b"
		}
		src.Longs(keyspacetest.LongSeries(metric, "all", "x", "dc", dc, "n", fmt.Sprint(i)), 0, keyspacetest.SomeTime)
	}
	b.write(src)
	if runs := tagRuns(t, b, d, src); runs == 0 {
		t.Error("no run of tag rows is deleted")
	}
	b.Counts.Take()
	b.delete(d, store.Deletion{Metric: metric, Matchers: []model.Matcher{keyspacetest.OneOf("dc", "a")}, Range: model.AllTime})
	got := b.Counts.Take()
	if runs := got["delete_row_key_run"]; runs == 0 || got["delete_row_key"] > 0 {
		t.Errorf("statements %v", got)
	}
	for _, m := range [][]model.Matcher{nil, {keyspacetest.OneOf("dc", "b")}, {keyspacetest.OneOf("all", "x")}} {
		if found := lookup.Series(b.Bench, metric, m...); len(found) != n/500 {
			t.Errorf("%v: %d series are found, want %d", m, len(found), n/500)
		}
	}
	if found := lookup.Series(b.Bench, metric, keyspacetest.OneOf("dc", "a")); len(found) != 0 {
		t.Errorf("%d deleted series are found", len(found))
	}
	// Those that went can come back.
	keyspacetest.NextMillisecond()
	b.write(src)
	if found := lookup.Series(b.Bench, metric, keyspacetest.OneOf("all", "x")); len(found) != n {
		t.Errorf("%d of %d series are found again", len(found), n)
	}
}

// TestDeleteCostsOthersNothing: after a delete only series of that metric and those
// row times have index rows written again, by all nodes.
func TestDeleteCostsOthersNothing(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	registries := []*prometheus.Registry{prometheus.NewRegistry(), prometheus.NewRegistry()}
	var writers []*write.Writer
	for _, r := range registries {
		w, err := write.New(b.KS, write.DefaultConfig(), write.Options{Registerer: r})
		if err != nil {
			t.Fatal(err)
		}
		writers = append(writers, w)
	}
	written := func(node int) (n float64) {
		families, err := registries[node].Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "varve_cassandra_index_rows_written_total" {
				n = f.GetMetric()[0].GetCounter().GetValue()
			}
		}
		return n
	}
	src := func(at int64) *keyspacetest.Memory {
		m := new(keyspacetest.Memory)
		for i := range 200 {
			m.Longs(keyspacetest.LongSeries(b.Name(fmt.Sprint("m", i%10)), "host", fmt.Sprint("h", i)), 0, at)
		}
		return m
	}
	tiny := new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(b.Name("tiny"), "host", "x"), 0, keyspacetest.SomeTime)
	b.writer = writers[0]
	d := b.deleter(noNodes(), time.Now)
	for _, w := range writers {
		b.writer = w
		b.write(src(keyspacetest.SomeTime))
		b.write(tiny)
	}
	b.delete(d, store.Deletion{Metric: b.Name("tiny"), Range: model.AllTime})
	for i, w := range writers {
		b.writer = w
		before := written(i)
		b.write(src(keyspacetest.SomeTime + 1000))
		if n := written(i) - before; n != 0 {
			t.Errorf("node %d: %v index rows of other metrics are written again", i, n)
		}
		b.write(tiny)
		if n := written(i) - before; n != 2+1 { // with the mark
			t.Errorf("node %d: %v index rows of the deleted series are written", i, n)
		}
		b.delete(d, store.Deletion{Metric: b.Name("tiny"), Range: model.AllTime})
	}
}

// tagRuns is how many runs of tag rows are deleted with the series of a source that have dc=a.
func tagRuns(t *testing.T, b *bench, d *Deleter, src *keyspacetest.Memory) (runs int) {
	t.Helper()
	var rows []rowDelete
	for _, s := range src.All {
		if dc, _ := s.Tags.Get("dc"); dc == "a" {
			rows = append(rows, rowDelete{key: rowkey.Of(s)})
		}
	}
	pass := deletePass{d: d, metric: src.All[0].Metric}
	part := rowkey.Partition{Metric: pass.metric, TimeMS: b.KS.Spec.RowTime(keyspacetest.SomeTime)}
	batches, _, err := pass.tagRows(b.Ctx, part, rows, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range slices.Concat(batches...) {
		if e.Statement == tagRowRuns.run {
			runs++
		}
	}
	return runs
}
