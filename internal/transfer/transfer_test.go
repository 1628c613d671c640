package transfer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"varve/internal/ingest"
	"varve/internal/ingest/kairosjson"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/reference"
	"varve/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newPipeline(s store.Appender, change func(*ingest.Config)) *ingest.Pipeline {
	c := ingest.DefaultConfig()
	if change != nil {
		change(&c)
	}
	return ingest.New(s, c, ingest.Options{Registerer: prometheus.NewRegistry()})
}

// oddNames and oddTexts are difficult for encoders.
var (
	oddNames = []string{"m", "a/b c%", `quo"te\`, "ünï\u2028<&>", "\U0001F600", "base64:x", "tab\t"}
	oddTexts = []string{"", "5", "true", "a\nb", `"\`, "\x00\x1f", "é<\u2028", "\xff\xfe", "null", "base64:QQ==", "1e5", "NaN", "All done"}
	oddLongs = []int64{0, 1, -1, math.MaxInt64, math.MinInt64, 1<<53 + 1}
	oddReals = []float64{0, math.Copysign(0, -1), 1, -1.5, 0.1, 1e21, 1e-7, math.MaxFloat64, math.SmallestNonzeroFloat64, 1e300, math.NaN(), math.Inf(1), math.Inf(-1)}
	oddTimes = []int64{0, -1, 1, -62135596800000, 1700000000000, 253402300799999, -1700000000000}
)

// fill stores random samples of all kinds.
func fill(t *testing.T, s store.Store, random *rand.Rand, series, samples int) {
	t.Helper()
	ctx := context.Background()
	types := []model.Type{model.TypeLong, model.TypeDouble, model.TypeString, model.TypeComplex, model.TypeNull, "acme_histogram", `odd"type`}
	for range series {
		var tags []model.Tag
		for _, name := range oddNames[:random.IntN(len(oddNames))] {
			tags = append(tags, model.Tag{Name: name, Value: oddNames[random.IntN(len(oddNames))]})
		}
		set, err := model.NewTags(tags...)
		if err != nil {
			t.Fatal(err)
		}
		one := model.Series{Metric: oddNames[random.IntN(len(oddNames))], Tags: set, Type: types[random.IntN(len(types))]}
		ref, err := s.Create(ctx, one)
		if err != nil {
			t.Fatal(err)
		}
		var b store.Batch
		b.Reset(s.Epoch())
		for range 1 + random.IntN(samples) {
			ms := random.Int64N(1 << 42)
			if random.IntN(3) == 0 {
				ms = oddTimes[random.IntN(len(oddTimes))]
			}
			real := oddReals[random.IntN(len(oddReals))]
			if random.IntN(2) == 0 {
				real = math.Float64frombits(random.Uint64())
			}
			switch one.Type.Kind() {
			case model.Long:
				b.AddLong(ref, ms, oddLongs[random.IntN(len(oddLongs))]^random.Int64N(3), 0)
			case model.Double:
				b.AddDouble(ref, ms, real, 0)
			case model.Null:
				b.AddNull(ref, ms, 0)
			case model.Complex:
				v := make([]byte, 16)
				for i := range v {
					v[i] = byte(random.Uint32())
				}
				b.AddBytes(ref, ms, v, 0)
			default:
				b.AddBytes(ref, ms, []byte(oddTexts[random.IntN(len(oddTexts))]), 0)
			}
		}
		if err := s.Append(ctx, &b); err != nil {
			t.Fatal(err)
		}
	}
}

// dump lists everything in a store, bit for bit.
func dump(t *testing.T, s store.Viewer) string {
	t.Helper()
	ctx := context.Background()
	view, err := s.View(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	names, _, err := view.Names(ctx, store.NamesQuery{Kind: store.MetricNames})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, name := range names {
		series, err := storetest.Select(ctx, view, store.Selection{Metric: name, Range: model.AllTime})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range series {
			cursor := view.Read(ctx, one, store.ReadOptions{Range: model.AllTime})
			for block, err := cursor.Next(); block != nil || err != nil; block, err = cursor.Next() {
				if err != nil {
					t.Fatal(err)
				}
				for i, ms := range block.Times {
					fmt.Fprintf(&out, "%q %d ", one.Series.String(), ms)
					switch k := one.Type.Kind(); {
					case k.Fixed():
						fmt.Fprintf(&out, "%x\n", block.Values[i])
					case k.Variable():
						fmt.Fprintf(&out, "%q\n", block.Bytes(i))
					default:
						out.WriteByte('\n')
					}
				}
			}
			cursor.Close()
		}
	}
	return out.String()
}

func exportAll(t *testing.T, s store.Viewer, within model.TimeRange) string {
	t.Helper()
	var out bytes.Buffer
	for metric, err := range Metrics(context.Background(), s) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Export(context.Background(), s, metric, within, store.BucketsAsSamples, &out, nil); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// run imports text and returns the last position and the rejected lines.
func run(t *testing.T, sink Sink, text io.Reader, from Position) (Position, []Rejected, error) {
	t.Helper()
	var rejected []Rejected
	m := &Import{
		Sink: sink, MaxLine: 1 << 20,
		Reject:      func(r Rejected) error { rejected = append(rejected, r); return nil },
		Acknowledge: func(Position) error { return nil },
	}
	p, err := m.Run(context.Background(), text, from)
	return p, rejected, err
}

func TestRoundTrip(t *testing.T) {
	for seed := range uint64(30) {
		from, to := reference.New(nil), reference.New(nil)
		fill(t, from, rand.New(rand.NewPCG(seed, 1)), 1+int(seed), 50)
		text := exportAll(t, from, model.AllTime)
		for line := range strings.Lines(text) {
			if !json.Valid([]byte(line)) {
				t.Fatalf("not JSON: %s", line)
			}
		}
		_, rejected, err := run(t, NewLocal(newPipeline(to, nil), "test"), strings.NewReader(text), Position{})
		if err != nil || rejected != nil {
			t.Fatalf("seed %d: %v %v", seed, rejected, err)
		}
		if got, want := dump(t, to), dump(t, from); got != want {
			t.Fatalf("seed %d: imported\n%s\nwant\n%s\nby\n%s", seed, got, want, text)
		}
		if again := exportAll(t, to, model.AllTime); again != text {
			t.Fatalf("seed %d: exported again\n%s\nwant\n%s", seed, again, text)
		}
	}
}

// A series with more points than fit in a line, a block and a range.
func TestLongSeries(t *testing.T) {
	from, to := reference.New(nil), reference.New(nil)
	ref, err := from.Create(context.Background(), model.Series{Metric: "m", Tags: model.MustTags("h", "a"), Type: model.TypeDouble})
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	b.Reset(from.Epoch())
	const n = 3*LinePoints + 5
	for i := range n {
		b.AddDouble(ref, int64(i), float64(i)/7, 0)
	}
	if err := from.Append(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	text := exportAll(t, from, model.AllTime)
	if lines := strings.Count(text, "\n"); lines != 4 {
		t.Errorf("%d lines", lines)
	}
	at, rejected, err := run(t, NewLocal(newPipeline(to, nil), "test"), strings.NewReader(text), Position{})
	if err != nil || rejected != nil || at != (Position{Offset: int64(len(text)), Line: 4, Points: n}) {
		t.Fatal(at, rejected, err)
	}
	if dump(t, from) != dump(t, to) {
		t.Error("differs")
	}
	if got := exportAll(t, from, model.TimeRange{StartMS: 5, EndMS: 6}); strings.Count(got, "[") != 3 {
		t.Error(got)
	}
}

// What KairosDB 1.3 exports, and other forms that its import accepts.
func TestKairosLines(t *testing.T) {
	text := `{"name":"m","tags":{"host":"a"},"datapoints":[[1,5,"long"],[2,0.5,"double"]]}` + "\n" +
		`{"name":"m","tags":{"host":"a"},"datapoints":[[0,"text","string"]]}` + "\r\n" +
		"\n" +
		`[{"name":"n","tags":{"host":"b"},"timestamp":7,"value":1},{"name":"n","tags":{"host":"c"},"datapoints":[[8,"2"]]}]` + "\n" +
		`{"name":"bad","datapoints":[[1,1]]}` + "\n" +
		`{"name":"m","tags":{"host":"a"},"datapoints":[[3,1,"unknown"],[4,9]]}` + "\n" +
		`{"name":"cut","tags":{"ho` + "\n" +
		strings.Repeat(" ", 1<<20+1) + "\n" +
		`{"name":"raw","tags":{"a":"b"},"type":"base64:kairos_long","datapoints":[[1,"AAAAAAAAAAc="],[2,"AA=="],[3,5]]}` + "\n" +
		`{"name":"kairosdb.datastore.query_time","tags":{},"datapoints":[[1,9,"long"]]}` + "\n" + // of KairosDB itself
		"All done"
	s := reference.New(nil)
	at, rejected, err := run(t, NewLocal(newPipeline(s, nil), "test"), strings.NewReader(text), Position{})
	if err != nil {
		t.Fatal(err)
	}
	if want := (Position{Offset: int64(len(text)), Line: 11, Points: 8, Rejected: 5}); at != want {
		t.Errorf("%+v, want %+v", at, want)
	}
	want := `"kairosdb.datastore.query_time{} (kairos_long)" 1 9
"m{host=a} (kairos_double)" 2 3fe0000000000000
"m{host=a} (kairos_long)" 1 5
"m{host=a} (kairos_long)" 4 9
"m{host=a} (kairos_string)" 0 "text"
"n{host=b} (kairos_long)" 7 1
"n{host=c} (kairos_long)" 8 2
"raw{a=b} (kairos_long)" 1 7
`
	if got := dump(t, s); got != want {
		t.Errorf("stored\n%s\nwant\n%s", got, want)
	}
	slices.SortFunc(rejected, func(a, b Rejected) int { return int(a.Line - b.Line) })
	told := ""
	for _, r := range rejected {
		told += fmt.Sprintf("%d %s\n", r.Line, strings.Join(r.Reasons, "; "))
	}
	wantTold := `5 metric[0](name=bad).tags count must be greater than or equal to 1.
6 Unregistered data point type 'unknown'
7 malformed JSON: Unterminated string at column 26
8 limit bytes of a line of an import of 1048576 reached, at least 1048578 needed: read a line
9 metric[0](name=raw).datapoints[1].value must have 8 bytes.; metric[0](name=raw).datapoints[1].value must be base64.
`
	if told != wantTold {
		t.Errorf("rejected\n%s\nwant\n%s", told, wantTold)
	}
}

// A broken sink forgets everything after some blocks, as a crash does.
type brokenSink struct {
	Sink
	blocks int
}

var errBroken = errors.New("broken")

func (b *brokenSink) Store(ctx context.Context, lines [][]byte) ([]kairosjson.Line, error) {
	if b.blocks--; b.blocks < 0 {
		b.Sink.Store(ctx, lines[:len(lines)/2])
		return nil, errBroken
	}
	return b.Sink.Store(ctx, lines)
}

func TestResume(t *testing.T) {
	var text bytes.Buffer
	const n = 3*BlockLines + 100
	for i := range n {
		fmt.Fprintf(&text, `{"name":"m","tags":{"i":"%d"},"datapoints":[[%d,%d]]}`+"\n", i%100, i, i)
		if i%1000 == 0 {
			text.WriteString("\nbad\n")
		}
	}
	s := reference.New(nil)
	local := NewLocal(newPipeline(s, nil), "test")
	at, all := Position{}, 0
	for broken := 0; ; broken++ {
		var rejected []Rejected
		var err error
		at, rejected, err = run(t, &brokenSink{local, 1}, bytes.NewReader(text.Bytes()[at.Offset:]), at)
		all += len(rejected)
		if err == nil {
			break
		}
		if !errors.Is(err, errBroken) || broken > 10 {
			t.Fatal(err)
		}
	}
	if at.Points != n || at.Rejected != 13 || all != 13 || at.Offset != int64(text.Len()) {
		t.Errorf("%+v, %d rejected", at, all)
	}
	if got := strings.Count(dump(t, s), "\n"); got != n {
		t.Errorf("%d points stored, want %d", got, n)
	}
}

// Too many new series at once delay an import, but none is lost. Neither are samples
// whose references become invalid in the middle of a block.
func TestHeldAndStale(t *testing.T) {
	s := reference.New(nil)
	p := newPipeline(s, func(c *ingest.Config) { c.NewSeriesPerSecond, c.NewSeriesBurst = 200, 3 })
	local := NewLocal(p, "test")
	local.pause = time.Millisecond
	var text bytes.Buffer
	for i := range 20 {
		fmt.Fprintf(&text, `[{"name":"m","tags":{"i":"%d"},"datapoints":[[1,1]]}]`+"\n", i)
	}
	at, rejected, err := run(t, local, &text, Position{})
	if err != nil || rejected != nil || at.Points != 20 || s.SeriesCount() != 20 {
		t.Errorf("%+v %v %v", at, rejected, err)
	}
}

// A failingStore refuses batches.
type failingStore struct {
	store.Store
	err error
}

func (s *failingStore) Append(ctx context.Context, b *store.Batch) error {
	if s.err != nil {
		return s.err
	}
	return s.Store.Append(ctx, b)
}

// TestHeldThatFails: a line that had to wait, and then cannot be stored, is not passed over.
func TestHeldThatFails(t *testing.T) {
	s := &failingStore{Store: reference.New(nil)}
	p := newPipeline(s, func(c *ingest.Config) { c.NewSeriesPerSecond, c.NewSeriesBurst = 100, 1 })
	local := NewLocal(p, "test")
	local.pause = 50 * time.Millisecond
	line := func(name string) [][]byte {
		return [][]byte{fmt.Appendf(nil, `{"name":%q,"tags":{"a":"b"},"datapoints":[[1,1]]}`, name)}
	}
	if got, err := local.Store(t.Context(), line("first")); err != nil || got[0].Points != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	s.err = errBroken
	if got, err := local.Store(t.Context(), line("held")); !errors.Is(err, errBroken) {
		t.Errorf("%+v, %v", got, err)
	}
}

func serve(s store.Store, change func(*Config)) *http.ServeMux {
	c := DefaultConfig()
	if change != nil {
		change(&c)
	}
	mux := http.NewServeMux()
	for _, r := range NewAPI(s, newPipeline(s, nil), c, prometheus.NewRegistry(), nil).Routes() {
		mux.Handle(r.Method+" "+r.Path, r.Checked())
	}
	return mux
}

func do(mux *http.ServeMux, method, path string, body io.Reader, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, body)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	return w
}

func TestHTTP(t *testing.T) {
	from, to := reference.New(nil), reference.New(nil)
	fill(t, from, rand.New(rand.NewPCG(7, 1)), 40, 50)
	source, target := serve(from, nil), serve(to, nil)
	plain := do(source, "GET", "/api/v1/export", nil)
	if plain.Code != 200 || plain.Header().Get("Content-Type") != "application/x-ndjson" || plain.Body.String() != exportAll(t, from, model.AllTime) {
		t.Fatal(plain.Code, plain.Header())
	}
	if head := do(source, "HEAD", "/api/v1/export", nil); head.Code != 200 || head.Body.Len() > 0 || head.Header().Get("Content-Type") != plain.Header().Get("Content-Type") {
		t.Errorf("HEAD: %d, %v, and an export of %d bytes for nobody", head.Code, head.Header(), head.Body.Len())
	}
	if head := do(source, "HEAD", "/api/v1/export?start=x", nil); head.Code != 400 {
		t.Errorf("HEAD of a wrong range: %d", head.Code)
	}
	zipped := do(source, "GET", "/api/v1/export", nil, "Accept-Encoding", "gzip")
	if zipped.Header().Get("Content-Encoding") != "gzip" {
		t.Error("not gzipped")
	}
	// Compression is detected from the body, with or without a header.
	got := do(target, "POST", "/api/v1/import", bytes.NewReader(zipped.Body.Bytes()))
	if got.Code != 200 || dump(t, from) != dump(t, to) {
		t.Error(got.Code, got.Body)
	}
	for path, want := range map[string]int{
		"?start=x": 400, "?end=1.5": 400, "?start=5&end=4": 400, "?metric=m&start=-5&end=5": 200, "?metric=nope": 200,
	} {
		if got := do(source, "GET", "/api/v1/export"+path, nil); got.Code != want {
			t.Errorf("%s: %d %s", path, got.Code, got.Body)
		}
	}
	if got := do(source, "GET", "/api/v1/export?metric=nope", nil); got.Body.Len() != 0 {
		t.Error(got.Body)
	}
	got = do(target, "POST", "/api/v1/import", strings.NewReader("{\"name\":\"x\",\"tags\":{\"a\":\"b\"},\"datapoints\":[[1,1]]}\nbad\n"))
	if want := `{"offset":55,"line":2,"points":1,"rejected":1,"faults":[{"line":2,"errors":["malformed JSON: want a metric object, or an array of them at column 1"]}],"errors":["line 2: malformed JSON: want a metric object, or an array of them at column 1"]}`; got.Code != 400 || got.Body.String() != want {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	half := zipped.Body.Bytes()
	if len(half) > 20 {
		got = do(target, "POST", "/api/v1/import", bytes.NewReader(half[:len(half)/2]))
		if got.Code != 400 {
			t.Errorf("cut gzip: %d %s", got.Code, got.Body)
		}
	}
	to.Close()
	if got := do(target, "POST", "/api/v1/import", strings.NewReader("{\"name\":\"x\",\"tags\":{\"a\":\"b\"},\"datapoints\":[[1,1]]}")); got.Code != 503 {
		t.Errorf("closed store: %d %s", got.Code, got.Body)
	}
	if got := do(target, "GET", "/api/v1/export", nil); got.Code != 503 {
		t.Errorf("closed store: %d %s", got.Code, got.Body)
	}
}

func TestUnpack(t *testing.T) {
	var zipped bytes.Buffer
	for _, part := range []string{"one\n", "two\n"} { // members follow each other when a file is appended to
		z := gzip.NewWriter(&zipped)
		io.WriteString(z, part)
		z.Close()
	}
	for _, text := range []string{"one\ntwo\n", zipped.String()} {
		r, err := Unpack(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != "one\ntwo\n" {
			t.Errorf("%q %v", got, err)
		}
	}
	if r, err := Unpack(strings.NewReader("")); err != nil {
		t.Error(err)
	} else if got, err := io.ReadAll(r); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
}

func FuzzImport(f *testing.F) {
	s := reference.New(nil)
	f.Add(`{"name":"m","tags":{"h":"a"},"datapoints":[[1,5,"long"]]}` + "\nAll done")
	f.Add(`{"name":"m","skip_validate":true,"type":"base64:x","datapoints":[[1,"QQ=="],[2,""]]}` + "\n\r\n[]\n[{}]")
	f.Fuzz(func(t *testing.T, text string) {
		at, rejected, err := run(t, NewLocal(newPipeline(s, nil), "test"), strings.NewReader(text), Position{})
		if err != nil || at.Offset != int64(len(text)) || at.Rejected != int64(len(rejected)) {
			t.Fatalf("%+v %v %v", at, rejected, err)
		}
	})
}

func BenchmarkImport(b *testing.B) {
	var text bytes.Buffer
	for i := range 1000 {
		fmt.Fprintf(&text, `{"name":"cpu.load","tags":{"host":"server%04d","dc":"lga"},"datapoints":[`, i)
		for k := range 100 {
			if k > 0 {
				text.WriteByte(',')
			}
			fmt.Fprintf(&text, `[%d,%d.%d,"double"]`, 1700000000000+k*10000, k, i%10)
		}
		text.WriteString("]}\n")
	}
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		s := reference.New(nil)
		m := &Import{Sink: NewLocal(newPipeline(s, nil), "test"), MaxLine: 1 << 20, Reject: func(r Rejected) error { return fmt.Errorf("%v", r) }, Acknowledge: func(Position) error { return nil }}
		if _, err := m.Run(context.Background(), bytes.NewReader(text.Bytes()), Position{}); err != nil {
			b.Fatal(err)
		}
	}
}
