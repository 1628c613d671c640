package write

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
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/rowtime"
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

func TestKnown(t *testing.T) {
	part := func(i int) rowkey.Partition { return rowkey.Partition{Metric: "m", TimeMS: int64(i)} }
	row := func(p rowkey.Partition, tag string) Row {
		return Row{Series: keyspacetest.LongSeries(p.Metric, "k", tag), RowTimeMS: p.TimeMS}
	}
	k := rowkey.Key{Type: model.TypeLong, Tags: model.MustTags("k", "v")}
	c := newKnown(4)
	c.watchFor(false)
	put := func(p rowkey.Partition, tags ...string) {
		var rows []Row
		for _, tag := range tags {
			rows = append(rows, row(p, tag))
		}
		c.put(c.now(), p, 100, 7, rows)
	}
	put(part(0), "v")
	for i := range 20 {
		put(part(1+i), "v")
		if !c.holds(part(0), k, 100) { // keeps it
			t.Fatal("what is used is forgotten")
		}
	}
	if n, evictions := c.size(); n != 4 || evictions != 17 {
		t.Errorf("%d rows, %d evictions", n, evictions)
	}
	if c.holds(part(0), k, 101) || c.holds(part(1), k, 0) || c.holds(part(0), rowkey.Key{Type: model.TypeDouble, Tags: k.Tags}, 0) {
		t.Error("believes what nobody has written")
	}
	if expiry, changed, ok := c.part(part(0)); expiry != 100 || changed != 7 || !ok {
		t.Error(expiry, changed, ok)
	}
	put(part(50), "a", "b", "c", "d", "e", "f", "g")
	if n, _ := c.size(); n != 4 {
		t.Errorf("%d rows of one partition", n)
	}
	put(part(51), strings.Repeat("x", 600))
	if n, _ := c.size(); n != 1 {
		t.Errorf("%d rows beside a long one", n)
	}
	c.watchFor(true)
	put(part(52), "a")
	if n, _ := c.size(); n != 2 || c.missed() > 0 {
		t.Errorf("%d rows while KairosDB runs, %d not checked", n, c.missed())
	}
	put(part(53), "a", "b", "c", "d", "e")
	if n, _ := c.size(); n != 5 || c.missed() != 2 {
		t.Errorf("%d rows while KairosDB runs, %d not checked", n, c.missed())
	}
	c.rely(map[rowkey.Partition]struct{}{part(53): {}}, time.Now())
	c.watch(part(53), time.Now())
	put(part(54), "a", "b", "c", "d")
	if n, _ := c.size(); n != 4 || c.missed() != 2 {
		t.Errorf("%d rows, %d not checked, want only those that samples relied on since", n, c.missed())
	}
	c.rely(map[rowkey.Partition]struct{}{part(54): {}}, time.Now())
	c.watch(part(54), time.Now())
	c.holds(part(54), rowkey.Key{Type: model.TypeLong, Tags: model.MustTags("k", "a")}, 0) // for samples to be written
	put(part(55), "a", "b", "c", "d")
	if c.missed() != 6 {
		t.Errorf("%d not checked", c.missed())
	}
	if c.watchFor(false); c.missed() != 6 {
		t.Errorf("%d not checked", c.missed())
	}
}

