package keyspacetest

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/work"
)

// A Memory is a source of samples.
type Memory struct {
	All  []model.Series
	Cols []model.Columns
}

// Add adds a series.
func (m *Memory) Add(s model.Series, cols model.Columns) *Memory {
	m.All, m.Cols = append(m.All, s), append(m.Cols, cols)
	return m
}

// Doubles adds a series of doubles: the values are those of the times.
func (m *Memory) Doubles(s model.Series, ttl uint32, times ...int64) *Memory {
	var c model.Columns
	for _, ms := range times {
		c.AppendFixed(ms, uint64(ms), ttl)
	}
	return m.Add(s, c)
}

// Longs adds a series of longs: the values are those of the times.
func (m *Memory) Longs(s model.Series, ttl uint32, times ...int64) *Memory {
	return m.Doubles(s, ttl, times...)
}

// Series implements write.Source.
func (m *Memory) Series() iter.Seq[model.SeriesNumber] {
	return func(yield func(model.SeriesNumber) bool) {
		for i := range m.All {
			if !yield(model.SeriesNumber(i)) {
				return
			}
		}
	}
}

// Snapshot implements write.Source.
func (m *Memory) Snapshot(id model.SeriesNumber, _ model.TimeRange, run *head.Run) (bool, error) {
	run.Kind = m.All[id].Type.Kind()
	run.Fragments = run.Fragments[:0]
	run.Open.Reset()
	for i := range m.Cols[id].Times {
		run.Open.AppendFrom(run.Kind, &m.Cols[id], i)
	}
	return m.Cols[id].Len() > 0, nil
}

// LongSeries is a series of longs.
func LongSeries(metric string, tags ...string) model.Series {
	return model.Series{Metric: metric, Tags: model.MustTags(tags...), Type: model.TypeLong}
}

// CityTime is one of some row times that follow each other.
func CityTime(row int) int64 {
	return rowtime.Default.RowTime(1_500_508_800_000) + int64(row)*rowtime.DefaultWidth
}

// CityKeys are row keys of a city each, in 30 regions.
func CityKeys(from, to int) []rowkey.Key {
	var keys []rowkey.Key
	for i := from; i < to; i++ {
		keys = append(keys, rowkey.Key{Type: model.TypeDouble, Tags: model.MustTags("city", fmt.Sprintf("city-%06d", i), "region", fmt.Sprint("region-", i%30))})
	}
	return keys
}

// OneOf is a matcher by values.
func OneOf(tag string, values ...string) model.Matcher {
	return model.Matcher{Tag: tag, Values: values}
}

// FillKeys inserts row keys as Varve would.
func (b *Bench) FillKeys(metric string, rowTimeMS int64, keys []rowkey.Key) {
	b.T.Helper()
	b.Exec("INSERT INTO row_key_time_index (metric, table_name, row_time) VALUES (?, ?, ?)", metric, schema.DataPoints, rowTimeMS)
	b.ExecAt(1, "INSERT INTO row_keys (metric, table_name, row_time, mtime) VALUES (?, ?, ?, ?)", metric, schema.DataPoints, rowTimeMS, schema.WroteHere)
	b.Exec("INSERT INTO varve_row_state (metric, row_time, kairos_mtime) VALUES (?, ?, ?)", metric, rowTimeMS, schema.WroteHere)
	b.Exec("UPDATE varve_row_state SET changed = now() WHERE metric = ? AND row_time = ?", metric, rowTimeMS)
	b.inPages(keys, 2000, func(ctx context.Context, page []rowkey.Key) error {
		batches := rowkey.TagRowBatches(metric, rowTimeMS, slices.Values(page), b.KS.IndexShards, 0)
		for _, joined := range rowkey.JoinBatches(rowkey.BatchPartitions, batches, b.KS.Session.ReplicaSet) {
			if _, err := rowkey.SendJoined(ctx, b.KS.Session.Batch, b.Stamp, joined); err != nil {
				return err
			}
		}
		return nil
	})
	b.insertKeys("INSERT INTO row_keys (metric, table_name, row_time, data_type, tags) VALUES (?, ?, ?, ?, ?)", metric, rowTimeMS, keys)
}

// FillKairos inserts row keys as KairosDB nodes did long ago.
func (b *Bench) FillKairos(metric string, rowTimeMS int64, keys []rowkey.Key) {
	b.T.Helper()
	b.Exec("INSERT INTO row_key_time_index (metric, table_name, row_time) VALUES (?, ?, ?)", metric, schema.DataPoints, rowTimeMS)
	b.insertKeys("INSERT INTO row_keys (metric, table_name, row_time, data_type, tags, mtime) VALUES (?, ?, ?, ?, ?, now())", metric, rowTimeMS, keys)
}

func (b *Bench) insertKeys(text, metric string, rowTimeMS int64, keys []rowkey.Key) {
	b.T.Helper()
	insert := &cql.Statement{Name: "test", Text: text}
	b.inPages(keys, 200, func(ctx context.Context, page []rowkey.Key) error {
		var entries []cql.Entry
		for _, k := range page {
			entries = append(entries, cql.Entry{Statement: insert, Args: append([]any{metric, schema.DataPoints, rowTimeMS}, k.Args()...)})
		}
		return b.KS.Session.Batch(ctx, b.Stamp, entries)
	})
}

// inPages calls f with parts of keys, some at once.
func (b *Bench) inPages(keys []rowkey.Key, size int, f func(context.Context, []rowkey.Key) error) {
	b.T.Helper()
	pages := slices.Collect(slices.Chunk(keys, size))
	err := work.Parallel(b.T.Context(), 8, len(pages), "fill a keyspace", func(ctx context.Context, i int) error { return f(ctx, pages[i]) })
	if err != nil {
		b.T.Fatal(err)
	}
}

// KairosRow inserts a row key as KairosDB does.
func (b *Bench) KairosRow(stampMS int64, metric string, rowTimeMS int64, tags model.Tags) {
	b.T.Helper()
	b.ExecAt(stampMS, "INSERT INTO row_keys (metric, table_name, row_time, data_type, tags, mtime) VALUES (?, ?, ?, ?, ?, now())",
		metric, schema.DataPoints, rowTimeMS, string(model.TypeLong), cql.TagMap{Tags: tags})
	b.ExecAt(stampMS, "INSERT INTO row_key_time_index (metric, table_name, row_time) VALUES (?, ?, ?)", metric, schema.DataPoints, rowTimeMS)
}

// ManySeries are n series of a metric, with one sample each.
func ManySeries(metric string, n int) *Memory {
	src := new(Memory)
	for i := range n {
		src.Longs(LongSeries(metric, "host", fmt.Sprintf("h%05d", i)), 0, SomeTime)
	}
	return src
}

// Pattern is a pattern that can be read.
func Pattern(t testing.TB, text string) *model.Pattern {
	t.Helper()
	p, err := model.NewPattern(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// NextMillisecond waits until the timestamps of new writes are above those of earlier deletes.
func NextMillisecond() {
	for ms := time.Now().UnixMilli(); time.Now().UnixMilli() <= ms; {
		time.Sleep(100 * time.Microsecond)
	}
}

// SeriesOf implements write.Source.
func (m *Memory) SeriesOf(id model.SeriesNumber) (model.Series, bool) { return m.All[id], true }

// SomeTime is a time of long ago.
const SomeTime = 1501672887988 // in the row at 1500508800000
