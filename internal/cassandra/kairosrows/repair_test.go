package kairosrows

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
)

func TestTokens(t *testing.T) {
	last, _ := tokens(0)
	if last != -1<<63 {
		t.Errorf("the first part begins at %d", last)
	}
	for part := range repairParts {
		from, to := tokens(part)
		if from != last || to <= from {
			t.Errorf("part %d: %d..%d", part, from, to)
		}
		last = to
	}
	if last != 1<<63-1 {
		t.Errorf("the last part ends at %d", last)
	}
}

func TestRepair(t *testing.T) {
	b := newBench(t, DefaultConfig(), DefaultWriteConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	exec := func(text string, args ...any) {
		t.Helper()
		if err := b.ks.Session.Exec(b.ctx, &cql.Statement{Name: "test", Text: text}, b.stamp, args...); err != nil {
			t.Fatal(err)
		}
	}
	keyOf := func(s model.Series) []byte {
		key, err := rowtime.Key{Metric: s.Metric, RowTimeMS: b.ks.Spec.RowTime(someTime), Type: s.Type, Tags: s.Tags}.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	row := b.ks.Spec.RowTime(someTime)
	whole, half, gone := longSeries(b.name("m"), "k", "whole"), longSeries(b.name("m"), "k", "half"), longSeries(b.name("m"), "k", "gone")
	lost := longSeries(b.name("lost"), "k", "v", "l", "w")
	b.write(new(memory).longs(whole, 0, someTime).longs(half, 0, someTime).longs(gone, 0, someTime))
	b.stamp++
	exec("DELETE FROM data_points WHERE key = ?", keyOf(gone)) // a row key without samples
	inserted := time.Now().Unix()
	exec("INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?) USING TTL 86400", keyOf(lost), columnBytes(5), []byte{2})              // samples without row key
	exec("INSERT INTO row_key_time_index (metric, table_name, row_time) VALUES (?, ?, ?)", b.name("empty"), "data_points", row)                 // a row time without row keys
	exec("INSERT INTO string_index (key, column1, value) VALUES (?, ?, ?)", []byte("metric_names"), b.name("nothing"), []byte{0})               // a name alone
	exec("INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)", []byte(b.name("x")+"no key"), columnBytes(5), []byte{2})             // not ours
	exec(insertTagRow.Text, b.name("m"), row, "k", "astray", 0, "kairos_long", cql.TagMap{Tags: model.MustTags("k", "astray")}, 0)              // a tag row without row key
	exec(deleteTagRow.Text, b.name("m"), row, "k", "half", indexShard(half.Tags, b.ks.IndexShards), "kairos_long", cql.TagMap{Tags: half.Tags}) // and the reverse

	check := func(what, want string) {
		t.Helper()
		if got := b.tableCounts(); got != want {
			t.Errorf("%s: rows of %s: %s, want %s", what, tables, got, want)
		}
	}
	broken := "4 3 2 2 0 3"
	check("before", broken)
	time.Sleep(5 * time.Millisecond)
	parts := 0
	dry, err := d.Repair(b.ctx, RepairOptions{DryRun: true, Grace: time.Nanosecond, Progress: func(RepairReport) { parts++ }})
	if err != nil {
		t.Fatal(err)
	}
	check("dry run", broken)
	if dry.Unindexed < 2 || dry.DeadRowKeys < 1 || dry.DeadTagRows < 1 || dry.DeadRowTimes < 1 || dry.DeadNames < 1 || dry.Unreadable < 1 || parts < 4*repairParts {
		t.Errorf("dry run: %+v, %d reports", dry, parts)
	}
	// With the usual grace only what is missing is put right: the rest is young.
	if _, err := d.Repair(b.ctx, RepairOptions{}); err != nil {
		t.Fatal(err)
	}
	check("young", "4 4 3 3 0 6")
	time.Sleep(5 * time.Millisecond)
	if _, err := d.Repair(b.ctx, RepairOptions{Grace: time.Nanosecond}); err != nil {
		t.Fatal(err)
	}
	check("repaired", "4 3 2 2 0 4")
	again, err := d.Repair(b.ctx, RepairOptions{Grace: time.Nanosecond})
	if err != nil || again.Changes() != 0 {
		t.Errorf("a second time: %+v, %v", again, err)
	}
	look := b.reader().Look()
	found, err := look.Lookup(b.ctx, store.Selection{Metric: lost.Metric, Range: model.AllTime, Matchers: []model.Matcher{{Tag: "k", Values: []string{"v"}}}})
	if err != nil || len(found) != 1 {
		t.Errorf("the lost series: %v, %v", found, err)
	}
	var expires int64
	if _, err := b.ks.Session.One(b.ctx, selectRowState, []any{lost.Metric, row}, nil, nil, &expires); err != nil {
		t.Fatal(err)
	}
	want := inserted + 86400 + rowtime.DefaultWidth/1000
	if late := time.Now().Unix() - inserted; expires < want-60 || expires > want+late+60 {
		t.Errorf("its index rows expire at %d, want about %d", expires, want)
	}
	var progress []string
	rated := time.Now()
	if _, err := d.Repair(b.ctx, RepairOptions{DryRun: true, Rate: 1_000_000, Progress: func(r RepairReport) { progress = append(progress, fmt.Sprint(r.Phase, " ", r.Part)) }}); err != nil {
		t.Fatal(err)
	}
	t.Logf("a walk over %d rows took %v", again.Rows, time.Since(rated))
	if !strings.HasPrefix(progress[len(progress)-1], "metrics without rows 1") {
		t.Errorf("ends with %s", progress[len(progress)-1])
	}
}