// TestForgotten: what samples rely on is checked after it was forgotten, if it still fits, and not
// taken for known.
func TestForgotten(t *testing.T) {
	at := time.Now()
	p := rowkey.Partition{Metric: "m", TimeMS: 1}
	c := newKnown(4) // and one more while KairosDB runs
	put := func(p rowkey.Partition, tags ...string) {
		var rows []Row
		for _, tag := range tags {
			rows = append(rows, Row{Series: keyspacetest.LongSeries(p.Metric, "k", tag), RowTimeMS: p.TimeMS})
		}
		c.put(c.now(), p, 100, 7, rows)
		c.rely(map[rowkey.Partition]struct{}{p: {}}, at)
	}
	expect := func(what string, rows int, missed uint64, unsure int) {
		t.Helper()
		n, _ := c.size()
		got := 0
		if part := c.parts[p]; part != nil {
			got = len(part.unsure)
		}
		if n != rows || c.missed() != missed || got != unsure {
			t.Errorf("%s: %d rows, %d of them unsure, %d not checked, want %d, %d, %d", what, n, got, c.missed(), rows, unsure, missed)
		}
	}
	put(p, "a", "b", "c")
	c.forget(rowkey.Everything)
	expect("forgotten", 3, 0, 3)
	if _, _, ok := c.part(p); ok || c.holds(p, rowkey.Key{Type: model.TypeLong, Tags: model.MustTags("k", "a")}, 0) {
		t.Error("what is forgotten counts as known")
	}
	if due := c.due(at.Add(time.Hour), time.Hour); len(due) != 1 {
		t.Errorf("%d partitions are due", len(due))
	}
	put(p, "a")
	expect("one is written again", 3, 0, 2)
	put(p, "d", "e", "f")
	expect("one does not fit", 5, 1, 2)
	rows := c.watch(p, at)
	expect("checked", 3, 1, 0)
	if len(rows) != 5 || len(c.due(at, 0)) != 0 {
		t.Errorf("%d row keys are checked, %d partitions are due", len(rows), len(c.due(at, 0)))
	}
	c.watchAgain(p, rows, at)
	expect("could not be checked", 5, 1, 2)
	c.forget(rowkey.Span{Metric: "m"})
	expect("another time is forgotten", 5, 1, 2)
	c.forget(rowkey.Span{Metric: "m", HighMS: 1})
	expect("forgotten", 5, 1, 5)
	put(rowkey.Partition{Metric: "n"}, "a")
	expect("evicted", 1, 6, 0)
	put(p, "a")
	c.forget(rowkey.Everything)
	expect("forgotten", 2, 6, 1)
	c.watchFor(false)
	expect("no KairosDB runs", 0, 6, 0)
	put(p, "a")
	c.forget(rowkey.Everything)
	expect("nothing is to be checked", 0, 6, 0)
}

// TestForgetting: index rows of a writer that began before they were forgotten are not recorded
// as known, and the writer learns which were forgotten.
func TestForgetting(t *testing.T) {
	c := newKnown(1000)
	at := func(metric string, ms int64) Row {
		return Row{Series: keyspacetest.LongSeries(metric, "k", "v"), RowTimeMS: ms}
	}
	put := func(epoch uint64, r Row) bool {
		c.put(epoch, r.part(), rowkey.Forever, 0, []Row{r})
		return c.holds(r.part(), r.key(), 0)
	}
	for _, r := range []Row{at("a", 1), at("a", 2), at("b", 1)} {
		if !put(c.now(), r) {
			t.Fatal("not put")
		}
	}
	epoch := c.now()
	c.forget(rowkey.Span{Metric: "a", LowMS: 2, HighMS: 5})
	for r, want := range map[Row]bool{at("a", 1): true, at("a", 2): false, at("b", 1): true} {
		if got := c.holds(r.part(), r.key(), 0); got != want {
			t.Errorf("%v: %v", r, got)
		}
	}
	if put(epoch, at("a", 5)) || put(epoch, at("a", 6)) || !put(epoch, at("c", 2)) || !put(c.now(), at("a", 5)) {
		t.Error("the wrong rows are put")
	}
	if metrics, all, now := c.since(epoch); len(metrics) != 1 || !metrics["a"] || all || now != c.now() {
		t.Error(metrics, all, now)
	}
	if metrics, all, _ := c.since(c.now()); len(metrics) > 0 || all {
		t.Error(metrics, all)
	}
	c.forget(rowkey.Everything)
	if n, _ := c.size(); n != 0 || put(epoch, at("z", 0)) {
		t.Errorf("%d rows, or an old one, after everything was forgotten", n)
	}
	epoch = c.now()
	for i := range maxForgotten + 1 {
		c.forget(rowkey.Span{Metric: fmt.Sprint("b", i), LowMS: 0, HighMS: 0})
	}
	if _, all, _ := c.since(epoch); !all || put(epoch, at("a", 100)) || !put(c.now(), at("a", 100)) {
		t.Errorf("too many to know: all %v", all)
	}
}

