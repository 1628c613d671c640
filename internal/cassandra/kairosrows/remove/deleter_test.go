package remove

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/keyspacetest/lookup"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/cassandra/layout"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
)

// TestDeletedColumns: of each unit and any row, a column is deleted if and only
// if a query of the range reads it. The sample that was sent at the start is deleted.
func TestDeletedColumns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := rowtime.Spec{
			Width: rapid.SampledFrom([]int64{1, 7, 1000, 2500, 1814400}).Draw(t, "width"),
			Unit:  rapid.SampledFrom([]rowtime.Unit{rowtime.Milliseconds, rowtime.Seconds, rowtime.Legacy}).Draw(t, "unit"),
		}
		ms := rapid.OneOf(rapid.Int64Range(-10_000, 10_000), rapid.Int64Range(math.MinInt64+spec.Width, math.MaxInt64)).Draw(t, "ms")
		row := spec.RowTime(ms)
		near := rapid.OneOf(rapid.Int64Range(-3000, 3000), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64}))
		bound := func(name string) int64 {
			d := near.Draw(t, name)
			if d > 0 && ms > math.MaxInt64-d || d < 0 && ms < math.MinInt64-d {
				return d
			}
			return ms + d
		}
		r := model.TimeRange{StartMS: bound("start"), EndMS: bound("end")}
		rd, some := deletedColumns(spec, row, r)
		from, to, whole, none := rd.from, rd.to, rd.whole, !some
		column := spec.Column(row, ms)
		read := spec.Time(row, column)
		inside := r.Contains(read)
		if spec.Unit == rowtime.Seconds && row >= spec.RowTime(r.StartMS) && r.StartMS >= row && column == spec.Column(row, r.StartMS) {
			inside = r.StartMS <= r.EndMS && read <= r.EndMS // KairosDB compares seconds
		}
		if r.StartMS == ms && r.EndMS >= ms && !inside {
			t.Fatalf("%+v: the sample at the start, %d in row %d, is not read", spec, ms, row)
		}
		if _, _, again := (&Deleter{ks: &schema.Keyspace{Spec: spec}}).Place(ms, r); again != inside {
			t.Fatalf("%+v: %d in row %d is deleted %t, and %t when the deletion is repeated", spec, ms, row, inside, again)
		}
		deleted := !none && (whole || from <= column && column <= to)
		if deleted != inside {
			t.Fatalf("%+v: %d in row %d, read as %d, range %v: columns %d..%d whole %t none %t", spec, ms, row, spec.Time(row, column), r, from, to, whole, none)
		}
		if spec.Unit == rowtime.Legacy && !none && !whole && (from <= column|1 && column|1 <= to) != inside {
			t.Fatalf("the double at %d", ms)
		}
		if whole && (from != 0 || r.StartMS > row && column != 0 && r.StartMS-row >= 1000) {
			t.Fatalf("whole from %d", from)
		}
	})
	last := rowtime.Default.RowTime(math.MaxInt64)
	if rd, some := deletedColumns(rowtime.Default, last, model.AllTime); !rd.whole || !some {
		t.Error("the last row of all time is not whole")
	}
}

// deleter returns a Deleter that finds rows as queries do.
func (b *bench) deleter(c Config, now func() time.Time) *Deleter {
	b.T.Helper()
	d, err := New(b.KS, b.writer, c, Options{Node: "test", Now: now})
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(d.Close)
	return d
}

func (b *bench) delete(d *Deleter, del store.Deletion) {
	b.T.Helper()
	b.Stamp = max(b.Stamp+1, time.Now().UnixMilli())
	if err := d.Delete(b.Ctx, b.Stamp, del); err != nil {
		b.T.Fatal(err)
	}
}

func noNodes() Config {
	c := DefaultConfig()
	c.KairosDBNodes = NodesNo
	return c
}

