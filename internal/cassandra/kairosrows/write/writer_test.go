package write

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/rowtime"
)

// recorder is a writer's way out that keeps what is sent and may refuse.
type recorder struct {
	mu      sync.Mutex
	batches []sentBatch
	rows    []string // key/column/value/ttl
	stamps  []int64  // of each of rows
	refuse  func(entries []cql.Entry) error
}

type sentBatch struct {
	keys              []string
	rows, bytes, data int
}

// stampOf reads a bound timestamp.
func stampOf(arg any) int64 { return int64(binary.BigEndian.Uint64(*arg.(*cql.Raw))) }

func (r *recorder) send(_ context.Context, _ int64, entries []cql.Entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse != nil {
		if err := r.refuse(entries); err != nil {
			return err
		}
	}
	batch := sentBatch{rows: len(entries)}
	for _, e := range entries {
		if e.Statement == deleteSample {
			r.stamps = append(r.stamps, stampOf(e.Args[0]))
			r.rows = append(r.rows, fmt.Sprintf("%x/%x deleted", e.Args[1], *e.Args[2].(*cql.Raw)))
			continue
		}
		if key := string(e.Args[0].([]byte)); len(batch.keys) == 0 || key != batch.keys[len(batch.keys)-1] {
			batch.keys = append(batch.keys, key)
		}
		batch.bytes += len(*e.Args[2].(*cql.Raw))
		batch.data += e.DataBytes() - stampBytes
		r.stamps = append(r.stamps, stampOf(e.Args[len(e.Args)-1]))
		row := fmt.Sprintf("%x/%x/%x", e.Args[0], *e.Args[1].(*cql.Raw), *e.Args[2].(*cql.Raw))
		if e.Statement == insertSampleTTL {
			row += fmt.Sprintf("/%d", binary.BigEndian.Uint32(*e.Args[3].(*cql.Raw)))
		}
		r.rows = append(r.rows, row)
	}
	r.batches = append(r.batches, batch)
	return nil
}

