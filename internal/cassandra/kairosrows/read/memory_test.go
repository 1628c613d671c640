package read

import (
	"encoding/binary"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
)

// fillTexts writes a text of this many bytes at each time, in rows of one series, and returns a selection of
// the series.
func (b *readBench) fillTexts(metric string, bytes int, times []int64) store.Selection {
	b.T.Helper()
	tags := model.MustTags("host", "a")
	rows := map[int64]bool{}
	for _, ms := range times {
		row := rowtime.Default.RowTime(ms)
		if !rows[row] {
			rows[row] = true
			b.FillKeys(metric, row, []rowkey.Key{{Type: model.TypeString, Tags: tags}})
		}
		key := keyBytes(b.T, rowtime.Key{Metric: metric, RowTimeMS: row, Type: model.TypeString, Tags: tags})
		value := append(binary.BigEndian.AppendUint16(nil, uint16(bytes)), strings.Repeat("x", bytes)...)
		b.Exec("INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)", key, rowtime.ColumnBytes(rowtime.Default.Column(row, ms)), value)
	}
	return store.Selection{Metric: metric, Range: model.AllTime}
}

// TestBlocksOfTexts: a block of long texts is not large. A query has one of each series that it reads ahead.
func TestBlocksOfTexts(t *testing.T) {
	const bytes, n = 60_000, 40
	b := newReadBench(t, readConfig(), nil)
	var times []int64
	for i := range int64(n) {
		times = append(times, keyspacetest.CityTime(0)+i)
	}
	sel := b.fillTexts(b.Name("text"), bytes, times)
	found, err := b.reader.Look().Select(t.Context(), sel)
	if err != nil || found.Len() != 1 {
		t.Fatal(found, err)
	}
	cursor := found.Open(t.Context(), 0, store.ReadOptions{Range: model.AllTime})
	defer cursor.Close()
	texts := 0
	for {
		block, err := cursor.Next()
		if err != nil {
			t.Fatal(err)
		}
		if block == nil {
			break
		}
		if texts += block.Len(); len(block.Data) > blockBytes+bytes {
			t.Errorf("a block has %d bytes", len(block.Data))
		}
	}
	if texts != n {
		t.Errorf("%d texts, want %d", texts, n)
	}
}

// TestMemoryOfOverlappingRows: rows before 1970, which are read as one, count as memory of the request
// until they are not needed any more.
func TestMemoryOfOverlappingRows(t *testing.T) {
	const bytes, n = 1000, 20
	b := newReadBench(t, readConfig(), nil)
	var times []int64
	for i := range int64(n) {
		times = append(times, -1-i)
	}
	sel := b.fillTexts(b.Name("text"), bytes, times)
	var held, limit atomic.Int64
	full := errors.New("full")
	sel.Hold = func(bytes int64) error {
		if limit.Load() > 0 && held.Load()+bytes > limit.Load() {
			return full
		}
		held.Add(bytes)
		return nil
	}
	found, err := b.reader.Look().Select(t.Context(), sel)
	if err != nil || found.Len() != 1 {
		t.Fatal(found, err)
	}
	before := held.Load()
	if before < n*rowTimeBytes {
		t.Errorf("%d bytes are held for %d row times", before, n)
	}
	cursor := found.Open(t.Context(), 0, store.ReadOptions{Range: model.AllTime})
	if block, err := cursor.Next(); err != nil || block.Len() != n || held.Load() < before+n*bytes {
		t.Errorf("%v, %v: %d bytes are held, and %d before", block, err, held.Load(), before)
	}
	if block, err := cursor.Next(); err != nil || block != nil || held.Load() != before {
		t.Errorf("at the end: %v, %v: %d bytes are held, and %d before", block, err, held.Load(), before)
	}
	cursor.Close()
	limit.Store(before + n*bytes/2)
	cursor = found.Open(t.Context(), 0, store.ReadOptions{Range: model.AllTime})
	if block, err := cursor.Next(); !errors.Is(err, full) {
		t.Errorf("with little memory: %v, %v", block, err)
	}
	if cursor.Close(); held.Load() != before {
		t.Errorf("%d bytes are held after the end, and %d before", held.Load(), before)
	}
}

// TestMemoryOfNames: a list of the tags of all metrics keeps nothing of their row times.
func TestMemoryOfNames(t *testing.T) {
	b := newReadBench(t, readConfig(), func(*cql.Session) {}) // a keyspace of its own: the list is that of all metrics
	for _, name := range []string{"a", "b", "c"} {
		b.Exec("INSERT INTO string_index (key, column1, value) VALUES (?, ?, ?)", []byte(schema.MetricNames), b.Name(name), []byte{0})
		b.FillKeys(b.Name(name), keyspacetest.CityTime(0), wideKeys(2))
	}
	look := b.reader.Look()
	var held atomic.Int64
	names, _, err := look.Names(t.Context(), store.NamesQuery{Kind: store.TagNames, Hold: func(bytes int64) error { held.Add(bytes); return nil }})
	if err != nil || len(names) != 2 {
		t.Errorf("%q, %v", names, err)
	}
	if n := held.Load(); n <= 0 || n >= rowTimeBytes || len(look.partitions)+len(look.states)+len(look.legacy) > 0 {
		t.Errorf("%d bytes are held, and %d row times", n, len(look.partitions))
	}
}

// TestMemoryOfSelectionsOfOne: a list of names by time or tags, which selects one series of one metric after
// the other, keeps nothing of their row times, whether or not the cache has row keys of them.
func TestMemoryOfSelectionsOfOne(t *testing.T) {
	b := newReadBench(t, readConfig(), nil)
	for i, name := range []string{"a", "b", "c"} {
		b.FillKeys(b.Name(name), keyspacetest.CityTime(0), wideKeys(1+i%2))
	}
	look := b.reader.Look()
	var held atomic.Int64
	hold := func(bytes int64) error { held.Add(bytes); return nil }
	for range 3 {
		for i, name := range []string{"a", "b", "c", "none"} {
			from := keyspacetest.CityTime(0)
			sel := store.Selection{Metric: b.Name(name), Range: model.TimeRange{StartMS: from, EndMS: from + 1}, AnyOrder: true, Limit: 1, LimitKey: "query.max_series", Hold: hold}
			found, err := look.Select(t.Context(), sel)
			if _, limited := errors.AsType[*store.LimitError](err); limited != (i == 1) || err == nil && (found.Len() == 1) == (i == 3) {
				t.Errorf("%s: %v, %v", name, found, err)
			}
			// Only row keys count on: some 200 bytes of each metric.
			if n := held.Load(); n < 0 || n >= 2*rowTimeBytes || len(look.states)+len(look.legacy) > 0 {
				t.Errorf("%s: %d bytes are held", name, n)
			}
		}
	}
}
