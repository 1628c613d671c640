package kairosjson

import (
	"errors"
	"math"
	"strings"
	"testing"

	"varve/internal/ingest"
	"varve/internal/model"
	"varve/internal/store"
)

// A value with broken base64 is refused, and no part of it is stored. A value that
// is not a text is refused as well.
func TestBrokenBase64(t *testing.T) {
	for value, want := range map[string]string{
		`"AAAAAAAAAAc="`:        "",
		`"AAAAAAAAAAc"`:         "value must be base64.", // eight bytes can be read
		`"AAAAAAAAAAc=!"`:       "value must be base64.",
		`"AAAAAAAAAAc=AAAA"`:    "value must be base64.",
		`"AAAA"`:                "value must have 8 bytes.",
		`"AAAAAAAAAAc\u003d"`:   "",
		`AAAAAAAAAAc`:           "value must be base64.",
		`123456789012`:          "value must be base64.", // so can nine bytes
		`12345678901`:           "value must be base64.",
		`"\uZZZZAAAAAAAAAAc="`:  "value must be base64.",
		`["AAAAAAAAAAc="]`:      "value must be base64.",
		`{"AAAAAAAAAAc=":true}`: "value must be base64.",
	} {
		h := newHarness(t, nil)
		lines := NewLines(h.pipeline, h.pipeline.Protocol("import"), "test")
		results, err := lines.Store(t.Context(), [][]byte{[]byte(`{"name":"m","tags":{"a":"b"},"type":"base64:kairos_long","datapoints":[[1,` + value + `]]}`)})
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(results[0].Faults, "; ")
		if (want == "") != (got == "") || !strings.Contains(got, want) || (want == "") != (results[0].Points == 1) {
			t.Errorf("%s: %q, %d points, want %q", value, got, results[0].Points, want)
		}
	}
}

// A value of another type that the store does not take is refused by name.
func TestImportedValueThatIsRefused(t *testing.T) {
	h := newHarness(t, func(c *ingest.Config) { c.MaxStringBytes = 3 })
	lines := NewLines(h.pipeline, h.pipeline.Protocol("import"), "test")
	results, err := lines.Store(t.Context(), [][]byte{[]byte(`{"name":"m","tags":{"a":"b"},"type":"base64:acme","datapoints":[[1,"AAAA"],[2,"AAAAAA=="]]}`)})
	if err != nil {
		t.Fatal(err)
	}
	const want = "value: limit bytes of a string value of 3 reached, at least 4 needed: value of type acme"
	if got := strings.Join(results[0].Faults, "; "); !strings.HasSuffix(got, want) || results[0].Points != 1 {
		t.Errorf("%d points, %q, want 1 and %q", results[0].Points, got, want)
	}
}

// NaN of any bits is imported, but not as a marker of staleness, which readers do not see: an
// imported point is there.
func TestImportedNaNIsSeen(t *testing.T) {
	h := newHarness(t, nil)
	var bits []uint64
	h.recorder.OnAppend = func(b *store.Batch) error {
		for _, s := range b.Samples {
			bits = append(bits, s.Value)
		}
		return nil
	}
	lines := NewLines(h.pipeline, h.pipeline.Protocol("import"), "test")
	results, err := lines.Store(t.Context(), [][]byte{[]byte(`{"name":"m","tags":{"a":"b"},"type":"base64:kairos_double","datapoints":[[1,"f/AAAAAAAAI="],[2,"f/AAAAAAAAE="]]}`)})
	if err != nil || results[0].Points != 2 {
		t.Fatalf("%+v %v", results, err)
	}
	if len(bits) != 2 || bits[0] == model.StaleMarker || !math.IsNaN(math.Float64frombits(bits[0])) || bits[1] != 0x7ff0000000000001 {
		t.Errorf("stored as %x, want a NaN that is no marker, and one with its bits", bits)
	}
}

