package opentsdb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/ingest/jsontext"
	"varve/internal/model"
	"varve/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a Handler over a recorder.
type harness struct {
	recorder *ingesttest.Recorder
	reg      *prometheus.Registry
	handler  *Handler
}

func newHarness(limits func(*ingest.Config)) *harness {
	h := &harness{recorder: &ingesttest.Recorder{}}
	p, reg := ingesttest.NewPipeline(h.recorder, func(c *ingest.Config) {
		c.StoreWait = time.Hour // on a busy machine the largest bodies take longer than the default
		if limits != nil {
			limits(c)
		}
	})
	h.handler, h.reg = New(p, nil), reg
	return h
}

func (h *harness) post(url, contentType, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, url, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, r)
	return w
}

const asJSON, asGraphite = "application/json", "application/graphite"

// TestParsersKeepNothing: a parser that waits for the next request holds nothing of the last.
func TestParsersKeepNothing(t *testing.T) {
	h := newHarness(nil)
	for i, body := range []struct{ contentType, text string }{
		{asJSON, `[{"metric":"m","timestamp":1,"value":1,"tags":{"h":"a"}},{"metric":"m"},`}, {asGraphite, "m 1 1 h=a\nm\n"},
	} {
		h.post("/api/put?details", body.contentType, body.text)
		p := h.handler.pools[i].Get().(*parser)
		if !reflect.DeepEqual(p.progress, progress{s: jsontext.New(nil), first: true}) && !reflect.DeepEqual(p.progress, progress{}) || len(p.faults) != 0 {
			t.Errorf("%s: %+v, %d faults", body.contentType, p.progress, len(p.faults))
		}
	}
}