// unconnected is a writer that sends samples to a recorder and believes that
// all index rows are written.
func unconnected(t testing.TB, spec rowtime.Spec, c Config, r *recorder, now time.Time) *Writer {
	t.Helper()
	w, err := New(&schema.Keyspace{Spec: spec}, c, Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	w.batch = r.send
	return w
}

// indexed makes the writer believe so.
func believe(w *Writer, src *keyspacetest.Memory) {
	for i, s := range src.All {
		for _, ms := range src.Cols[i].Times {
			row := Row{Series: s, RowTimeMS: w.spec.RowTime(ms)}
			w.known.put(w.known.now(), row.part(), rowkey.Forever, 0, []Row{row})
		}
	}
}

func TestSampleBytes(t *testing.T) {
	now := time.UnixMilli(keyspacetest.SomeTime + 1500)
	text := func(s string) (c model.Columns) { c.AppendBytes(keyspacetest.SomeTime, []byte(s), 0); return c }
	var null model.Columns
	null.AppendNull(keyspacetest.SomeTime, 0)
	for _, test := range []struct {
		name string
		spec rowtime.Spec
		typ  model.Type
		cols model.Columns
		want string // column/value/ttl
	}{
		{"long", rowtime.Default, model.TypeLong, fixed(0, keyspacetest.SomeTime, 33), "456292b4/42"},
		{"double", rowtime.Default, model.TypeDouble, fixed(0, keyspacetest.SomeTime, math.Float64bits(3.14159)), "456292b4/400921f9f01b866e"},
		{"string", rowtime.Default, model.TypeString, text("a\x00b"), "456292b4/000461c08062"},
		{"null", rowtime.Default, model.TypeNull, null, "456292b4/"},
		{"legacy keyspace", rowtime.Spec{Width: rowtime.DefaultWidth, Unit: rowtime.Legacy}, model.TypeLong, fixed(0, keyspacetest.SomeTime, 33), "8ac52568/42"},
		{"seconds", rowtime.Spec{Width: 1814400000, Unit: rowtime.Seconds}, model.TypeLong, fixed(0, keyspacetest.SomeTime, 33), "0011c337/42"},
		{"ttl is rounded up", rowtime.Default, model.TypeLong, fixed(60, keyspacetest.SomeTime, 33), "456292b4/42/59"},
		{"negative", rowtime.Default, model.TypeLong, fixed(0, -1000, 33), "000003e8/42"},
	} {
		r := &recorder{}
		w := unconnected(t, test.spec, DefaultConfig(), r, now)
		s := model.Series{Metric: "m", Tags: model.MustTags("k", "v"), Type: test.typ}
		src := new(keyspacetest.Memory).Add(s, test.cols)
		believe(w, src)
		if err := w.WriteSource(t.Context(), 1, src); err != nil {
			t.Fatal(err)
		}
		key, err := rowtime.Key{Metric: "m", RowTimeMS: test.spec.RowTime(test.cols.Times[0]), Type: test.typ, Tags: s.Tags}.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := hex.EncodeToString(key) + "/" + test.want; !slices.Equal(r.rows, []string{want}) {
			t.Errorf("%s: %q, want %q", test.name, r.rows, want)
		}
	}
}

func fixed(ttl uint32, timesAndValues ...any) (c model.Columns) {
	for i := 0; i < len(timesAndValues); i += 2 {
		ms := int64(0)
		switch v := timesAndValues[i].(type) {
		case int:
			ms = int64(v)
		case int64:
			ms = v
		}
		switch v := timesAndValues[i+1].(type) {
		case int:
			c.AppendFixed(ms, uint64(v), ttl)
		case uint64:
			c.AppendFixed(ms, v, ttl)
		}
	}
	return c
}

// Samples are written with their own stamps, but not above that of the pass; those
// without one with that.
func TestSampleStamps(t *testing.T) {
	r := &recorder{}
	w := unconnected(t, rowtime.Default, DefaultConfig(), r, time.UnixMilli(keyspacetest.SomeTime))
	stamped := fixed(0, keyspacetest.SomeTime, 1, keyspacetest.SomeTime+1, 2, keyspacetest.SomeTime+2, 3)
	stamped.Stamps = []int64{70, 200, 60}
	src := new(keyspacetest.Memory).Add(keyspacetest.LongSeries("m", "k", "v"), stamped).Add(keyspacetest.LongSeries("n", "k", "v"), fixed(60, keyspacetest.SomeTime, 1))
	believe(w, src)
	if err := w.WriteSource(t.Context(), 100, src); err != nil {
		t.Fatal(err)
	}
	slices.Sort(r.stamps)
	if want := []int64{60, 70, 100, 100}; !slices.Equal(r.stamps, want) {
		t.Errorf("stamps %v, want %v", r.stamps, want)
	}
}

// TestSecondsShareACell: of the samples of one second the last is kept, also
// where a batch ends between them.
func TestSecondsShareACell(t *testing.T) {
	r := &recorder{}
	c := DefaultConfig()
	c.BatchRows = 2
	w := unconnected(t, rowtime.Spec{Width: 1814400, Unit: rowtime.Seconds}, c, r, time.UnixMilli(0))
	src := new(keyspacetest.Memory).Longs(keyspacetest.LongSeries("m", "k", "v"), 0, 0, 10, 1000, 1001, 1002, 2000, 2999)
	believe(w, src)
	if err := w.WriteSource(t.Context(), 1, src); err != nil {
		t.Fatal(err)
	}
	want := []string{"00000000/14", "00000001/d40f", "00000002/ee2e"} // 10, 1002, 2999
	for i := range r.rows {
		_, r.rows[i], _ = strings.Cut(r.rows[i], "/")
	}
	if !slices.Equal(r.rows, want) || len(r.batches) != 2 {
		t.Errorf("%q in %d batches, want %q", r.rows, len(r.batches), want)
	}
}

// TestSecondsShareACellByStamp: of the samples of one second the one that was
// acknowledged last is kept, or the deletion in its place.
func TestSecondsShareACellByStamp(t *testing.T) {
	r := &recorder{}
	w := unconnected(t, rowtime.Spec{Width: 1814400, Unit: rowtime.Seconds}, DefaultConfig(), r, time.UnixMilli(10_000))
	var cols model.Columns
	for i, ttl := range []uint32{0, 0, 0, 1, 1, 0} { // two of each second; those that live for 1 s have expired
		cols.AppendFixed(int64(i/2*1000+i%2), uint64(i), ttl)
	}
	cols.Stamps = []int64{7, 6, 5, 6, 6, 7}
	src := new(keyspacetest.Memory).Add(keyspacetest.LongSeries("m", "k", "v"), cols)
	believe(w, src)
	if err := w.WriteSource(t.Context(), 100, src); err != nil {
		t.Fatal(err)
	}
	for i := range r.rows {
		_, r.rows[i], _ = strings.Cut(r.rows[i], "/")
	}
	if want := []string{"00000000/00", "00000001 deleted", "00000002/0a"}; !slices.Equal(r.rows, want) || !slices.Equal(r.stamps, []int64{7, 6, 7}) {
		t.Errorf("%q, stamps %v, want %q", r.rows, r.stamps, want)
	}
}

// TestExpiredSamples: a sample that has expired is written as a deletion under its own
// write timestamp. It needs no index rows.
func TestExpiredSamples(t *testing.T) {
	r := &recorder{}
	w := unconnected(t, rowtime.Default, DefaultConfig(), r, time.UnixMilli(keyspacetest.SomeTime+10_000))
	w.replicaSet = func(e cql.Entry) string { return string(e.Args[0].([]byte)[:1]) }
	cols := fixed(1, keyspacetest.SomeTime, 1, keyspacetest.SomeTime+1, 2)
	cols.AppendFixed(keyspacetest.SomeTime+2, 3, 0)
	cols.Stamps = []int64{60, 70, 200}
	gone := fixed(5, keyspacetest.SomeTime, 1)
	gone.Stamps = []int64{80}
	src := new(keyspacetest.Memory).Add(keyspacetest.LongSeries("m", "k", "v"), cols)
	believe(w, src)
	src.Add(keyspacetest.LongSeries("n", "k", "v"), gone) // nothing is known of its index rows
	if err := w.WriteSource(t.Context(), 100, src); err != nil {
		t.Fatal(err)
	}
	for i := range r.rows {
		_, r.rows[i], _ = strings.Cut(r.rows[i], "/")
	}
	slices.Sort(r.rows)
	slices.Sort(r.stamps)
	want := []string{"456292b4 deleted", "456292b4 deleted", "456292b5 deleted", "456292b6/06"}
	if !slices.Equal(r.rows, want) || !slices.Equal(r.stamps, []int64{60, 70, 80, 100}) {
		t.Errorf("%q, stamps %v, want %q", r.rows, r.stamps, want)
	}
	if written, expired := keyspacetest.Value(t, w.metrics.written), keyspacetest.Value(t, w.metrics.refused.WithLabelValues(reasonExpired)); written != 1 || expired != 3 {
		t.Errorf("%v written, %v expired", written, expired)
	}
}

// TestBatches: a batch of many samples is of one row, and bounded in rows and bytes.
func TestBatches(t *testing.T) {
	r := &recorder{}
	w := unconnected(t, rowtime.Spec{Width: 1000}, DefaultConfig(), r, time.UnixMilli(0))
	src := new(keyspacetest.Memory)
	var many model.Columns
	for ms := range int64(1500) {
		many.AppendFixed(ms, 1, 0)
	}
	src.Add(keyspacetest.LongSeries("m", "k", "v"), many)
	var large model.Columns
	for ms := range int64(10) {
		large.AppendBytes(ms, bytes.Repeat([]byte{'x'}, 20_000), 0)
	}
	large.AppendBytes(10, bytes.Repeat([]byte{'y'}, rowtime.MaxStringBytes), 0)
	large.AppendBytes(11, []byte("z"), 0)
	src.Add(model.Series{Metric: "s", Tags: model.MustTags("k", "v"), Type: model.TypeString}, large)
	believe(w, src)
	if err := w.WriteSource(t.Context(), 1, src); err != nil {
		t.Fatal(err)
	}
	if len(r.rows) != 1512 {
		t.Fatalf("%d rows", len(r.rows))
	}
	sizes := map[string][]int{}
	for _, batch := range r.batches {
		if batch.rows > 400 || batch.bytes > batchBytes+columnLen+2+rowtime.MaxStringBytes || len(batch.keys) != 1 {
			t.Errorf("%+v", batch)
		}
		k, err := rowtime.ParseKey(batch.keys[0])
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("%s %d", k.Metric, k.RowTimeMS)
		sizes[name] = append(sizes[name], batch.rows)
	}
	if got := fmt.Sprint(sizes); got != "map[m 0:[400 400 200] m 1000:[400 100] s 0:[4 4 3 1]]" {
		t.Error(got)
	}
}

// TestFewOfEach: rows that get few samples each go together, as far as the same
// nodes hold them, and bounded in rows and in what a node counts. A series with
// many may share a batch with those before it, which is then no larger.
func TestFewOfEach(t *testing.T) {
	r := &recorder{}
	w := unconnected(t, rowtime.Default, DefaultConfig(), r, time.UnixMilli(keyspacetest.SomeTime))
	replicas := func(key string) string { return fmt.Sprint(len(key) % 3) }
	w.replicaSet = func(e cql.Entry) string { return replicas(string(e.Args[0].([]byte))) }
	src := new(keyspacetest.Memory)
	for i := range 200 {
		samples := 6
		if i%50 == 0 {
			samples = 700
		}
		var cols model.Columns
		for ms := range int64(samples) {
			cols.AppendFixed(keyspacetest.SomeTime+ms, uint64(ms), 0)
		}
		src.Add(keyspacetest.LongSeries("m", "host", strings.Repeat("h", 1+i/2), "n", fmt.Sprint(i%2)), cols)
	}
	believe(w, src)
	if err := w.WriteSource(t.Context(), 1, src); err != nil {
		t.Fatal(err)
	}
	distinct := map[string]bool{}
	for _, row := range r.rows {
		distinct[row] = true
	}
	if want := 196*6 + 4*700; len(r.rows) != want || len(distinct) != want {
		t.Errorf("%d rows, %d different, want %d", len(r.rows), len(distinct), want)
	}
	for _, batch := range r.batches {
		if len(batch.keys) > 10 || len(batch.keys) > 1 && batch.data > cql.JoinedBytes+100 {
			t.Errorf("%d rows, %d samples, %d bytes as a node counts", len(batch.keys), batch.rows, batch.data)
		}
		for _, key := range batch.keys {
			if replicas(key) != replicas(batch.keys[0]) {
				t.Errorf("rows of two replica sets in one batch")
			}
		}
	}
	if n := len(r.batches); n > 60 {
		t.Errorf("%d batches for 200 rows", n)
	}
}

// TestRefusedAlone: a sample that is refused costs itself only.
func TestRefusedAlone(t *testing.T) {
	now := time.UnixMilli(keyspacetest.SomeTime)
	bad := map[uint32]bool{17: true, 18: true, 299: true}
	sent := 0
	r := &recorder{refuse: func(entries []cql.Entry) error {
		sent++
		for _, e := range entries {
			if column := binary.BigEndian.Uint32(*e.Args[1].(*cql.Raw)); bad[column] {
				return fmt.Errorf("wrapped: %w", &cql.RefusedError{Statement: "insert_sample", Reason: cql.RequestTooLarge, Err: errors.New("no")})
			}
		}
		return nil
	}}
	w := unconnected(t, rowtime.Default, DefaultConfig(), r, now)
	var cols model.Columns
	for ms := range int64(300) {
		cols.AppendFixed(ms, 1, 0)
	}
	src := new(keyspacetest.Memory).Add(keyspacetest.LongSeries("m", "k", "v"), cols)
	believe(w, src)
	if err := w.WriteSource(t.Context(), 1, src); err != nil {
		t.Fatal(err)
	}
	if len(r.rows) != 297 || sent > 60 {
		t.Errorf("%d of 297 samples were written by %d statements", len(r.rows), sent)
	}
	refusals := w.Refusals()
	if len(refusals) != 1 || refusals[0].Reason != string(cql.RequestTooLarge) || refusals[0].Count != 3 || !strings.Contains(refusals[0].Last, "m{k=v} (kairos_long) at ") {
		t.Errorf("%+v", refusals)
	}
	// What is wrong for all samples is an error: the spool keeps them.
	for _, reason := range []cql.Reason{cql.Unauthorized, cql.NoSuchTable, cql.GuardrailHit, cql.BadSyntax} {
		r.refuse = func([]cql.Entry) error { return &cql.RefusedError{Statement: "insert_sample", Reason: reason} }
		if err := w.WriteSource(t.Context(), 1, src); err == nil {
			t.Errorf("%s: samples are dropped", reason)
		}
	}
}

func TestUnwritable(t *testing.T) {
	now := time.UnixMilli(keyspacetest.SomeTime)
	r := &recorder{}
	w := unconnected(t, rowtime.Default, DefaultConfig(), r, now)
	src := new(keyspacetest.Memory)
	typed := func(typ model.Type, tags ...string) model.Series {
		return model.Series{Metric: "m", Tags: model.MustTags(tags...), Type: typ}
	}
	long := strings.Repeat("x", rowtime.MaxStringBytes)
	var texts, raw model.Columns
	texts.AppendBytes(0, []byte(long), 0)
	texts.AppendBytes(1, []byte(long+"x"), 0)
	texts.AppendBytes(2, bytes.Repeat([]byte{0}, 40_000), 0)
	texts.AppendBytes(3, []byte("\xff"), 0)
	texts.AppendBytes(4, []byte("ok"), 0)
	raw.AppendBytes(0, []byte("1234567890123456"), 0)
	src.Add(typed(model.TypeString, "k", "v"), texts)
	src.Add(typed("acme.blob", "k", "v"), raw)
	src.Add(typed(model.TypeComplex, "k", "v"), raw)
	src.Add(typed(model.TypeDouble, "k", "v"), fixed(0, 0, math.Float64bits(math.NaN()), 1, math.Float64bits(math.Inf(-1)), 2, math.Float64bits(1)))
	src.Longs(typed(model.TypeLong, "k", "v"), 0, math.MinInt64, 0)
	src.Longs(typed(model.TypeLong, "k", long), 0, 1, 2)
	src.Longs(typed(model.TypeLong, "k", "ttl"), 60, keyspacetest.SomeTime-60_000, keyspacetest.SomeTime-59_999, keyspacetest.SomeTime)
	src.Longs(typed(model.TypeLong, "k", "far"), model.MaxTTL, keyspacetest.SomeTime, keyspacetest.SomeTime+10_000)
	src.Longs(typed(model.TypeLong, "k", "\xff"), 0, 1)
	src.Longs(model.Series{Type: model.TypeLong}, 0, 1)
	believe(w, src)
	if err := w.WriteSource(t.Context(), 1, src); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, refusal := range w.Refusals() {
		got[refusal.Reason] = refusal.Count
	}
	want := "map[invalid_name:2 invalid_utf8:1 key_too_long:2 not_finite:2 string_too_long:2 time_too_low:1 ttl_too_long:1 type_unknown_to_kairosdb:2]"
	if fmt.Sprint(got) != want || len(r.rows) != 8 { // one is the deletion of what has expired
		t.Errorf("%d rows; refused %v, want %s", len(r.rows), got, want)
	}
	// A keyspace that KairosDB does not read takes every value bit by bit.
	c := DefaultConfig()
	c.KairosDBOnly = false
	r2 := &recorder{}
	w = unconnected(t, rowtime.Default, c, r2, now)
	nan := math.Float64bits(math.NaN()) + 5
	src = new(keyspacetest.Memory).Add(typed(model.TypeDouble), fixed(0, 0, nan)).Add(typed("acme.blob"), raw).Add(typed(model.TypeComplex), raw)
	believe(w, src)
	if err := w.WriteSource(t.Context(), 1, src); err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(r2.rows, " "); len(r2.rows) != 3 || !strings.Contains(all, fmt.Sprintf("/%x", nan)) || len(w.Refusals()) != 0 {
		t.Errorf("%q, refused %v", all, w.Refusals())
	}
}

// BenchmarkWrite is our side of writing samples, driver and network left out.
func BenchmarkWrite(b *testing.B) {
	for _, perSeries := range []int{3, 60, 300} {
		b.Run(fmt.Sprintf("samples=%d", perSeries), func(b *testing.B) {
			w := unconnected(b, rowtime.Default, DefaultConfig(), &recorder{}, time.UnixMilli(keyspacetest.SomeTime))
			statements := 0
			var mu sync.Mutex
			w.batch = func(context.Context, int64, []cql.Entry) error {
				mu.Lock()
				statements++
				mu.Unlock()
				return nil
			}
			src := new(keyspacetest.Memory)
			for i := range 120_000 / perSeries {
				var cols model.Columns
				for j := range perSeries {
					cols.AppendFixed(keyspacetest.SomeTime+int64(j)*10_000, math.Float64bits(float64(i*j)/10), 0)
				}
				src.Add(model.Series{Metric: "cpu.load", Type: model.TypeDouble, Tags: model.MustTags("host", fmt.Sprintf("host-%d", i), "dc", "lga", "cpu", "3")}, cols)
			}
			believe(w, src)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if err := w.WriteSource(b.Context(), 1, src); err != nil {
					b.Fatal(err)
				}
			}
			n := float64(b.N * len(src.All) * perSeries)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/sample")
			b.ReportMetric(float64(statements)/n*1e6, "statements/M")
		})
	}
}

