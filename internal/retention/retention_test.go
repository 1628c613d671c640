package retention

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"
)

func TestParseStages(t *testing.T) {
	for text, want := range map[string]string{
		"10s:6h,60s:30d,1h:5y":           "10s:6h,1m:30d,1h:5y",
		"60:1440":                        "1m:1d",
		"60s:1440":                       "1m:1d",
		" 60s : 1d , 5m:30d,1h:3y ":      "1m:1d,5m:30d,1h:3y",
		"1h:5y,10s:6h,60s:30d":           "10s:6h,1m:30d,1h:5y",
		"60s:90s":                        "1m:1m",
		"1s:1d,60s:7d":                   "1s:1d,1m:1w",
		"86400*1s:10080*60s":             "1s:1d,1m:1w",
		"86400*1s_0:10080*60s_aggr":      "1s:1d,1m:1w",
		"60*60s:120*60s":                 "1m:2h",
		"1d:1y":                          "1d:1y",
		"1w:10y":                         "1w:521w", // a year is no whole number of weeks
		"7s:1d":                          "7s:86394s",
		strings.Repeat("1s:1d,", 1) + "": "",
	} {
		got, err := ParseStages(text)
		if (want == "") != (err != nil) || err == nil && got.String() != want {
			t.Errorf("%q: %v, %v; want %q", text, got, err, want)
		}
		if err != nil {
			continue
		}
		if again, err := ParseStages(got.String()); err != nil || again.String() != got.String() {
			t.Errorf("%q written as %q is read as %v, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "60s", "60s:", ":1d", "0s:1d", "60s:0d", "-60s:1d", "60s:1x", "60ss:1d", "60mon:1d", "60s:1d,", "6.5s:1d",
		"1s:99999999999999999999y", "1s:99999999999", "9223372036854775807:9223372036854775807", "1*1", "*1s", "1*s", "0*60s", "9223372036854775807*9223372036854775807s", "+1s:1d",
		strings.Repeat("1s:1d,", MaxStages) + "1s:1d"} {
		if got, err := ParseStages(text); err == nil || errors.As(err, new(*MisfitError)) {
			t.Errorf("%.40q: %v, %v; want an error of its form", text, got, err)
		}
	}
	if _, err := ParseStages("60s"); err == nil || !strings.Contains(err.Error(), `"60s" is not of the form STEP:TIME, such as 60s:30d`) {
		t.Error(err)
	}
	if _, err := ParseStages("10s:1s"); err == nil || !strings.Contains(err.Error(), "the stage with a step of 10s is kept for less than one step") {
		t.Error(err)
	}
	for _, text := range []string{"60s:1d,90s:30d", "60s:1d,60s:30d", "60s:30d,5m:1d", "60s:30s", "60s:2m,1h:1d"} {
		if got, err := ParseStages(text); !errors.As(err, new(*MisfitError)) {
			t.Errorf("%q: %v, %v; want a MisfitError", text, got, err)
		}
	}
}

// TestFilesOfCarbon reads typical files, and expects what carbon does with each
// section.
func TestFilesOfCarbon(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	rules, warnings, err := ParseSchemas(read("storage-schemas.conf"))
	if err != nil || len(rules) != 4 || len(warnings) != 2 {
		t.Fatalf("%d rules, warnings %q, %v", len(rules), warnings, err)
	}
	all, warnings, err := ParseAggregations(read("storage-aggregation.conf"))
	if err != nil || len(all) != 4 || len(warnings) != 1 {
		t.Fatalf("%d aggregations, warnings %q, %v", len(all), warnings, err)
	}
	book := Book{Rules: rules, Aggregations: all}
	for path, want := range map[string]struct {
		rule, stages, aggregation string
		method                    Method
		factor                    float64
	}{
		"carbon.agents.a.cpu":   {"carbon", "1m:90d", "", Average, 0.5},
		"web.requests.count":    {"web", "10s:6h,1m:30d,1h:5y", "count", Sum, 0},
		"web.requests.max":      {"web", "10s:6h,1m:30d,1h:5y", "max", Max, 0.1},
		"disk.used;dc=a;host=b": {"tagged", "1m:1d", "tagged", Last, 0.5},
		"x.100%":                {"default", "1m:1d,5m:30d,1h:3y", "", Average, 0.5},
	} {
		p := book.Of(ParsePath(path))
		if p.Rule == nil || p.Rule.Name != want.rule || p.Rule.Stages.String() != want.stages {
			t.Errorf("%s: rule %+v, want %+v", path, p.Rule, want)
		}
		if a := p.Aggregation; a.Name != want.aggregation || a.Method != want.method || a.XFilesFactor != want.factor {
			t.Errorf("%s: aggregation %+v, want %+v", path, a, want)
		}
	}
	if p := new(Book).Of(ParsePath("a")); p.Rule != nil || *p.Aggregation != DefaultAggregation {
		t.Errorf("without rules: %+v", p)
	}
}

func TestBadFiles(t *testing.T) {
	for text, want := range map[string]string{
		"[a]\npattern = (\nretentions = 60s:1d":           "pattern",
		"[a]\npattern = (?!x)y\nretentions = 60s:1d":      "look-ahead",
		"[a]\npattern = (a)\\1\nretentions = 60s:1d":      "references",
		"[a]\npattern = .*\nretentions = sixty":           "sixty",
		"[a]\npattern = .*\nretentions = 60s:1d\n[a]\nx=": "already",
	} {
		if _, _, err := ParseSchemas(text); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "line") {
			t.Errorf("%q: %v; want an error with %q", text, err, want)
		}
	}
	if _, _, err := ParseSchemas("[a]\npattern = (\nretentions = 60s:1d"); err == nil || strings.Contains(err.Error(), "not supported") {
		t.Errorf("a pattern with a mistake that is a mistake in Python too: %v", err)
	}
	for text, want := range map[string]string{
		"[a]\npattern = x\nxFilesFactor = 1.5":             "xFilesFactor",
		"[a]\npattern = x\nxFilesFactor = nan":             "xFilesFactor",
		"[a]\npattern = x\naggregationMethod = percentile": "percentile",
		"[a]\npattern = [":                                 "pattern",
	} {
		if _, _, err := ParseAggregations(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want an error with %q", text, err, want)
		}
	}
}

func TestStageNames(t *testing.T) {
	for stepMS, want := range map[int64]string{0: "raw", 1000: "1s", 90_000: "90s", 60_000: "1m", 604_800_000: "1w", 1500: "1500ms"} {
		if got := StageName(stepMS); got != want {
			t.Errorf("%d ms: %s, want %s", stepMS, got, want)
		}
	}
}

func TestParseMethod(t *testing.T) {
	for text, want := range map[string]Method{"avg": Average, "median": "p50", "p95": "p95", "p099.90": "p99.9", "p100": "p100", "p0.1": "p0.1", "sum": Sum} {
		if got, err := ParseMethod(text); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "p", "p0", "p-1", "p100.1", "pNaN", "p1e1", "p0x10", "p.", "p5.5.5", "p9999999999999", "percentile", "P95"} {
		if got, err := ParseMethod(text); err == nil {
			t.Errorf("%q: %s, want an error", text, got)
		}
	}
}

func FuzzParseStages(f *testing.F) {
	for _, text := range []string{"10s:6h,60s:30d,1h:5y", "86400*1s:10080*60s", "60:1440", "1y:1000y"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		stages, err := ParseStages(text)
		if err != nil {
			return
		}
		again, err := ParseStages(stages.String())
		if err != nil || again.String() != stages.String() {
			t.Errorf("%q is %v, which is read as %v, %v", text, stages, again, err)
		}
		for _, s := range stages {
			if s.Step <= 0 || s.Points() < 1 {
				t.Errorf("%q has stage %+v", text, s)
			}
		}
	})
}

