package kairosjson

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"varve/internal/datatype"
	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
)

// A name that is too long is refused once, and its text is cut, however many
// points of the metric are at fault too.
func TestLongNameIsToldOnce(t *testing.T) {
	for name, key := range map[string]string{
		strings.Repeat("n", 256<<10): "bytes of a metric name of 2048 reached, at least 262144 needed",
		// Escapes of a text that is too long whatever it says are not resolved.
		strings.Repeat(`\u006e`, 256<<10): "bytes of a metric name of 2048 reached, at least 1572864 needed",
	} {
		h := newHarness(t, nil)
		w := h.post(zip(`{"name":"`+name+`","tags":{"a":"b"},"datapoints":[`+strings.Repeat("[1],", 999)+`[1]]}`), "Content-Encoding", "gzip")
		told := errorsOf(t, w)
		if len(told) != 1 || len(told[0]) > 500 || !strings.Contains(told[0], key) {
			t.Errorf("%d messages, the first %.300q", len(told), told[0])
		}
		if _, _, size := ingesttest.Rejections(t, h.pipeline); size > 4<<10 {
			t.Errorf("/admin/rejected has %d bytes", size)
		}
	}
}

// Each text of a sender is cut where a message repeats it.
func TestLongTextsAreCutInMessages(t *testing.T) {
	long := strings.Repeat("é", 30_000)
	const good = `"name":"m","tags":{"h":"a"}`
	for _, body := range []string{
		`{` + good + `,"timestamp":"` + long + `","value":1}`,
		`{` + good + `,"datapoints":[["` + long + `",1]]}`,
		`{` + good + `,"datapoints":[[1,"` + long + `","long"],[1,"` + long + `","double"],[1,1,"` + long + `"]]}`,
		`{` + good + `,"type":"` + long + `","datapoints":[[1,1]]}`,
		`{` + good + `,"datapoints":[[1,.` + strings.Repeat("1", 30_000) + `.1]]}`,
		`{` + good + `,"ttl":"` + long + `","datapoints":[[1,1]]}`,
		`{"name":"m","tags":{"` + long + `":"a","` + long + `":"b"},"datapoints":[[1,1]]}`,
		`{"name":"m","tags":{"` + long + `":""},"datapoints":[[1,1]]}`,
		`{"name":"m","tags":{"` + long + `":null},"datapoints":[[1,1]]}`,
		`{"name":"m","tags":{"` + long + `":"a"},"datapoints":[[1,1]]}`,
		`{"name":"m","tags":{"a":"` + long + `"},"datapoints":[[1,1]]}`,
		`{"name":"` + long + `","tags":{"a":[]},"datapoints":[[1,1]]}`,
		`{"name":"` + long + `","timestamp":1,"tags":{"a":"b"}}`,
		`{` + good + `,"datapoints":[[1,{"` + long + `":1},"complex"]]}`,
	} {
		h := newHarness(t, nil)
		told := errorsOf(t, h.post(body))
		if len(told) == 0 {
			t.Errorf("%.80s was taken", body)
		}
		for _, text := range told {
			if len(text) > 400 {
				t.Errorf("%.80s: a message of %d bytes: %.200s", body, len(text), text)
			}
		}
		list, _, _ := ingesttest.Rejections(t, h.pipeline)
		for _, r := range list {
			if len(r.Detail) > 400 || len(r.Input) > int(h.pipeline.Config().RejectedBytes)+3 {
				t.Errorf("%.80s: kept %d bytes of text, %d of input", body, len(r.Detail), len(r.Input))
			}
		}
	}
}

// The answer is bounded in bytes, too.
func TestAnswerIsBounded(t *testing.T) {
	h := newHarness(t, nil)
	value := strings.Repeat("v", 500)
	w := h.post(`{"name":"` + strings.Repeat("n", 2000) + `","tags":{"h":"a"},"datapoints":[` + strings.Repeat(`[1,"`+value+`","long"],`, 2999) + `[1,2]]}`)
	told := errorsOf(t, w)
	if w.Body.Len() > maxAnswer+4*len(told)+1024 || len(told) < 500 || len(told) > maxMessages {
		t.Errorf("%d messages, %d bytes", len(told), w.Body.Len())
	}
	if want := fmt.Sprintf("and %d more faults, see /admin/rejected", 2999-(len(told)-1)); told[len(told)-1] != want {
		t.Errorf("the last message is %q, want %q", told[len(told)-1], want)
	}
	if got := ingesttest.Counters(t, h.reg, "varve_ingest_rejected_total"); !reflect.DeepEqual(got, map[string]float64{"kairosdb_json,bad_value": 2999}) {
		t.Errorf("refused %v", got)
	}
}