func TestPut(t *testing.T) {
	const (
		good   = `{"metric":"m","timestamp":1700000000,"value":1,"tags":{"h":"a"}}`
		stored = "m{h=a} long 1700000000000 1"
		plain  = `{"error":{"code":400,"message":"One or more data points had errors","details":"Please see the TSD logs or append \"details\" to the put request"}}`
	)
	noTags := `{"metric":"m","timestamp":1700000000,"value":1}`
	timed := func(time string) string { return `{"metric":"m","timestamp":` + time + `,"value":1,"tags":{"h":"a"}}` }
	tagged := func(tag string) string { return `{"metric":"m","timestamp":1700000000,"value":1,"tags":{` + tag + `}}` }
	refused := func(point string) string { return `{"datapoint":` + point + `,"error":"Invalid timestamp"}` }
	for _, c := range []struct {
		name, url, contentType, body string
		status                       int
		answer, stored               string
	}{
		{"one", "/api/put", asJSON, good, 204, "", stored},
		{"array", "/api/put", asJSON, "[\n" + good + ",\n" + good + "\n]\n", 204, "", stored + "\n" + stored},
		{"details", "/api/put?details=true", asJSON, good, 200, `{"errors":[],"failed":0,"success":1}`, stored},
		{"summary", "/api/put?summary", asJSON, good, 200, `{"failed":0,"success":1}`, stored},
		{"nothing", "/api/put", asJSON, "", 204, "", ""},
		{"blank", "/api/put", "", " \n", 204, "", ""},
		{"empty array", "/api/put", asJSON, "[\n\n]\n", 204, "", ""},
		{"empty array, details", "/api/put?details", asJSON, "[]", 200, `{"errors":[],"failed":0,"success":0}`, ""},
		{"milliseconds", "/api/put", asJSON, `{"metric":"m","timestamp":17000000001,"value":1,"tags":{"h":"a"}}`, 204, "", "m{h=a} long 17000000001 1"},
		{"texts", "/api/put", "", `{"metric":"m","timestamp":"1700000000","value":"-1.5","tags":{"h":"a"}}`, 204, "", "m{h=a} double 1700000000000 -1.5"},
		{"exponent", "/api/put", "", `{"metric":"m","timestamp":1700000000,"value":1e3,"tags":{"h":"a"}}`, 204, "", "m{h=a} double 1700000000000 1000"},
		{"beyond 64 bits", "/api/put", "", `{"metric":"m","timestamp":1700000000,"value":18446744073709551616,"tags":{"h":"a"}}`, 204, "", "m{h=a} double 1700000000000 1.8446744073709552e+19"},
		{"some bad", "/api/put", asJSON, "[" + noTags + "," + good + "]", 400, plain, stored},
		{"some bad, details", "/api/put?details", asJSON, "[" + noTags + "," + good + ",5]", 400,
			`{"errors":[{"datapoint":` + noTags + `,"error":"Missing tags"},{"datapoint":5,"error":"A data point must be an object"}],"failed":2,"success":1}`, stored},
		{"some bad, summary", "/api/put?summary", asJSON, "[" + noTags + "," + good + "]", 400, `{"failed":1,"success":1}`, stored},
		{"lenient bad", "/api/put?details", asJSON, `{metric:m}`, 400, `{"errors":[{"datapoint":"{metric:m}","error":"Invalid timestamp"}],"failed":1,"success":0}`, ""},
		{"no metric", "/api/put?details", asJSON, `{"metric":""}`, 400, `{"errors":[{"datapoint":{"metric":""},"error":"Metric name was empty"}],"failed":1,"success":0}`, ""},
		{"no value", "/api/put?details", asJSON, `{"metric":"m","timestamp":1,"value":null}`, 400, `{"errors":[{"datapoint":{"metric":"m","timestamp":1,"value":null},"error":"Empty value"}],"failed":1,"success":0}`, ""},
		{"not finite", "/api/put?summary", asJSON, `{"metric":"m","timestamp":1,"value":"NaN","tags":{"h":"a"}}`, 400, `{"failed":1,"success":0}`, ""},
		{"beyond a double", "/api/put?details", asJSON, `{"metric":"m","timestamp":1,"value":1e999,"tags":{"h":"a"}}`, 400,
			`{"errors":[{"datapoint":{"metric":"m","timestamp":1,"value":1e999,"tags":{"h":"a"}},"error":"Unable to parse value to a number: it must be finite"}],"failed":1,"success":0}`, ""},
		{"empty tag", "/api/put?details", asJSON, `{"metric":"m","timestamp":1,"value":1,"tags":{"h":""}}`, 400,
			`{"errors":[{"datapoint":{"metric":"m","timestamp":1,"value":1,"tags":{"h":""}},"error":"the value of tag h is empty"}],"failed":1,"success":0}`, ""},
		{"cut off", "/api/put?details", asJSON, "[" + good + ",{", 400,
			`{"error":{"code":400,"message":"Unable to parse the given JSON","details":"End of input at line 1 column 68"}}`, stored},
		{"a point that begins wrongly", "/api/put?details", asJSON, "[" + good + ",:", 400,
			`{"error":{"code":400,"message":"Unable to parse the given JSON","details":"Expected value at line 1 column 67"}}`, stored},
		{"cut off in an array", "/api/put?details", asJSON, "[" + good + ",[1", 400,
			`{"error":{"code":400,"message":"Unable to parse the given JSON","details":"End of input at line 1 column 69"}}`, stored},
		{"a comma too many", "/api/put?details", asJSON, `[{"metric":"m","timestamp":1700000000,,"value":1,"tags":{"h":"a"}}]`, 400,
			`{"error":{"code":400,"message":"Unable to parse the given JSON","details":"Expected name at line 1 column 39"}}`, ""},
		{"a comma in front", "/api/put?details", asJSON, `[{,"metric":"m","timestamp":1700000000,"value":1,"tags":{"h":"a"}}]`, 400,
			`{"error":{"code":400,"message":"Unable to parse the given JSON","details":"Expected name at line 1 column 3"}}`, ""},
		{"a member without value", "/api/put?details", asJSON, `[{"metric":"m","timestamp":1700000000,"value":1,"tags":{"h":"a"},"more":,"most":1}]`, 400,
			`{"error":{"code":400,"message":"Unable to parse the given JSON","details":"Expected value at line 1 column 73"}}`, ""},
		{"a value without member", "/api/put?details", asJSON, `[{"metric":"m","timestamp":1700000000,"value":1,"tags":{"h":"a"},:1,"most":1}]`, 400,
			`{"error":{"code":400,"message":"Unable to parse the given JSON","details":"Expected name at line 1 column 66"}}`, ""},
		{"a time without value", "/api/put?details", asJSON, `[{"metric":"m","timestamp":1700000000,"value":1,"tags":{"h":"a"},"timestamp":,"most":1}]`, 400,
			`{"error":{"code":400,"message":"Unable to parse the given JSON","details":"Expected value at line 1 column 78"}}`, ""},
		{"broken escapes", "/api/put?details", asJSON, "[" + tagged(`"h":"\uZZZZ"`) + "," + tagged(`"h\uZZZZ":"a"`) + "]", 400,
			`{"errors":[{"datapoint":` + strconv.Quote(tagged(`"h":"\uZZZZ"`)) + `,"error":"tag h has an invalid escape sequence"},{"datapoint":` + strconv.Quote(tagged(`"h\uZZZZ":"a"`)) + `,"error":"tag h\\uZZZZ has an invalid escape sequence"}],"failed":2,"success":0}`, ""},
		{"broken escape of the metric", "/api/put?details", asJSON, `{"metric":"m\uZZZZ","timestamp":1700000000,"value":1,"tags":{"h":"a"}}`, 400,
			`{"errors":[{"datapoint":` + strconv.Quote(`{"metric":"m\uZZZZ","timestamp":1700000000,"value":1,"tags":{"h":"a"}}`) + `,"error":"metric name has an invalid escape sequence"}],"failed":1,"success":0}`, ""},
		{"tags that are no texts", "/api/put?details", asJSON, "[" + tagged(`"h":null`) + "," + tagged(`"h":[1]`) + "," + tagged(`"h":{}`) + "," + tagged(`"h":1,"i":true`) + "]", 400,
			`{"errors":[{"datapoint":` + tagged(`"h":null`) + `,"error":"the value of tag h must be a text"},{"datapoint":` + tagged(`"h":[1]`) + `,"error":"the value of tag h must be a text"},{"datapoint":` + tagged(`"h":{}`) + `,"error":"the value of tag h must be a text"}],"failed":3,"success":1}`, "m{h=1,i=true} long 1700000000000 1"},
		{"times", "/api/put?details", asJSON, "[" + timed(`"1x"`) + "," + timed(`""`) + "," + timed("0") + "," + timed("-1") + "," + timed("99999999999999999999") + "," + timed(`"-99999999999999999999"`) + "," + timed("0.5") + "," + timed(`"0x"`) + "]", 400,
			`{"errors":[` + refused(timed(`"1x"`)) + "," + refused(timed(`""`)) + "," + refused(timed("0")) + "," + refused(timed("-1")) + "," + refused(timed("99999999999999999999")) + "," + refused(timed(`"-99999999999999999999"`)) + "," + refused(timed("0.5")) + "," + refused(timed(`"0x"`)) + `],"failed":8,"success":0}`, ""},
		{"lines", "/api/put", asGraphite, "m;h=a 1 1700000000\n\nn 1.50 1700000001\r\n\n o.p;k=v=w 2 1700000002", 204, "",
			stored + "\nn{add=tag} double 1700000001000 1.5\no.p{k=v=w} long 1700000002000 2"},
		{"no lines", "/api/put", asGraphite, "", 204, "", ""},
		{"bad lines", "/api/put?details", "text/plain; charset=utf-8", "m 1\nm;h=a 1 1700000000\nm;h 1 1\nm nan 1\nm 1 x\na b c d\n", 400,
			`{"errors":[{"datapoint":"m 1","error":"A line must be: name value timestamp"},{"datapoint":"m;h 1 1","error":"tag[0] must be in the format 'name=value'."},` +
				`{"datapoint":"m nan 1","error":"Unable to parse value to a number: it must be finite"},{"datapoint":"m 1 x","error":"Invalid timestamp"},` +
				`{"datapoint":"a b c d","error":"A line must be: name value timestamp"}],"failed":5,"success":1}`, stored},
		{"lines as JSON", "/api/put?details", asJSON, "m;h=a 1 1700000000", 400,
			`{"errors":[{"datapoint":"m","error":"A data point must be an object"}],"failed":1,"success":0}`, ""},
		{"JSON as text", "/api/put", "text/plain", "\n " + good, 204, "", stored},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(nil)
			w := h.post(c.url, c.contentType, c.body)
			if w.Code != c.status || w.Body.String() != c.answer {
				t.Errorf("answer %d %s\nwant %d %s", w.Code, w.Body, c.status, c.answer)
			}
			if got := h.recorder.Text(); got != c.stored {
				t.Errorf("stored\n%s\nwant\n%s", got, c.stored)
			}
			rejected := 0.0
			for _, n := range ingesttest.Counters(t, h.reg, "varve_ingest_rejected_total") {
				rejected += n
			}
			if held := ingesttest.Counters(t, h.reg, "varve_ingest_body_bytes")[""]; held != 0 {
				t.Errorf("%v bytes of body_memory are still held", held)
			}
			if want := failures(c.status, c.answer); rejected != want {
				t.Errorf("%v points are counted as rejected, want %v", rejected, want)
			}
		})
	}
}

