package kairosrows

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
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
	"varve/internal/work"
)

var growing = flag.Int("kairosrows.growing", 3_000, "row keys of each partition of TestGrowingPartition")

// fillKairos inserts row keys as KairosDB nodes did long ago.
func (b *readBench) fillKairos(metric string, rowTimeMS int64, keys []rowkey.Key) {
	b.t.Helper()
	insert := &cql.Statement{Name: "test", Text: "INSERT INTO row_keys (metric, table_name, row_time, data_type, tags, mtime) VALUES (?, ?, ?, ?, ?, now())"}
	b.exec("INSERT INTO row_key_time_index (metric, table_name, row_time) VALUES (?, ?, ?)", metric, schema.DataPoints, rowTimeMS)
	pages := slices.Collect(slices.Chunk(keys, 200))
	err := work.Parallel(b.t.Context(), 8, len(pages), func(ctx context.Context, i int) error {
		var entries []cql.Entry
		for _, k := range pages[i] {
			entries = append(entries, cql.Entry{Statement: insert, Args: []any{metric, schema.DataPoints, rowTimeMS, string(k.Type), cql.TagMap{Tags: k.Tags}}})
		}
		return b.ks.Session.Batch(ctx, b.stamp, entries)
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// TestGrowingPartition: KairosDB keeps adding row keys to a partition, so that the
// inverted index never holds all. What is asked for by a tag is found all the
// same without reading the partition whole where the order of row keys allows
// it; where it does not, questions share whole reads. Each row key is found from
// the moment that it was inserted.
func TestGrowingPartition(t *testing.T) {
	config := readConfig()
	config.PostingsCacheBytes = 256 << 20
	b := newReadBench(t, config, func(*cql.Session) {}) // a keyspace of its own: others walk over all row keys
	row := cityTime(0)
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
			metric := b.metric(form.name)
			var keys []rowkey.Key
			for i := range n {
				keys = append(keys, rowkey.Key{Type: []model.Type{model.TypeDouble, model.TypeLong}[i%2], Tags: form.tags(i)})
			}
			b.fillKairos(metric, row, keys)
			within := model.TimeRange{StartMS: row, EndMS: row + 1}
			ask := func(reader *Reader, i int) (int, Trace) {
				l := reader.Look()
				found, err := l.Lookup(t.Context(), store.Selection{Metric: metric, Range: within, Matchers: []model.Matcher{oneOf(form.asked, form.value(i))}})
				if err != nil {
					t.Error(err)
				}
				return len(found), l.Trace()
			}
			b.sent()
			var took []time.Duration
			for range 20 {
				n++
				b.stamp++
				b.kairosRow(b.stamp, metric, row, form.tags(n))
				began := time.Now()
				found, trace := ask(b.reader, n)
				took = append(took, time.Since(began))
				if found == 0 {
					t.Fatal("what was inserted a moment ago is not found")
				}
				if !form.whole && found != 1 || trace.FullPartitions > 0 != form.whole {
					t.Fatalf("%d series, trace %+v", found, trace)
				}
			}
			slices.Sort(took)
			t.Logf("alone: p50 %v, p90 %v, statements %v", took[10].Round(10*time.Microsecond), took[18].Round(10*time.Microsecond), b.sent())

			// Sixteen who ask, while KairosDB inserts 50 a second.
			ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
			defer stop()
			var asked, inserted atomic.Int64
			var tasks sync.WaitGroup
			for range 16 {
				tasks.Go(func() {
					for ctx.Err() == nil {
						ask(b.reader, n/2)
						asked.Add(1)
					}
				})
			}
			for ctx.Err() == nil {
				n++
				b.stamp++
				b.kairosRow(b.stamp, metric, row, form.tags(n))
				inserted.Add(1)
				time.Sleep(20 * time.Millisecond)
			}
			tasks.Wait()
			sent := b.sent()
			t.Logf("16 at once, %d inserted: %d answers, statements %v", inserted.Load(), asked.Load(), sent)
			if whole := sent["read_row_keys"] / (n/5000 + 1); form.whole && asked.Load() > 64 && int64(whole) > asked.Load()/4 {
				t.Errorf("%d whole reads for %d answers", whole, asked.Load())
			}
			if !form.whole {
				return
			}
			config.KairosDBLag = time.Minute
			lagging, err := NewReader(b.ks, config, ReaderOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer lagging.Close()
			ask(lagging, n)
			took = nil
			for range 20 {
				n++
				b.stamp++
				b.kairosRow(b.stamp, metric, row, form.tags(n))
				began := time.Now()
				if _, trace := ask(lagging, n/2); trace.CachedPartitions != 1 || trace.FullPartitions != 0 {
					t.Fatalf("trace %+v", trace)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			t.Logf("with kairosdb_lag: p50 %v", took[10].Round(10*time.Microsecond))
		})
	}
}

// TestDeleteBesideLag: a delete finds what KairosDB has added a moment ago, though
// questions may not yet.
func TestDeleteBesideLag(t *testing.T) {
	config := readConfig()
	config.KairosDBLag = time.Hour
	b := newReadBench(t, config, nil)
	metric, row := b.metric("m"), cityTime(0)
	add := func(host string) []byte {
		b.stamp++
		tags := model.MustTags("dc", "lga", "host", host)
		b.kairosRow(b.stamp, metric, row, tags)
		key, err := keyOf(model.Series{Metric: metric, Type: model.TypeLong, Tags: tags}, row, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.execAt(b.stamp, "INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)", key, rowtime.ColumnBytes(0), []byte{2})
		return key
	}
	sel := store.Selection{Metric: metric, Range: model.TimeRange{StartMS: row, EndMS: row + 1}, Matchers: []model.Matcher{oneOf("dc", "lga")}}
	keys := [][]byte{add("a")}
	b.lookup(nil, sel)
	keys = append(keys, add("b"))
	if n := len(b.lookup(nil, sel)); n != 1 {
		t.Errorf("a question finds %d series", n)
	}
	w, err := NewWriter(b.ks, DefaultWriteConfig(), WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	d, err := NewDeleter(b.ks, w, noNodes(), DeleterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Delete(t.Context(), b.stamp+1, store.Deletion{Metric: metric, Matchers: sel.Matchers, Range: sel.Range}); err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		if there, err := rowkey.HasSamples(t.Context(), b.ks.Session, key); err != nil || there {
			t.Errorf("row %d is there: %v, %v", i, there, err)
		}
	}
}
