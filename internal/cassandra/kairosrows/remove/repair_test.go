package remove

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/keyspacetest/lookup"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/model"
	"varve/internal/originals"
	"varve/internal/rowtime"
	"varve/internal/store"
)

func TestEndOfPart(t *testing.T) {
	token, parts := int64(math.MinInt64), 0
	for ; token < math.MaxInt64; parts++ {
		end := endOfPart(token, repairParts)
		if end <= token || endOfPart(end-1, repairParts) != end {
			t.Fatalf("a part ends at %d, the next at %d", token, end)
		}
		token = end
	}
	if parts != repairParts || endOfPart(math.MinInt64, 1) != math.MaxInt64 {
		t.Errorf("%d parts", parts)
	}
	for token, want := range map[int64]float64{math.MinInt64: 0, 0: 0.5, math.MaxInt64: 1} {
		if got := (RepairReport{Token: token}).Share(); got != want {
			t.Errorf("token %d: %v, want %v", token, got, want)
		}
	}
}

func TestRepair(t *testing.T) {
	b := newBench(t, keyspacetest.OwnKeyspace(), write.DefaultConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	exec := func(text string, args ...any) {
		t.Helper()
		if err := b.KS.Session.Exec(b.Ctx, &cql.Statement{Name: "test", Text: text}, b.Stamp, args...); err != nil {
			t.Fatal(err)
		}
	}
	keyOf := func(s model.Series) []byte {
		key, err := rowtime.Key{Metric: s.Metric, RowTimeMS: b.KS.Spec.RowTime(keyspacetest.SomeTime), Type: s.Type, Tags: s.Tags}.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	row := b.KS.Spec.RowTime(keyspacetest.SomeTime)
	whole, half, gone := keyspacetest.LongSeries(b.Name("m"), "k", "whole"), keyspacetest.LongSeries(b.Name("m"), "k", "half"), keyspacetest.LongSeries(b.Name("m"), "k", "gone")
	lost := keyspacetest.LongSeries(b.Name("lost"), "k", "v", "l", "w")
	b.write(new(keyspacetest.Memory).Longs(whole, 0, keyspacetest.SomeTime).Longs(half, 0, keyspacetest.SomeTime).Longs(gone, 0, keyspacetest.SomeTime))
	b.Stamp = time.Now().UnixMilli() + 1                       // above its index rows
	exec("DELETE FROM data_points WHERE key = ?", keyOf(gone)) // a row key without samples
	inserted := time.Now().Unix()
	exec("INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?) USING TTL 86400", keyOf(lost), rowtime.ColumnBytes(5), []byte{2})        // samples without row key
	exec("INSERT INTO row_key_time_index (metric, table_name, row_time) VALUES (?, ?, ?)", b.Name("empty"), "data_points", row)                   // a row time without row keys
	exec("INSERT INTO string_index (key, column1, value) VALUES (?, ?, ?)", []byte("metric_names"), b.Name("nothing"), []byte{0})                 // a name alone
	exec("INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)", []byte(b.Name("x")+"no key"), rowtime.ColumnBytes(5), []byte{2})       // not ours
	exec(rowkey.InsertTagRow.Text, b.Name("m"), row, "k", "astray", 0, "kairos_long", cql.TagMap{Tags: model.MustTags("k", "astray")}, 0)         // a tag row without row key
	exec(deleteTagRow.Text, b.Name("m"), row, "k", "half", rowkey.Shard(half.Tags, b.KS.IndexShards), "kairos_long", cql.TagMap{Tags: half.Tags}) // and the reverse

	check := func(what, want string) {
		t.Helper()
		if got := b.TableCounts(); got != want {
			t.Errorf("%s: rows of %s: %s, want %s", what, keyspacetest.Tables, got, want)
		}
	}
	broken := "4 3 2 2 0 3"
	check("before", broken)
	time.Sleep(5 * time.Millisecond)
	parts := 0
	dry, err := d.Repair(b.Ctx, RepairOptions{DryRun: true, Progress: func(RepairReport) { parts++ }})
	if err != nil {
		t.Fatal(err)
	}
	check("dry run", broken)
	if dry.Unindexed < 2 || dry.DeadRowKeys < 1 || dry.DeadTagRows < 1 || dry.DeadRowTimes < 1 || dry.DeadNames < 1 || dry.Unreadable < 1 || parts < 4*repairParts {
		t.Errorf("dry run: %+v, %d reports", dry, parts)
	}
	if _, err := d.Repair(b.Ctx, RepairOptions{}); err != nil {
		t.Fatal(err)
	}
	check("repaired", "4 3 2 2 0 4")
	again, err := d.Repair(b.Ctx, RepairOptions{})
	if err != nil || again.Changes() != 0 {
		t.Errorf("a second time: %+v, %v", again, err)
	}
	look := lookup.Reader(b.Bench).Look()
	found, err := look.Lookup(b.Ctx, store.Selection{Metric: lost.Metric, Range: model.AllTime, Matchers: []model.Matcher{{Tag: "k", Values: []string{"v"}}}})
	if err != nil || len(found) != 1 {
		t.Errorf("the lost series: %v, %v", found, err)
	}
	state, err := rowkey.ReadState(b.Ctx, b.KS, rowkey.Partition{Metric: lost.Metric, TimeMS: row})
	if err != nil {
		t.Fatal(err)
	}
	expires := state.ExpirySec
	want := inserted + 86400 + rowtime.DefaultWidth/1000
	if late := time.Now().Unix() - inserted; expires < want-60 || expires > want+late+60 {
		t.Errorf("its index rows expire at %d, want about %d", expires, want)
	}
	var progress []string
	rated := time.Now()
	if _, err := d.Repair(b.Ctx, RepairOptions{DryRun: true, Rate: 1_000_000, Progress: func(r RepairReport) { progress = append(progress, fmt.Sprint(r.Phase, " ", r.Done)) }}); err != nil {
		t.Fatal(err)
	}
	t.Logf("a walk over %d rows took %v", again.Rows, time.Since(rated))
	if !strings.HasPrefix(progress[len(progress)-1], "metrics without rows true") {
		t.Errorf("ends with %s", progress[len(progress)-1])
	}
}

// TestRepairBesideANewSeries: a tag row whose row key is just being written is no fault; one
// that is still alone a moment later is one.
func TestRepairBesideANewSeries(t *testing.T) {
	b := newBench(t, keyspacetest.OwnKeyspace(), write.DefaultConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	row := b.KS.Spec.RowTime(keyspacetest.SomeTime)
	coming := keyspacetest.LongSeries(b.Name("m"), "k", "coming")
	b.write(new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(b.Name("m"), "k", "there"), 0, keyspacetest.SomeTime))
	for _, value := range []string{"coming", "astray"} {
		tags := model.MustTags("k", value)
		args := []any{b.Name("m"), row, "k", value, rowkey.Shard(tags, b.KS.IndexShards), "kairos_long", cql.TagMap{Tags: tags}, 0}
		if err := b.KS.Session.Exec(b.Ctx, rowkey.InsertTagRow, b.Stamp, args...); err != nil {
			t.Fatal(err)
		}
	}
	pauses := 0
	pause := func(context.Context, time.Duration) error {
		if pauses++; pauses == 1 {
			b.write(new(keyspacetest.Memory).Longs(coming, 0, keyspacetest.SomeTime))
		}
		return nil
	}
	r, err := d.Repair(b.Ctx, RepairOptions{DryRun: true, pause: pause})
	if err != nil || pauses == 0 || r.DeadTagRows != 1 {
		t.Errorf("%d rows of tags are said to be alone, after %d pauses; %v", r.DeadTagRows, pauses, err)
	}
}

// TestRepairGoesOn: a repair that is interrupted, wherever that is, and goes on
// from the last point that it was told of, finds and mends the same as one that
// is not, and counts everything once.
func TestRepairGoesOn(t *testing.T) {
	b := newBench(t, keyspacetest.OwnKeyspace(), write.DefaultConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	src := new(keyspacetest.Memory)
	for i := range 700 { // more than a chunk
		src.Longs(keyspacetest.LongSeries(b.Name(fmt.Sprint("m", i%30)), "k", fmt.Sprint(i), "all", "x"), 0, keyspacetest.SomeTime)
	}
	b.write(src)
	exec := func(text string, args ...any) {
		t.Helper()
		if err := b.KS.Session.Exec(b.Ctx, &cql.Statement{Name: "test", Text: text}, time.Now().UnixMilli()+1, args...); err != nil {
			t.Fatal(err)
		}
	}
	breakSome := func() {
		t.Helper()
		b.write(src)
		for i := 0; i < 700; i += 100 {
			s := src.All[i]
			key, err := rowkey.Partition{Metric: s.Metric, TimeMS: b.KS.Spec.RowTime(keyspacetest.SomeTime)}.DataKey(rowkey.Of(s))
			if err != nil {
				t.Fatal(err)
			}
			exec("DELETE FROM data_points WHERE key = ?", key)
			exec("INSERT INTO string_index (key, column1, value) VALUES (?, ?, ?)", []byte("metric_names"), b.Name(fmt.Sprint("nothing", i)), []byte{0})
			s = src.All[i+1]
			exec(deleteRowKey.Text, s.Metric, schema.DataPoints, b.KS.Spec.RowTime(keyspacetest.SomeTime), string(s.Type), cql.TagMap{Tags: s.Tags})
		}
		b.writer = b.newWriter(write.DefaultConfig(), time.Now) // which knows of nothing
	}
	counts := func(r RepairReport) string {
		return fmt.Sprint(r.Rows, r.RowKeys, r.TagRows, r.RowTimes, r.Names, r.Unindexed, r.DeadRowKeys, r.DeadTagRows, r.DeadRowTimes, r.DeadNames)
	}
	breakSome()
	time.Sleep(5 * time.Millisecond)
	want, err := d.Repair(b.Ctx, RepairOptions{DryRun: true})
	if err != nil || want.Unindexed < 7 || want.DeadRowKeys < 7 || want.DeadNames < 7 || !want.Done {
		t.Fatalf("%+v, %v", want, err)
	}
	for _, dry := range []bool{true, false} {
		var report RepairReport
		var from *RepairReport
		runs := 0
		for ; ; runs++ {
			// Each run ends some points behind where it began.
			ctx, cancel := context.WithCancel(b.Ctx)
			points := 0
			o := RepairOptions{DryRun: dry, From: from, Keep: func(r RepairReport) {
				if points++; points <= 30 {
					from = &r
				}
				if points == 31 {
					cancel() // it is killed before this was written down
				}
			}}
			report, err = d.Repair(ctx, o)
			cancel()
			if err == nil {
				break
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		if runs < 5 {
			t.Errorf("%d runs were interrupted", runs)
		}
		if dry && counts(report) != counts(want) {
			t.Errorf("in %d runs: %+v, want %+v", runs+1, report, want)
		}
		// What was mended just before it was killed is not counted.
		if !dry && report.DeadNames+report.Unindexed < 10 {
			t.Errorf("in %d runs: %+v", runs+1, report)
		}
	}
	if again, err := d.Repair(b.Ctx, RepairOptions{}); err != nil || again.Changes() != 0 {
		t.Errorf("afterwards: %+v, %v", again, err)
	}
	if _, err := d.Repair(b.Ctx, RepairOptions{From: &RepairReport{Phase: "of old"}}); err == nil || !strings.Contains(err.Error(), "begin again") {
		t.Errorf("a phase that is not known: %v", err)
	}
}

var (
	repairKeys = flag.Int("kairosrows.repairkeys", 3000, "row keys of TestRepairStatements")
	repairWide = flag.Int("kairosrows.repairwide", 1_000_000, "series of a metric in TestRepairStatements")
)

// TestRepairStatements: a repair of an index that is whole takes few statements for a row
// key of a wide metric.
func TestRepairStatements(t *testing.T) {
	b := newBench(t, keyspacetest.OwnKeyspace(), write.DefaultConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	n := *repairKeys
	src := new(keyspacetest.Memory)
	for i := range n {
		src.Longs(keyspacetest.LongSeries(b.Name(fmt.Sprint("wide", i / *repairWide)), "dc", fmt.Sprint("d", i%3), "host", fmt.Sprintf("h%07d", i)), 0, keyspacetest.SomeTime)
	}
	ctx := context.WithoutCancel(b.Ctx) // of many row keys it takes longer than other tests
	began := time.Now()
	if err := b.writer.WriteSource(ctx, began.UnixMilli(), src); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d row keys are written in %v", n, time.Since(began))
	b.Counts.Take()
	began = time.Now()
	report, err := d.Repair(ctx, RepairOptions{})
	took := time.Since(began)
	if err != nil || report.Changes() != 0 || report.RowKeys < int64(n) || report.TagRows < 2*int64(n) {
		t.Fatalf("%+v, %v", report, err)
	}
	counts := b.Counts.Take()
	perKey := float64(keyspacetest.Total(counts)) / float64(n)
	t.Logf("%.2f statements for a row key, %.0f row keys each second: %v", perKey, float64(n)/took.Seconds(), counts)
	if perKey > 0.25 && *repairWide >= n {
		t.Errorf("%.2f statements for a row key", perKey)
	}
	for _, asked := range []*cql.Statement{findTagRows, findTagValues, findRows} {
		if n := counts[asked.Name]; n > 0 {
			t.Errorf("%s was asked %d times for what the scans had seen", asked.Name, n)
		}
	}
}

// TestRepairWithGuardrails: where the cluster's operator allows no statement that asks for
// several rows at once, a repair asks for each, and mends as it does elsewhere.
func TestRepairWithGuardrails(t *testing.T) {
	node := cqltest.NewFailingNode(t, originals.Cassandra(t))
	b := newBench(t, keyspacetest.OwnKeyspace(), write.DefaultConfig(), "")
	src := new(keyspacetest.Memory)
	for i := range 20 {
		src.Longs(keyspacetest.LongSeries(b.Name("m"), "host", fmt.Sprint("h", i)), 0, keyspacetest.SomeTime)
	}
	b.write(src)
	part := rowkey.Partition{Metric: b.Name("m"), TimeMS: b.KS.Spec.RowTime(keyspacetest.SomeTime)}
	b.ExecNow("DELETE FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ?", part.Args()...)
	b.Bench = b.NewAt(node.Address, 2)
	var refused atomic.Int64
	node.Fail(func(r cqltest.Request) *cqltest.Trouble {
		if strings.Contains(r.Statements[0].Text, " IN ?") {
			refused.Add(1)
			return &cqltest.Trouble{Error: true, Code: cqltest.OtherGuardrail.Code,
				Message: "Guardrail in_select_cartesian_product violated: Aborting query because the cartesian product of the IN restrictions on clustering key produces 20 values, this exceeds fail threshold of 5."}
		}
		return nil
	})
	b.writer = b.newWriter(write.DefaultConfig(), time.Now)
	d := b.deleter(noNodes(), time.Now)
	report, err := d.Repair(b.Ctx, RepairOptions{})
	if err != nil || report.Unindexed != 20 || refused.Load() == 0 {
		t.Errorf("%+v, %v, after %d refused statements", report, err, refused.Load())
	}
	if report, err := d.Repair(b.Ctx, RepairOptions{}); err != nil || report.Changes() != 0 {
		t.Errorf("once more: %+v, %v", report, err)
	}
}

// TestRepairKeepsTags: where only the row key is missing, the tag rows stay: a lookup
// by tags finds the row all the time.
func TestRepairKeepsTags(t *testing.T) {
	b := newBench(t, keyspacetest.OwnKeyspace(), write.DefaultConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	s := keyspacetest.LongSeries(b.Name("m"), "k", "v", "l", "w")
	b.write(new(keyspacetest.Memory).Longs(s, 0, keyspacetest.SomeTime))
	b.Stamp = time.Now().UnixMilli() + 1 // above its index rows
	err := b.KS.Session.Exec(b.Ctx, &cql.Statement{Name: "test", Text: deleteRowKey.Text}, b.Stamp,
		s.Metric, schema.DataPoints, b.KS.Spec.RowTime(keyspacetest.SomeTime), string(s.Type), cql.TagMap{Tags: s.Tags})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Millisecond)
	b.Counts.Take()
	for _, want := range []int64{1, 0} {
		report, err := d.Repair(b.Ctx, RepairOptions{})
		if err != nil || report.TagRows != 2 || report.Unindexed != want || report.Changes() != want {
			t.Errorf("%+v, %v, want %d rows without index and no other change", report, err, want)
		}
	}
	if n := b.Counts.Take()[deleteTagRow.Name]; n > 0 {
		t.Errorf("%d tag rows were deleted", n)
	}
}

// TestMetIsBounded: what does not fit is not met, so it is asked for.
func TestMetIsBounded(t *testing.T) {
	m := newSeenSet()
	m.most = 2
	for i := range 3 {
		m.note(m.row([]byte{byte(i)}))
	}
	if got := m.all(3, func(i int) uint64 { return m.row([]byte{byte(i)}) }); !slices.Equal(got, []bool{true, true, false}) {
		t.Errorf("seen: %v", got)
	}
}

// TestRepairOldRows: a row of the form before 1.2 that no index knows is found
// through row_key_index afterwards.
func TestRepairOldRows(t *testing.T) {
	b := newBench(t, keyspacetest.OwnKeyspace(), write.DefaultConfig(), "")
	b.KS.Spec = rowtime.Spec{Width: rowtime.DefaultWidth, Unit: rowtime.Legacy}
	b.writer = b.newWriter(write.DefaultConfig(), time.Now)
	d := b.deleter(noNodes(), time.Now)
	at := b.KS.Spec.RowTime(keyspacetest.SomeTime)
	for _, name := range []string{"lost", "found"} {
		key, err := rowtime.Key{Metric: b.Name(name), RowTimeMS: at, Type: rowtime.TypeLegacy, Tags: model.MustTags("k", "v")}.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		exec := func(text string, args ...any) {
			t.Helper()
			if err := b.KS.Session.Exec(b.Ctx, &cql.Statement{Name: "test", Text: text}, 1000, args...); err != nil {
				t.Fatal(err)
			}
		}
		exec("INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)", key, rowtime.ColumnBytes(2), []byte{5})
		if name == "found" {
			exec("INSERT INTO row_key_index (key, column1, value) VALUES (?, ?, ?)", []byte(b.Name(name)), key, []byte{0})
			exec("INSERT INTO string_index (key, column1, value) VALUES (?, ?, ?)", []byte("metric_names"), b.Name(name), []byte{})
		}
	}
	for _, want := range []int64{1, 0} {
		if report, err := d.Repair(b.Ctx, RepairOptions{}); err != nil || report.Rows != 2 || report.Unindexed != want || report.Changes() != want {
			t.Errorf("%+v, %v", report, err)
		}
	}
	found, err := lookup.Reader(b.Bench).Look().Lookup(b.Ctx, store.Selection{Metric: b.Name("lost"), Range: model.AllTime})
	if err != nil || len(found) != 2 { // longs and doubles, for all one can tell
		t.Errorf("%v, %v", found, err)
	}
}

// TestRepairNames: a metric whose name is lost, and nothing else, is listed again: one with rows that
// row_keys has, and one with an old row.
func TestRepairNames(t *testing.T) {
	b := newBench(t, keyspacetest.OwnKeyspace(), write.DefaultConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	b.write(new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(b.Name("new"), "k", "v"), 0, keyspacetest.SomeTime))
	key, err := rowtime.Key{Metric: b.Name("old"), RowTimeMS: b.KS.Spec.RowTime(keyspacetest.SomeTime), Type: model.TypeLong, Tags: model.MustTags("k", "v")}.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	b.ExecNow("INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)", key, rowtime.ColumnBytes(2), []byte{5})
	b.ExecNow("INSERT INTO row_key_index (key, column1, value) VALUES (?, ?, ?)", []byte(b.Name("old")), key, []byte{0})
	keyspacetest.NextMillisecond()
	b.ExecNow("DELETE FROM string_index WHERE key = ? AND column1 = ?", []byte(schema.MetricNames), b.Name("new"))
	keyspacetest.NextMillisecond()
	for _, want := range []int64{2, 0} {
		if report, err := d.Repair(b.Ctx, RepairOptions{}); err != nil || report.Unindexed != want || report.Changes() != want {
			t.Errorf("%+v, %v", report, err)
		}
	}
	if n := b.Count("string_index"); n != 2 {
		t.Errorf("%d metrics are listed", n)
	}
}

// TestRepairBesideOddKeys: a key in data_points does not say where the name of its metric ends if that holds a
// zero byte, and there may be keys that no index table takes. They neither end a repair nor become series
// of other metrics.
func TestRepairBesideOddKeys(t *testing.T) {
	b := newBench(t, keyspacetest.OwnKeyspace(), write.DefaultConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	src := new(keyspacetest.Memory)
	odd := []string{"\x00BBBBBBBB", "\x00BBBBBBBBx=y:z", "\x00\x00\x00\x01\x7f\x7f\x7f\x7f\x7fx=y:z", "\x00\x00\x00\x01\x7f\x7f\x7f\x7f\x7f\x00\x0bkairos_longx=y:q"}
	for _, name := range append(odd, "") {
		src.Longs(keyspacetest.LongSeries(b.Name("a")+name, "k", "v"), 0, 5, keyspacetest.SomeTime)
	}
	b.write(src)
	for _, k := range []rowtime.Key{
		{Metric: "", Type: model.TypeLong, Tags: model.MustTags("k", "v")},
		{Metric: b.Name("a"), Type: model.TypeLong, Tags: model.MustTags("k", "\xff")},
		{Metric: b.Name("a") + "\xff", Type: model.TypeLong, Tags: model.MustTags("k", "v")},
	} {
		key, err := k.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		b.ExecNow("INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)", key, rowtime.ColumnBytes(2), []byte{5})
	}
	before := b.TableCounts()
	report, err := d.Repair(b.Ctx, RepairOptions{})
	if err != nil || report.Changes() != 0 || report.Unreadable != int64(2*len(odd)+3) {
		t.Errorf("%+v, %v", report, err)
	}
	if got := b.TableCounts(); got != before {
		t.Errorf("rows of %s: %s, before %s", keyspacetest.Tables, got, before)
	}
}

// TestRepairPace: a repair looks at no more rows than it may, and does not wait
// when it is interrupted.
func TestRepairPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &repair{d: &Deleter{now: time.Now}, o: RepairOptions{Rate: 1000}, began: time.Now()}
		for range 10 {
			if err := r.pace(t.Context(), 500); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(r.began); took != 5*time.Second {
			t.Errorf("5000 rows took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.pace(ctx, 5000); !errors.Is(err, context.DeadlineExceeded) || time.Since(r.began) != 6*time.Second {
			t.Errorf("%v after %v", err, time.Since(r.began))
		}
	})
}

// TestLongestLife: the index rows that a repair adds live as long as the sample that
// lives longest, which need not be the last one of its row.
func TestLongestLife(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	r := &repair{d: b.deleter(noNodes(), time.Now)}
	for name, test := range map[string]struct {
		ttls []int
		want int64
	}{"ever": {[]int{3600, 0, 60}, rowkey.Forever}, "longest": {[]int{60, 86400, 3600}, time.Now().Unix() + 86400}, "none": {nil, 0}} {
		k := rowtime.Key{Metric: b.Name(name), RowTimeMS: b.KS.Spec.RowTime(keyspacetest.SomeTime), Type: model.TypeLong}
		key, err := k.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, ttl := range test.ttls {
			b.ExecNow("INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?) USING TTL ?", key, rowtime.ColumnBytes(uint32(i)), []byte{2}, ttl)
		}
		got, there, err := r.expiry(b.Ctx, k)
		if !there && err == nil && test.ttls == nil {
			continue
		}
		if err != nil || !there || got < test.want-5 || got > test.want && got-test.want > 60 {
			t.Errorf("%s: %d, %v, %v, want %d", name, got, there, err, test.want)
		}
	}
}

// TestRepairOfEmptyNames: string_index and row_keys take an empty name of a metric, which the other
// index tables refuse. Such rows are left.
func TestRepairOfEmptyNames(t *testing.T) {
	b := newBench(t, keyspacetest.OwnKeyspace(), write.DefaultConfig(), "")
	d := b.deleter(noNodes(), time.Now)
	b.write(new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(b.Name("m"), "k", "v"), 0, keyspacetest.SomeTime))
	exec := func(text string, args ...any) {
		t.Helper()
		if err := b.KS.Session.Exec(b.Ctx, &cql.Statement{Name: "test", Text: text}, b.Stamp, args...); err != nil {
			t.Fatal(err)
		}
	}
	at := b.KS.Spec.RowTime(keyspacetest.SomeTime)
	exec("INSERT INTO string_index (key, column1, value) VALUES (?, ?, ?)", []byte("metric_names"), "", []byte{0})
	tags := cql.TagMap{Tags: model.MustTags("k", "v")}
	exec("INSERT INTO row_keys (metric, table_name, row_time, data_type, tags) VALUES (?, ?, ?, ?, ?)", "", "data_points", at, "kairos_long", tags)
	for _, dry := range []bool{true, false} {
		report, err := d.Repair(b.Ctx, RepairOptions{DryRun: dry})
		if err != nil || report.Changes() != 0 || report.RowKeys != 1 || report.Names != 1 {
			t.Errorf("dry run %t: %+v, %v", dry, report, err)
		}
	}
}
