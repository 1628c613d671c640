package kairosrows

import (
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
)

func TestTagMapVectors(t *testing.T) {
	var file struct {
		Maps []struct {
			Description string
			Input       struct{ Tags map[string]string }
			Hex         string
		} `json:"frozen_map_tags"`
	}
	vectors(t, &file)
	if len(file.Maps) != 3 {
		t.Fatalf("%d vectors", len(file.Maps))
	}
	for _, v := range file.Maps {
		if got := hex.EncodeToString(cql.TagMap{Tags: tagsOf(t, v.Input.Tags)}.Append(nil)); got != v.Hex {
			t.Errorf("%s: %s, want %s", v.Description, got, v.Hex)
		}
	}
}

func TestIndexShard(t *testing.T) {
	// The numbers are in tables: they never change.
	for tags, want := range map[model.Tags]int{
		model.MustTags():                         1,
		model.MustTags("host", "a"):              0,
		model.MustTags("host", "b", "dc", "lga"): 0,
	} {
		if got := indexShard(tags, 4); got != want {
			t.Errorf("%s: shard %d, want %d", tags, got, want)
		}
	}
	seen := map[int]int{}
	for i := range 1000 {
		seen[indexShard(model.MustTags("host", fmt.Sprint(i)), 4)]++
	}
	for shard, n := range seen {
		if n < 200 {
			t.Errorf("shard %d has %d of 1000", shard, n)
		}
	}
}

func TestIndexCache(t *testing.T) {
	c := newIndexCache[indexed](4)
	for i := range uint64(3) {
		c.put(0, rowID{i}, indexed{expirySec: int64(i)})
		c.get(rowID{0}) // keeps it young
	}
	if _, ok := c.get(rowID{0}); !ok {
		t.Error("what is used is forgotten")
	}
	for i := range uint64(100) {
		c.put(0, rowID{100 + i}, indexed{})
	}
	if n, evictions := c.size(); n > 4 || evictions < 90 {
		t.Errorf("%d entries, %d evictions", n, evictions)
	}
	epoch := c.now()
	c.clear()
	c.put(epoch, rowID{1}, indexed{})
	if _, ok := c.get(rowID{1}); ok || c.now() == epoch {
		t.Error("an entry of before the clearing is believed")
	}
}

// TestIndexRows reads every row that two new series and a known one leave.
func TestIndexRows(t *testing.T) {
	w := DefaultWriteConfig()
	w.TagIndex = []string{"include prefix=TestIndexRows tags=host"}
	b := newBench(t, DefaultConfig(), w, "")
	row := b.ks.Spec.RowTime(someTime)
	load := b.name("load")
	series := longSeries(load, "host", "server1", "dc", "lga")
	b.write(new(memory).longs(series, 0, someTime, someTime+1))

	key, err := rowtime.Key{Metric: load, RowTimeMS: row, Type: model.TypeLong, Tags: series.Tags}.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	tagMap := hex.EncodeToString(cql.TagMap{Tags: series.Tags}.Append(nil))
	text := func(s string) string { return hex.EncodeToString([]byte(s)) }
	line := func(columns ...string) string { return "[" + strings.Join(columns, " ") + "]" }
	rowTime := fmt.Sprintf("%016x", row)
	stamp := fmt.Sprintf("%016x", b.stamp)
	shard := fmt.Sprintf("%08x", indexShard(series.Tags, b.ks.IndexShards))
	mark := hex.EncodeToString(WroteHere[:])
	one := fmt.Sprintf("%016x", 1)
	for _, test := range []struct {
		text    string
		columns int
		want    []string
	}{
		{"SELECT key, column1, value, WRITETIME(value), TTL(value) FROM data_points", 5, []string{
			line(hex.EncodeToString(key), "456292b4", zigzag(someTime), stamp, ""),
			line(hex.EncodeToString(key), "456292b5", zigzag(someTime+1), stamp, "")}},
		{"SELECT metric, table_name, row_time, data_type, tags, mtime, WRITETIME(mtime), value FROM row_keys", 8, []string{
			line(text(load), text("data_points"), rowTime, text("kairos_long"), tagMap, mark, one, "")}},
		{"SELECT metric, table_name, row_time, value FROM row_key_time_index", 4, []string{line(text(load), text("data_points"), rowTime, "")}},
		{"SELECT key, column1, value, TTL(value), WRITETIME(value) FROM string_index", 5, []string{line(text("metric_names"), text(load), "00", "", stamp)}},
		{"SELECT metric, table_name, row_time, single_tag_pair, data_type, tag_collection_hash, tags, value FROM tag_indexed_row_keys", 8, []string{
			line(text(load), text("data_points"), rowTime, text("host=server1"), text("kairos_long"), "814b33d4", tagMap, "")}},
		{"SELECT metric, row_time, tag, value, shard, data_type, tags FROM varve_row_index", 7, []string{
			line(text(load), rowTime, text("dc"), text("lga"), shard, text("kairos_long"), tagMap),
			line(text(load), rowTime, text("host"), text("server1"), shard, text("kairos_long"), tagMap)}},
		{"SELECT metric, row_time, kairos_mtime, expires FROM varve_row_state", 4, []string{line(text(load), rowTime, mark, fmt.Sprintf("%016x", 0))}},
	} {
		if got := b.rows(test.text, test.columns); !slices.Equal(got, test.want) {
			t.Errorf("%s:\n got %s\nwant %s", test.text, strings.Join(got, "\n     "), strings.Join(test.want, "\n     "))
		}
	}
	if len(b.wrote) != 1 || string(b.wrote[0]) != string(key) {
		t.Errorf("told of %x", b.wrote)
	}
	changed := b.rows("SELECT changed, metric FROM varve_row_state", 2)
	if strings.HasPrefix(changed[0], "[ ") {
		t.Error("changed is not set")
	}

	// The same series again: samples only.
	b.counts.take()
	b.write(new(memory).longs(series, 0, someTime+2))
	if got := b.counts.take(); !maps.Equal(got, map[string]int{"insert_sample": 1, "read_announced_deletes": 1}) {
		t.Errorf("a known series: %v", got)
	}
	// A new series in a known row: its row keys, and changed moves. What is small
	// goes together, under the name of the first: rows of two tags, and those of two
	// tables.
	b.write(new(memory).longs(longSeries(load, "host", "server2", "dc", "lga"), 0, someTime))
	want := map[string]int{"insert_sample": 1, "read_announced_deletes": 1, "insert_tag_row": 1, "insert_row_key": 1, "update_row_changed": 1}
	if got := b.counts.take(); !maps.Equal(got, want) {
		t.Errorf("a new series: %v, want %v", got, want)
	}
	if now := b.rows("SELECT changed, metric FROM varve_row_state", 2); slices.Equal(now, changed) {
		t.Error("changed did not move")
	}
	// Many series: those of one partition together, and ten small ones.
	many := new(memory)
	for i := range 1000 {
		many.longs(longSeries(load, "host", fmt.Sprint("h", i%10), "dc", "lga", "n", fmt.Sprint(i%20)), 0, someTime)
	}
	b.counts.take()
	b.write(many)
	got := b.counts.take()
	// 20 series are distinct: 1 batch of row keys; tag rows: 10 hosts, 1 dc, 20 n, each in up to 4 shards.
	if got["insert_row_key"] > 5 || got["insert_tag_row"] > 4*31/2 || got["update_row_changed"] != 1 || got["select_row_state"] != 0 {
		t.Errorf("1000 series: %v", got)
	}
}