// TestValues: a number may have one sign, of either kind.
func TestValues(t *testing.T) {
	for text, want := range map[string]*value{
		"5": {kind: model.Long, long: 5}, "+5": {kind: model.Long, long: 5}, "-5": {kind: model.Long, long: -5},
		"+5.5": {kind: model.Double, double: 5.5}, "-5.5": {kind: model.Double, double: -5.5},
		"": nil, "+": nil, "-": nil, "+-5": nil, "-+5": nil, "++5": nil, "--5": nil, "5+": nil,
	} {
		got, f := parseValue([]byte(text))
		if want == nil && f == nil || want != nil && (f != nil || got != *want) {
			t.Errorf("%q: %+v, %v, want %+v", text, got, f, want)
		}
	}
}

// failures is how many points an answer tells of that were not stored. A body that cannot be
// parsed is one.
func failures(status int, answer string) float64 {
	var told struct{ Failed *float64 }
	if json.Unmarshal([]byte(answer), &told) == nil && told.Failed != nil {
		return *told.Failed
	}
	if status >= 400 {
		return 1
	}
	return 0
}

func TestLimits(t *testing.T) {
	point := func(metric string) string {
		return `{"metric":"` + metric + `","timestamp":1,"value":1,"tags":{"h":"a"}}`
	}
	h := newHarness(func(c *ingest.Config) { c.MaxSeries, c.MaxBodyBytes = 1, 500 })
	w := h.post("/api/put?summary", asJSON, "["+point("a")+","+point("b")+","+point("a")+"]")
	if got := w.Body.String(); w.Code != 400 || got != `{"failed":1,"success":2}` {
		t.Errorf("beyond max_series: %d %s", w.Code, got)
	}
	if w := h.post("/api/put", asJSON, strings.Repeat(" ", 501)); w.Code != 413 {
		t.Errorf("body too large: %d %s", w.Code, w.Body)
	}
	want := map[string]float64{"opentsdb_json,max_series": 1, "opentsdb_json,body_too_large": 1}
	if got := ingesttest.Counters(t, h.reg, "varve_ingest_rejected_total"); !reflect.DeepEqual(got, want) {
		t.Errorf("refused %v, want %v", got, want)
	}

	h = newHarness(func(c *ingest.Config) { c.NewSeriesBurst = 1; c.NewSeriesPerSecond = 1 })
	w = h.post("/api/put?details", asJSON, "["+point("a")+","+point("b")+"]")
	if w.Code != 503 || w.Header().Get("Retry-After") == "" || h.recorder.Text() != "a{h=a} long 1000 1" {
		t.Errorf("beyond new_series_per_second: %d %s, stored %s", w.Code, w.Body, h.recorder.Text())
	}
}

