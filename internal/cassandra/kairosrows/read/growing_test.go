package read

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/model"
	"varve/internal/store"
)

var growing = flag.Int("kairosrows.growing", 3_000, "row keys of each partition of TestGrowingPartition")

// TestGrowingPartition: KairosDB keeps adding row keys to a partition, so that the
// inverted index never holds all. What is asked for by a tag is found all the
// same without reading the partition whole where the order of row keys allows
// it; where it does not, questions share whole reads. Each row key is found from
// the moment that it was inserted.
func TestGrowingPartition(t *testing.T) {
	config := readConfig()
	config.PostingsCacheBytes = 256 << 20
	b := newReadBench(t, config, func(*cql.Session) {}) // a keyspace of its own: others walk over all row keys
	row := keyspacetest.CityTime(0)
	forms := []struct {
		name  string
		tags  func(i int) model.Tags
		asked string // tag
		value func(i int) string
		whole bool // has to be read whole
	}{
		{"first tag", func(i int) model.Tags {
			return model.MustTags("city", fmt.Sprintf("c%06d", i), "region", fmt.Sprint("r", i%30))
		},
			"city", func(i int) string { return fmt.Sprintf("c%06d", i) }, false},
		{"second of 20", func(i int) model.Tags {
			return model.MustTags("dc", fmt.Sprint("d", i%20), "host", fmt.Sprintf("h%06d", i))
		},
			"host", func(i int) string { return fmt.Sprintf("h%06d", i) }, false},
		{"second of all", func(i int) model.Tags {
			return model.MustTags("city", fmt.Sprintf("c%06d", i), "region", fmt.Sprint("r", i%1000))
		},
			"region", func(i int) string { return fmt.Sprint("r", i%1000) }, true},
	}
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			n := *growing
			if form.whole {
				n = max(n, scanPassed*5/4)
			}
			metric := b.Name(form.name)
			var keys []rowkey.Key
			for i := range n {
				keys = append(keys, rowkey.Key{Type: []model.Type{model.TypeDouble, model.TypeLong}[i%2], Tags: form.tags(i)})
			}
			b.FillKairos(metric, row, keys)
			within := model.TimeRange{StartMS: row, EndMS: row + 1}
			ask := func(reader *Reader, i int) (int, map[string]int64) {
				l := reader.Look()
				found, err := l.Lookup(t.Context(), store.Selection{Metric: metric, Range: within, Matchers: []model.Matcher{keyspacetest.OneOf(form.asked, form.value(i))}})
				if err != nil {
					t.Error(err)
				}
				return len(found), keyspacetest.CountsOf(l.Counts())
			}
			b.Counts.Take()
			var took []time.Duration
			for range 20 {
				n++
				b.Stamp++
				b.KairosRow(b.Stamp, metric, row, form.tags(n))
				began := time.Now()
				found, trace := ask(b.reader, n)
				took = append(took, time.Since(began))
				if found == 0 {
					t.Fatal("what was inserted a moment ago is not found")
				}
				if !form.whole && found != 1 || trace["partitions_full"] > 0 != form.whole {
					t.Fatalf("%d series, trace %+v", found, trace)
				}
			}
			slices.Sort(took)
			t.Logf("alone: p50 %v, p90 %v, statements %v", took[10].Round(10*time.Microsecond), took[18].Round(10*time.Microsecond), b.Counts.Take())

			// Sixteen who ask, while KairosDB inserts 50 a second.
			ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
			defer stop()
			var asked, inserted atomic.Int64
			var tasks sync.WaitGroup
			there := n / 2
			for range 16 {
				tasks.Go(func() {
					for ctx.Err() == nil {
						ask(b.reader, there)
						asked.Add(1)
					}
				})
			}
			for ctx.Err() == nil {
				n++
				b.Stamp++
				b.KairosRow(b.Stamp, metric, row, form.tags(n))
				inserted.Add(1)
				time.Sleep(20 * time.Millisecond)
			}
			tasks.Wait()
			sent := b.Counts.Take()
			t.Logf("16 at once, %d inserted: %d answers, statements %v", inserted.Load(), asked.Load(), sent)
			if whole := sent["read_row_keys"] / (n/5000 + 1); form.whole && asked.Load() > 64 && int64(whole) > asked.Load()/4 {
				t.Errorf("%d whole reads for %d answers", whole, asked.Load())
			}
			if !form.whole {
				return
			}
			config.KairosDBLag = time.Minute
			lagging, err := New(b.KS, config, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer lagging.Close()
			ask(lagging, n)
			took = nil
			for range 20 {
				n++
				b.Stamp++
				b.KairosRow(b.Stamp, metric, row, form.tags(n))
				began := time.Now()
				if _, trace := ask(lagging, n/2); trace["partitions_cached"] != 1 || trace["partitions_full"] != 0 {
					t.Fatalf("trace %+v", trace)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			t.Logf("with kairosdb_lag: p50 %v", took[10].Round(10*time.Microsecond))
		})
	}
}
