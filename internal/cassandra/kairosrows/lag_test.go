package kairosrows

import (
	"testing"
	"time"

	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/remove"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
)

// TestDeleteBesideLag: a delete finds what KairosDB has added a moment ago, though
// questions may not yet.
func TestDeleteBesideLag(t *testing.T) {
	config := readConfig()
	config.KairosDBLag = time.Hour
	b := newReadBench(t, config)
	metric, row := b.Name("m"), keyspacetest.CityTime(0)
	add := func(host string) []byte {
		b.Stamp++
		tags := model.MustTags("dc", "lga", "host", host)
		b.KairosRow(b.Stamp, metric, row, tags)
		key, err := rowkey.Partition{Metric: metric, TimeMS: row}.DataKey(rowkey.Of(model.Series{Metric: metric, Type: model.TypeLong, Tags: tags}))
		if err != nil {
			t.Fatal(err)
		}
		b.ExecAt(b.Stamp, "INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)", key, rowtime.ColumnBytes(0), []byte{2})
		return key
	}
	sel := store.Selection{Metric: metric, Range: model.TimeRange{StartMS: row, EndMS: row + 1}, Matchers: []model.Matcher{keyspacetest.OneOf("dc", "lga")}}
	keys := [][]byte{add("a")}
	for _, host := range []string{"b", ""} {
		if found, err := b.reader.Look().Lookup(t.Context(), sel); err != nil || len(found) != 1 {
			t.Errorf("a question finds %d series, %v", len(found), err)
		}
		if host != "" {
			keys = append(keys, add(host))
		}
	}
	w, err := write.New(b.KS, write.DefaultConfig(), write.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	d, err := remove.New(b.KS, w, noNodes(), remove.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Delete(t.Context(), b.Stamp+1, store.Deletion{Metric: metric, Matchers: sel.Matchers, Range: sel.Range}); err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		if there, err := rowkey.HasSamples(t.Context(), b.KS.Session, key); err != nil || there {
			t.Errorf("row %d is there: %v, %v", i, there, err)
		}
	}
}
