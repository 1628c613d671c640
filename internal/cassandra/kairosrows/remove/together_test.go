package remove

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/keyspacetest/lookup"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/work"
)

// BenchmarkDelete deletes rows of one sample each, on a real node: CPU of this process.
func BenchmarkDelete(b *testing.B) {
	const rows = 10_000
	for name, end := range map[string]int64{"whole": model.AllTime.EndMS, "slices": keyspacetest.CityTime(0) + 1000} {
		b.Run("rows="+name, func(b *testing.B) {
			bench := newBench(b, schema.DefaultConfig(), write.DefaultConfig(), "")
			config := DefaultConfig()
			config.JobRows = 10 * rows
			deleter := bench.deleter(config, time.Now)
			var took, cpu time.Duration
			statements := 0
			for range b.N {
				metric := bench.Name(fmt.Sprint("cities", bench.Stamp))
				bench.Stamp = time.Now().UnixMilli()
				fillCities(bench, metric, rows)
				bench.Counts.Take()
				began, cpuBefore := time.Now(), cpuTime(b)
				err := deleter.Delete(bench.Ctx, time.Now().UnixMilli(), store.Deletion{Metric: metric, Range: model.TimeRange{StartMS: 0, EndMS: end}})
				if err != nil {
					b.Fatal(err)
				}
				took, cpu = took+time.Since(began), cpu+cpuTime(b)-cpuBefore
				statements += keyspacetest.Total(bench.Counts.Take())
			}
			n := float64(b.N * rows)
			b.ReportMetric(took.Seconds()*1e6/n, "µs/row")
			b.ReportMetric(cpu.Seconds()*1e6/n, "cpu-µs/row")
			b.ReportMetric(float64(statements)/n, "statements/row")
		})
	}
}

// fillCities makes rows of a metric with one sample each.
func fillCities(b *bench, metric string, rows int) {
	b.T.Helper()
	at := keyspacetest.CityTime(0)
	keys := keyspacetest.CityKeys(0, rows)
	b.FillKeys(metric, at, keys)
	insert := &cql.Statement{Name: "test", KeyArgs: 1, Text: "INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)"}
	err := work.Parallel(b.Ctx, 8, rows/10, "fill a keyspace", func(ctx context.Context, i int) error {
		var entries []cql.Entry
		for _, k := range keys[10*i : 10*i+10] {
			key, err := rowkey.Partition{Metric: metric, TimeMS: at}.DataKey(k)
			if err != nil {
				return err
			}
			entries = append(entries, cql.Entry{Statement: insert, Args: []any{key, []byte{0, 0, 0, 1}, []byte("8 bytes.")}})
		}
		return b.KS.Session.Batch(ctx, b.Stamp, entries)
	})
	if err != nil {
		b.T.Fatal(err)
	}
}

// TestDeleteTogether: rows are deleted several with a statement, and looked for, and their index rows too; as
// many are under way as were one by one.
func TestDeleteTogether(t *testing.T) {
	for wide := 1; wide <= 1024; wide++ {
		batches, rows := together(wide)
		if rows > rowkey.BatchPartitions || batches*rows < wide || batches*rows >= wide+batches {
			t.Errorf("%d rows at once: %d batches of %d", wide, batches, rows)
		}
	}
	const rows = 200
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	at := keyspacetest.CityTime(0)
	for name, r := range map[string]model.TimeRange{"whole": model.AllTime, "slices": {StartMS: at, EndMS: at + 1000}} {
		metric := b.Name(name)
		b.Stamp = time.Now().UnixMilli()
		fillCities(b, metric, rows)
		keyspacetest.NextMillisecond()
		b.Counts.Take()
		b.delete(d, store.Deletion{Metric: metric, Range: r, Matchers: []model.Matcher{{Tag: "city", Values: []string{"city-000007"}, Not: true}}})
		got := b.Counts.Take()
		if n := got["delete_row"] + got["delete_slice"]; n == 0 || n > rows*4/5 { // even two at once
			t.Errorf("%s: %d statements delete rows: %v", name, n, got)
		}
		if n := got["find_rows"] + got["probe_row"]; n == 0 || n > rows*4/5 {
			t.Errorf("%s: %d statements look for what is left: %v", name, n, got)
		}
		if n := got["delete_tag_row"] + got["delete_row_key"]; n == 0 || n > rows*5/4 { // of more than 300 partitions
			t.Errorf("%s: %d statements delete index rows: %v", name, n, got)
		}
		if found := lookup.Series(b.Bench, metric); len(found) != 1 {
			t.Errorf("%s: %d series are left", name, len(found))
		}
		for i, k := range keyspacetest.CityKeys(0, rows) {
			key, err := rowkey.Partition{Metric: metric, TimeMS: at}.DataKey(k)
			if err != nil {
				t.Fatal(err)
			}
			if left, err := rowkey.HasSamples(b.Ctx, b.KS.Session, key); err != nil || left != (i == 7) {
				t.Errorf("%s: row %d has samples: %v, %v", name, i, left, err)
			}
		}
	}
}

func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