// A 503 says why and when to try again, except to KairosDB's Java library, which
// loses a connection by a body.
// A store that creates no series refuses the request.
func TestStoreThatCreatesNoSeries(t *testing.T) {
	for err, status := range map[error]int{
		&store.UnavailableError{Reason: "disk is full"}: 503,
		errors.New("disk on fire"):                      500,
	} {
		for contentType, body := range map[string]string{
			asJSON:     `[{"metric":"m","timestamp":1,"value":1,"tags":{"h":"a"}},{"metric":"first","timestamp":1,"value":1,"tags":{"h":"a"}}]`,
			asGraphite: "m;h=a 1 1\nfirst;h=a 1 1\n",
		} {
			h := newHarness(nil)
			h.post("/api/put", asGraphite, "first;h=a 1 1700000000\n")
			h.recorder.OnCreate = func(model.Series) error { return err }
			w := h.post("/api/put?details", contentType, body)
			if got := h.recorder.Text(); w.Code != status || got != "first{h=a} long 1700000000000 1" {
				t.Errorf("%v, %s: answer %d %s, and stored are\n%s", err, contentType, w.Code, w.Body, got)
			}
		}
	}
}

// A body that is cut off anywhere is refused, and what is stored of it was complete.
func TestCutOffAnywhere(t *testing.T) {
	const (
		first = `{"metric":"m","timestamp":1700000000,"value":"1.5","tags":{"h":"\u0061"}}`
		body  = `[` + first + `, {"tags":{"h":"b"},"value":2,"other":[{"x":null}],"timestamp":"1700000001","metric":"n"}]`
	)
	for n := 1; n < len(body); n++ {
		h := newHarness(nil)
		w := h.post("/api/put", asJSON, body[:n])
		want := ""
		if n > len(first) {
			want = "m{h=a} double 1700000000000 1.5"
		}
		if n > len(body)-2 {
			want += "\nn{h=b} long 1700000001000 2"
		}
		if got := h.recorder.Text(); w.Code != 400 || got != want {
			t.Errorf("%s\nanswer %d %s, stored\n%s", body[:n], w.Code, w.Body, got)
		}
	}
}