// A series without tags is imported if the line says so, as KairosDB's exports do.
func TestImportedWithoutTags(t *testing.T) {
	h := newHarness(t, nil)
	lines := NewLines(h.pipeline, h.pipeline.Protocol("import"), "test")
	results, err := lines.Store(t.Context(), [][]byte{[]byte(`{"name":"m","tags":{},"datapoints":[[1,5]]}`), []byte(`{"name":"m","datapoints":[[2,5]]}`), []byte(`{"name":"m","tags":{},"tags":null,"datapoints":[[3,5]]}`)})
	if err != nil || results[0].Points != 1 || len(results[0].Faults) != 0 {
		t.Fatalf("%+v %v", results, err)
	}
	for _, r := range results[1:] {
		if got := strings.Join(r.Faults, "; "); r.Points != 0 || !strings.HasSuffix(got, ".tags count must be greater than or equal to 1.") {
			t.Errorf("%d points, %q", r.Points, got)
		}
	}
}

// A line that is no JSON is told by its column, in plain words, and the lines
// around it are stored.
func TestBrokenLines(t *testing.T) {
	const good = `{"name":"m","tags":{"a":"b"},"datapoints":[[1,5]]}`
	for line, want := range map[string]string{
		`{"name":"m","tags":{"a":"b"},"datapoints":[[1,5]]`: "malformed JSON: End of input at column 50",
		`{"name" "m"}`: "malformed JSON: Expected ':' at column 10",
		`17`:           "malformed JSON: want a metric object, or an array of them at column 1",
	} {
		h := newHarness(t, nil)
		lines := NewLines(h.pipeline, h.pipeline.Protocol("import"), "test")
		results, err := lines.Store(t.Context(), [][]byte{[]byte(good), []byte(line), []byte(good)})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(results[1].Faults, "; "); got != want {
			t.Errorf("%s\n got %q\nwant %q", line, got, want)
		}
		if results[0].Points != 1 || results[2].Points != 1 {
			t.Errorf("%s: beside it %+v and %+v are stored", line, results[0], results[2])
		}
	}
}

// A line whose series the store cannot create ends the import with the store's error:
// nothing of the line is stored elsewhere.
func TestLinesOfAStoreThatCreatesNoSeries(t *testing.T) {
	for _, fault := range []error{&store.UnavailableError{Reason: "the disk is full"}, errors.New("the disk is on fire")} {
		for _, line := range []string{
			`{"name":"m","tags":{"a":"b"},"datapoints":[[1,5]]}`,
			`{"name":"m","tags":{"a":"b"},"timestamp":1,"value":5}`,
			`{"name":"m","tags":{"a":"b"},"type":"base64:kairos_long","datapoints":[[1,"AAAAAAAAAAc="]]}`,
			`{"name":"m","tags":{"a":"b"},"type":"base64:kairos_double","datapoints":[[1,"AAAAAAAAAAc="]]}`,
			`{"name":"m","tags":{"a":"b"},"type":"base64:own","datapoints":[[1,"AAAA"]]}`,
		} {
			h := newHarness(t, nil)
			lines := NewLines(h.pipeline, h.pipeline.Protocol("import"), "test")
			const good = `{"name":"first","tags":{"a":"b"},"datapoints":[[1,5]]}`
			if _, err := lines.Store(t.Context(), [][]byte{[]byte(good)}); err != nil {
				t.Fatal(err)
			}
			before := h.recorder.Text()
			h.recorder.OnCreate = func(model.Series) error { return fault }
			if _, err := lines.Store(t.Context(), [][]byte{[]byte(line)}); !errors.Is(err, fault) {
				t.Errorf("%s: %v, want %v", line, err, fault)
			}
			if got := h.recorder.Text(); got != before {
				t.Errorf("%s: stored\n%s\nwant\n%s", line, got, before)
			}
		}
	}
}

