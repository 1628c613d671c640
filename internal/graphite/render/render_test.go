package render

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"varve/internal/graphite/function"
	"varve/internal/graphite/graphitetest"
)

func sample() []*function.Series {
	return []*function.Series{{
		Name: "a \"é\" 😀", Tags: function.Tags{"name": "a"}, Start: 60, End: 300, Step: 60,
		Values: []float64{1, math.NaN(), math.Inf(1), math.Inf(-1)}, PathExpression: "a", Consolidation: "average",
	}}
}

func TestFormats(t *testing.T) {
	for _, c := range []struct {
		options Options
		want    string
	}{
		{Options{Format: "json"}, `[{"target": "a \"\u00e9\" \ud83d\ude00", "tags": {"name": "a"}, "datapoints": [[1.0, 60], [null, 120], [1e9999, 180], [-1e9999, 240]]}]`},
		{Options{Format: "json", NoNullPoints: true, JSONP: "f"}, `f([{"target": "a \"\u00e9\" \ud83d\ude00", "tags": {"name": "a"}, "datapoints": [[1.0, 60], [1e9999, 180], [-1e9999, 240]]}])`},
		{Options{Format: "csv"}, "\"a \"\"é\"\" 😀\",1970-01-01 00:01:00,1.0\r\n\"a \"\"é\"\" 😀\",1970-01-01 00:02:00,\r\n\"a \"\"é\"\" 😀\",1970-01-01 00:03:00,inf\r\n\"a \"\"é\"\" 😀\",1970-01-01 00:04:00,-inf\r\n"},
		{Options{Format: "raw"}, "a \"é\" 😀,60,300,60|1.0,None,inf,-inf\n"},
		{Options{Format: "dygraph"}, `{"labels" : ["Time", "a \"\u00e9\" \ud83d\ude00"], "data" : [[60000, 1.0], [120000, null], [180000, 1e9999], [240000, -1e9999]]}`},
		{Options{Format: "rickshaw"}, `[{"target": "a \"\u00e9\" \ud83d\ude00", "datapoints": [{"x": 60, "y": 1.0}, {"x": 120, "y": null}, {"x": 180, "y": 1e9999}, {"x": 240, "y": -1e9999}]}]`},
		{Options{Format: "json", MaxDataPoints: 1}, `[{"target": "a \"\u00e9\" \ud83d\ude00", "tags": {"name": "a"}, "datapoints": [[null, 60]]}]`},
	} {
		var out bytes.Buffer
		if err := Write(&out, c.options, sample()); err != nil || out.String() != c.want {
			t.Errorf("%+v: %v\n%s\nwant\n%s", c.options, err, out.String(), c.want)
		}
	}
	var out bytes.Buffer
	if err := Write(&out, Options{Format: "json", Pretty: true}, sample()); err != nil || !json.Valid(out.Bytes()) || !strings.HasPrefix(out.String(), "[\n  {\n    \"target\": ") {
		t.Errorf("pretty: %v\n%s", err, out.String())
	}
}

// TestPointsBehindTheEnd: a series whose points are all after its end has none, so that
// noNullPoints omits it.
func TestPointsBehindTheEnd(t *testing.T) {
	for _, c := range []struct {
		end  int64
		want string
	}{
		{0, `[]`},
		{60, `[{"target": "a", "tags": {}, "datapoints": [[1.0, 60]]}]`},
		{90, `[{"target": "a", "tags": {}, "datapoints": [[1.0, 60]]}]`},
		{180, `[{"target": "a", "tags": {}, "datapoints": [[1.0, 60], [2.0, 120], [3.0, 180]]}]`},
	} {
		series := []*function.Series{{Name: "a", Start: 60, End: c.end, Step: 60, Values: []float64{1, 2, 3, 4}}}
		var out bytes.Buffer
		if err := Write(&out, Options{Format: "json", NoNullPoints: true}, series); err != nil || out.String() != c.want {
			t.Errorf("end %d: %v, %s; want %s", c.end, err, out.String(), c.want)
		}
	}
}

