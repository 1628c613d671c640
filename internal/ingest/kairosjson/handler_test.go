package kairosjson

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/datatype"
	"varve/internal/httpapi"
	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/model"
	"varve/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const someTime = 1_700_000_000_000

// harness is a Handler over a recorder, some time in 2023.
type harness struct {
	testing.TB
	recorder *ingesttest.Recorder
	pipeline *ingest.Pipeline
	reg      *prometheus.Registry
	handler  *Handler
}

func newHarness(t testing.TB, limits func(*ingest.Config)) *harness {
	h := &harness{TB: t, recorder: &ingesttest.Recorder{}}
	patient := func(c *ingest.Config) {
		c.StoreWait = time.Hour // on a busy machine the largest bodies take longer than the default
		if limits != nil {
			limits(c)
		}
	}
	h.pipeline, h.reg = ingesttest.NewPipelineAt(h.recorder, patient, func() time.Time { return time.UnixMilli(someTime) })
	h.handler = New(h.pipeline, nil)
	return h
}

func (h *harness) post(body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/api/v1/datapoints", strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, r)
	return w
}

// errorsOf returns the messages of an answer, nil for a 204.
func errorsOf(t testing.TB, w *httptest.ResponseRecorder) []string {
	t.Helper()
	if w.Code == http.StatusNoContent {
		return nil
	}
	want := "application/json"
	if w.Code == http.StatusInternalServerError { // as KairosDB's
		want += ";charset=utf-8"
	}
	if got := w.Header().Get("Content-Type"); got != want {
		t.Errorf("status %d with content type %q", w.Code, got)
	}
	var body struct{ Errors []string }
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("answer %q: %v", w.Body, err)
	}
	return body.Errors
}

// step is one request of a golden case.
type step struct {
	Method        string
	Path          string
	Body          json.RawMessage
	Text          *string
	Headers       map[string]string
	Gzip          bool
	ExpectStatus  int                `json:"expect_status"`
	Expect        json.RawMessage    `json:"expect"`
	ExpectHeaders map[string]*string `json:"expect_headers"`
	Wanted        *struct {
		ExpectStatus int             `json:"expect_status"`
		Expect       json.RawMessage `json:"expect"`
	}
}

// readCase returns the ingest requests of a golden case and the values that its
// queries find, of the first result.
func readCase(t *testing.T, file string) []step {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Datapoints   json.RawMessage
		IngestStatus int             `json:"ingest_status"`
		IngestExpect json.RawMessage `json:"ingest_expect"`
		Wanted       *struct {
			IngestStatus int             `json:"ingest_status"`
			IngestExpect json.RawMessage `json:"ingest_expect"`
		}
		Steps []step
	}
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	if c.Wanted != nil && c.Wanted.IngestStatus != 0 {
		c.IngestStatus, c.IngestExpect = c.Wanted.IngestStatus, c.Wanted.IngestExpect
	}
	if c.Steps == nil {
		c.Steps = []step{{Path: "/api/v1/datapoints", Body: c.Datapoints, ExpectStatus: c.IngestStatus, Expect: c.IngestExpect}}
	}
	return c.Steps
}

// refused are the steps where Varve answers 400 and KairosDB stores values
// that it cannot read back (Q6).
var refused = map[string]bool{"201-not-a-number.json": true}

func TestKairosCases(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*.json")
	if err != nil || len(files) < 30 {
		t.Fatal("golden cases are missing", err)
	}
	var stored strings.Builder
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, nil)
			for i, s := range readCase(t, file) {
				if s.Path == "/api/v1/datapoints" && s.Method == "" {
					runStep(t, h, i, s, refused[name])
				}
			}
			fmt.Fprintf(&stored, "# %s\n%s\n", name, h.recorder.Text())
		})
	}
	golden(t, "testdata/cases.golden", stored.String())
}

func runStep(t *testing.T, h *harness, i int, s step, refused bool) {
	body := string(s.Body)
	if s.Text != nil {
		body = *s.Text
	}
	if s.Gzip {
		body = zip(body)
	}
	var header []string
	for k, v := range s.Headers {
		header = append(header, k, v)
	}
	w := h.post(body, header...)
	if s.Wanted != nil && s.Wanted.ExpectStatus != 0 {
		s.ExpectStatus, s.Expect = s.Wanted.ExpectStatus, s.Wanted.Expect
	}
	if s.ExpectStatus == 0 {
		s.ExpectStatus = http.StatusNoContent
	}
	if refused {
		s.ExpectStatus = http.StatusBadRequest
	}
	if w.Code != s.ExpectStatus {
		t.Errorf("step %d: status %d %s, want %d", i, w.Code, w.Body, s.ExpectStatus)
	}
	var want struct{ Errors []string }
	if len(s.Expect) > 0 {
		if err := json.Unmarshal(s.Expect, &want); err != nil {
			t.Fatal(err)
		}
	}
	got := errorsOf(t, w)
	if !refused && !slices.Equal(want.Errors, []string{"$any"}) && !slices.Equal(got, want.Errors) {
		t.Errorf("step %d: errors\n%q\nwant\n%q", i, got, want.Errors)
	}
	for k, v := range s.ExpectHeaders {
		switch have, there := w.Header()[http.CanonicalHeaderKey(k)]; {
		case v == nil && there:
			t.Errorf("step %d: header %s: %q, want none", i, k, have)
		case v != nil && (!there || have[0] != *v):
			t.Errorf("step %d: header %s: %q, want %q", i, k, have, *v)
		}
	}
}