// TestHeldLines: a line of which even one series has to wait is to be stored again, and
// others are not.
func TestHeldLines(t *testing.T) {
	h := newHarness(t, func(c *ingest.Config) { c.NewSeriesBurst, c.NewSeriesPerSecond = 2, 1 })
	lines := NewLines(h.pipeline, h.pipeline.Protocol("import"), "test")
	line := func(names ...string) []byte {
		var all []string
		for _, name := range names {
			all = append(all, `{"name":"`+name+`","tags":{"a":"b"},"datapoints":[[1,5],[2,6]]}`)
		}
		return []byte("[" + strings.Join(all, ",") + "]")
	}
	results, err := lines.Store(t.Context(), [][]byte{line("a"), line("a", "b", "c"), line("a", "b"), line("c", "d")})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []Line{{Points: 2}, {Points: 4, Held: true}, {Points: 4}, {Held: true}} {
		if got := results[i]; got.Points != want.Points || got.Held != want.Held || (len(got.Faults) > 0) != want.Held {
			t.Errorf("line %d: %+v, want %+v", i, got, want)
		}
	}
}

// TestMetricThatIsNotTaken: a metric with a name that is not taken is refused once, whatever
// else is wrong with its points.
func TestMetricThatIsNotTaken(t *testing.T) {
	for _, typ := range []string{"", "long", "double", "string", "unknown"} {
		for _, value := range []string{`{}`, `[1]`, `NaN`, `"NaN"`, `true`, `"text"`, `null`, `1e400`, `""`, `5`} {
			h := newHarness(t, nil)
			body := `{"name":"","tags":{"a":"b"},"type":"` + typ + `","datapoints":[[1,` + value + `],[2,` + value + `]]}`
			if typ == "" {
				body = strings.Replace(body, `"type":"",`, "", 1)
			}
			w := h.post(body)
			if got := errorsOf(t, w); w.Code != 400 || len(got) != 1 || !strings.Contains(got[0], "name") {
				t.Errorf("%s: %d, %q", body, w.Code, got)
			}
			if got := h.recorder.Text(); got != "" {
				t.Errorf("%s: stored %s", body, got)
			}
		}
	}
}

// The faults that are told of all lines of a call take a bounded number of bytes, also if lines are
// stored again, as often as that may be, because series were held. All faults are counted.
func TestFaultsOfManyLines(t *testing.T) {
	h := newHarness(t, func(c *ingest.Config) { c.NewSeriesBurst, c.NewSeriesPerSecond = 1, 1 })
	lines := NewLines(h.pipeline, h.pipeline.Protocol("import"), "test")
	told := func(faults []string) (n int) {
		for _, f := range faults {
			n += len(f)
		}
		return n
	}
	const faults = 500
	input := make([][]byte, 100)
	for i := range input {
		input[i] = []byte(`[{"name":"m","tags":{"a":"b"},"datapoints":[[1,1]` + strings.Repeat(`,["x",1]`, faults) + `]},{"name":"held","tags":{"a":"b"},"datapoints":[[1,1]]}]`)
	}
	results, err := lines.Store(t.Context(), input)
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	for i, r := range results {
		all += told(r.Faults)
		if len(r.Faults) == 0 || !r.Held {
			t.Errorf("line %d has %d faults, held: %v", i, len(r.Faults), r.Held)
		}
	}
	const counts = 100 * 100 // bytes of texts that only count, one a line
	if all < maxTold/2 || all > maxTold+counts {
		t.Errorf("%d bytes are told, at most %d may be", all, maxTold)
	}
	if last := results[99].Faults; len(last) != 1 || !strings.HasPrefix(last[0], "and 50") || !strings.HasSuffix(last[0], " more faults, see /admin/rejected") {
		t.Errorf("of the last line %.200q is told", last)
	}
	for range 20 {
		again, err := lines.Again(t.Context(), input[99])
		if err != nil || len(again.Faults) != 1 {
			t.Fatalf("again: %.200q, %v", again.Faults, err)
		}
	}
	if first, err := lines.Store(t.Context(), input[:1]); err != nil || len(first[0].Faults) < faults {
		t.Errorf("the next call tells %d faults, %v", len(first[0].Faults), err)
	}
}