func FuzzParseSchemas(f *testing.F) {
	f.Add("[a]\npattern = ^x\\.\nretentions = 10s:6h,60s:30d\n")
	f.Fuzz(func(t *testing.T, text string) {
		if rules, _, err := ParseSchemas(text); err == nil {
			(&Book{Rules: rules}).Of(ParsePath("a.b;c=d"))
		}
		if all, _, err := ParseAggregations(text); err == nil {
			(&Book{Aggregations: all}).Of(ParsePath("a.b;c=d"))
		}
	})
}

func TestMerge(t *testing.T) {
	none := math.NaN()
	for _, tc := range []struct {
		method Method
		factor float64
		old    bool
		points []float64
		want   float64
	}{
		{Average, 0.5, false, []float64{1, none, 4, none}, 2.5},
		{Average, 0.6, false, []float64{1, none, 4, none}, none},
		{Average, 0, false, []float64{none, none}, none},
		{AverageZero, 0.5, false, []float64{1, none, 4, none}, 1.25},
		{Sum, 0.5, false, []float64{1, none, 4, none}, 5},
		{Last, 0.5, false, []float64{1, none, 4, none}, 4},
		{Max, 0.5, false, []float64{9, none, 4, none}, 9},
		{Min, 0.5, false, []float64{9, none, 4, none}, 4},
		{AbsoluteMax, 0.5, false, []float64{-9, none, 4, none}, -9},
		{AbsoluteMin, 0.5, false, []float64{-9, none, 4, none}, 4},
		{Count, 0.5, false, []float64{-9, none, 4, none}, 2},
		{Sum, 0.5, false, []float64{7, none, none, none}, none},
		{Sum, 0.5, true, []float64{7, none, none, none}, 7},
		{Sum, 0.5, true, []float64{none, 7, none, none}, none},
		{Sum, 0.9, true, []float64{7, 8, none, none}, none},
	} {
		a := &Aggregation{Method: tc.method, XFilesFactor: tc.factor}
		if got := a.Merge(tc.points, tc.old); got != tc.want && !(got != got && tc.want != tc.want) {
			t.Errorf("%s of %v with %v, old %v: %v, want %v", tc.method, tc.points, tc.factor, tc.old, got, tc.want)
		}
	}
}

// An imported point of a coarser archive is all of its bucket, if it alone is where such a point lies.
func TestPartOf(t *testing.T) {
	for _, tc := range []struct {
		count   int64
		atBegin bool
		want    float64
	}{
		{0, true, 0}, {1, true, 1}, {1, false, 0.25}, {2, true, 0.5}, {4, false, 1},
	} {
		if got := PartOf(tc.count, tc.atBegin, 4); got != tc.want {
			t.Errorf("%d of 4 samples, at the beginning %t: %v, want %v", tc.count, tc.atBegin, got, tc.want)
		}
	}
}