// TestDelete: of a metric that is deleted nothing is left in any table.
func TestDelete(t *testing.T) {
	w := write.DefaultConfig()
	w.TagIndex = []string{"include prefix=TestDelete tags=host", "include regex=TestDelete.*every"}
	b := newBench(t, schema.DefaultConfig(), w, "")
	d := b.deleter(noNodes(), time.Now)
	const width = rowtime.DefaultWidth
	base := b.KS.Spec.RowTime(keyspacetest.SomeTime)
	metric := b.Name("every")
	a, c := keyspacetest.LongSeries(metric, "host", "a", "dc", "lga"), keyspacetest.LongSeries(metric, "host", "b", "dc", "lga")
	src := new(keyspacetest.Memory).
		Longs(a, 0, base, base+1, base+width-1, base+width, base+width+5).
		Longs(c, 0, base, base+7)
	b.write(src)
	check := func(what, want string) {
		t.Helper()
		if got := b.TableCounts(); got != want {
			t.Errorf("%s: rows of %s: %s, want %s", what, keyspacetest.Tables, got, want)
		}
	}
	check("written", "7 3 2 1 6 6")
	all := func(m ...model.Matcher) store.Deletion {
		return store.Deletion{Metric: metric, Matchers: m, Range: model.AllTime}
	}
	host := func(v string) model.Matcher { return model.Matcher{Tag: "host", Values: []string{v}} }

	// A part: one statement for the row, one probe.
	b.Counts.Take()
	b.delete(d, store.Deletion{Metric: metric, Matchers: []model.Matcher{host("a")}, Range: model.TimeRange{StartMS: base + 1, EndMS: base + 1}})
	check("a part", "6 3 2 1 6 6")
	got := b.Counts.Take()
	if got["delete_slice"] != 1 || got["delete_row"] != 0 || got["probe_row"] != 1 || got["delete_row_key"] != 0 {
		t.Errorf("a part: %v", got)
	}
	// All that is left of a row, by a part: the row key goes.
	b.delete(d, store.Deletion{Metric: metric, Matchers: []model.Matcher{host("b")}, Range: model.TimeRange{StartMS: base, EndMS: base + 7}})
	check("the rest of b", "4 2 2 1 4 4")
	// A whole row: one partition delete; its row time goes.
	changed := b.Rows("SELECT changed, metric FROM varve_row_state", 2)
	b.Counts.Take()
	b.delete(d, store.Deletion{Metric: metric, Range: model.TimeRange{StartMS: base + width, EndMS: base + 2*width}})
	check("the second row", "2 1 1 1 2 2")
	got = b.Counts.Take()
	if got["delete_slice"] != 0 || got["delete_row"] != 1 || got["delete_row_keys"] != 1 || got["delete_row_time"] != 1 || got["delete_metric_name"] != 0 {
		t.Errorf("a whole row: %v", got)
	}
	if now := b.Rows("SELECT changed, metric FROM varve_row_state", 2); slices.Equal(now, changed) {
		t.Error("changed did not move")
	}
	b.delete(d, all(host("c")))
	b.delete(d, all())
	check("everything", "0 0 0 0 0 0")

	// Written again, though the index rows are known to be written.
	b.write(src)
	check("written again", "7 3 2 1 6 6")
	// By matcher, the last series of the metric: the name goes as well.
	b.delete(d, all(host("a")))
	check("host a", "2 1 1 1 2 2")
	b.delete(d, all(host("b")))
	check("host b", "0 0 0 0 0 0")

	// What is written later is not touched.
	b.write(src)
	stamp := b.Stamp
	b.write(new(keyspacetest.Memory).Longs(a, 0, base+50))
	if err := d.Delete(b.Ctx, stamp, all()); err != nil {
		t.Fatal(err)
	}
	if n := b.Count("data_points"); n != 1 {
		t.Errorf("%d samples are left of 1 that was written later", n)
	}
	rows, err := lookup.Reader(b.Bench).Look().Lookup(b.Ctx, store.Selection{Metric: metric, Range: model.AllTime})
	if err != nil || len(rows) != 1 {
		t.Errorf("it is not found: %v, %v", rows, err)
	}
}

// TestDeleteWhileWriting: a delete that runs while a generation is written,
// whose index rows the writer believes to be there.
func TestDeleteWhileWriting(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	s := keyspacetest.LongSeries(b.Name("m"), "k", "v")
	b.write(new(keyspacetest.Memory).Longs(s, 0, keyspacetest.SomeTime))
	stamp := b.Stamp + 1
	var once sync.Once
	b.Counts.Before = func(name string) {
		if name != "insert_sample" {
			return
		}
		once.Do(func() { // the delete finds the row empty, since this batch has not arrived
			if err := d.Delete(b.Ctx, stamp, store.Deletion{Metric: s.Metric, Range: model.AllTime}); err != nil {
				t.Error(err)
			}
		})
	}
	b.Stamp = stamp
	b.write(new(keyspacetest.Memory).Longs(s, 0, keyspacetest.SomeTime+1))
	if got := b.TableCounts(); got != "1 1 1 1 0 1" {
		t.Errorf("rows of %s: %s", keyspacetest.Tables, got)
	}
}