func zip(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, s)
	z.Close()
	return b.String()
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

// TestMessages covers texts that no golden case has.
func TestMessages(t *testing.T) {
	const (
		good = `"name":"m","tags":{"h":"a"}`
		ctx  = "metric[0](name=m)"
	)
	for _, c := range []struct {
		body string
		want []string
	}{
		{`{` + good + `,"timestamp":1,"value":""}`, []string{ctx + ".value may not be empty."}},
		{`{` + good + `,"timestamp":1,"value":null}`, []string{ctx + ".value may not be empty."}},
		{`{` + good + `,"timestamp":1,"value":[]}`, []string{ctx + ".value may not be an empty array."}},
		{`{` + good + `,"timestamp":1,"value":[1]}`, []string{ctx + " value is an invalid type"}},
		{`{` + good + `,"timestamp":1,"value":{"a":1}}`, []string{ctx + " value is an invalid type"}},
		{`{` + good + `,"timestamp":1.5,"value":1}`, []string{ctx + ".timestamp must be a whole number of milliseconds, not '1.5'."}},
		{`{` + good + `,"timestamp":"x","value":1}`, []string{ctx + ".timestamp must be a whole number of milliseconds, not 'x'."}},
		{`{` + good + `,"datapoints":[[null,1]]}`, []string{ctx + ".datapoints[0].timestamp may not be null."}},
		{`{` + good + `,"datapoints":[["x",1]]}`, []string{ctx + ".datapoints[0].timestamp must be a number of milliseconds, not 'x'."}},
		{`{` + good + `,"datapoints":[[1,[]]]}`, []string{ctx + ".datapoints[0].value may not be an empty array."}},
		{`{` + good + `,"datapoints":[[1,[2,3]]]}`, []string{ctx + " value is an invalid type"}},
		{`{` + good + `,"datapoints":[5]}`, []string{ctx + ".datapoints[0].point must be an array of timestamp and value, not NUMBER."}},
		{`{` + good + `,"datapoints":[[1,1,"a"],[2,2,"b"]]}`, []string{"Unregistered data point type 'a'", "Unregistered data point type 'b'"}},
		{`{` + good + `,"datapoints":[[1,"NaN","double"]]}`, []string{ctx + ".datapoints[0].value must be finite and fit a 64-bit float."}},
		{`{` + good + `,"datapoints":[[1,NaN],[1,-Infinity]]}`, []string{ctx + ".datapoints[0].value must be finite and fit a 64-bit float.", ctx + ".datapoints[0].value must be finite and fit a 64-bit float."}},
		{`{` + good + `,"timestamp":1,"value":Infinity}`, []string{ctx + ".value must be finite and fit a 64-bit float."}},
		{`{` + good + `,"datapoints":[[1,1e999]]}`, []string{ctx + ".datapoints[0].value must be finite and fit a 64-bit float."}},
		{`{` + good + `,"datapoints":[[1,99999999999999999999,"long"]]}`, []string{ctx + ".datapoints[0].value '99999999999999999999' is not a whole number of 64 bits."}},
		{`{` + good + `,"datapoints":[[1,"x","double"]]}`, []string{ctx + ".datapoints[0].value 'x' is not a number."}},
		{`{` + good + `,"datapoints":[[1,{"real":1e999,"imaginary":0},"complex"]]}`, []string{ctx + ".datapoints[0].value must be finite."}},
		{`{` + good + `,"datapoints":[[1,5,"complex"]]}`, []string{ctx + ".datapoints[0].value must be an object with the numbers real and imaginary."}},
		{`{` + good + `,"ttl":-1,"timestamp":1,"value":1}`, []string{"ttl of -1 seconds must be between 0 and 630720000"}},
		{`{` + good + `,"ttl":630720001,"timestamp":1,"value":1}`, []string{"ttl of 630720001 seconds must be between 0 and 630720000"}},
		{`{` + good + `,"ttl":5,"datapoints":[[-9223372036854775808,1],[1700000000000,2]]}`, []string{ctx + ".datapoints[0].timestamp is more than a century ago, too long for a ttl that counts from the write."}},
		{`{` + good + `,"ttl":5,"datapoints":[[-9223372036854775808,"x","string"],[1700000000000,2]]}`, []string{ctx + ".datapoints[0].timestamp is more than a century ago, too long for a ttl that counts from the write."}},
		{`{` + good + `,"ttl":"x","timestamp":1,"value":1}`, []string{"ttl 'x' must be a number of seconds between 0 and 630720000"}},
		{`[{"tags":{},"timestamp":1}]`, []string{"metric[0].name may not be null.", "metric[0].value may not be null.", "metric[0].tags count must be greater than or equal to 1."}},
		{`[{"tags":{},"datapoints":[[],[1]]}]`, []string{"metric[0].name may not be null.", "metric[0].tags count must be greater than or equal to 1."}},
		{`[{` + good + `,"datapoints":[[1,1]]},5]`, []string{"metric[1] must be an object but was NUMBER."}},
		{`[5,{` + good + `,"timestamp":1.5,"value":1}]`, []string{"metric[0] must be an object but was NUMBER.", "metric[1](name=m).timestamp must be a whole number of milliseconds, not '1.5'."}},
		{`[[1,[2]],{` + good + `,"timestamp":1.5,"value":1}]`, []string{"metric[0] must be an object but was BEGIN_ARRAY.", "metric[1](name=m).timestamp must be a whole number of milliseconds, not '1.5'."}},
		{`[[1,}]`, []string{"com.google.gson.stream.MalformedJsonException: Unterminated array at line 1 column 6"}},
		{`[{"name":"m","timestamp":"x","value":1,"datapoints":[[1,1],[2,2]]}]`, []string{ctx + ".tags count must be greater than or equal to 1."}},
		{`[{"name":"m","datapoints":[5,[],[1,1],[2,2]]}]`, []string{ctx + ".tags count must be greater than or equal to 1."}},
		{`[{` + good + `,"timestamp":1,"value":1} {}]`, []string{"Unterminated array at line 1 column 57"}},
		{`[{` + good + `,"timestamp":1,"value" 1}]`, []string{"com.google.gson.stream.MalformedJsonException: Expected ':' at line 1 column 54"}},
		{"[{\n\"name\":\"é\",\n\"tags\":{\"a\":[]}, \"timestamp\":1, \"value\":1}]", []string{"java.lang.IllegalStateException: Expected a string but was BEGIN_ARRAY at line 3 column 14"}},
		{`{` + good + `,"timestamp":1,"value":"a\u12b"}`, []string{ctx + ".value has an invalid escape sequence."}},
		{`{` + good + `,"timestamp":1,"value":"\ud800"}`, []string{ctx + ".value: string value is not UTF-8"}},
		{`{"name":"m\ud800","tags":{"h":"a"},"timestamp":1,"value":1}`, []string{"metric[0](name=m\ufffd): metric name \"m\\xff\" is not UTF-8"}},
		{`{` + good + `,"datapoint":[[1,1]]}`, []string{ctx + " has no datapoints, but an unknown member 'datapoint'; did you mean datapoints?"}},
		{`{` + good + `,"values":[[1,1]],"more":1}`, []string{ctx + " has no datapoints, but an unknown member 'values'; did you mean value?"}},
		{`{` + good + `,"samples":[[1,1]]}`, []string{ctx + " has no datapoints, but an unknown member 'samples'"}},
		{`{"name":"m","samples":[[1,1]]}`, []string{ctx + ".tags count must be greater than or equal to 1."}},
		{`{` + good + `,"more":1,"datapoints":[]}`, nil},
		{`{` + good + `,"more":1,"timestamp":1,"value":1}`, nil},
		{`{` + good + `}`, nil},
		{`{"name":"m","skip_validate":true,"timestamp":1,"value":1}`, nil},
		{`{"name":"m","skip_validate":"true","timestamp":1,"value":1}`, nil},
		{`{"name":"m","skip_validate":TRUE,"timestamp":1,"value":1}`, nil},
		{`{"name":"m","skip_validate":"false","timestamp":1,"value":1}`, []string{ctx + ".tags count must be greater than or equal to 1."}},
		{`{` + good + `,"tags":null,"timestamp":1,"value":1}`, []string{ctx + ".tags count must be greater than or equal to 1."}},
		{`{` + good + `,"tags":[],"timestamp":1,"value":1}`, []string{ctx + ".tags count must be greater than or equal to 1."}},
		{`{"name":"m","skip_validate":false,"timestamp":1,"value":1}`, []string{ctx + ".tags count must be greater than or equal to 1."}},
		{`{"name":"m","timestamp":1,"value":1}`, []string{ctx + ".tags count must be greater than or equal to 1."}},
	} {
		h := newHarness(t, nil)
		h.post(`{"name":"m","skip_validate":true,"timestamp":1,"value":1}`) // must not become an alias for others
		w := h.post(c.body)
		if got := errorsOf(t, w); !slices.Equal(got, c.want) {
			t.Errorf("%s\n got %q\nwant %q", c.body, got, c.want)
		}
	}
}