// TestIndexRows reads every row that two new series and a known one leave.
func TestIndexRows(t *testing.T) {
	w := DefaultConfig()
	w.TagIndex = []string{"include prefix=TestIndexRows tags=host"}
	b := newBench(t, schema.DefaultConfig(), w, "")
	row := b.KS.Spec.RowTime(keyspacetest.SomeTime)
	load := b.Name("load")
	series := keyspacetest.LongSeries(load, "host", "server1", "dc", "lga")
	b.write(new(keyspacetest.Memory).Longs(series, 0, keyspacetest.SomeTime, keyspacetest.SomeTime+1))

	key, err := rowtime.Key{Metric: load, RowTimeMS: row, Type: model.TypeLong, Tags: series.Tags}.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	tagMap := hex.EncodeToString(cql.TagMap{Tags: series.Tags}.Append(nil))
	text := func(s string) string { return hex.EncodeToString([]byte(s)) }
	line := func(columns ...string) string { return "[" + strings.Join(columns, " ") + "]" }
	rowTime := fmt.Sprintf("%016x", row)
	stamp := fmt.Sprintf("%016x", b.Stamp)
	shard := fmt.Sprintf("%08x", rowkey.Shard(series.Tags, b.KS.IndexShards))
	mark := hex.EncodeToString(schema.WroteHere[:])
	one := fmt.Sprintf("%016x", 1)
	for _, test := range []struct {
		text    string
		columns int
		want    []string
	}{
		{"SELECT key, column1, value, WRITETIME(value), TTL(value) FROM data_points", 5, []string{
			line(hex.EncodeToString(key), "456292b4", zigzag(keyspacetest.SomeTime), stamp, ""),
			line(hex.EncodeToString(key), "456292b5", zigzag(keyspacetest.SomeTime+1), stamp, "")}},
		{"SELECT metric, table_name, row_time, data_type, tags, mtime, WRITETIME(mtime), value FROM row_keys", 8, []string{
			line(text(load), text("data_points"), rowTime, text("kairos_long"), tagMap, mark, one, "")}},
		{"SELECT metric, table_name, row_time, value FROM row_key_time_index", 4, []string{line(text(load), text("data_points"), rowTime, "")}},
		{"SELECT key, column1, value, TTL(value) FROM string_index", 4, []string{line(text("metric_names"), text(load), "00", "")}},
		{"SELECT metric, table_name, row_time, single_tag_pair, data_type, tag_collection_hash, tags, value FROM tag_indexed_row_keys", 8, []string{
			line(text(load), text("data_points"), rowTime, text("host=server1"), text("kairos_long"), "814b33d4", tagMap, "")}},
		{"SELECT metric, row_time, tag, value, shard, data_type, tags FROM varve_row_index", 7, []string{
			line(text(load), rowTime, text("dc"), text("lga"), shard, text("kairos_long"), tagMap),
			line(text(load), rowTime, text("host"), text("server1"), shard, text("kairos_long"), tagMap)}},
		{"SELECT metric, row_time, kairos_mtime, expires FROM varve_row_state", 4, []string{line(text(load), rowTime, mark, fmt.Sprintf("%016x", 0))}},
	} {
		if got := b.Rows(test.text, test.columns); !slices.Equal(got, test.want) {
			t.Errorf("%s:\n got %s\nwant %s", test.text, strings.Join(got, "\n     "), strings.Join(test.want, "\n     "))
		}
	}
	if len(b.wrote) != 1 || string(b.wrote[0]) != string(key) {
		t.Errorf("told of %x", b.wrote)
	}
	changed := b.Rows("SELECT changed, metric FROM varve_row_state", 2)
	if strings.HasPrefix(changed[0], "[ ") {
		t.Error("changed is not set")
	}

	// The same series again: samples only.
	b.Counts.Take()
	b.write(new(keyspacetest.Memory).Longs(series, 0, keyspacetest.SomeTime+2))
	if got := b.Counts.Take(); !maps.Equal(got, map[string]int{"insert_sample": 1, "read_announced_deletes": 1}) {
		t.Errorf("a known series: %v", got)
	}
	// A new series in a known row: its row keys, and changed moves. What is small
	// goes together, under the name of the first: rows of two tags, and those of two
	// tables.
	b.write(new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(load, "host", "server2", "dc", "lga"), 0, keyspacetest.SomeTime))
	want := map[string]int{"insert_sample": 1, "read_announced_deletes": 1, "insert_tag_row": 1, "insert_row_key": 1, "update_row_changed": 1}
	if got := b.Counts.Take(); !maps.Equal(got, want) {
		t.Errorf("a new series: %v, want %v", got, want)
	}
	if now := b.Rows("SELECT changed, metric FROM varve_row_state", 2); slices.Equal(now, changed) {
		t.Error("changed did not move")
	}
	// Many series: those of one partition together, and ten small ones.
	many := new(keyspacetest.Memory)
	for i := range 1000 {
		many.Longs(keyspacetest.LongSeries(load, "host", fmt.Sprint("h", i%10), "dc", "lga", "n", fmt.Sprint(i%20)), 0, keyspacetest.SomeTime)
	}
	b.Counts.Take()
	b.write(many)
	got := b.Counts.Take()
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
	b := newBench(t, schema.DefaultConfig(), DefaultConfig(), "")
	now := time.Now().UnixMilli()
	const day, width = 86400, rowtime.DefaultWidth / 1000
	expires := func() int64 {
		var sec int64
		if _, err := b.KS.Session.One(b.Ctx, &cql.Statement{Name: "test", Text: "SELECT expires FROM varve_row_state WHERE metric = ?"}, []any{b.Name("m")}, &sec); err != nil {
			t.Fatal(err)
		}
		return sec
	}
	series := keyspacetest.LongSeries(b.Name("m"), "k", "v")
	near := func(what string, got, want int64) {
		t.Helper()
		if math.Abs(float64(got-want)) > 30 {
			t.Errorf("%s: %d, want about %d (off by %d)", what, got, want, got-want)
		}
	}
	b.write(new(keyspacetest.Memory).Longs(series, day, now))
	near("one day", expires(), now/1000+day+width)
	ttl := b.Rows("SELECT TTL(value), key FROM data_points", 2)
	if len(ttl) != 1 || !(ttl[0] >= fmt.Sprintf("[%08x ", day-30) && ttl[0] <= fmt.Sprintf("[%08x~", day)) {
		t.Errorf("TTL of the sample: %s, want about %d", ttl, day)
	}
	b.Counts.Take()
	b.write(new(keyspacetest.Memory).Longs(series, day, now+1000))
	if got := b.Counts.Take(); !maps.Equal(got, map[string]int{"insert_sample_ttl": 1, "read_announced_deletes": 1}) {
		t.Errorf("the next sample: %v", got)
	}
	// Another node, which knows nothing, with a sample of a short life.
	first := b.writer
	b.writer = b.newWriter(DefaultConfig(), time.Now)
	b.write(new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(b.Name("m"), "k", "w"), 60, now))
	near("a shorter life elsewhere", expires(), now/1000+day+width)
	// A longer one.
	b.writer = first
	b.write(new(keyspacetest.Memory).Longs(series, 100*day, now+2000))
	near("100 days", expires(), now/1000+100*day+width)
	b.write(new(keyspacetest.Memory).Longs(series, 0, now+3000))
	if got := expires(); got != 0 {
		t.Errorf("for ever: %d", got)
	}
	b.writer = b.newWriter(DefaultConfig(), time.Now)
	b.write(new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(b.Name("m"), "k", "x"), 60, now))
	if got := expires(); got != 0 {
		t.Errorf("for ever, then another node: %d", got)
	}
}

