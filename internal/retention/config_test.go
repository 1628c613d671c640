package retention

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"varve/internal/model"
)

// policy returns a policy with defaults, changed by change.
func policy(name, stages string, change func(*PolicyConfig)) PolicyConfig {
	var p PolicyConfig
	p.SetDefaults()
	p.Name, p.Stages = name, stages
	if change != nil {
		change(&p)
	}
	return p
}

// bookOf returns a book of policies, followed by the rules of files.
func bookOf(t *testing.T, schemas, aggregations string, policies ...PolicyConfig) *Book {
	t.Helper()
	rules, err := Config{Policies: policies}.Rules()
	if err != nil {
		t.Fatal(err)
	}
	own, _, err := ParseSchemas(schemas)
	if err != nil {
		t.Fatal(err)
	}
	all, _, err := ParseAggregations(aggregations)
	if err != nil {
		t.Fatal(err)
	}
	return &Book{Rules: append(rules, own...), Aggregations: all}
}

// TestPolicies: the first matching rule counts, policies come before the rules of
// files, and a series must meet all conditions of a policy.
func TestPolicies(t *testing.T) {
	book := bookOf(t, "[file]\npattern = ^web\nretentions = 60s:1d\n", "[sums]\npattern = count\naggregationMethod = sum\nxFilesFactor = 0\n",
		policy("audit", forever, func(p *PolicyConfig) { p.Metric = "web.audit.*" }),
		policy("web", "10s:6h,60s:30d", func(p *PolicyConfig) {
			p.Metric, p.Tags, p.Aggregation = "web.*", []string{"dc=fra", "host=web-?"}, "max"
		}),
		policy("path", "10s:1h", func(p *PolicyConfig) { p.Path = `^disk\.[^;]*;dc=`; p.XFilesFactor = 0.25 }),
		policy("exact", "1s:1h", func(p *PolicyConfig) { p.Metric = "a*b?c"; p.Path = "c$" }),
		policy("dots", "2s:1h", func(p *PolicyConfig) { p.Metric = `x.[a]\*` }),
		policy("any host", "5s:1h", func(p *PolicyConfig) { p.Metric = "count"; p.Tags = []string{"host=*"} }),
	)
	for path, want := range map[string]string{
		"web.audit.logins":                      "audit forever average 0.5",
		"web.audit.count":                       "audit forever sum 0",
		"web.requests;dc=fra;host=web-1":        "web 10s:6h,1m:30d max 0.5",
		"web.requests;host=web-1;dc=fra;rack=2": "web 10s:6h,1m:30d max 0.5", // in any order, and with more tags
		"web.requests;dc=fra;host=web-12":       "file 1m:1d average 0.5",
		"web.requests;dc=fra":                   "file 1m:1d average 0.5",
		"web.requests":                          "file 1m:1d average 0.5",
		"disk.used;dc=x":                        "path 10s:1h average 0.25",
		"disk.used":                             "none",
		"a\nb.ä.c":                              "none",
		"a\nbäc":                                "exact 1s:1h average 0.5",
		"ab.c":                                  "exact 1s:1h average 0.5",
		`x.[a]\`:                                "dots 2s:1h average 0.5",
		`x.a`:                                   "none",
		"count;host=x":                          "any host 5s:1h sum 0",
		"count":                                 "none",
		"count;host":                            "none", // is no path with tags
	} {
		p := book.Of(ParsePath(path))
		r := book.Report(path)
		got := "none"
		if r.Rule != "" {
			stages := forever
			if p.Rule != nil {
				stages = p.Rule.Stages.String()
			}
			got = fmt.Sprintf("%s %s %s %g", r.Rule, stages, p.Aggregation.Method, p.Aggregation.XFilesFactor)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
	all := bookOf(t, "", "", policy("all", "1s:1h", nil))
	if r := all.Report("a"); r.Rule != "all" || r.Why != "every series" {
		t.Errorf("a policy without conditions: %+v", r)
	}
}

func TestReports(t *testing.T) {
	book := bookOf(t, "[file]\npattern = ^disk\nretentions = 60s:1d\n", "[sums]\npattern = disk\naggregationMethod = sum\n",
		policy("keep", forever, func(p *PolicyConfig) { p.Path = "x$" }),
		policy("web", "10s:6h,60s:30d", func(p *PolicyConfig) { p.Metric, p.Tags, p.Aggregation = "web.*", []string{"dc=fra"}, "max" }),
		policy("latency", "10s:6h,60s:30d", func(p *PolicyConfig) { p.Metric, p.Aggregation = "latency", "p99.90" }),
		policy("short", "10s:6h", func(p *PolicyConfig) { p.Metric, p.Sketch = "short", true }))
	for path, want := range map[string]string{
		"x":            "x\n  rule [keep] of retention.policies: the path has x$\n  every sample                 for ever\n  method average; a bucket needs 0.5 of its points; set by the default\n",
		"web.a;dc=fra": "web.a;dc=fra\n  rule [web] of retention.policies: the metric is web.*, the tag dc is fra\n  samples, one for each 10s    for 6h\n  buckets of 1m                for 30d\n  method max; a bucket needs 0.5 of its points; set by the rule\n",
		"disk":         "disk\n  rule [file] of storage-schemas.conf: the path has ^disk\n  samples, one for each 1m     for 1d\n  method sum; a bucket needs 0.5 of its points; set by [sums] of storage-aggregation.conf\n",
		"latency":      "latency\n  rule [latency] of retention.policies: the metric is latency\n  samples, one for each 10s    for 6h\n  buckets of 1m with percentiles for 30d\n  method p99.9; a bucket needs 0.5 of its points; set by the rule\n",
		"short":        "short\n  rule [short] of retention.policies: the metric is short\n  samples, one for each 10s    for 6h\n  method average; a bucket needs 0.5 of its points; set by the default\n",
		"else":         "else\n  no rule matches: every sample is kept, and Graphite's API uses a step of one minute\n",
	} {
		if got := book.Report(path).String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestBadPolicies(t *testing.T) {
	for want, p := range map[string]PolicyConfig{
		"retention.policies[1].name: give a name":                                      policy("", "1s:1h", nil),
		`retention.policies[1].name: "a" is already the name of retention.policies[0]`: policy("a", "1s:1h", nil),
		`retention.policies[1].stages: empty; write them as in`:                        policy("b", "", nil),
		`retention.policies[1].stages: retention "sixty"`:                              policy("b", "sixty", nil),
		`retention.policies[1].aggregation: unknown aggregation method "p101"; use average, sum, last, max, min, count, avg_zero, absmax, absmin, or a percentile`: policy("b", "1s:1h", func(p *PolicyConfig) { p.Aggregation = "p101" }),
		`retention.policies[1].x_files_factor: 2: want a number`:                      policy("b", "1s:1h", func(p *PolicyConfig) { p.XFilesFactor = 2 }),
		`retention.policies[1].tags: "host" is not of the form name=value`:            policy("b", "1s:1h", func(p *PolicyConfig) { p.Tags = []string{"host"} }),
		`retention.policies[1].tags: "=web" is not of the form name=value`:            policy("b", "1s:1h", func(p *PolicyConfig) { p.Tags = []string{"=web"} }),
		`retention.policies[1].tags: "host=" is not of the form name=value`:           policy("b", "1s:1h", func(p *PolicyConfig) { p.Tags = []string{"host="} }),
		`retention.policies[1].tags: "=" is not of the form name=value`:               policy("b", "1s:1h", func(p *PolicyConfig) { p.Tags = []string{"="} }),
		`retention.policies[1].tags: "" is not of the form name=value`:                policy("b", "1s:1h", func(p *PolicyConfig) { p.Tags = []string{""} }),
		`retention.policies[1].tags: tag "host" is given twice`:                       policy("b", "1s:1h", func(p *PolicyConfig) { p.Tags = []string{"host=a", "host=b"} }),
		`retention.policies[1].tags: there are 21; want at most 20`:                   policy("b", "1s:1h", func(p *PolicyConfig) { p.Tags = make([]string, 21) }),
		`retention.policies[1].metric: "xxxx`:                                         policy("b", "1s:1h", func(p *PolicyConfig) { p.Metric = strings.Repeat("x", maxText+1) }),
		`retention.policies[1].path: pattern "(?!a)b" uses (?!, which is`:             policy("b", "1s:1h", func(p *PolicyConfig) { p.Path = "(?!a)b" }),
		`retention.policies[1].path: 2001 bytes; want at most 1000`:                   policy("b", "1s:1h", func(p *PolicyConfig) { p.Path = "(" + strings.Repeat("x", 2000) }),
		`instructions when its repeats are written out, which is more than 5000; rep`: policy("b", "1s:1h", func(p *PolicyConfig) { p.Path = "(?:(?:abcdefghij){100}){10}" }),
	} {
		err := Config{Policies: []PolicyConfig{policy("a", "1s:1h", nil), p}}.Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for size, good := range map[int]bool{maxText: true, maxText + 1: false} {
		err := Config{Policies: []PolicyConfig{policy(strings.Repeat("x", size), "1s:1h", nil)}}.Validate()
		if (err == nil) != good || !good && !strings.Contains(err.Error(), "retention.policies[0].name: give a name of at most 1000 bytes") {
			t.Errorf("a name of %d bytes: %v", size, err)
		}
	}
	if err := (Config{Policies: make([]PolicyConfig, maxPolicies+1)}).Validate(); err == nil || !strings.Contains(err.Error(), "retention.policies: there are 1001; want at most 1000") {
		t.Error(err)
	}
	if err := (Config{Policies: []PolicyConfig{{}, {}}}).Validate(); err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("not all faults at once: %v", err)
	}
}