func TestValues(t *testing.T) {
	for _, c := range []struct{ member, want string }{
		{`"datapoints":[[1,9223372036854775807],[2,-9223372036854775808]]`, "m{h=a} long 1 9223372036854775807\nm{h=a} long 2 -9223372036854775808"},
		{`"datapoints":[[1,18446744073709551616]]`, "m{h=a} double 1 1.8446744073709552e+19"},
		{`"datapoints":[[1,1e3],[2,10e-1],[3,-5E0],[4,0e-9],[5,-0]]`, "m{h=a} long 1 1000\nm{h=a} long 2 1\nm{h=a} long 3 -5\nm{h=a} long 4 0\nm{h=a} long 5 0"},
		{`"datapoints":[[1,1e-05],[2,-5e-1],[3,15e-1]]`, "m{h=a} double 1 1e-05\nm{h=a} double 2 -0.5\nm{h=a} double 3 1.5"},
		{`"datapoints":[[1,9e18],[2,1e19],[3,-9223372036854775808e0],[4,-9223372036854775809]]`, "m{h=a} long 1 9000000000000000000\nm{h=a} double 2 1e+19\nm{h=a} long 3 -9223372036854775808\nm{h=a} double 4 -9.223372036854776e+18"},
		{`"datapoints":[[1,5e-324],[2,1e-400],[3,9007199254740993],[4,9007199254740993.0]]`, "m{h=a} double 1 5e-324\nm{h=a} double 2 0\nm{h=a} long 3 9007199254740993\nm{h=a} double 4 9.007199254740992e+15"},
		{`"datapoints":[[1,.5e3],[2,5.e3],[3,+5e3],[4,.5],[5,+5]]`, "m{h=a} string 1 \".5e3\"\nm{h=a} string 2 \"5.e3\"\nm{h=a} string 3 \"+5e3\"\nm{h=a} double 4 0.5\nm{h=a} long 5 5"}, // as KairosDB tells numbers from texts
		{`"timestamp":1,"value":1e-05`, "m{h=a} double 1 1e-05"},
		{`"datapoints":[[9223372036854775807,1],[-9223372036854775808,2],[9223372036854775808,3]]`, "m{h=a} long 9223372036854775807 1\nm{h=a} long -9223372036854775808 2"},
		{`"datapoints":[[1,1],[2,NaN],[3,Infinity],[4,-Infinity],[5,"NaN"],[6,2]]`, "m{h=a} long 1 1\nm{h=a} string 5 \"NaN\"\nm{h=a} long 6 2"},
		{`"timestamp":1,"value":NaN`, ""},
		{`"datapoints":[[1,1e300]]`, "m{h=a} double 1 1e+300"},
		{`"datapoints":[["123",1],[1.7,2],[ 5 , 6 , ],]`, ""}, // trailing comma: not JSON
		{`"datapoints":[["123",1],[1.7,2],[ 5 , 6 ]]`, "m{h=a} long 123 1\nm{h=a} long 1 2\nm{h=a} long 5 6"},
		{`"datapoints":[[-1,1.5],[-0,-0.0]]`, "m{h=a} double -1 1.5\nm{h=a} double 0 -0"},
		{`"datapoints":[[1,'a'],[2,b],[3,"\u00e9\n"],[4,true],[5,FALSE]]`, "m{h=a} string 1 \"a\"\nm{h=a} string 2 \"b\"\nm{h=a} string 3 \"é\\n\"\nm{h=a} string 4 \"true\"\nm{h=a} string 5 \"false\""},
		{`"datapoints":[[1,{"real":1.5,"imaginary":-2.25}]],"type":"complex"`, "m{h=a} complex 1 3ff8000000000000c002000000000000"},
		{`"datapoints":[[1700000000000,2]],"ttl":60`, "m{h=a} long 1700000000000 2 ttl=60"},
		{`"datapoints":[[1700000000000,2]],"ttl":"60"`, "m{h=a} long 1700000000000 2 ttl=60"},
		{`"datapoints":[[1699999999999,2],[1700000000999,3],[1700000050000,4],[1700000090000,5]],"ttl":60`, "m{h=a} long 1699999999999 2 ttl=61\nm{h=a} long 1700000000999 3 ttl=60\nm{h=a} long 1700000050000 4 ttl=10\nm{h=a} long 1700000090000 5 ttl=1"},
		{`"datapoints":[[0,2],[-1300000000000,3]],"ttl":60`, "m{h=a} long 0 2 ttl=1700000060\nm{h=a} long -1300000000000 3 ttl=3000000060"},
		{`"datapoints":[[9223372036854775807,2]],"ttl":60`, "m{h=a} long 9223372036854775807 2 ttl=1"},
		{`"time":7,"timestamp":8,"value":1`, "m{h=a} long 7 1"},
		{`"timestamp":8,"time":7,"value":1`, "m{h=a} long 7 1"},
		{`"timestamp":"8","value":1,"datapoints":[[9,2]]`, "m{h=a} long 8 1\nm{h=a} long 9 2"},
		{`"other":{"a":["]",'}']},"timestamp":1,"value":1`, "m{h=a} long 1 1"},
		{`"datapoints":null`, ""},
	} {
		h := newHarness(t, nil)
		h.post(`[{` + c.member + `,"name":"m","tags":{"h":"a"}}]`)
		if got := h.recorder.Text(); !strings.HasPrefix(got, c.want) || (c.want != "" && got != c.want) {
			t.Errorf("%s\n got %s\nwant %s", c.member, got, c.want)
		}
	}
}