// TestBeyond2038: a server that cannot keep such expiries refuses the sample,
// not its neighbours, nor its index rows.
func TestBeyond2038(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), DefaultConfig(), "")
	now := time.Now().UnixMilli()
	var cols model.Columns
	for i := range int64(100) {
		ttl := uint32(86400)
		if i == 40 || i == 41 {
			ttl = 500_000_000
		}
		cols.AppendFixed(now+i, 1, ttl)
	}
	b.write(new(keyspacetest.Memory).Add(keyspacetest.LongSeries(b.Name("m"), "k", "v"), cols))
	if n := b.Count("data_points"); n != 98 {
		t.Errorf("%d of 98 samples are there", n)
	}
	if n := b.Count("row_keys"); n != 1 {
		t.Errorf("%d row keys", n)
	}
	refusals := b.writer.Refusals()
	if len(refusals) != 1 || refusals[0].Reason != reasonTTL || refusals[0].Count != 2 {
		t.Errorf("%+v", refusals)
	}
	b.Counts.Take()
	b.write(new(keyspacetest.Memory).Add(keyspacetest.LongSeries(b.Name("m"), "k", "v"), cols))
	if got := b.Counts.Take(); !maps.Equal(got, map[string]int{"insert_sample_ttl": 1, "read_announced_deletes": 1}) {
		t.Errorf("again: %v", got)
	}
}

// TestKnownIndexRows: known index rows are not written again, however old they are; forgotten
// ones are, and the change is announced.
func TestKnownIndexRows(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), DefaultConfig(), "")
	clock := time.Now()
	b.writer = b.newWriter(DefaultConfig(), func() time.Time { return clock })
	src := new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(b.Name("m"), "k", "v"), 0, keyspacetest.SomeTime)
	b.write(src)
	b.Counts.Take()
	clock = clock.Add(50 * time.Minute)
	b.write(src)
	if got := b.Counts.Take(); !maps.Equal(got, map[string]int{"insert_sample": 1, "read_announced_deletes": 1}) {
		t.Errorf("after 50 minutes: %v", got)
	}
	b.writer.known.forget(rowkey.Span{Metric: b.Name("m"), LowMS: 0, HighMS: keyspacetest.SomeTime})
	b.write(src)
	if got := b.Counts.Take(); got["insert_tag_row"] != 1 || got["update_row_changed"] != 1 {
		t.Errorf("after a delete: %v", got)
	}
}