// TestDeleteKeepsIndex: beside KairosDB nodes the index rows of rows that may
// still get samples stay.
func TestDeleteKeepsIndex(t *testing.T) {
	b := newBench(t, schema.Config{Role: schema.RoleAll, Create: schema.CreateKeyspace, Replication: schema.DefaultConfig().Replication, RowTimeUnit: "MILLISECONDS", IndexShards: 2}, write.DefaultConfig(), "")
	now := time.Now()
	auto := b.deleter(DefaultConfig(), time.Now)
	metric := b.Name("m")
	s := keyspacetest.LongSeries(metric, "k", "v")
	old := b.KS.Spec.RowTime(now.UnixMilli()) - 1
	src := new(keyspacetest.Memory).Longs(s, 0, old-rowtime.DefaultWidth*3, now.UnixMilli())
	del := store.Deletion{Metric: metric, Range: model.AllTime}
	if err := b.KS.Set(b.Ctx, "_Hosts", "Active", "a-guid", "kairos-1"); err != nil {
		t.Fatal(err)
	}
	b.write(src)
	b.delete(auto, del)
	if got := b.TableCounts(); got != "0 1 1 1 0 1" {
		t.Errorf("a node runs: rows of %s: %s", keyspacetest.Tables, got)
	}
	// Its entry is old.
	later := b.deleter(DefaultConfig(), func() time.Time { return time.Now().Add(20 * time.Minute) })
	b.delete(later, del)
	if got := b.TableCounts(); got != "0 0 0 0 0 0" {
		t.Errorf("no node runs: rows of %s: %s", keyspacetest.Tables, got)
	}
	yes := DefaultConfig()
	yes.KairosDBNodes, yes.Horizon = NodesYes, 365*24*time.Hour
	b.write(src)
	b.delete(b.deleter(yes, time.Now), del)
	if got := b.TableCounts(); got != "0 2 2 1 0 2" {
		t.Errorf("a year's horizon: rows of %s: %s", keyspacetest.Tables, got)
	}
}

// TestDeleteUnits: the range is exact in each keyspace, below zero too.
func TestDeleteUnits(t *testing.T) {
	for _, unit := range []string{"SECONDS", "LEGACY"} {
		t.Run(unit, func(t *testing.T) {
			b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
			b.KS.Spec = rowtime.Spec{Width: rowtime.DefaultWidth / 1000, Unit: rowtime.Seconds}
			if unit == "LEGACY" {
				b.KS.Spec = rowtime.Spec{Width: rowtime.DefaultWidth, Unit: rowtime.Legacy}
			}
			b.writer = b.newWriter(write.DefaultConfig(), time.Now)
			d := b.deleter(noNodes(), time.Now)
			s := keyspacetest.LongSeries(b.Name("m"), "k", "v")
			step := int64(1)
			if unit == "SECONDS" {
				step = 1000
			}
			base := b.KS.Spec.RowTime(keyspacetest.SomeTime)
			times := []int64{-5 * step, -step, 0, step, base, base + step, base + 2*step, base + 3*step, base + b.KS.Spec.Width}
			b.write(new(keyspacetest.Memory).Longs(s, 0, times...))
			left := func() int { return b.Count("data_points") }
			for _, test := range []struct{ from, to, want int64 }{
				{base + 2*step, base + 3*step - 1, 8}, // to the end of a second
				{base + 3*step + step/2, base + 3*step + step/2, 7},
				{-step, -step, 6},
				{-4 * step, step - 1, 5}, // 0
				{math.MinInt64, -step, 4},
				{base + step/2, base + b.KS.Spec.Width - 1, 2}, // within the first second of a row
				{math.MinInt64, math.MaxInt64, 0},
			} {
				b.delete(d, store.Deletion{Metric: s.Metric, Range: model.TimeRange{StartMS: test.from, EndMS: test.to}})
				if got := left(); got != int(test.want) {
					t.Errorf("after %d..%d: %d samples, want %d", test.from, test.to, got, test.want)
				}
			}
			if got := b.TableCounts(); got != "0 0 0 0 0 0" {
				t.Errorf("rows of %s: %s", keyspacetest.Tables, got)
			}
		})
	}
}