// TestLimits: as much as a limit allows is accepted, and one more is refused with its number.
func TestLimits(t *testing.T) {
	text := func(n int) string { return strings.Repeat("x", n) }
	with := func(change func(*PolicyConfig)) error {
		return Config{Policies: []PolicyConfig{policy("a", "1s:1h", change)}}.Validate()
	}
	for name, c := range map[string]struct {
		most int
		with func(n int) error
	}{
		"policies": {1000, func(n int) error {
			var all []PolicyConfig
			for i := range n {
				all = append(all, policy(fmt.Sprint(i), "1s:1h", nil))
			}
			return Config{Policies: all}.Validate()
		}},
		"name":   {1000, func(n int) error { return with(func(p *PolicyConfig) { p.Name = text(n) }) }},
		"metric": {1000, func(n int) error { return with(func(p *PolicyConfig) { p.Metric = text(n) }) }},
		"path":   {1000, func(n int) error { return with(func(p *PolicyConfig) { p.Path = text(n) }) }},
		"value":  {1000, func(n int) error { return with(func(p *PolicyConfig) { p.Tags = []string{"host=" + text(n)} }) }},
		"tags": {20, func(n int) error {
			return with(func(p *PolicyConfig) {
				for i := range n {
					p.Tags = append(p.Tags, fmt.Sprintf("t%d=x", i))
				}
			})
		}},
		"stages": {16, func(n int) error {
			var all []string
			for i := range n {
				all = append(all, fmt.Sprintf("%ds:%dd", 1<<i, 1+i))
			}
			_, err := ParseStages(strings.Join(all, ","))
			return err
		}},
		"years":           {1000, func(n int) error { _, err := ParseStages(fmt.Sprintf("1d:%dy", n)); return err }},
		"years in points": {1000, func(n int) error { _, err := ParseStages(fmt.Sprintf("%d*31536000s", n)); return err }},
		"schemas": {10_000, func(n int) error {
			var file strings.Builder
			for i := range n {
				fmt.Fprintf(&file, "[%d]\npattern = x\nretentions = 1s:1h\n", i)
			}
			_, _, err := ParseSchemas(file.String())
			return err
		}},
		"aggregations": {10_000, func(n int) error {
			var file strings.Builder
			for i := range n {
				fmt.Fprintf(&file, "[%d]\npattern = x\n", i)
			}
			_, _, err := ParseAggregations(file.String())
			return err
		}},
	} {
		if err := c.with(c.most); err != nil {
			t.Errorf("%s: %d are refused: %.300v", name, c.most, err)
		}
		if err := c.with(c.most + 1); err == nil || !strings.Contains(err.Error(), fmt.Sprint(c.most)) {
			t.Errorf("%s: %d are not refused: %.300v", name, c.most+1, err)
		}
	}
}

