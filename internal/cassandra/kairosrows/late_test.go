package kairosrows

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/remove"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/layout"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
)

// TestLateSamplesOfOthers: a row is finished and has been read often, and another process
// then writes into it and deletes from it. While a KairosDB node runs, each query sees that
// at once, or after kairosdb_lag; and a look at what there is now always does.
func TestLateSamplesOfOthers(t *testing.T) {
	b := keyspacetest.New(t, keyspacetest.OwnKeyspace(), "")
	b.ExecNow("INSERT INTO service_index (service, service_key, key, value, mtime) VALUES ('_Hosts', 'Active', 'guid', 'kairos1', now())")
	for name, test := range map[string]struct {
		nodes   string
		lag     time.Duration
		current bool
		seen    bool
	}{
		"no node":          {remove.NodesNo, 0, false, false},
		"no node, current": {remove.NodesNo, 0, true, true},
		"a node that runs": {remove.NodesAuto, 0, false, true},
		"nodes elsewhere":  {remove.NodesYes, 0, false, true},
		"lag":              {remove.NodesYes, time.Minute, false, false},
		"lag, current":     {remove.NodesYes, time.Minute, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := DefaultSettings()
			s.Schema.IndexShards, s.Read, s.Delete.KairosDBNodes = b.KS.IndexShards, readConfig(), test.nodes
			s.Read.KairosDBLag = test.lag
			ks, err := NewLayout(s).Open(t.Context(), b.KS.Session, layout.Options{Role: layout.RoleAll, Progress: func(string) {}, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer ks.Close()
			series, row := keyspacetest.LongSeries(b.Name(name), "k", "v"), b.KS.Spec.RowTime(keyspacetest.SomeTime)
			key, err := rowkey.Partition{Metric: series.Metric, TimeMS: row}.DataKey(rowkey.Of(series))
			if err != nil {
				t.Fatal(err)
			}
			put := func(stampMS int64, at uint32) {
				b.ExecAt(stampMS, "INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)", key, rowtime.ColumnBytes(at), []byte{2})
			}
			hourAgo := time.Now().Add(-time.Hour).UnixMilli()
			b.KairosRow(hourAgo, series.Metric, row, series.Tags)
			for at := range uint32(3) {
				put(hourAgo, at)
			}
			for range 3 {
				timesOf(t, ks.Look(), series)
			}
			put(time.Now().UnixMilli(), 7)
			b.ExecNow("DELETE FROM data_points WHERE key = ? AND column1 = ?", key, rowtime.ColumnBytes(0))

			look := ks.Look()
			if test.current {
				look.Current()
			}
			before, after := []int64{row, row + 1, row + 2}, []int64{row + 1, row + 2, row + 7}
			want := before
			if test.seen {
				want = after
			}
			if got := timesOf(t, look, series); !slices.Equal(got, want) {
				t.Errorf("read %v, want %v: %v", got, want, look.Counts())
			}
		})
	}
}

// timesOf returns the times of all samples of a series.
func timesOf(t *testing.T, look layout.Look, s model.Series) (times []int64) {
	t.Helper()
	found, err := look.Select(t.Context(), store.Selection{Metric: s.Metric, Range: model.AllTime})
	if err != nil || found.Len() != 1 {
		t.Fatal(fmt.Errorf("%d series, %w", found.Len(), err))
	}
	c := found.Open(t.Context(), 0, store.ReadOptions{Range: model.AllTime})
	defer c.Close()
	for {
		block, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if block == nil {
			return times
		}
		times = append(times, block.Times...)
	}
}