// TestDeleteLegacyRows: rows that only row_key_index knows, of longs and doubles
// at once.
func TestDeleteLegacyRows(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	b.KS.Spec = rowtime.Spec{Width: rowtime.DefaultWidth, Unit: rowtime.Legacy}
	b.writer = b.newWriter(write.DefaultConfig(), time.Now)
	metric := b.Name("old")
	base := b.KS.Spec.RowTime(keyspacetest.SomeTime)
	key, err := rowtime.Key{Metric: metric, RowTimeMS: base, Type: rowtime.TypeLegacy, Tags: model.MustTags("k", "v")}.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	exec := func(text string, args ...any) {
		t.Helper()
		if err := b.KS.Session.Exec(b.Ctx, &cql.Statement{Name: "test", Text: text}, 1000, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec("INSERT INTO row_key_index (key, column1, value) VALUES (?, ?, ?)", []byte(metric), key, []byte{0})
	exec("INSERT INTO string_index (key, column1, value) VALUES (?, ?, ?)", []byte("metric_names"), metric, []byte{})
	for _, cell := range []struct {
		column uint32
		value  []byte
	}{{2, []byte{5}}, {5, []byte{1, 0x3f, 0xc0, 0, 0}}, {8, []byte{6}}} {
		exec("INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)", key, rowtime.ColumnBytes(cell.column), cell.value)
	}
	d := b.deleter(noNodes(), time.Now)
	del := store.Deletion{Metric: metric, Range: model.TimeRange{StartMS: base + 2, EndMS: base + 2}}
	b.Counts.Take()
	b.delete(d, del)
	if n, got := b.Count("data_points"), b.Counts.Take(); n != 2 || got["delete_slice"] != 1 {
		t.Errorf("the double at 2: %d cells left, %v", n, got)
	}
	del.Range = model.AllTime
	b.delete(d, del)
	if n, keys, names := b.Count("data_points"), b.Count("row_key_index"), b.Count("string_index"); n != 0 || keys != 0 || names != 0 {
		t.Errorf("all: %d cells, %d keys, %d names left", n, keys, names)
	}
}

// TestDeleteOneSeries: series of other types and with more tags stay, also where the
// series has no tags, and where the delete is a job.
func TestDeleteOneSeries(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	c := noNodes()
	c.JobRows = 1
	base := b.KS.Spec.RowTime(keyspacetest.SomeTime)
	r := model.TimeRange{StartMS: base, EndMS: base + 1}
	for i, d := range []*Deleter{b.deleter(noNodes(), time.Now), b.deleter(c, time.Now)} {
		for j, tags := range []model.Tags{{}, model.MustTags("host", "a")} {
			metric := b.Name(fmt.Sprint("m", i, j))
			long := model.Series{Metric: metric, Tags: tags, Type: model.TypeLong}
			double, more := long, keyspacetest.LongSeries(metric, "host", "a", "dc", "x")
			double.Type = model.TypeDouble
			b.write(new(keyspacetest.Memory).Longs(long, 0, base, base+1, base+2).Doubles(double, 0, base).Longs(more, 0, base))
			b.delete(d, store.DeletionOf(long, r))
			rows, err := lookup.Reader(b.Bench).Look().Lookup(b.Ctx, store.Selection{Metric: metric, Range: model.AllTime})
			if err != nil || len(rows) != 3 {
				t.Errorf("one sample of %s is to be left, and the other series: %v, %v", long, rows, err)
			}
			b.delete(d, store.DeletionOf(long, model.AllTime))
			if rows, err = lookup.Reader(b.Bench).Look().Lookup(b.Ctx, store.Selection{Metric: metric, Range: model.AllTime}); err != nil || len(rows) != 2 {
				t.Errorf("only the others are to be left of %s: %v, %v", long, rows, err)
			}
			if got := describe(store.DeletionOf(long, r)); !strings.HasSuffix(got, " of type kairos_long without other tags") {
				t.Error(got)
			}
		}
	}
}

// TestSavedDeletion: a job means what it meant when another process goes on with it.
func TestSavedDeletion(t *testing.T) {
	r := model.TimeRange{StartMS: 1, EndMS: 2}
	for _, del := range []store.Deletion{
		{Metric: "m", Range: r},
		{Metric: "m", Range: r, Matchers: []model.Matcher{{Tag: "k", Values: []string{"v", "w"}}}},
		store.DeletionOf(keyspacetest.LongSeries("m", "k", "v", "host", "a"), r),
		store.DeletionOf(model.Series{Metric: "m", Type: model.TypeDouble}, r),
	} {
		text, err := json.Marshal(layout.Job{StartMS: 1, EndMS: 2, Deletion: layout.SaveDeletion(del)})
		var job layout.Job
		if err := errors.Join(err, json.Unmarshal(text, &job)); err != nil {
			t.Fatal(err)
		}
		got, err := job.Means()
		if err != nil || got.Metric != del.Metric || got.Range != r || len(got.Matchers) != len(del.Matchers) ||
			(got.Only == nil) != (del.Only == nil) || got.Only != nil && *got.Only != *del.Only {
			t.Errorf("%s is read as %+v, %v", text, got, err)
		}
	}
}

// TestDeleteReadsTheIndexOnce: the deletions of one request cost the index reads
// of one.
func TestDeleteReadsTheIndexOnce(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	base := b.KS.Spec.RowTime(keyspacetest.SomeTime)
	metric := b.Name("once")
	var deletions []store.Deletion
	src := new(keyspacetest.Memory)
	for _, host := range []string{"a", "b", "c"} {
		src.Longs(keyspacetest.LongSeries(metric, "host", host), 0, base)
		pattern, err := model.NewPattern(host)
		if err != nil {
			t.Fatal(err)
		}
		deletions = append(deletions, store.Deletion{Metric: metric, Range: model.AllTime,
			Matchers: []model.Matcher{{Tag: "host", Patterns: []*model.Pattern{pattern}}}})
	}
	delete := func(deletions ...store.Deletion) (indexReads int) {
		b.Counts.Take()
		b.Stamp = max(b.Stamp+1, time.Now().UnixMilli())
		if err := d.Delete(b.Ctx, b.Stamp, deletions...); err != nil {
			t.Fatal(err)
		}
		got := b.Counts.Take()
		return got["list_row_keys"] + got["list_row_times"]
	}
	b.write(src)
	one := delete(deletions[0])
	if one == 0 {
		t.Fatal("no index reads")
	}
	b.write(src)
	if all := delete(deletions...); all != one {
		t.Errorf("%d index reads for %d deletions, %d for one", all, len(deletions), one)
	}
	if left := b.TableCounts(); left != "0 0 0 0 0 0" {
		t.Errorf("left: %s", left)
	}
}

// TestDeleteJob: a large delete goes on when its caller leaves, and after the
// process was ended; it is listed meanwhile.
func TestDeleteJob(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	c := noNodes()
	c.JobRows, c.Parallel = 10, 2
	metric := b.Name("m")
	src := new(keyspacetest.Memory)
	for i := range 30 {
		src.Longs(keyspacetest.LongSeries(metric, "k", fmt.Sprint(i)), 0, keyspacetest.SomeTime, keyspacetest.SomeTime+rowtime.DefaultWidth)
	}
	b.write(src)
	pattern, err := model.NewPattern("[0-9]+")
	if err != nil {
		t.Fatal(err)
	}
	del := store.Deletion{Metric: metric, Matchers: []model.Matcher{{Tag: "k", Values: []string{"x"}, Patterns: []*model.Pattern{pattern}}}, Range: model.AllTime}
	first := b.deleter(c, time.Now)
	held := make(chan struct{})
	ctx, cancel := context.WithCancel(b.Ctx)
	rows := 0
	first.forget = func([]byte) {
		if rows++; rows == 31 {
			cancel()                // the caller leaves
			<-first.jobs.ctx.Done() // and the process ends
			close(held)
		}
	}
	first.cfg.Parallel = 1
	stopped := make(chan error, 1)
	go func() { stopped <- first.Delete(ctx, b.Stamp, del) }()
	if err := <-stopped; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "continues as job") {
		t.Fatalf("the caller is told: %v", err)
	}
	listed, err := first.Jobs(b.Ctx)
	listed = slices.DeleteFunc(listed, func(j layout.Job) bool { return j.Deletion.Metric != metric })
	if err != nil || len(listed) != 1 || listed[0].State != layout.JobRunning || listed[0].Rows != 60 || listed[0].Done != 30 || listed[0].Selector != metric+"{k=x|regex:[0-9]+}" {
		t.Fatalf("listed: %+v, %v", listed, err)
	}
	first.Close()
	<-held
	if n := b.Count("data_points"); n == 0 || n > 30 {
		t.Fatalf("%d samples are left when the process ends", n)
	}
	b.Stamp++
	b.write(new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(metric, "k", "5"), 0, keyspacetest.SomeTime+9)) // later than the delete
	second := b.deleter(c, time.Now)
	if err := second.Resume(b.Ctx); err != nil {
		t.Fatal(err)
	}
	second.jobs.tasks.Wait()
	if got := b.TableCounts(); got != "1 1 1 1 0 1" {
		t.Errorf("rows of %s: %s", keyspacetest.Tables, got)
	}
	listed, err = second.Jobs(b.Ctx)
	listed = slices.DeleteFunc(listed, func(j layout.Job) bool { return j.Deletion.Metric != metric })
	if err != nil || len(listed) != 1 || listed[0].State != layout.JobDone || listed[0].Done != 60 {
		t.Errorf("listed: %+v, %v", listed, err)
	}
	saved := maps.Collect(b.KS.Keys(b.Ctx, schema.OwnService, jobServiceKey, ""))
	for id := range saved {
		if id == listed[0].ID {
			t.Error("a job that is done is still written down")
		}
	}
	// One that is waited for.
	b.write(src)
	b.delete(second, store.Deletion{Metric: metric, Range: model.AllTime})
	if got := b.TableCounts(); got != "0 0 0 0 0 0" {
		t.Errorf("rows of %s: %s", keyspacetest.Tables, got)
	}
}

func TestDeleteConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	err := Config{KairosDBNodes: "maybe", Horizon: -1, Parallel: 0, JobRows: 0}.Validate()
	for _, key := range []string{"kairosdb_nodes", "horizon", "parallel", "job_rows"} {
		if err == nil || !strings.Contains(err.Error(), key+": ") {
			t.Errorf("%s is not reported: %v", key, err)
		}
	}
}

// TestDeletedNotWhole: a row key that came after the delete was planned keeps the row
// time, and itself.
func TestDeletedNotWhole(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	metric := b.Name("m")
	known, unknown := keyspacetest.LongSeries(metric, "k", "known"), keyspacetest.LongSeries(metric, "k", "unknown")
	b.write(new(keyspacetest.Memory).Longs(known, 0, keyspacetest.SomeTime).Longs(unknown, 0, keyspacetest.SomeTime))
	row := b.KS.Spec.RowTime(keyspacetest.SomeTime)
	del := store.Deletion{Metric: metric, Range: model.AllTime}
	planned := []rowTimeDelete{{rowTimeMS: row, rows: []rowDelete{{key: rowkey.Of(known), whole: true}}}}
	if err := d.run(b.Ctx, del, time.Now().UnixMilli(), newPace(d.cfg.Parallel), b.Ctx, planned, func(int64, int) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if got := b.TableCounts(); got != "1 1 1 1 0 1" {
		t.Errorf("rows of %s: %s", keyspacetest.Tables, got)
	}
}

// TestDeleteInPortions: a delete of many row keys holds few of them at once, and removes
// index rows by ranges, reading each partition of the index once.
func TestDeleteInPortions(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	c := noNodes()
	c.JobRows = 500
	d := b.deleter(c, time.Now)
	d.portion, d.step = 1100, 300 // above runsFrom
	metric := b.Name("m")
	src := new(keyspacetest.Memory)
	for i := range 5000 {
		src.Longs(keyspacetest.LongSeries(metric, "dc", fmt.Sprint("d", i%2), "host", fmt.Sprintf("h%05d", i)), 0, keyspacetest.SomeTime, keyspacetest.SomeTime+b.KS.Spec.Width)
	}
	b.write(src)
	most := 0
	all := []store.Deletion{{Metric: metric, Range: model.AllTime}}
	err := d.eachMatch(b.Ctx, b.KS.Spec.RowTime(keyspacetest.SomeTime), all, d.portion, func(_ int, rows []rowDelete) error {
		most = max(most, len(rows))
		return nil
	})
	if err != nil || most > d.portion {
		t.Errorf("%d rows at once, %v", most, err)
	}
	plans, err := d.plan(b.Ctx, all)
	if err != nil || plans[0].rows != 10_000 {
		t.Fatalf("%+v, %v", plans, err)
	}
	for _, s := range plans[0].steps {
		if len(s.rows) > 0 || !s.read {
			t.Errorf("a plan of 10,000 rows holds %d of row time %d", len(s.rows), s.rowTimeMS)
		}
	}
	b.Counts.Take()
	b.delete(d, store.Deletion{Metric: metric, Range: model.AllTime, Matchers: []model.Matcher{{Tag: "dc", Values: []string{"d1"}}}})
	if got := b.TableCounts(); got != "5000 5000 2 1 0 10000" {
		t.Errorf("one of two: rows of %s: %s", keyspacetest.Tables, got)
	}
	b.delete(d, store.Deletion{Metric: metric, Range: model.AllTime})
	if got := b.TableCounts(); got != "0 0 0 0 0 0" {
		t.Errorf("all: rows of %s: %s", keyspacetest.Tables, got)
	}
	if n := b.Counts.Take(); n["delete_row_key"] > 20 || n["delete_row_key_run"] == 0 {
		t.Errorf("row keys were deleted by %d ranges, and in %d batches one by one", n["delete_row_key_run"], n["delete_row_key"])
	}
}

// TestDeletesAreReadAtQuorum: what a delete decides by is read at a quorum at least,
// whatever questions use.
func TestDeletesAreReadAtQuorum(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	metric := b.Name("m")
	b.write(new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(metric, "host", "a"), 0, keyspacetest.SomeTime).Longs(keyspacetest.LongSeries(metric, "host", "b"), 0, keyspacetest.SomeTime))
	var mu sync.Mutex
	sent := map[string]bool{}
	b.Counts.Before = func(name string) {
		mu.Lock()
		defer mu.Unlock()
		sent[name] = true
	}
	b.delete(d, store.Deletion{Metric: metric, Range: model.AllTime, Matchers: []model.Matcher{{Tag: "host", Values: []string{"a"}}}})
	b.delete(d, store.Deletion{Metric: metric, Range: model.AllTime})
	mu.Lock()
	defer mu.Unlock()
	for _, name := range []string{"read_row_times", "read_row_states", "read_mtime", "read_row_keys", "read_these_row_keys", "read_postings", "seek_row_keys", "read_any_legacy_key"} {
		if sent[name] {
			t.Errorf("a delete sends %s", name)
		}
	}
	for _, st := range []*cql.Statement{listRowTimes, rowkey.ListRowKeys, tagRowRuns.list, countTagRows, probeRowTime, probeLegacyKeys, rowkey.LegacyKeysAtQuorum} {
		if st.Level == cql.Configured {
			t.Errorf("%s is read at read_consistency", st.Name)
		}
	}
	for _, name := range []string{"list_row_times", "list_row_keys", "list_tag_rows", "cover_mtime"} {
		if !sent[name] {
			t.Errorf("a delete does not send %s", name)
		}
	}
}