// Reading stops at the first tag beyond ingest.max_tags; names are compared by
// hash where many are allowed.
func TestManyTags(t *testing.T) {
	tags := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"t%07d":"1"`, i)
		}
		return b.String()[1:]
	}
	h := newHarness(t, nil)
	told := errorsOf(t, h.post(zip(`[{"name":"m","timestamp":1,"value":1,"tags":{`+tags(200_000)+`}},{"name":"m","timestamp":1,"value":1,"tags":{"h":"a"}}]`), "Content-Encoding", "gzip"))
	const want = "metric[0](name=m): limit ingest.max_tags of 64 reached, at least 65 needed: tags of metric m"
	if len(told) != 1 || told[0] != want || h.recorder.Text() != "m{h=a} long 1 1" {
		t.Errorf("told %.300q, stored %s", told, h.recorder.Text())
	}
	h = newHarness(t, func(c *ingest.Config) { c.MaxTags = 100_000 })
	for _, n := range []int{fewTags - 1, fewTags, fewTags + 1, 50_000} {
		for _, twice := range []int{0, n / 2, n - 1} {
			told = errorsOf(t, h.post(fmt.Sprintf(`{"name":"m","timestamp":1,"value":1,"tags":{%s,"t%07d":"2"}}`, tags(n), twice)))
			if want := fmt.Sprintf("duplicate key: t%07d", twice); len(told) != 1 || told[0] != want {
				t.Errorf("%d tags: told %.300q, want %s", n, told, want)
			}
		}
		told = errorsOf(t, h.post(`{"name":"m","timestamp":1,"value":1,"tags":{`+tags(n)+`}}`))
		tooLong := len(told) == 1 && strings.Contains(told[0], "limit bytes of a series of 65535 reached")
		if n == 50_000 && !tooLong || n < 50_000 && told != nil {
			t.Errorf("%d tags: told %.300q", n, told)
		}
	}
}

// The escapes in a name are resolved once, not for each fault of its points.
func TestFaultsOfAnEscapedNameTakeNoMemory(t *testing.T) {
	h := newHarness(t, nil)
	h.post(`{"name":"` + strings.Repeat(`\u006e`, 2000) + `","tags":{"h":"a"},"datapoints":[` + strings.Repeat("[],", 20_000) + `[]]}`)
	p := h.handler.pool.Get().(*parser)
	if cap(p.arena) > scratchKept || cap(p.value) > scratchKept {
		t.Errorf("a parser keeps %d and %d bytes", cap(p.arena), cap(p.value))
	}
	p = newParser(h.pipeline, h.pipeline.NewWriter(h.pipeline.Protocol("test"), "", time.Second), datatype.All())
	p.reset([]byte(`{"name":"` + strings.Repeat(`\u006e`, 2000) + `","tags":{"h":"a"},"datapoints":[` + strings.Repeat("[],", 20_000) + `[]]}`))
	if _, err := p.w.IngestAll(context.Background(), context.Background(), p.next); err != nil {
		t.Fatal(err)
	}
	if len(p.arena) > 3*2000 {
		t.Errorf("names of one metric took %d bytes", len(p.arena))
	}
}

// TestLongestEscapedTexts: a name and a value are as long as possible if each of their bytes is an
// escape; they are resolved and stored.
func TestLongestEscapedTexts(t *testing.T) {
	const most = 100
	h := newHarness(t, func(c *ingest.Config) {
		c.MaxMetricBytes, c.MaxTagNameBytes, c.MaxTagValueBytes, c.MaxStringBytes = most, most, most, most
	})
	text := func(n int) string { return strings.Repeat(`\u006e`, n) }
	w := h.post(`{"name":"` + text(most) + `","tags":{"` + text(most) + `":"` + text(most) + `"},"timestamp":1,"type":"string","value":"` + text(most) + `"}`)
	n := strings.Repeat("n", most)
	if got, want := h.recorder.Text(), n+"{"+n+"="+n+"} string 1 "; w.Code != 204 || !strings.HasPrefix(got, want) || !strings.Contains(got[len(want):], n) || strings.Contains(got, "u006e") {
		t.Errorf("answer %d %s, stored %s", w.Code, w.Body, got)
	}
	if told := errorsOf(t, h.post(`{"name":"`+text(most+1)+`","tags":{"h":"a"},"timestamp":1,"value":1}`)); len(told) != 1 {
		t.Errorf("a name that is too long: %q", told)
	}
}

// Once a sender has left, parsing ends at a block whose points are all refused.
// Valid points are stored all the same.
func TestSenderThatLeft(t *testing.T) {
	gone, leave := context.WithCancel(context.Background())
	leave()
	post := func(h *harness, body string) int {
		w := httptest.NewRecorder()
		h.handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)).WithContext(gone))
		return w.Code
	}
	refused := func(h *harness) map[string]float64 {
		return ingesttest.Counters(t, h.reg, "varve_ingest_rejected_total")
	}
	const faults = 500_000
	h := newHarness(t, nil)
	post(h, `{"name":"m","tags":{"h":"a"},"datapoints":[`+strings.Repeat("[],", faults)+`[]]}`)
	if got := refused(h); got["kairosdb_json,unterminated"] != 1 || got["kairosdb_json,bad_time"] > faults/2 || len(got) != 2 {
		t.Errorf("refused %v", got)
	}
	h = newHarness(t, nil)
	const points = 3*ingest.BlockSamples + 5
	if code := post(h, `{"name":"m","tags":{"h":"a"},"datapoints":[`+strings.Repeat("[1,1],", points)+`[]]}`); code != http.StatusBadRequest {
		t.Errorf("status %d", code)
	}
	if n, _ := h.recorder.Count(); n != points {
		t.Errorf("%d of %d points stored", n, points)
	}
	if got := refused(h); !reflect.DeepEqual(got, map[string]float64{"kairosdb_json,bad_time": 1}) {
		t.Errorf("refused %v", got)
	}
}

// store_wait also ends a body without valid points.
func TestFaultsEndWithTheirTime(t *testing.T) {
	h := newHarness(t, func(c *ingest.Config) { c.StoreWait = time.Nanosecond })
	if w := h.post(`{"name":"m","tags":{"h":"a"},"datapoints":[[]]}`); w.Code != http.StatusServiceUnavailable {
		t.Errorf("answer %d %s", w.Code, w.Body)
	}
}

// The answer numbers points as KairosDB does; /admin/rejected has positions.
func TestPositionOfARefusedPoint(t *testing.T) {
	h := newHarness(t, nil)
	told := errorsOf(t, h.post(`{"name":"m","tags":{"h":"a"},"datapoints":[[],[1,1],[2],[3,3],[4,"x","long"]]}`))
	if want := []string{
		"metric[0](name=m).datapoints[0].timestamp cannot be null or empty.",
		"metric[0](name=m).datapoints[1].value cannot be null or empty.",
		"metric[0](name=m).datapoints[2].value 'x' is not a whole number of 64 bits.",
	}; !reflect.DeepEqual(told, want) {
		t.Errorf("told %q", told)
	}
	list, _, _ := ingesttest.Rejections(t, h.pipeline)
	var kept []string
	for _, r := range list {
		kept = append(kept, r.Detail)
	}
	if want := []string{
		"metric[0](name=m).datapoints[4].value 'x' is not a whole number of 64 bits.",
		"metric[0](name=m).datapoints[2].value cannot be null or empty.",
		"metric[0](name=m).datapoints[0].timestamp cannot be null or empty.",
	}; !reflect.DeepEqual(kept, want) {
		t.Errorf("kept %q", kept)
	}
}

// With ingest.ttl_from timestamp, points that have expired are refused and told;
// a ttl of 0 is for ever.
func TestTTL(t *testing.T) {
	h := newHarness(t, func(c *ingest.Config) { c.TTLFrom, c.DefaultTTL = ingest.FromTimestamp, time.Minute })
	w := h.post(fmt.Sprintf(`[{"name":"m","tags":{"h":"a"},"ttl":5,"datapoints":[[%d,1],[%d,2]]},{"name":"m","tags":{"h":"a"},"ttl":0,"datapoints":[[1,3]]},
		{"name":"m","tags":{"h":"a"},"timestamp":1,"value":"x"},{"name":"m","tags":{"h":"a"},"timestamp":%d,"value":4}]`, someTime-5000, someTime-4999, someTime))
	const over = "timestamp plus ttl has passed already; ingest.ttl_from is timestamp."
	if told := errorsOf(t, w); w.Code != 400 || !reflect.DeepEqual(told, []string{"metric[0](name=m).datapoints[0]." + over, "metric[2](name=m)." + over}) {
		t.Errorf("%d, told %q", w.Code, told)
	}
	want := fmt.Sprintf("m{h=a} long %d 2 ttl=5\nm{h=a} long 1 3\nm{h=a} long %d 4 ttl=60", someTime-4999, int64(someTime))
	if got := h.recorder.Text(); got != want {
		t.Errorf("stored\n%s\nwant\n%s", got, want)
	}
	if got := ingesttest.Counters(t, h.reg, "varve_ingest_rejected_total"); !reflect.DeepEqual(got, map[string]float64{"kairosdb_json,expired": 2}) {
		t.Errorf("refused %v", got)
	}
}

// The points before a broken point are stored, and no part of the broken one is.
func TestBrokenPoints(t *testing.T) {
	for _, c := range []struct{ points, told, stored string }{
		{`[1,1],[2,:],[3,3]`, "Expected value", "m{h=a} long 1 1"},
		{`[1,1],[2,{"a":[}],[3,3]`, "Unterminated", ""},
		{`[1,1],[2 3]`, "Unterminated array", "m{h=a} long 1 1"},
	} {
		h := newHarness(t, nil)
		told := errorsOf(t, h.post(`[{"tags":{"h":"a"},"name":"m","datapoints":[`+c.points+`]}]`))
		if len(told) != 1 || !strings.Contains(told[0], c.told) || h.recorder.Text() != c.stored {
			t.Errorf("%s: told %q, stored %s", c.points, told, h.recorder.Text())
		}
	}
	p := newHarness(t, nil).pipeline
	l := NewLines(p, p.Protocol("test"), "test")
	for value, points := range map[string]int{`"AAECAw=="`: 1, `"AAECAw"`: 0, `"AAEC!w=="`: 0, `"AAECAw==AA"`: 0, `5`: 0, `"\u12"`: 0} {
		results, err := l.Store(context.Background(), [][]byte{[]byte(`{"name":"m","tags":{"h":"a"},"type":"base64:own","datapoints":[[1,` + value + `]]}`)})
		if err != nil || results[0].Points != points || (points == 0) != (len(results[0].Faults) == 1 && strings.HasSuffix(results[0].Faults[0], "value must be base64.")) {
			t.Errorf("%s: %+v, %v", value, results, err)
		}
	}
}

// An absent value is refused also if the series is known.
func TestAbsentSingleValueOfAKnownSeries(t *testing.T) {
	h := newHarness(t, nil)
	h.post(`{"name":"m","tags":{"h":"a"},"datapoints":[[1,"x"]]}`)
	for _, member := range []string{`"value":null`, `"value":null,"type":"string"`, `"value":""`, `"value":[]`, `"value":[],"type":"string"`} {
		told := errorsOf(t, h.post(`{"name":"m","tags":{"h":"a"},"timestamp":2,`+member+`}`))
		if len(told) != 1 || !strings.HasPrefix(told[0], "metric[0](name=m).value may not be ") {
			t.Errorf("%s: told %q", member, told)
		}
	}
	for value, ok := range map[string]bool{"true": true, "false": true, `"true"`: true, "null": true, "1": false, "0.5": false, "[]": false, "{}": false} {
		told := errorsOf(t, h.post(`{"name":"m","tags":{"h":"a"},"timestamp":2,"value":1,"skip_validate":`+value+`}`))
		if ok != (told == nil) || !ok && !strings.Contains(told[0], "Expected a boolean but was ") {
			t.Errorf("skip_validate %s: told %q", value, told)
		}
	}
	if n, _ := h.recorder.Count(); n != 5 {
		t.Errorf("%d samples stored", n)
	}
}