// TestRetryAfter: the header and the text say when the series that were refused get in.
func TestRetryAfter(t *testing.T) {
	h := newHarness(func(c *ingest.Config) { c.NewSeriesBurst, c.NewSeriesPerSecond = 10, 2 })
	var points []string
	for i := range 15 {
		points = append(points, fmt.Sprintf(`{"metric":"m%d","timestamp":1,"value":1,"tags":{"h":"a"}}`, i))
	}
	w := h.post("/api/put", asJSON, "["+strings.Join(points, ",")+"]")
	if got := w.Header().Get("Retry-After"); w.Code != 503 || got != "3" || !strings.Contains(w.Body.String(), "again after 3 s;") {
		t.Errorf("5 series of 2 a second: %d, Retry-After %q, %s", w.Code, got, w.Body)
	}
}

func TestUnavailable(t *testing.T) {
	point := `{"metric":"m","timestamp":1,"value":1,"tags":{"h":"a"}}`
	for _, c := range []struct {
		name   string
		limits func(*ingest.Config)
		stored error
		body   string
		why    string
	}{
		{"new series", func(c *ingest.Config) { c.NewSeriesBurst, c.NewSeriesPerSecond = 1, 1 }, nil,
			"[" + point + "," + strings.Replace(point, `"m"`, `"n"`, 1) + "]",
			"limit ingest.new_series_per_second of 1 reached: new series n; all other valid points are stored"},
		{"disk", nil, &store.UnavailableError{Reason: "the disk is nearly full"}, point, "the disk is nearly full"},
		{"in flight", nil, ingest.ErrBusy, point, "too much input is in flight (samples in flight, ingest.body_memory)"},
		{"slow store", nil, context.DeadlineExceeded, point, "the store did not answer in time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(c.limits)
			h.recorder.OnAppend = func(*store.Batch) error { return c.stored }
			w := h.post("/api/put?details", asJSON, c.body)
			want := `{"error":{"code":503,"message":"` + c.why + `","details":"Send the same request again after 1 s; a point that arrives twice is stored once"}}`
			if w.Code != 503 || w.Header().Get("Retry-After") != "1" || w.Body.String() != want {
				t.Errorf("answer %d %v %s\nwant %s", w.Code, w.Header(), w.Body, want)
			}

			h = newHarness(c.limits)
			h.recorder.OnAppend = func(*store.Batch) error { return c.stored }
			r := httptest.NewRequest(http.MethodPost, "/api/put", strings.NewReader(c.body))
			r.Header.Set("User-Agent", "Apache-HttpClient/4.5.2 (Java/1.8.0_252)")
			w = httptest.NewRecorder()
			h.handler.ServeHTTP(w, r)
			if w.Code != 503 || w.Header().Get("Retry-After") != "1" || w.Body.Len() > 0 {
				t.Errorf("Apache's client: answer %d %v %s", w.Code, w.Header(), w.Body)
			}
		})
	}
}