// TestSketches: a policy has sketches if it says so, or if its method is a percentile,
// wherever the method comes from.
func TestSketches(t *testing.T) {
	book := bookOf(t, "[file]\npattern = ^file\nretentions = 60s:1d,1h:1y\n", "[p]\npattern = slow$\naggregationMethod = median\n",
		policy("asks", "1s:1h,60s:1d", func(p *PolicyConfig) { p.Metric, p.Sketch = "asks*", true }),
		policy("method", "1s:1h,60s:1d", func(p *PolicyConfig) { p.Metric, p.Aggregation = "method*", "p95" }),
		policy("plain", "1s:1h,60s:1d", func(p *PolicyConfig) { p.Metric = "plain*" }))
	for path, want := range map[string]string{
		"asks": "average true", "asks.slow": "p50 true", "method": "p95 true", "method.slow": "p95 true", "plain": "average false", "plain.slow": "p50 true",
		"file": "average false", "file.slow": "p50 true", "none.slow": "p50 false",
	} {
		p := book.Of(ParsePath(path))
		if got := fmt.Sprint(p.Aggregation.Method, " ", p.Sketches()); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	asks := policy("a", "1s:1h,60s:1d", func(p *PolicyConfig) { p.Sketch = true })
	if got := bookOf(t, "", "", asks).Changes(bookOf(t, "", "", policy("a", "1s:1h,60s:1d", nil))); !slices.Equal(got, []string{"retention.policies [a] changed: 1s:1h,1m:1d is now 1s:1h,1m:1d with sketches"}) {
		t.Errorf("%q", got)
	}
}

func TestPoliciesOfTenants(t *testing.T) {
	book := bookOf(t, "[file]\npattern = .\nretentions = 60s:1d\n", "", policy("acme", "1s:1h", func(p *PolicyConfig) { p.Tenants = []string{"acme", "globex"} }),
		policy("one", "1s:1h", func(p *PolicyConfig) { p.Tenants = []string{"initech"} }), policy("all", "5s:1h", nil))
	for tenant, want := range map[string]string{"default": "all", "acme": "acme", "globex": "acme", "initech": "one"} {
		if r := book.For(tenant).Report("a"); r.Rule != want {
			t.Errorf("%s: %+v", tenant, r)
		}
	}
	if len(book.Rules) != 4 {
		t.Error("the book of a tenant has changed the whole")
	}
}

func TestChanges(t *testing.T) {
	a, b := policy("a", "1s:1h", nil), policy("b", forever, nil)
	old := bookOf(t, "[file]\npattern = .\nretentions = 60s:1d\n", "[x]\npattern = x\n", a, b)
	for _, c := range []struct {
		now  *Book
		want []string
	}{
		{bookOf(t, "[file]\npattern = .\nretentions = 60s:1d\n", "[x]\npattern = x\n", a, b), nil},
		{bookOf(t, "[file]\npattern = .\nretentions = 60s:1d\n", "[x]\npattern = x\n", b, a), []string{"the order of rules changed"}},
		{bookOf(t, "[file]\npattern = ,\nretentions = 60s:2d\n", "[x]\npattern = y\n", policy("b", forever, func(p *PolicyConfig) { p.Metric = "m" }), policy("c", "2s:1h", nil)), []string{
			"retention.policies [b] changed: forever if every series is now forever if the metric is m", "retention.policies [c] added: 2s:1h", "storage-schemas.conf [file] changed: 1m:1d is now 1m:2d",
			"retention.policies [a] removed", "storage-aggregation.conf [x] changed",
		}},
	} {
		if got := c.now.Changes(old); !slices.Equal(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	var many []PolicyConfig
	for i := range 100 {
		many = append(many, policy(fmt.Sprint(i), "1s:1h", nil))
	}
	if got := bookOf(t, "", "", many...).Changes(&Book{}); len(got) != maxChanges+1 || got[maxChanges] != "and 80 more" {
		t.Errorf("%q", got)
	}
}

func TestParsePath(t *testing.T) {
	for path, want := range map[string]Series{
		"a.b":         {Metric: "a.b", Path: "a.b"},
		"m;b=2;a=1=2": {Metric: "m", Tags: model.MustTags("a", "1=2", "b", "2"), Path: "m;a=1=2;b=2"},
		"m;a=1;a=2":   {Metric: "m;a=1;a=2", Path: "m;a=1;a=2"},
		"m;a":         {Metric: "m;a", Path: "m;a"},
		"m;=a":        {Metric: "m;=a", Path: "m;=a"},
		"":            {},
	} {
		if got := ParsePath(path); got != want {
			t.Errorf("%q: %+v", path, got)
		}
	}
}

func FuzzPolicy(f *testing.F) {
	f.Add("web.*", "host=a?", `^web\.`, "10s:6h,60s:30d", "max", 0.5, "web.a;host=ab")
	f.Add("*", "a=*", "", forever, "", -1.0, ";;=")
	f.Fuzz(func(t *testing.T, metric, tag, path, stages, aggregation string, factor float64, of string) {
		rules, err := Config{Policies: []PolicyConfig{{
			Name: "a", Metric: metric, Tags: []string{tag}, Path: path, Stages: stages, Aggregation: aggregation, XFilesFactor: factor,
		}}}.Rules()
		if err != nil {
			return
		}
		book := &Book{Rules: rules}
		p, r := book.Of(ParsePath(of)), book.Report(of)
		if (p.Rule != nil) != (len(r.Stages) > 0) || p.Aggregation == nil || !(p.Aggregation.XFilesFactor >= 0 && p.Aggregation.XFilesFactor <= 1) {
			t.Errorf("%+v, %+v", p, r)
		}
	})
}

// TestExpected: a bucket has at most as many samples as fit at the step of the first
// stage, and one if no rule has a step.
func TestExpected(t *testing.T) {
	stages, err := ParseStages("10s:1d,60s:7d")
	if err != nil {
		t.Fatal(err)
	}
	rule := Policy{Rule: &Rule{Stages: stages}}
	for _, c := range []struct {
		policy Policy
		stepMS int64
		want   float64
	}{
		{rule, 60_000, 6}, {rule, 10_000, 1}, {rule, 15_000, 1.5}, {rule, 1000, 1}, {rule, 3_600_000, 360}, {Policy{}, 60_000, 1},
	} {
		if got := c.policy.Expected(c.stepMS); got != c.want {
			t.Errorf("buckets of %d ms, rule %t: %v samples, want %v", c.stepMS, c.policy.Rule != nil, got, c.want)
		}
	}
}