func TestLimits(t *testing.T) {
	point := `"datapoints":[[1,1]]`
	h := newHarness(t, func(c *ingest.Config) {
		c.MaxTags, c.MaxTagValueBytes, c.MaxStringBytes, c.MaxSeries = 2, 5, 3, 2
		c.MaxBodyBytes, c.MaxUnpackedBytes = 1000, 2000
	})
	for _, c := range []struct{ body, want string }{
		{`{"name":"m","tags":{"a":"1","b":"2","c":"3"},` + point + `}`, "metric[0](name=m): limit ingest.max_tags of 2 reached, at least 3 needed: tags of metric m"},
		{`{"name":"m","tags":{"a":"123456"},` + point + `}`, "metric[0](name=m): limit ingest.max_tag_value_bytes of 5 reached, at least 6 needed: tag value 123456"},
		{`{"name":"m","tags":{"a":"1"},"timestamp":1,"value":"abcd"}`, "metric[0](name=m).value: limit bytes of a string value of 3 reached, at least 4 needed: string value"},
		{`[{"name":"m","tags":{"a":"1"},` + point + `},{"name":"n","tags":{"a":"1"},` + point + `},{"name":"o","tags":{"a":"1"},` + point + `},{"name":"n","tags":{"a":"1"},"datapoints":[[2,2]]}]`,
			"metric[2](name=o): limit ingest.max_series of 2 reached, at least 3 needed: new series o"},
		{strings.Repeat(" ", 1001), "limit bytes of a body of 1000 reached, at least 1001 needed: reading the request body, which may take a quarter of ingest.body_memory; send it in smaller pieces"},
	} {
		w := h.post(c.body)
		if got := errorsOf(t, w); w.Code != 400 || len(got) != 1 || got[0] != c.want {
			t.Errorf("%.100s\n got %d %q\nwant %q", c.body, w.Code, got, c.want)
		}
	}
	w := h.post(zip(strings.Repeat(" ", 100000)), "Content-Encoding", "gzip")
	if got := errorsOf(t, w); len(got) != 1 || !strings.Contains(got[0], "bytes of an unpacked body of 2000") {
		t.Errorf("unpacked beyond the limit: %q", got)
	}
	if got, want := h.recorder.Text(), "m{a=1} long 1 1\nn{a=1} long 1 1\nn{a=1} long 2 2"; got != want {
		t.Errorf("stored\n%s\nwant\n%s", got, want)
	}
	if used := ingesttest.Counters(t, h.reg, "varve_ingest_body_bytes"); len(used) != 0 {
		t.Errorf("body memory still held: %v", used)
	}
}