// An answer repeats a bounded part of the request, of each point and in all.
func TestAnswerIsBounded(t *testing.T) {
	h := newHarness(nil)
	long := strings.Repeat("é", 5000)
	point := `{"metric":"m","timestamp":1,"value":"` + long + `","tags":{"h":"a"}},`
	w := h.post("/api/put?details", asJSON, "["+strings.Repeat(point, 999)+`{"metric":"m","timestamp":1,"value":1,"tags":{"h":"a"}}]`)
	var answer struct {
		Errors          []struct{ Datapoint, Error string }
		Failed, Success int
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Failed != 999 || answer.Success != 1 || len(answer.Errors) < 200 || w.Body.Len() > 2*maxAnswer {
		t.Errorf("%d failed, %d stored, %d errors in %d bytes", answer.Failed, answer.Success, len(answer.Errors), w.Body.Len())
	}
	for _, body := range []string{
		`{"metric":"` + long + `","timestamp":1,"value":1,"tags":{"h":"a"}}`,
		`{"metric":"m","timestamp":1,"value":1,"tags":{"` + long + `":"a"}}`,
		`{"metric":"m","timestamp":1,"value":1,"tags":{"` + long + `":[]}}`,
		`{"metric":"m","timestamp":1,"value":1,"tags":{"\u12` + long + `":"a"}}`,
		`{"metric":"m","timestamp":1,"value":1,"tags":{"h":"` + strings.Repeat(`\u006e`, 5000) + `"}}`,
	} {
		w := h.post("/api/put?details", asJSON, body)
		if w.Code != 400 || w.Body.Len() > 2*pointBytes+500 {
			t.Errorf("%.80s: %d, %d bytes", body, w.Code, w.Body.Len())
		}
	}
}

// Reading stops at the first tag beyond ingest.max_tags.
func TestManyTags(t *testing.T) {
	for _, lines := range []bool{false, true} {
		var b strings.Builder
		contentType := asJSON
		if lines {
			contentType = asGraphite
			b.WriteString("m")
		} else {
			b.WriteString(`{"metric":"m","timestamp":1,"value":1,"tags":{"t":"1"`)
		}
		for i := range 100_000 {
			if lines {
				fmt.Fprintf(&b, ";t%d=1", i)
			} else {
				fmt.Fprintf(&b, `,"t%d":"1"`, i)
			}
		}
		if lines {
			b.WriteString(" 1 1\n")
		} else {
			b.WriteString("}}")
		}
		h := newHarness(nil)
		w := h.post("/api/put?details", contentType, b.String())
		if want := `"error":"limit ingest.max_tags of 64 reached, at least 65 needed: tags of metric m"`; w.Code != 400 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("lines %v: %d %.200s ... %s", lines, w.Code, w.Body, w.Body.Bytes()[max(0, w.Body.Len()-200):])
		}
	}
}