func zigzag(v int64) string {
	value, err := rowtime.AppendValue(nil, model.Long, uint64(v), nil)
	if err != nil {
		panic(err)
	}
	return hex.EncodeToString(value)
}

// TestIndexExpiry: index rows outlive their samples, those of all nodes, and
// are written again when they are too short.
func TestIndexExpiry(t *testing.T) {
	b := newBench(t, DefaultConfig(), DefaultWriteConfig(), "")
	now := time.Now().UnixMilli()
	const day, width = 86400, rowtime.DefaultWidth / 1000
	expires := func() int64 {
		var sec int64
		if _, err := b.ks.Session.One(b.ctx, &cql.Statement{Name: "test", Text: "SELECT expires FROM varve_row_state WHERE metric = ?"}, []any{b.name("m")}, &sec); err != nil {
			t.Fatal(err)
		}
		return sec
	}
	series := longSeries(b.name("m"), "k", "v")
	near := func(what string, got, want int64) {
		t.Helper()
		if math.Abs(float64(got-want)) > 30 {
			t.Errorf("%s: %d, want about %d (off by %d)", what, got, want, got-want)
		}
	}
	b.write(new(memory).longs(series, day, now))
	near("one day", expires(), now/1000+day+width)
	ttl := b.rows("SELECT TTL(value), key FROM data_points", 2)
	if len(ttl) != 1 || !(ttl[0] >= fmt.Sprintf("[%08x ", day-30) && ttl[0] <= fmt.Sprintf("[%08x~", day)) {
		t.Errorf("TTL of the sample: %s, want about %d", ttl, day)
	}
	b.counts.take()
	b.write(new(memory).longs(series, day, now+1000))
	if got := b.counts.take(); !maps.Equal(got, map[string]int{"insert_sample_ttl": 1, "read_announced_deletes": 1}) {
		t.Errorf("the next sample: %v", got)
	}
	// Another node, which knows nothing, with a sample of a short life.
	first := b.writer
	b.writer = b.newWriter(DefaultWriteConfig(), time.Now)
	b.write(new(memory).longs(longSeries(b.name("m"), "k", "w"), 60, now))
	near("a shorter life elsewhere", expires(), now/1000+day+width)
	// A longer one.
	b.writer = first
	b.write(new(memory).longs(series, 100*day, now+2000))
	near("100 days", expires(), now/1000+100*day+width)
	b.write(new(memory).longs(series, 0, now+3000))
	if got := expires(); got != 0 {
		t.Errorf("for ever: %d", got)
	}
	b.writer = b.newWriter(DefaultWriteConfig(), time.Now)
	b.write(new(memory).longs(longSeries(b.name("m"), "k", "x"), 60, now))
	if got := expires(); got != 0 {
		t.Errorf("for ever, then another node: %d", got)
	}
}