// TestRetryAfter: a sender learns when the new series that were refused, and samples again,
// are within their limits.
func TestRetryAfter(t *testing.T) {
	points := func(metrics, samples int) string {
		var b strings.Builder
		for m := range metrics {
			fmt.Fprintf(&b, `,{"name":"m%d","tags":{"h":"a"},"datapoints":[`, m)
			for i := range samples {
				fmt.Fprintf(&b, "[%d,1],", i+1)
			}
			b.WriteString("[0,1]]}")
		}
		return "[" + b.String()[1:] + "]"
	}
	h := newHarness(t, func(c *ingest.Config) { c.NewSeriesBurst, c.NewSeriesPerSecond = 10, 2 })
	for metrics, want := range map[int]string{15: "3", 100: "5"} { // at most a burst comes at once
		if w := h.post(points(metrics, 0)); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != want {
			t.Errorf("%d new series: %d, Retry-After %q, want %s", metrics, w.Code, w.Header().Get("Retry-After"), want)
		}
		h = newHarness(t, func(c *ingest.Config) { c.NewSeriesBurst, c.NewSeriesPerSecond = 10, 2 })
	}
	h = newHarness(t, func(c *ingest.Config) { c.SamplesPerSecond, c.StoreWait = 10, time.Second })
	if w := h.post(points(1, 44)); w.Code != http.StatusNoContent {
		t.Fatalf("answer %d %s", w.Code, w.Body)
	}
	if w := h.post(points(1, 0)); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "5" {
		t.Errorf("after 4.5 s of samples: %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
	}
}

func TestNewSeriesRateIsBusyAndKeepsTheRest(t *testing.T) {
	h := newHarness(t, func(c *ingest.Config) { c.NewSeriesBurst, c.NewSeriesPerSecond = 1, 1 })
	w := h.post(`[{"name":"a","tags":{"h":"a"},"datapoints":[[1,1]]},{"name":"b","tags":{"h":"a"},"datapoints":[[1,1]]},{"name":"a","tags":{"h":"a"},"datapoints":[[2,1]]}]`)
	if w.Code != http.StatusServiceUnavailable || w.Body.Len() != 0 || w.Header().Get("Retry-After") == "" {
		t.Errorf("answer %d %q %v", w.Code, w.Body, w.Header())
	}
	if got, want := h.recorder.Text(), "a{h=a} long 1 1\na{h=a} long 2 1"; got != want {
		t.Errorf("stored\n%s\nwant\n%s", got, want)
	}
}

func TestBusyStore(t *testing.T) {
	h := newHarness(t, nil)
	h.recorder.OnAppend = func(*store.Batch) error { return &store.UnavailableError{Reason: "disk is full"} }
	w := h.post(`{"name":"a","tags":{"h":"a"},"datapoints":[[1,1]]}`)
	if w.Code != http.StatusServiceUnavailable || w.Body.Len() != 0 {
		t.Errorf("answer %d %q", w.Code, w.Body)
	}
	if got := ingesttest.Counters(t, h.reg, "varve_ingest_rejected_total"); got["kairosdb_json,unavailable"] != 1 {
		t.Errorf("refused %v", got)
	}
}

// A store that creates no series refuses the request, whatever the type of its
// points: none of them goes to another series.
func TestStoreThatCreatesNoSeries(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
	}{
		{&store.UnavailableError{Reason: "disk is full"}, http.StatusServiceUnavailable},
		{errors.New("disk on fire"), http.StatusInternalServerError},
		{&store.InputError{Reason: "no"}, http.StatusBadRequest},
	} {
		for _, point := range []string{`[1,5]`, `[1,5.5]`, `[1,"x"]`, `[1,{"real":1,"imaginary":2},"complex"]`, `[1,{},"point"]`} {
			h := newHarness(t, nil)
			h.handler.types = append(datatype.All(), datatype.Type{
				Name: "point", Stored: "acme_point",
				Parse: func(dst, text []byte) ([]byte, error) { return append(dst, text...), nil },
			})
			h.post(`{"name":"first","tags":{"h":"a"},"datapoints":[[1,1]]}`)
			h.recorder.OnCreate = func(model.Series) error { return c.err }
			w := h.post(`[{"name":"m","tags":{"h":"a"},"datapoints":[` + point + `]},{"name":"first","tags":{"h":"a"},"datapoints":[[2,2]]}]`)
			want := "first{h=a} long 1 1"
			if c.status == http.StatusBadRequest { // that is about the one series
				want += "\nfirst{h=a} long 2 2"
			}
			if got := h.recorder.Text(); w.Code != c.status || got != want {
				t.Errorf("%s, %v: answer %d %s, and stored are\n%s", point, c.err, w.Code, w.Body, got)
			}
		}
	}
}

