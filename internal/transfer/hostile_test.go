package transfer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/ingest"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// A viewCounter counts open views.
type viewCounter struct {
	store.Viewer
	open, opened int
}

type countedView struct {
	store.View
	counter *viewCounter
}

func (c *viewCounter) View(ctx context.Context) (store.View, error) {
	view, err := c.Viewer.View(ctx)
	if err == nil {
		c.open, c.opened = c.open+1, c.opened+1
	}
	return countedView{view, c}, err
}

func (v countedView) Close() error {
	v.counter.open--
	return v.View.Close()
}

func put(t *testing.T, s store.Store, metric string, typ model.Type, add func(b *store.Batch, ref store.Ref)) {
	t.Helper()
	ref, err := s.Create(context.Background(), model.Series{Metric: metric, Tags: model.MustTags("h", "a"), Type: typ})
	if err != nil {
		t.Fatal(err)
	}
	b := store.Batch{Epoch: s.Epoch()}
	add(&b, ref)
	if err := s.Append(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
}

// Every view of an export is closed, even when writing the export fails.
func TestExportClosesItsViews(t *testing.T) {
	s := reference.New(nil)
	for _, metric := range []string{"a", "b", "c"} {
		put(t, s, metric, model.TypeLong, func(b *store.Batch, ref store.Ref) { b.AddLong(ref, 1, 1, 0) })
	}
	counter := &viewCounter{Viewer: s}
	for metric, err := range Metrics(t.Context(), counter) {
		if err != nil || counter.open != 0 {
			t.Fatal(metric, err, counter.open)
		}
		if _, err := Export(t.Context(), counter, metric, model.AllTime, store.BucketsAsSamples, io.Discard, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := Export(t.Context(), counter, metric, model.AllTime, store.BucketsAsSamples, brokenWriter{}, nil); !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
	}
	if counter.open != 0 || counter.opened != 7 {
		t.Errorf("%d of %d views are open", counter.open, counter.opened)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

// An export stops at the next series once its client has disconnected, even if the
// series have no samples in the range.
func TestExportStopsWithItsClient(t *testing.T) {
	s := reference.New(nil)
	for i := range 5 {
		ref, err := s.Create(context.Background(), model.Series{Metric: "m", Tags: model.MustTags("h", fmt.Sprint(i)), Type: model.TypeLong})
		if err != nil {
			t.Fatal(err)
		}
		b := store.Batch{Epoch: s.Epoch()}
		b.AddLong(ref, 1, 1, 0)
		if err := s.Append(context.Background(), &b); err != nil {
			t.Fatal(err)
		}
	}
	gone := errors.New("gone")
	ctx, leave := context.WithCancelCause(context.Background())
	seen := 0
	_, err := Export(ctx, uncancelled{s}, "m", model.AllTime, store.BucketsAsSamples, io.Discard, func(series, of int) {
		if seen = series; series == 1 {
			leave(gone)
		}
	})
	if !errors.Is(err, gone) || seen != 1 {
		t.Errorf("%v after series %d", err, seen)
	}
}

// An uncancelled store ignores contexts, and its series have no samples.
type uncancelled struct{ store.Viewer }

func (u uncancelled) View(context.Context) (store.View, error) {
	view, err := u.Viewer.View(context.Background())
	return emptyView{view}, err
}

type emptyView struct{ store.View }

func (v emptyView) Read(_ context.Context, s store.Series, o store.ReadOptions) store.Cursor {
	o.Range = model.TimeRange{StartMS: 100, EndMS: 200}
	return v.View.Read(context.Background(), s, o)
}

// Values of a known type that JSON cannot express are exported as stored bytes.
func TestValuesBeyondTheirType(t *testing.T) {
	from, to := reference.New(nil), reference.New(nil)
	put(t, from, "c", model.TypeComplex, func(b *store.Batch, ref store.Ref) {
		b.AddBytes(ref, 1, []byte{1, 2, 3}, 0)
		b.AddBytes(ref, 2, bytes.Repeat([]byte{0xff}, 16), 0) // NaN
		b.AddBytes(ref, 3, make([]byte, 16), 0)
	})
	text := exportAll(t, from, model.AllTime)
	const want = `{"name":"c","tags":{"h":"a"},"datapoints":[[3,{"real":0.0,"imaginary":0.0},"complex"]]}
{"name":"c","tags":{"h":"a"},"type":"base64:kairos_complex","datapoints":[[1,"AQID"],[2,"/////////////////////w=="]]}
`
	if text != want {
		t.Errorf("exported\n%s\nwant\n%s", text, want)
	}
	if _, rejected, err := run(t, NewLocal(newPipeline(to, nil), "test"), strings.NewReader(text), Position{}); err != nil || len(rejected) != 1 || !strings.Contains(rejected[0].Reasons[0], "a complex value has 16 bytes, not 3") {
		t.Error(rejected, err)
	}
	if _, rest, _ := strings.Cut(dump(t, from), "\n"); rest != dump(t, to) {
		t.Error(dump(t, to))
	}
}

// The smallest and the largest time are exported and imported, and may end a range.
func TestEndsOfTime(t *testing.T) {
	s := reference.New(nil)
	times := []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, math.MaxInt64 - 1, math.MaxInt64}
	put(t, s, "m", model.TypeLong, func(b *store.Batch, ref store.Ref) {
		for i, ms := range times {
			b.AddLong(ref, ms, int64(i), 0)
		}
	})
	mux := serve(s, nil)
	for query, want := range map[string]int{
		"": 6, "?start=-9223372036854775808&end=9223372036854775807": 6, "?start=9223372036854775807": 1, "?end=-9223372036854775808": 1,
		"?start=-9223372036854775807&end=9223372036854775806": 4, "?start=9223372036854775808": -400, "?end=-9223372036854775809": -400,
		"?strat=5": -400, "?metric=m&metrc=x": -400,
	} {
		got := do(mux, "GET", "/api/v1/export"+query, nil)
		if want < 0 {
			if got.Code != -want {
				t.Errorf("%s: %d", query, got.Code)
			}
			continue
		}
		if n := strings.Count(got.Body.String(), `"long"]`); got.Code != 200 || n != want {
			t.Errorf("%s: %d, %d points, want %d\n%s", query, got.Code, n, want, got.Body)
		}
	}
}

func packed(text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, text)
	z.Close()
	return b.Bytes()
}

// A body whose compression is damaged is the sender's fault.
func TestDamagedPacking(t *testing.T) {
	line := `{"name":"m","tags":{"a":"b"},"datapoints":[[1,1]]}` + "\n"
	whole := packed(line)
	change := func(at int, to byte) []byte {
		b := bytes.Clone(whole)
		if at < 0 {
			at += len(b)
		}
		b[at] ^= to
		return b
	}
	for name, body := range map[string][]byte{
		"checksum":             change(-6, 1),
		"length":               change(-1, 1),
		"cut":                  whole[:len(whole)-1],
		"cut in the header":    whole[:5],
		"header":               change(2, 0xff),
		"data":                 append(bytes.Clone(whole[:10]), bytes.Repeat([]byte{0xff}, 50)...),
		"header of the second": append(bytes.Clone(whole), "no gzip at all"...),
	} {
		got := do(serve(reference.New(nil), nil), "POST", "/api/v1/import", bytes.NewReader(body))
		if got.Code != http.StatusBadRequest || !strings.Contains(got.Body.String(), `: the gzip is damaged or incomplete: `) {
			t.Errorf("%s: %d %s", name, got.Code, got.Body)
		}
	}
	got := do(serve(reference.New(nil), nil), "POST", "/api/v1/import", io.MultiReader(strings.NewReader(line), failing{}))
	if got.Code != http.StatusInternalServerError || !strings.Contains(got.Body.String(), "broken") {
		t.Errorf("a body that cannot be read: %d %s", got.Code, got.Body)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errBroken }

// The answer names the first rejected lines, and counts all.
func TestManyRejectedLines(t *testing.T) {
	got := do(serve(reference.New(nil), nil), "POST", "/api/v1/import", strings.NewReader(strings.Repeat("x\n", maxFaults+10)))
	body := got.Body.String()
	if n := strings.Count(body, `{"line":`); got.Code != 400 || n != maxFaults || !strings.Contains(body, fmt.Sprintf(`"rejected":%d`, maxFaults+10)) {
		t.Errorf("%d, %d lines are named", got.Code, n)
	}
	if n := strings.Count(body, `"line `); n != maxFaults {
		t.Errorf("%d texts", n)
	}
}

// A small compressed body can hold a billion lines that store nothing. The import ends at its limit
// and returns its position, so that the rest can be sent.
func TestLinesThatStoreNothing(t *testing.T) {
	const most = 10_000
	mux := serve(reference.New(nil), func(c *Config) { c.MaxEmpty = most })
	point := `{"name":"m","tags":{"a":"b"},"datapoints":[[1,1]]}` + "\n"
	for _, line := range []string{"\n", " \n", "x\n", "{}\n", "All done\n"} {
		for _, before := range []string{"", strings.Repeat(point, 3*most)} {
			got := do(mux, "POST", "/api/v1/import", bytes.NewReader(packed(before+strings.Repeat(line, 20*most)+point)))
			var report Report
			if err := json.Unmarshal(got.Body.Bytes(), &report); err != nil || got.Code != http.StatusBadRequest {
				t.Fatalf("%q: %d, %v", line, got.Code, err)
			}
			stored := int64(strings.Count(before, "\n"))
			if n := report.Line - stored; n < most || n > most+64<<10 || report.Points != stored || report.Offset != int64(len(before))+n*int64(len(line)) {
				t.Errorf("%q after %d points: ended after line %d, byte %d, with %d points", line, stored, report.Line, report.Offset, report.Points)
			}
			if last := report.Errors[len(report.Errors)-1]; !strings.Contains(last, "lines of an import that are blank or refused of 10000 reached") {
				t.Errorf("%q: %s", line, last)
			}
		}
		got := do(mux, "POST", "/api/v1/import", strings.NewReader(strings.Repeat(line, most/2)+point))
		if !strings.Contains(got.Body.String(), `"points":1`) {
			t.Errorf("%q: a few of them ended the import: %d %.300s", line, got.Code, got.Body)
		}
	}
}

// An import fails on an endless line, compressed or not, and notices a client that
// disconnects within a line.
func TestEndlessLine(t *testing.T) {
	mux := serve(reference.New(nil), func(c *Config) { c.MaxLine = 1 << 20 })
	for _, size := range []int{3 << 20, 100 << 20} {
		read := &bytes.Reader{}
		read.Reset(packed(strings.Repeat(" ", size)))
		got := do(mux, "POST", "/api/v1/import", read)
		over := size > skipLimit<<20
		if got.Code != 400 || strings.Contains(got.Body.String(), "this is not a file of lines") != over || !strings.Contains(got.Body.String(), "bytes of a line of an import") {
			t.Errorf("%d MiB: %d %.300s", size>>20, got.Code, got.Body)
		}
	}
	ctx, leave := context.WithCancel(context.Background())
	r := httptest.NewRequest("POST", "/api/v1/import", &leaving{leave: leave}).WithContext(ctx)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("left: %d %s", w.Code, w.Body)
	}
}

// A leaving body never ends, and its client disconnects after 1 MiB.
type leaving struct {
	n     int
	leave func()
}

func (l *leaving) Read(p []byte) (int, error) {
	if l.n += len(p); l.n > 1<<20 {
		l.leave()
	}
	if l.n > 8<<20 {
		return 0, io.ErrClosedPipe // the import has not noticed
	}
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// A few bytes of a line can be a fault of a hundred. The answer gives at most maxReport bytes of
// reasons, of a block and of many, and names all lines.
func TestReportOfManyFaults(t *testing.T) {
	faults := func(n int) string {
		return `{"name":"` + strings.Repeat("m", 200) + `","tags":{"a":"b"},"datapoints":[[1,1]` + strings.Repeat(`,["x",1]`, n) + "]}\n"
	}
	for name, body := range map[string]string{
		"lines with some":        strings.Repeat(faults(100), 1000),
		"lines with very many":   strings.Repeat(faults(2000), 20),
		"a long line each block": strings.Repeat(faults(BlockBytes/len(`,["x",1]`)), 6),
	} {
		lines := strings.Count(body, "\n")
		got := do(serve(reference.New(nil), nil), "POST", "/api/v1/import", strings.NewReader(body))
		var report Report
		if err := json.Unmarshal(got.Body.Bytes(), &report); err != nil {
			t.Fatal(err)
		}
		told := 0
		for _, f := range report.Faults {
			for _, reason := range f.Reasons {
				told += len(reason)
			}
		}
		const counts = 100 // bytes of a reason that only counts
		if got.Code != 400 || int(report.Rejected) != lines || len(report.Faults) != lines || len(report.Errors) != lines {
			t.Errorf("%s: %d, %d lines are rejected and %d named, of %d", name, got.Code, report.Rejected, len(report.Faults), lines)
		}
		if told < maxReport/2 || told > maxReport+counts*lines {
			t.Errorf("%s: %d bytes of reasons, at most %d are told", name, told, maxReport)
		}
	}
}

// A line over HTTP may be as long as a body of points: several imports hold one each.
func TestLineOfALittleServer(t *testing.T) {
	s := reference.New(nil)
	mux := http.NewServeMux()
	pipeline := newPipeline(s, func(c *ingest.Config) { c.BodyMemory = 1 << 20 })
	for _, r := range NewAPI(s, pipeline, DefaultConfig(), prometheus.NewRegistry(), nil).Routes() {
		mux.Handle(r.Method+" "+r.Path, r.Checked())
	}
	line := func(n int) string {
		const head, tail = `{"name":"m","tags":{"a":"b"},"datapoints":[[1,5]`, "]}"
		return head + strings.Repeat(" ", n-len(head)-len(tail)) + tail
	}
	got := do(mux, "POST", "/api/v1/import", strings.NewReader(line(256<<10)+"\n"+line(256<<10+1)+"\n"+line(100)))
	const want = "line 2: limit bytes of a line of an import of 262144 reached"
	if got.Code != 400 || !strings.Contains(got.Body.String(), `"points":2,"rejected":1`) || !strings.Contains(got.Body.String(), want) {
		t.Errorf("%d %s, want %q", got.Code, got.Body, want)
	}
}