// Once a sender has left, parsing ends at a block whose points are all refused.
func TestSenderThatLeft(t *testing.T) {
	gone, leave := context.WithCancel(context.Background())
	leave()
	const faults = 500_000
	h := newHarness(nil)
	body := "[" + strings.Repeat("5,", faults) + "5]"
	h.handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/api/put", strings.NewReader(body)).WithContext(gone))
	got := ingesttest.Counters(t, h.reg, "varve_ingest_rejected_total")
	if got["opentsdb_json,unterminated"] != 1 || got["opentsdb_json,bad_syntax"] > faults/2 {
		t.Errorf("refused %v", got)
	}
}

func TestStaleBlocks(t *testing.T) {
	h := newHarness(nil)
	appends := 0
	h.recorder.OnAppend = func(*store.Batch) error {
		if appends++; appends%2 == 1 {
			h.recorder.Forget()
		}
		return nil
	}
	const points = 2*ingest.BlockSamples + 5
	body := strings.Repeat(`{"metric":"m","timestamp":1,"value":1,"tags":{"h":"a"}},`, points) + "5"
	w := h.post("/api/put?summary", asJSON, "["+body+"]")
	if want := fmt.Sprintf(`{"failed":1,"success":%d}`, points); w.Body.String() != want {
		t.Errorf("answer %s, want %s", w.Body, want)
	}
	if n, _ := h.recorder.Count(); n != points {
		t.Errorf("stored %d", n)
	}
	if got := ingesttest.Counters(t, h.reg, "varve_ingest_rejected_total"); !reflect.DeepEqual(got, map[string]float64{"opentsdb_json,bad_syntax": 1}) {
		t.Errorf("refused %v", got)
	}
}

// TestRecordings replays what real clients sent to a real HTTP server.
func TestRecordings(t *testing.T) {
	files, _ := filepath.Glob("testdata/clients/*.http")
	if len(files) == 0 {
		t.Fatal("no recordings")
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, piece := range []int{len(data), 1428, 7, 1} {
			t.Run(fmt.Sprintf("%s/%d", filepath.Base(file), piece), func(t *testing.T) {
				h := newHarness(nil)
				answers := ingesttest.Replay(t, h.handler.Routes(), data, piece)
				golden(t, file+".golden", answers+h.recorder.Text()+"\n")
			})
		}
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if os.Getenv("REWRITE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: have\n%s\nwant\n%s", path, got, want)
	}
}

func FuzzBody(f *testing.F) {
	for _, lines := range []bool{false, true} {
		f.Add([]byte(`[{"metric":"m","timestamp":1700000000,"value":1.5,"tags":{"h":"\u0061"}},5]`), lines)
		f.Add([]byte("m;h=a 1 1700000000\nn 1.50 1700000001\r\n\nbad\n"), lines)
		f.Add([]byte("[\n\n]"), lines)
	}
	f.Add([]byte(`[{"metric":"m","timestamp":9223372036854775807,"value":-0.0,"tags":{"h":"a"}},{"metric":"m","timestamp":1e10,"value":"1e-05","tags":{"h":"a"}},{"metric":"m","timestamp":9999999999.9,"value":5e-324,"tags":{"h":"\ud800"}}]`), false)
	f.Add([]byte("m;h=a 1e309 1\nm;h=a -9223372036854775809 -1\nm;;= 1 9223372036854775808\nm"+strings.Repeat(";t=v", 70)+" 1 1\n"), true)
	for _, n := range ingesttest.AwkwardNumbers {
		f.Add([]byte(`{"metric":"m","timestamp":1700000000,"value":`+n+`,"tags":{"h":"a"}}`), false)
		f.Add([]byte(`{"metric":"m","timestamp":`+n+`,"value":1,"tags":{"h":"a"}}`), false)
		f.Add([]byte("m;h=a "+n+" 1700000000\nm;h=a 1 "+n+"\n"), true)
	}
	f.Fuzz(func(t *testing.T, body []byte, lines bool) {
		h := newHarness(nil)
		contentType := asJSON
		if lines {
			contentType = asGraphite
		}
		w := h.post("/api/put?details", contentType, string(body))
		n, _ := h.recorder.Count()
		switch {
		case w.Code != 200 && w.Code != 400:
			t.Fatalf("status %d %s", w.Code, w.Body)
		case w.Code == 200 && !strings.HasSuffix(w.Body.String(), fmt.Sprintf(`"failed":0,"success":%d}`, n)):
			t.Fatalf("%d stored, answer %s", n, w.Body)
		}
	})
}