// BenchmarkWriteCassandra is the same with driver and network, over a real
// node: CPU of this process.
func BenchmarkWriteCassandra(b *testing.B) {
	for _, perSeries := range []int{3, 60, 300} {
		b.Run(fmt.Sprintf("samples=%d", perSeries), func(b *testing.B) {
			bench := newBench(b, schema.DefaultConfig(), DefaultConfig(), "")
			src := new(keyspacetest.Memory)
			for i := range 60_000 / perSeries {
				var cols model.Columns
				for j := range perSeries {
					cols.AppendFixed(keyspacetest.SomeTime+int64(j)*10_000, math.Float64bits(float64(i*j)/10), 0)
				}
				src.Add(model.Series{Metric: bench.Name("cpu"), Type: model.TypeDouble, Tags: model.MustTags("host", fmt.Sprintf("host-%d", i%1000), "dc", "lga", "cpu", fmt.Sprint(i/1000))}, cols)
			}
			bench.write(src) // index rows and connections
			bench.Counts.Take()
			before := cpuSeconds(b)
			b.ResetTimer()
			for range b.N {
				bench.write(src)
			}
			b.StopTimer()
			n := float64(b.N * len(src.All) * perSeries)
			b.ReportMetric((cpuSeconds(b)-before)/n*1e6, "cpu-s/M")
			statements := 0
			for _, count := range bench.Counts.Take() {
				statements += count
			}
			b.ReportMetric(float64(statements)/n*1e6, "statements/M")
		})
	}
}

func cpuSeconds(t testing.TB) float64 {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

func TestWriteConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	err := Config{Parallel: 5000, BatchRows: 0, IndexCache: 1, IndexRefresh: time.Millisecond, TagIndex: []string{"x"}}.Validate()
	for _, key := range []string{"parallel", "batch_rows", "index_cache", "index_refresh", "tag_index"} {
		if err == nil || !strings.Contains(err.Error(), key+": ") {
			t.Errorf("%s is not reported: %v", key, err)
		}
	}
}