// An answer of 500 has the headers of KairosDB's, which a client must not cache.
func TestInternalErrorsAreNotCached(t *testing.T) {
	h := newHarness(t, nil)
	h.recorder.OnAppend = func(*store.Batch) error { return errors.New("disk on fire") }
	w := h.post(`{"name":"a","tags":{"h":"a"},"datapoints":[[1,1]]}`)
	if got := errorsOf(t, w); w.Code != http.StatusInternalServerError || len(got) != 1 || !strings.Contains(got[0], "disk on fire") {
		t.Errorf("answer %d %q", w.Code, got)
	}
	for name, want := range map[string]string{"Cache-Control": "no-cache", "Pragma": "no-cache", "Expires": "0", "Access-Control-Allow-Origin": "*"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// Tags that are no JSON refuse their metric, also where they begin well.
func TestMalformedTags(t *testing.T) {
	const malformed = "com.google.gson.stream.MalformedJsonException: "
	for tags, want := range map[string]string{
		`{"h":"a" "g":"b"}`:   malformed + "Unterminated object",
		`{"h":"a":"g":"b"}`:   malformed + "Unterminated object",
		`{"h":"a","g" "b"}`:   malformed + "Expected ':'",
		`{"h":"a","g":}`:      malformed + "Expected value",
		`{"h":"a",:"b"}`:      malformed + "Expected name",
		`{"h":"a","g":["b"]}`: "Expected a string but was BEGIN_ARRAY",
		`{"h":"a","g":{}}`:    "Expected a string but was BEGIN_OBJECT",
	} {
		h := newHarness(t, nil)
		w := h.post(`[{"name":"m","tags":` + tags + `,"timestamp":1,"value":1},{"name":"other","tags":{"h":"a"},"timestamp":1,"value":1}]`)
		got := errorsOf(t, w)
		if w.Code != http.StatusBadRequest || len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%s: answer %d %q, want %q", tags, w.Code, got, want)
		}
		if got := h.recorder.Text(); got != "other{h=a} long 1 1" {
			t.Errorf("%s: stored are %q", tags, got)
		}
	}
}

func TestCutOffBody(t *testing.T) {
	h := newHarness(t, nil)
	r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader(`{"name":"a"`), iotest.ErrReader(io.ErrUnexpectedEOF)))
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, r)
	if got := errorsOf(t, w); w.Code != 400 || !slices.Equal(got, []string{"read request body: unexpected EOF"}) {
		t.Errorf("answer %d %q", w.Code, got)
	}
}

// A body that is cut off anywhere is refused, and what is stored of it was complete.
func TestCutOffAnywhere(t *testing.T) {
	const (
		first  = `{"name":"m","tags":{"h":"\u0061"},"datapoints":[[1,5],[2,"x"]]}`
		second = `{"ttl":0,"other":[{"x":null}],"datapoints":[[3,{"real":1,"imaginary":2},"complex"]],"tags":{"h":"b"},"name":"n"}`
		third  = `{"timestamp":4,"value":1.5,"name":"o","type":"double","tags":{"h":"c"}}`
		body   = `[` + first + `, ` + second + `,` + third + `]`
	)
	stored := []struct {
		end  int
		text string
	}{
		{len(`[` + first), "m{h=a} long 1 5\nm{h=a} string 2 \"x\""},
		{len(`[` + first + `, ` + second), "\nn{h=b} complex 3 3ff00000000000004000000000000000"},
		{len(body) - 1, "\no{h=c} double 4 1.5"},
	}
	for n := 1; n < len(body); n++ {
		h := newHarness(t, nil)
		w := h.post(body[:n])
		want := ""
		for _, s := range stored {
			if n >= s.end {
				want += s.text
			}
		}
		if got := h.recorder.Text(); w.Code != 400 || got != want {
			t.Errorf("%s\nanswer %d %s, stored\n%s\nwant\n%s", body[:n], w.Code, w.Body, got, want)
		}
	}
}

// bigBody has one metric whose points take several blocks, with faults.
func bigBody(points int) string {
	var b strings.Builder
	b.WriteString(`[{"name":"x","tags":{},"datapoints":[[1,1]]},{"datapoints":[`)
	for i := range points {
		fmt.Fprintf(&b, `[%d,%d],`, i, i)
		if i%5000 == 0 {
			b.WriteString(`[],`)
		}
	}
	b.WriteString(`[0,0.5]],"tags":{"h\u0061":"a"},"name":"m\u006d"}]`)
	return b.String()
}

// TestStaleBlocks makes references void before several of the blocks of one
// body: each point is stored once, each fault told and counted once.
func TestStaleBlocks(t *testing.T) {
	const points = 3*ingest.BlockSamples + 10
	want := newHarness(t, nil)
	wantTold := errorsOf(t, want.post(bigBody(points)))

	h := newHarness(t, nil)
	appends := 0
	h.recorder.OnAppend = func(*store.Batch) error {
		if appends++; appends%2 == 1 {
			h.recorder.Forget()
		}
		return nil
	}
	told := errorsOf(t, h.post(bigBody(points)))
	if !slices.Equal(told, wantTold) || len(told) != 6 {
		t.Errorf("told %q, want %q", told, wantTold)
	}
	if n, _ := h.recorder.Count(); n != points+1 {
		t.Errorf("stored %d samples, want %d", n, points+1)
	}
	if h.recorder.Text() != want.recorder.Text() {
		t.Error("stored other samples than without void references")
	}
	for _, x := range []*harness{h, want} {
		got := ingesttest.Counters(t, x.reg, "varve_ingest_rejected_total")
		if !reflect.DeepEqual(got, map[string]float64{"kairosdb_json,no_tags": 1, "kairosdb_json,bad_time": 5}) {
			t.Errorf("refused %v", got)
		}
	}
}