func BenchmarkParser(b *testing.B) {
	h := newHarness(nil)
	h.recorder.Quiet()
	const points = 4000
	var body bytes.Buffer
	body.WriteByte('[')
	for i := range points {
		fmt.Fprintf(&body, `{"metric":"sys.metric.number.%02d","timestamp":1700000000,"value":%d.%02d,"tags":{"host":"server-%03d.example.net","region":"eu-west-1","rack":"r%02d","os":"linux","env":"production","team":"storage"}},`,
			i%20, i%100, i%97, i/20, i%13)
	}
	body.Truncate(body.Len() - 1)
	body.WriteByte(']')
	p := h.handler.pools[0].Get().(*parser)
	b.ReportAllocs()
	for b.Loop() {
		p.reset(body.Bytes(), false)
		if n, err := p.w.IngestAll(context.Background(), context.Background(), p.next); err != nil || n != points {
			b.Fatal(n, err, p.faults)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/points, "ns/sample")
	b.ReportMetric(float64(body.Len())/points, "B/sample")
}

// TestPartOfTheStoreRefuses: of a body of many blocks all is stored that some part of the
// store takes, also behind what another one refuses.
func TestPartOfTheStoreRefuses(t *testing.T) {
	h := newHarness(nil)
	h.recorder.Refused = "b"
	refused := strings.Repeat(`{"metric":"b","timestamp":1,"value":1,"tags":{"h":"a"}},`, 2*ingest.BlockSamples)
	w := h.post("/api/put?details", asJSON, "["+refused+`{"metric":"a","timestamp":1,"value":1,"tags":{"h":"a"}}]`)
	if w.Code != 503 || !strings.Contains(w.Body.String(), "a part of the store takes no samples") {
		t.Errorf("answer %d %s", w.Code, w.Body)
	}
	if got, want := h.recorder.Text(), "a{h=a} long 1000 1"; got != want {
		t.Errorf("stored\n%s\nwant\n%s", got, want)
	}
}

// A point that has expired already is refused with the reason, as JSON and as a line.
func TestExpired(t *testing.T) {
	h := newHarness(func(c *ingest.Config) { c.DefaultTTL, c.TTLFrom = time.Second, ingest.FromTimestamp })
	for contentType, body := range map[string]string{asJSON: `{"metric":"m","timestamp":1,"value":1,"tags":{"h":"a"}}`, asGraphite: "m;h=a 1 1"} {
		w := h.post("/api/put?details", contentType, body)
		if w.Code != 400 || !strings.Contains(w.Body.String(), "timestamp plus ttl has passed already") || h.recorder.Text() != "" {
			t.Errorf("%s: %d %s, stored %q", contentType, w.Code, w.Body, h.recorder.Text())
		}
	}
}

// A body does not leave more memory behind than one of usual size takes.
func TestResetLeavesLittle(t *testing.T) {
	for size, kept := range map[int]bool{scratchKept: true, scratchKept + 1: false} {
		p := &parser{arena: make([]byte, size)}
		p.reset(nil, false)
		if (p.arena != nil) != kept {
			t.Errorf("%d bytes are kept: %t", size, p.arena != nil)
		}
	}
}