// TestEmpty: each format has an answer without series.
func TestEmpty(t *testing.T) {
	for format, want := range map[string]string{"json": "[]", "csv": "", "raw": "", "dygraph": "{}", "rickshaw": "[]", "pickle": "\x80\x02].", "msgpack": "\x90"} {
		var out bytes.Buffer
		if err := Write(&out, Options{Format: format}, nil); err != nil || out.String() != want {
			t.Errorf("%s: %v, %q; want %q", format, err, out.String(), want)
		}
	}
	if err := Write(&bytes.Buffer{}, Options{Format: "png"}, nil); err == nil {
		t.Error("png is rendered")
	}
}

// TestNodes: a branch has two members, a leaf three, with the interval of its points.
func TestNodes(t *testing.T) {
	nodes := []Node{{"a", false}, {"a.b", true}}
	for format, want := range map[string]string{
		"pickle": "\x80\x02](" +
			"}(X\x04\x00\x00\x00pathX\x01\x00\x00\x00aX\x07\x00\x00\x00is_leaf\x89u" +
			"}(X\x04\x00\x00\x00pathX\x03\x00\x00\x00a.bX\x07\x00\x00\x00is_leaf\x88X\x09\x00\x00\x00intervals](](J\x00\x00\x00\x00\x8a\x08\x00\x00\x00\x00\x01\x00\x00\x00eeue.",
		"msgpack": "\x92" +
			"\x82\xa4path\xa1a\xa7is_leaf\xc2" +
			"\x83\xa4path\xa3a.b\xa7is_leaf\xc3\xa9intervals\x91\x92\x00\xcf\x00\x00\x00\x01\x00\x00\x00\x00",
	} {
		var out bytes.Buffer
		if err := WriteNodes(&out, format, nodes, 1<<32); err != nil || out.String() != want {
			t.Errorf("%s: %v, %q\nwant %q", format, err, out.String(), want)
		}
		out.Reset()
		if err := errors.Join(WriteNodes(&out, format, nil, 0), Write(&out, Options{Format: format}, nil)); err != nil || out.String()[:out.Len()/2] != out.String()[out.Len()/2:] {
			t.Errorf("%s without nodes, and without series: %v, %q", format, err, out.String())
		}
		if err := WriteNodes(closed{}, format, nodes, 0); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s to a closed connection: %v", format, err)
		}
		if err := WriteNodes(closed{}, format, make([]Node, 10_000), 0); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s of many nodes to a closed connection: %v", format, err)
		}
	}
	if err := WriteNodes(&bytes.Buffer{}, "xml", nodes, 0); err == nil || !strings.Contains(err.Error(), "use pickle or msgpack") {
		t.Errorf("xml: %v", err)
	}
	if a, b, c := NodesType("pickle"), NodesType("msgpack"), NodesType("json"); a != "application/pickle" || b != "application/x-msgpack" || c != "" {
		t.Errorf("media types %q, %q and %q", a, b, c)
	}
}

// TestMessagePackLengths: lengths and numbers at the borders of their forms.
func TestMessagePackLengths(t *testing.T) {
	for _, c := range []struct {
		write func(m msgpacker)
		want  string
	}{
		{func(m msgpacker) { m.list(15) }, "\x9f"},
		{func(m msgpacker) { m.list(16) }, "\xdc\x00\x10"},
		{func(m msgpacker) { m.list(65535) }, "\xdc\xff\xff"},
		{func(m msgpacker) { m.list(65536) }, "\xdd\x00\x01\x00\x00"},
		{func(m msgpacker) { m.object(15) }, "\x8f"},
		{func(m msgpacker) { m.object(16) }, "\xde\x00\x10"},
		{func(m msgpacker) { m.str(strings.Repeat("a", 31)) }, "\xbf" + strings.Repeat("a", 31)},
		{func(m msgpacker) { m.str(strings.Repeat("a", 32)) }, "\xda\x00\x20" + strings.Repeat("a", 32)},
		{func(m msgpacker) { m.integer(127) }, "\x7f"},
		{func(m msgpacker) { m.integer(128) }, "\xcf\x00\x00\x00\x00\x00\x00\x00\x80"},
		{func(m msgpacker) { m.integer(-1) }, "\xd3\xff\xff\xff\xff\xff\xff\xff\xff"},
	} {
		var out bytes.Buffer
		w := &writer{Writer: bufio.NewWriter(&out)}
		c.write(msgpacker{w})
		if err := w.Flush(); err != nil || out.String() != c.want {
			t.Errorf("%v, %q; want %q", err, out.String(), c.want)
		}
	}
	for n, want := range map[int64]string{
		math.MaxInt32: "J\xff\xff\xff\x7f", math.MinInt32: "J\x00\x00\x00\x80",
		math.MaxInt32 + 1: "\x8a\x08\x00\x00\x00\x80\x00\x00\x00\x00", math.MinInt32 - 1: "\x8a\x08\xff\xff\xff\x7f\xff\xff\xff\xff",
	} {
		var out bytes.Buffer
		w := &writer{Writer: bufio.NewWriter(&out)}
		pickler{w}.integer(n)
		if err := w.Flush(); err != nil || out.String() != want {
			t.Errorf("%d: %v, %q; want %q", n, err, out.String(), want)
		}
	}
}