// TestLongTextsAreStoredInSmallBatches keeps batches below what a store takes.
func TestLongTextsAreStoredInSmallBatches(t *testing.T) {
	h := newHarness(t, nil)
	largest := 0
	h.recorder.OnAppend = func(b *store.Batch) error { largest = max(largest, len(b.Data)); return nil }
	text := strings.Repeat("x", 60000)
	w := h.post(`{"name":"m","tags":{"h":"a"},"datapoints":[` + strings.Repeat(`[1,"`+text+`"],`, 99) + `[1,"` + text + `"]]}`)
	if n, _ := h.recorder.Count(); w.Code != 204 || n != 100 || largest > 1<<20+60000 {
		t.Errorf("answer %d, %d samples, largest batch %d bytes", w.Code, n, largest)
	}
}

func TestManyFaultsAreCutInTheAnswer(t *testing.T) {
	h := newHarness(t, nil)
	w := h.post(`{"name":"m","tags":{"h":"a"},"datapoints":[` + strings.Repeat("[],", 1999) + `[]]}`)
	told := errorsOf(t, w)
	if len(told) != maxMessages+1 || told[maxMessages] != "and 1000 more faults, see /admin/rejected" {
		t.Errorf("%d messages, the last %q", len(told), told[len(told)-1])
	}
}

// TestFaultsAfterAStoredBatch: an answer that is full stays so when a batch was stored, after which
// refused inputs are noted again.
func TestFaultsAfterAStoredBatch(t *testing.T) {
	h := newHarness(t, nil)
	faults, text := strings.Repeat("[],", 1500), strings.Repeat("x", 60000)
	w := h.post(`{"name":"m","tags":{"h":"a"},"datapoints":[` + faults + strings.Repeat(`[1,"`+text+`"],`, 40) + faults + `[2,"` + text + `"]]}`)
	told := errorsOf(t, w)
	if len(told) != maxMessages+1 || told[maxMessages] != "and 2000 more faults, see /admin/rejected" {
		t.Errorf("%d messages, the last %q", len(told), told[len(told)-1])
	}
}

// TestRecordings replays what real clients sent to a real HTTP server.
func TestRecordings(t *testing.T) {
	files, _ := filepath.Glob("testdata/clients/*.*")
	for _, file := range files {
		if filepath.Ext(file) == ".golden" {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, piece := range []int{len(data), 1428, 7, 1} {
			name := fmt.Sprintf("%s/%d", filepath.Base(file), piece)
			t.Run(name, func(t *testing.T) {
				// With ttl_from timestamp what is stored does not depend on the clock.
				h := newHarness(t, func(c *ingest.Config) { c.TTLFrom = ingest.FromTimestamp })
				answers := ingesttest.Replay(t, h.handler.Routes(), data, piece)
				stored := h.recorder.Text()
				if n, _ := h.recorder.Count(); n > 1000 {
					stored = fmt.Sprintf("%d samples, the last %s", n, stored[strings.LastIndexByte(stored, '\n')+1:])
				}
				golden(t, file+".golden", answers+stored+"\n")
			})
		}
	}
}

func FuzzBody(f *testing.F) {
	files, _ := filepath.Glob("testdata/cases/*.json")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var c struct{ Datapoints json.RawMessage }
		if json.Unmarshal(text, &c) == nil && c.Datapoints != nil {
			f.Add([]byte(c.Datapoints))
		}
	}
	for _, n := range ingesttest.AwkwardNumbers {
		f.Add([]byte(`{"name":"m","tags":{"h":"a"},"timestamp":1700000000000,"value":` + n + `}`))
		f.Add([]byte(`{"name":"m","tags":{"h":"a"},"datapoints":[[` + n + `,1],[1,` + n + `]]}`))
		f.Add([]byte(`{"name":"m","tags":{"h":"a"},"type":"double","ttl":` + n + `,"datapoints":[[1,` + n + `]]}`))
	}
	f.Add([]byte(`[{name:'k', tags:{h:a}, /* c */ datapoints:[[1, 4]] // end` + "\n}]"))
	for _, body := range []string{
		`{"name":"m","tags":{"h":"a"},"ttl":0,"datapoints":[[9223372036854775807,-0.0],[-9223372036854775808,9007199254740993],[1,5e-324],[1,1e-05],[1,1e400]]}`,
		`{"name":"m","tags":{"h":"a"},"ttl":630720000,"datapoints":[[0,NaN],[0,-Infinity],[0,"NaN"],[0,1e308,"long"],[0,18446744073709551616]]}`,
		`[{"name":"` + strings.Repeat(`\u00e9`, 1024) + `","tags":{"` + strings.Repeat("t", 512) + `":"` + strings.Repeat("v", 4096) + `"},"timestamp":1,"value":1}]`,
		`[{"name":"m","tags":{` + strings.Repeat(`"t":"v",`, 70) + `"u":"w"},"datapoints":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}]`,
		`{"name":"m","tags":{"h":"a"},"datapoints":[[1,{"real":1e999,"imaginary":-0},"complex"],[1,[[]]],[],[1],[null,1],[1,1,null]]}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		h := newHarness(t, nil)
		w := h.post(string(body))
		if w.Code != 204 && w.Code != 400 {
			t.Fatalf("status %d %s", w.Code, w.Body)
		}
		if w.Code == 400 && len(errorsOf(t, w)) == 0 {
			t.Fatalf("400 without a message")
		}
		// What strict JSON says is a metric with one point must be stored.
		var m struct {
			Name      string
			Tags      map[string]string
			Timestamp *int64
			Value     *int64
		}
		if json.Unmarshal(body, &m) != nil || m.Name == "" || len(m.Tags) != 1 || m.Timestamp == nil || m.Value == nil || w.Code == 400 {
			return
		}
		if n, _ := h.recorder.Count(); n == 0 && bytes.HasPrefix(body, []byte("{")) {
			t.Fatalf("%s: answered %d, nothing stored", body, w.Code)
		}
	})
}

// benchBody has metrics of 5 points, each about as large as the prototypes' was.
func benchBody(metrics int) []byte {
	var b bytes.Buffer
	b.WriteByte('[')
	for i := range metrics {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":"sys.metric.number.%02d","tags":{"host":"server-%03d.example.net","region":"eu-west-1","rack":"r%02d","os":"linux","env":"production","team":"storage"},"datapoints":[`, i%20, i/20, i%13)
		for j := range 5 {
			if j > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `[%d,%d.%02d]`, 1700000000000+10000*int64(j), (i+j)%100, (i*j)%97)
		}
		b.WriteString(`]}`)
	}
	b.WriteByte(']')
	return b.Bytes()
}