// TestBeyond2038: a server that cannot keep such expiries refuses the sample,
// not its neighbours, nor its index rows.
func TestBeyond2038(t *testing.T) {
	b := newBench(t, DefaultConfig(), DefaultWriteConfig(), "")
	now := time.Now().UnixMilli()
	var cols model.Columns
	for i := range int64(100) {
		ttl := uint32(86400)
		if i == 40 || i == 41 {
			ttl = 500_000_000
		}
		cols.AppendFixed(now+i, 1, ttl)
	}
	b.write(new(memory).add(longSeries(b.name("m"), "k", "v"), cols))
	if n := b.count("data_points"); n != 98 {
		t.Errorf("%d of 98 samples are there", n)
	}
	if n := b.count("row_keys"); n != 1 {
		t.Errorf("%d row keys", n)
	}
	refusals := b.writer.Refusals()
	if len(refusals) != 1 || refusals[0].Reason != reasonTTL || refusals[0].Count != 2 {
		t.Errorf("%+v", refusals)
	}
	b.counts.take()
	b.write(new(memory).add(longSeries(b.name("m"), "k", "v"), cols))
	if got := b.counts.take(); !maps.Equal(got, map[string]int{"insert_sample_ttl": 1, "read_announced_deletes": 1}) {
		t.Errorf("again: %v", got)
	}
}

// TestIndexRefresh: index rows are written again after a while, without telling
// other nodes of a change.
func TestIndexRefresh(t *testing.T) {
	b := newBench(t, DefaultConfig(), DefaultWriteConfig(), "")
	clock := time.Now()
	b.writer = b.newWriter(DefaultWriteConfig(), func() time.Time { return clock })
	src := new(memory).longs(longSeries(b.name("m"), "k", "v"), 0, someTime)
	b.write(src)
	b.counts.take()
	clock = clock.Add(7 * time.Minute)
	b.write(src)
	if got := b.counts.take(); !maps.Equal(got, map[string]int{"insert_sample": 1, "read_announced_deletes": 1}) {
		t.Errorf("after 7 minutes: %v", got)
	}
	clock = clock.Add(4 * time.Minute)
	b.write(src)
	got := b.counts.take()
	want := map[string]int{"insert_sample": 1, "read_announced_deletes": 1, "insert_tag_row": 1, "insert_row_keys_mark": 1, "insert_row_time": 1, "insert_metric_name": 1, "select_first_row_key": 1, "select_row_state": 1}
	if !maps.Equal(got, want) {
		t.Errorf("after 11 minutes: %v, want %v", got, want)
	}
	// After a delete, at once.
	b.writer.forget()
	b.write(src)
	if got := b.counts.take(); got["insert_tag_row"] != 1 || got["update_row_changed"] != 1 {
		t.Errorf("after a delete: %v", got)
	}
}

// TestDeleteElsewhere: index rows that another node deleted are there again when
// samples come, also samples of long ago that have waited; and that is told.
func TestDeleteElsewhere(t *testing.T) {
	b := newBench(t, DefaultConfig(), DefaultWriteConfig(), "")
	d := b.deleter(noNodes(), time.Now) // has the first writer
	b.writer = b.newWriter(DefaultWriteConfig(), time.Now)
	src := new(memory).longs(longSeries(b.name("m"), "k", "v"), 0, someTime)
	b.write(src)
	b.delete(d, store.Deletion{Metric: b.name("m"), Range: model.AllTime})
	if got := b.tableCounts(); got != "0 0 0 0 0 0" {
		t.Fatalf("rows of %s: %s", tables, got)
	}
	b.counts.take()
	b.write(src)
	if got := b.tableCounts(); got != "1 1 1 1 0 1" {
		t.Errorf("the node that knows nothing of the delete: rows of %s: %s", tables, got)
	}
	if got := b.counts.take(); got["update_row_changed"] != 1 {
		t.Errorf("other nodes are not told: %v", got)
	}
	// A part is deleted, so that the row is empty, and then comes what was
	// appended before the delete.
	old := time.Now().UnixMilli()
	time.Sleep(2 * time.Millisecond)
	b.delete(d, store.Deletion{Metric: b.name("m"), Range: model.TimeRange{StartMS: someTime, EndMS: someTime}})
	if got := b.tableCounts(); got != "0 0 0 0 0 0" {
		t.Fatalf("rows of %s: %s", tables, got)
	}
	late := new(memory).longs(longSeries(b.name("m"), "k", "v"), 0, someTime+1)
	if err := b.writer.write(t.Context(), old, late); err != nil {
		t.Fatal(err)
	}
	if got := b.tableCounts(); got != "1 1 1 1 0 1" {
		t.Errorf("samples that are older than the delete of others in their row: rows of %s: %s", tables, got)
	}
}
