package wsp

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"varve/internal/model"
	"varve/internal/quantile"
	"varve/internal/retention"
)

// policies parses policies, each given as name, stages, aggregation and, unless it is 0.5,
// xFilesFactor.
func policies(t *testing.T, all ...[]any) *retention.Book {
	t.Helper()
	c := retention.Config{}
	for _, p := range all {
		one := retention.PolicyConfig{}
		one.SetDefaults()
		one.Name, one.Stages, one.Aggregation = p[0].(string), p[1].(string), p[2].(string)
		one.Metric = one.Name
		if len(p) > 3 {
			one.XFilesFactor = p[3].(float64)
		}
		c.Policies = append(c.Policies, one)
	}
	rules, err := c.Rules()
	if err != nil {
		t.Fatal(err)
	}
	return &retention.Book{Rules: rules}
}

// bucketLine returns the line of a bucket. Its samples are 10 s apart, and the first is at
// its beginning.
func bucketLine(metric string, stepMS, startMS int64, values ...float64) string {
	var a model.Aggregate
	for i, v := range values {
		a.Add(startMS+int64(i)*10_000, v)
	}
	a.Sketch = quantile.Of(values...)
	return fmt.Sprintf(`{"name":%q,"skip_validate":true,"type":"base64:varve_bucket_%d","datapoints":[[%d,%q]]}`+"\n",
		metric, stepMS, startMS, base64.StdEncoding.EncodeToString(a.Append(nil)))
}

// sampleLine is the line of samples, as pairs of seconds and values.
func sampleLine(metric string, pairs ...float64) string {
	var points []string
	for pair := range slices.Chunk(pairs, 2) {
		points = append(points, fmt.Sprintf(`[%d,%v,"double"]`, int64(pair[0])*1000, pair[1]))
	}
	return fmt.Sprintf(`{"name":%q,"skip_validate":true,"datapoints":[%s]}`+"\n", metric, strings.Join(points, ","))
}

// TestExportBuckets: a bucket becomes a point of the archive with its step, computed with the
// method and xFilesFactor of the policy, and including late samples.
func TestExportBuckets(t *testing.T) {
	const stages = "10s:2m,1m:30m,5m:1h"
	for name, c := range map[string]struct {
		method string
		lines  []string
		want   string
	}{
		"each in its archive": {"sum", []string{
			sampleLine("m", 9950, 1, 9960, 2), bucketLine("m", 300_000, 7500, 100), // earlier times, as of samples of another type
		}, "[[{9950 1} {9960 2}] [] []]"},
		"coarse, fine, samples": {"sum", []string{
			sampleLine("m", 9950, 1, 9960, 2),
			bucketLine("m", 300_000, 7_500_000, make([]float64, 15)...) + bucketLine("m", 300_000, 7_800_000, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
			bucketLine("m", 60_000, 9_600_000, 1, 1, 1) + bucketLine("m", 60_000, 9_660_000, 2, 2, 2) + bucketLine("m", 60_000, 9_720_000, 3, 3, 3, 3),
		}, "[[{9950 1} {9960 2}] [{9600 3} {9660 6} {9720 12}] [{7500 0} {7800 120} {9600 21}]]"},
		"too few samples":      {"average", []string{bucketLine("m", 60_000, 9_600_000, 1, 2) + bucketLine("m", 60_000, 9_660_000, 1, 2, 3)}, "[[] [{9660 2}] []]"},
		"an imported point":    {"average", []string{bucketLine("m", 60_000, 9_600_000, 7)}, "[[] [{9600 7}] []]"},
		"missing ones are 0":   {"avg_zero", []string{bucketLine("m", 60_000, 9_600_000, 3, 3, 6)}, "[[] [{9600 2}] []]"},
		"late samples":         {"average", []string{sampleLine("m", 9650, 6), bucketLine("m", 60_000, 9_600_000, 2, 2, 2)}, "[[] [{9600 3}] []]"},
		"late, before it":      {"max", []string{sampleLine("m", 9540, 9, 9550, 8, 9560, 7, 9570, 1), bucketLine("m", 60_000, 9_600_000, 2, 2, 2)}, "[[] [{9540 9} {9600 2}] []]"},
		"narrower ones within": {"sum", []string{bucketLine("m", 300_000, 7_500_000, make([]float64, 20)...) + bucketLine("m", 60_000, 7_560_000, 1, 1)}, "[[] [] [{7500 2}]]"},
		"of both types":        {"sum", []string{bucketLine("m", 60_000, 9_600_000, 1, 2), sampleLine("m", 9950, 1), bucketLine("m", 60_000, 9_600_000, 4)}, "[[{9950 1}] [{9600 7}] []]"},
		"a step that was once": {"max", []string{bucketLine("m", 30_000, 9_630_000, 5, 5, 5)}, "[[] [{9600 5}] []]"},
		"a percentile":         {"p50", []string{bucketLine("m", 60_000, 9_600_000, 1, 3, 5)}, "[[] [{9600 3}] []]"},
		"a count":              {"count", []string{bucketLine("m", 60_000, 9_600_000, 1, 3, 5)}, "[[] [{9600 3}] []]"},
	} {
		e := &Export{Dir: t.TempDir(), Now: 10_000, Book: policies(t, []any{"m", stages, c.method})}
		o := exportAll(t, e, strings.Join(c.lines, ""), 1000)["m"]
		if o.File == "" {
			t.Errorf("%s: no file: %+v", name, o)
			continue
		}
		p := points(t, e, o.File)
		for _, archive := range p {
			for i := range archive { // compare two digits of percentiles
				archive[i].Value = float64(int64(archive[i].Value*100+0.5)) / 100
			}
		}
		if got := fmt.Sprint(p); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		renamed := slices.ContainsFunc(o.Faults, func(f Fault) bool { return f.Reason == NoMethod })
		if own := c.method == "p50" || c.method == "count"; renamed != own {
			t.Errorf("%s: faults %v", name, o.Faults)
		}
	}
}

// TestExportByPolicies: a series whose policy keeps every sample is skipped; damage ends the
// export.
func TestExportByPolicies(t *testing.T) {
	e := &Export{Dir: t.TempDir(), Now: 10_000, Book: policies(t, []any{"kept", "forever", ""}, []any{"m", "10s:1m", ""})}
	if got := e.Since(); got != 10_000-70 {
		t.Errorf("samples are wanted from %d on", got)
	}
	if o := exportAll(t, e, sampleLine("kept", 9990, 1), 1000)["kept"]; o.File != "" || fmt.Sprint(o.Faults) != "[{its policy keeps every sample [kept] defines no archives; use --storage-schemas with a file that does 0}]" {
		t.Errorf("%+v", o)
	}
	for _, line := range []string{
		`{"name":"m","skip_validate":true,"type":"base64:varve_bucket_60000","datapoints":[[9960000,"AAAA"]]}`,
		`{"name":"m","skip_validate":true,"type":"base64:varve_bucket_0","datapoints":[[9960000,"AAAA"]]}`,
	} {
		if err := (&reader{ctx: t.Context(), export: e, series: "m", policy: e.Book.Of(retention.ParsePath("m"))}).line([]byte(line)); err == nil {
			t.Errorf("no error of %s", line)
		}
	}
}