// A delete that ends early says that some points may be deleted.
func TestDeleteThatIsNotCompleted(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	metric := b.Name("m")
	b.write(new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(metric, "host", "a"), 0, keyspacetest.SomeTime))
	ctx, cancel := context.WithCancel(b.Ctx)
	defer cancel()
	b.Counts.Before = func(name string) {
		if name == "delete_row" {
			cancel()
		}
	}
	err := d.Delete(ctx, b.Stamp, store.Deletion{Metric: metric, Range: model.AllTime})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "delete from "+metric+": it was not completed: some points may be deleted; repeat the delete") {
		t.Errorf("got %v", err)
	}
}

// Jobs whose deletions together take too much memory are refused. What they select is not repeated in
// full in lists, in the log, or once they are done.
func TestDeleteJobsOfManyValues(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	c := noNodes()
	c.JobRows = 10
	metric := b.Name("m")
	src := new(keyspacetest.Memory)
	many := model.Matcher{Tag: "k"}
	for i := range 5000 {
		many.Values = append(many.Values, fmt.Sprint(i))
	}
	for i := range 20 {
		src.Longs(keyspacetest.LongSeries(metric, "k", fmt.Sprint(i)), 0, keyspacetest.SomeTime)
	}
	small := store.Deletion{Metric: b.Name("small"), Range: model.AllTime}
	src.Longs(keyspacetest.LongSeries(small.Metric, "k", "0"), 0, keyspacetest.SomeTime)
	b.write(src)
	del := store.Deletion{Metric: metric, Matchers: []model.Matcher{many}, Range: model.AllTime}
	d := b.deleter(c, time.Now)
	d.jobs.most = del.Memory() * 3 / 2
	reached, release := make(chan struct{}), make(chan struct{})
	var held atomic.Bool
	d.forget = func([]byte) {
		if held.CompareAndSwap(false, true) {
			close(reached)
			<-release
		}
	}
	first := make(chan error, 1)
	go func() { first <- d.Delete(b.Ctx, b.Stamp, del) }()
	<-reached
	err := d.Delete(b.Ctx, b.Stamp, small, del)
	if _, ok := errors.AsType[*store.UnavailableError](err); !ok || !strings.Contains(err.Error(), "delete from "+metric+": this server has 1 delete jobs that are not done; wait") {
		t.Errorf("a second job: %v", err)
	}
	if left, err := d.plan(b.Ctx, []store.Deletion{small}); err != nil || left[0].rows > 0 {
		t.Errorf("a metric that the same request names first is not deleted: %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if d.jobs.bytes != 0 {
		t.Errorf("%d bytes are left of jobs that are done", d.jobs.bytes)
	}
	listed, err := d.Jobs(b.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, job := range listed {
		if len(job.Selector) > selectorBytes+10 || job.State == layout.JobDone && len(job.Deletion.Matchers) > 0 {
			t.Errorf("listed: %.2000v", job)
		}
	}
}

// Deletes that begin at the same moment share the memory of jobs, and so do jobs that a server takes over: those for
// which there is no room wait.
func TestDeleteJobsShareMemory(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	c := noNodes()
	c.JobRows = 10
	var deletions []store.Deletion
	src := new(keyspacetest.Memory)
	for m := range 3 {
		metric := b.Name(fmt.Sprint("m", m))
		many := model.Matcher{Tag: "k"}
		for i := range 1000 {
			many.Values = append(many.Values, fmt.Sprint(i))
		}
		for i := range 20 {
			src.Longs(keyspacetest.LongSeries(metric, "k", fmt.Sprint(i)), 0, keyspacetest.SomeTime)
		}
		deletions = append(deletions, store.Deletion{Metric: metric, Matchers: []model.Matcher{many}, Range: model.AllTime})
	}
	b.write(src)
	memory := deletions[0].Memory()
	stopped := func(most int) (d *Deleter, errs []error) {
		t.Helper()
		d = b.deleter(c, time.Now)
		d.jobs.most = most
		ctx, cancel := context.WithCancel(b.Ctx)
		defer cancel()
		d.forget = func([]byte) { <-d.jobs.ctx.Done() } // the process ends before they are done
		results := make(chan error, len(deletions))
		for _, del := range deletions {
			go func() { results <- d.Delete(store.WithRecorded(ctx, func() { results <- nil }), b.Stamp, del) }()
		}
		for range deletions {
			errs = append(errs, <-results)
		}
		return d, errs
	}
	d, errs := stopped(memory * 5 / 2)
	if n := len(slices.DeleteFunc(errs, func(err error) bool { return err == nil })); n != 1 || len(d.jobs.running) != 2 {
		t.Errorf("%d deletes are refused, %d run, want 1 and 2", n, len(d.jobs.running))
	}
	d.Close()
	if d.jobs.bytes != 0 || d.jobs.entered != 0 {
		t.Errorf("%d bytes and %d jobs are left after the end", d.jobs.bytes, d.jobs.entered)
	}
	next := b.deleter(c, time.Now)
	next.jobs.most = memory * 3 / 2
	left := func() (n int) {
		t.Helper()
		listed, err := next.Jobs(b.Ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, job := range listed {
			if job.State != layout.JobDone && strings.HasPrefix(job.Deletion.Metric, b.Name("m")) {
				n++
			}
		}
		return n
	}
	for _, want := range []int{1, 0} {
		release := make(chan struct{})
		next.forget = func([]byte) { <-release }
		if err := next.Resume(b.Ctx); err != nil {
			t.Fatal(err)
		}
		next.jobs.mu.Lock()
		n := len(next.jobs.running)
		next.jobs.mu.Unlock()
		close(release)
		next.jobs.tasks.Wait()
		if n != 1 || left() != want {
			t.Errorf("%d jobs are taken over at once, want 1; %d are left, want %d", n, left(), want)
		}
	}
	if n := b.Count("data_points"); n != 20 {
		t.Errorf("%d samples are left after two of three deletes, want 20", n)
	}
}
