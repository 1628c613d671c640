package write

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/model"
)

// heapAfterGC is how much memory is in use, in bytes.
func heapAfterGC() int64 {
	runtime.GC()
	runtime.GC() // what the first one left in pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// knownBytes fills a cache with n row keys of three tags, in partitions of perMetric, and
// returns what one takes: while the spool or a sender's connection holds the texts of the
// tags too, when only the cache does, as for rows of times past, and when it is unsure of all of them.
func knownBytes(n, perMetric int) (shared, alone, unsure float64) {
	before := heapAfterGC()
	rows := make([]Row, n)
	for i := range rows {
		rows[i] = Row{RowTimeMS: 1_700_000_000_000, NeedSec: math.MaxInt64, Series: model.Series{
			Metric: fmt.Sprintf("requests.of.service.%06d", i/perMetric), Type: model.TypeDouble,
			Tags: model.MustTags("dc", fmt.Sprintf("fra%d", i%3), "env", "production", "host", fmt.Sprintf("web-%06d", i)),
		}}
	}
	asked := heapAfterGC()
	c := newKnown(n)
	for i := 0; i < n; i += perMetric {
		c.put(0, rows[i].part(), math.MaxInt64, 0, rows[i:i+perMetric])
	}
	shared = float64(heapAfterGC()-asked) / float64(n)
	runtime.KeepAlive(rows)
	rows = nil
	alone = float64(heapAfterGC()-before) / float64(n)
	parts := map[rowkey.Partition]struct{}{}
	for p := range c.parts {
		parts[p] = struct{}{}
	}
	c.rely(parts, time.Now())
	parts = nil
	c.forget(rowkey.Everything)
	unsure = float64(heapAfterGC()-before) / float64(n)
	if got, _ := c.size(); got != n {
		panic(fmt.Sprintf("%d row keys are known, want %d", got, n))
	}
	return shared, alone, unsure
}

// BenchmarkKnown tells what a row key takes in memory.
func BenchmarkKnown(b *testing.B) {
	for _, perMetric := range []int{1, 10, 1000, 100_000} {
		b.Run(fmt.Sprintf("series=%d", perMetric), func(b *testing.B) {
			var shared, alone, unsure float64
			for range b.N {
				shared, alone, unsure = knownBytes(300_000, perMetric)
			}
			b.ReportMetric(shared, "shared-B/key")
			b.ReportMetric(alone, "alone-B/key")
			b.ReportMetric(unsure, "unsure-B/key")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// TestKnownBytes holds the cache to what cassandra.write.index_cache and docs/cassandra.md say
// of its memory.
func TestKnownBytes(t *testing.T) {
	for _, test := range []struct {
		perMetric int
		most      float64
	}{{1, 750}, {10, 160}, {10_000, 160}} {
		shared, alone, unsure := knownBytes(50_000, test.perMetric)
		t.Logf("a row key of a metric with %d series takes %.0f bytes, %.0f with the texts of its tags", test.perMetric, shared, alone)
		if unsure > test.most {
			t.Errorf("a row key of a metric with %d series takes %.0f bytes once it is forgotten, want at most %.0f", test.perMetric, unsure, test.most)
		}
		if alone > test.most || shared > alone || shared < 20 { // a Key and an int64 are 24 bytes on 32 bits
			t.Errorf("a row key of a metric with %d series takes %.0f bytes, %.0f with the texts of its tags, want at most %.0f", test.perMetric, shared, alone, test.most)
		}
	}
}