func BenchmarkParser(b *testing.B) {
	h := newHarness(b, nil)
	h.recorder.Quiet()
	body := benchBody(4000)
	p := h.handler.pool.Get().(*parser)
	b.ReportAllocs()
	for b.Loop() {
		p.reset(body)
		if _, err := p.w.IngestAll(context.Background(), context.Background(), p.next); err != nil || p.messages > 0 {
			b.Fatal(err, p.told)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/20000, "ns/sample")
	b.ReportMetric(float64(len(body))/20000, "B/sample")
}

func BenchmarkHandler(b *testing.B) {
	h := newHarness(b, nil)
	h.recorder.Quiet()
	body := benchBody(200)
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/api/v1/datapoints", bytes.NewReader(body))
		w := httptest.NewRecorder()
		if h.handler.ServeHTTP(w, r); w.Code != 204 {
			b.Fatal(w.Body)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/sample")
}

// TestTimesOfSinglePoints: the timestamp beside a value is a whole number of milliseconds. What
// only begins like one is refused, not cut.
func TestTimesOfSinglePoints(t *testing.T) {
	for timestamp, good := range map[string]bool{
		"5": true, `"6"`: true, "0": true, "-7": true,
		"1.0": false, "1.5": false, "1e400": false, "1e30": false, `"8x"`: false, `"x"`: false, `"1.0"`: false, `" 9"`: false, "9223372036854775808": false,
	} {
		h := newHarness(t, nil)
		w := h.post(`{"name":"m","timestamp":` + timestamp + `,"value":1,"tags":{"h":"a"}}`)
		if got := w.Code == http.StatusNoContent; got != good || (h.recorder.Text() != "") != good {
			t.Errorf("timestamp %s: %d %s, stored %q", timestamp, w.Code, w.Body, h.recorder.Text())
		}
	}
}

// TestPartOfTheStoreRefuses: of a body of many blocks all is stored that some part of the
// store takes, also behind what another one refuses.
func TestPartOfTheStoreRefuses(t *testing.T) {
	h := newHarness(t, nil)
	h.recorder.Refused = "b"
	points := func(n int) string { return strings.Repeat("[1,1],", n) + "[2,2]" }
	w := h.post(`[{"name":"b","tags":{"h":"a"},"datapoints":[` + points(2*ingest.BlockSamples) + `]},` +
		`{"name":"a","tags":{"h":"a"},"datapoints":[[1,1]]},{"name":"b","tags":{"h":"a"},"datapoints":[` + points(ingest.BlockSamples) + `]},` +
		`{"name":"a","tags":{"h":"a"},"datapoints":[[2,2]]}]`)
	if w.Code != http.StatusServiceUnavailable || w.Body.Len() != 0 || w.Header().Get("Retry-After") == "" {
		t.Errorf("answer %d %q %v", w.Code, w.Body, w.Header())
	}
	if got, want := h.recorder.Text(), "a{h=a} long 1 1\na{h=a} long 2 2"; got != want {
		t.Errorf("stored\n%s\nwant\n%s", got, want)
	}
	if got := ingesttest.Counters(t, h.reg, "varve_ingest_samples_total"); got["kairosdb_json"] != 2 {
		t.Errorf("counted as stored %v", got)
	}
}

// An answer that refuses points says how many others of the request were stored.
func TestRefusalsSayHowMuchIsStored(t *testing.T) {
	h := newHarness(t, nil)
	const metric = `{"name":"m","tags":{"h":"a"},"datapoints":`
	for body, want := range map[string]string{
		metric + `[[1,1],[2,"x","double"],[3,3]]}`:                       "2",
		`[` + metric + `[[1,1],[2,2],[3,3]]},` + metric + `[[null,1]]}]`: "3",
		metric + `[[null,1]]}`:                                           "0",
		metric + `[[1,1]]}`:                                              "",
	} {
		if w := h.post(body); w.Header().Get(httpapi.Stored) != want {
			t.Errorf("%s: %d, stored %q, want %q", body, w.Code, w.Header().Get(httpapi.Stored), want)
		}
	}
}