// TestFaultsComeFirst: errors of series are returned before anything is written.
func TestFaultsComeFirst(t *testing.T) {
	good, bad := sample()[0], sample()[0]
	bad.Consolidation = "foo"
	long := sample()[0]
	long.Values = append(long.Values, 1)
	for _, c := range []struct {
		options Options
		series  []*function.Series
	}{
		{Options{Format: "json", MaxDataPoints: 2}, append(slices.Repeat([]*function.Series{good}, 10_000), bad)}, // more than is buffered
		{Options{Format: "dygraph"}, []*function.Series{good, long}},
	} {
		var out bytes.Buffer
		if err := Write(&out, c.options, c.series); err == nil || out.Len() > 0 {
			t.Errorf("%+v: %v after %d bytes", c.options, err, out.Len())
		}
	}
}

type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestWriteEndsWithTheConnection(t *testing.T) {
	for format := range writers {
		if err := Write(closed{}, Options{Format: format}, sample()); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: %v", format, err)
		}
	}
}

// The last parameter format counts. Without one, older clients request a format by a parameter with its name.
func TestFormatOfARequest(t *testing.T) {
	for query, want := range map[string]string{"": "png", "pickle=1": "pickle", "rawData": "raw", "rawData&pickle": "raw", "pickle&format=csv": "csv", "format=csv&format=json": "json"} {
		form, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got := options(form).Format; got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	r, err := Parse(url.Values{"target": {"a", " ", "f(b)"}, "from": {"-2h"}, "until": {"-1h"}, "tz": {"Europe/Paris"}, "template[x]": {"1", "2"}, "maxDataPoints": {"10"}, "xFilesFactor": {"0.5"}, "format": {"csv"}}, graphitetest.Clock, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	f := r.Function
	if len(r.Targets) != 2 || f.Until.Unix() != graphitetest.Clock.Unix()-3600 || f.From.Unix() != graphitetest.Clock.Unix()-7200 || f.From.Location().String() != "Europe/Paris" || f.XFilesFactor != 0.5 ||
		len(f.Variables) != 1 || f.Variables[0] != (function.Variable{Name: "x", Value: "2"}) || r.Options.Format != "csv" || r.Options.MaxDataPoints != 10 {
		t.Errorf("got %+v", r)
	}
	for name, form := range map[string]url.Values{
		"empty range": {"from": {"now"}}, "bad from": {"from": {"soon"}}, "bad xFilesFactor": {"xFilesFactor": {"x"}}, "bad target": {"target": {"f(a"}},
		"bad callback": {"format": {"json"}, "jsonp": {"alert(1)//"}}, "many targets": {"target": make([]string, MaxTargets+1)}, "bad now": {"now": {"x"}},
	} {
		if _, err := Parse(form, graphitetest.Clock, time.UTC); err == nil {
			t.Errorf("%s is not refused", name)
		}
	}
}

// Every letter, digit, _, $ and dot may be in the name of a callback, and nothing else.
func TestValidCallback(t *testing.T) {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$."
	for c := range 256 {
		if name := "f" + string([]byte{byte(c)}); ValidCallback(name) != strings.Contains(allowed, name[1:]) {
			t.Errorf("%q: %v", name, ValidCallback(name))
		}
	}
}
