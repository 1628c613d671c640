package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// Two servers are compared: the exit status and the report say what was found.
func TestCompare(t *testing.T) {
	t.Parallel()
	a, b := start(t, t.TempDir()), start(t, t.TempDir())
	defer a.stop(os.Interrupt)
	defer b.stop(os.Interrupt)
	now := time.Now().Add(-time.Hour).UnixMilli()
	for _, p := range []*process{a, b} {
		for i := range int64(50) {
			p.put(fmt.Sprintf("putm load %d %d host=a", now-i*60_000, i))
		}
		p.values("load", 50)
	}
	args := []string{"compare", "--a", a.http, "--b", "http://" + b.http, "--start-relative", "1d", "--questions", "30", "--seed", "7"}
	out, _ := must(t, 0, args...)
	if !strings.Contains(out, "1 metric, tags of 1, 30 queries") || !strings.Contains(out, "seed 7") || !strings.Contains(out, "no differences") {
		t.Error(out)
	}
	for _, nothing := range []struct{ args, want string }{
		{"--metrics ^unknown$", "no metric in common"},
		{"--from 1000 --to 90000", "no query found a point between 1970-01-01T00:00:01Z and 1970-01-01T00:01:30Z"},
	} {
		args := append([]string{"compare", "--a", a.http, "--b", b.http, "--questions", "5"}, strings.Fields(nothing.args)...)
		if out, errs := must(t, 2, args...); !strings.HasSuffix(out, "\nnothing was compared\n") || !strings.Contains(errs, nothing.want) {
			t.Errorf("%s: %s %s", nothing.args, out, errs)
		}
	}
	b.put(fmt.Sprintf("putm load %d 99 host=a", now-30_000))
	b.values("load", 51)
	out, errs := must(t, 1, args...)
	if !strings.Contains(out, fmt.Sprintf(`{"time":%d,"a":null,"b":99}`, now-30_000)) || !strings.Contains(errs, "the servers differ") {
		t.Error(out, errs)
	}
	if out, errs = must(t, 2, "compare", "--a", a.http, "--b", "127.0.0.1:1"); !strings.Contains(errs, "b (http://127.0.0.1:1)") || !strings.HasSuffix(out, "nothing was compared\n") {
		t.Error(out, errs)
	}
	for _, wrong := range []struct{ args, want string }{
		{"--a x", "give both servers"},
		{"--a x --b y more", "unexpected argument"},
		{"--a x --b y --from 5 --start-relative 1d", "give one of them"},
		{"--a x --b y --from 5 --to 1", "end after it begins"},
		{"--a x --b y --start-relative 5", "want a time such as"},
		{"--a x --b y --start-relative 99999999w", "want a time such as"},
		{"--a x --b y --metrics (", "flag --metrics"},
		{"--a x --b y --questions -1", "flag --questions"},
		{"--a x --b y --seed -1", "flag --seed"},
		{"--a x --b y --for 0s", "flag --for"},
		{"--a ftp://x --b y", "want http://HOST:PORT"},
		{"--a x --b y --api influx", "want kairosdb or graphite"},
		{"--a x --b y --tolerance 0.1", "needs --api graphite"},
		{"--a x --b y --api graphite --tolerance 2", "want a number from 0 to 1"},
		{"--a x --b y --question 5", "did you mean --questions?"},
	} {
		if _, errs := must(t, 2, append([]string{"compare"}, strings.Fields(wrong.args)...)...); !strings.Contains(errs, wrong.want) {
			t.Errorf("%s: %s", wrong.args, errs)
		}
	}
}

// Two servers are compared over Graphite's API.
func TestCompareGraphite(t *testing.T) {
	t.Parallel() // beside TestCompare: both wait before they look at a difference again
	a, b := start(t, t.TempDir()), start(t, t.TempDir())
	defer a.stop(os.Interrupt)
	defer b.stop(os.Interrupt)
	now := time.Now().Add(-time.Hour).Unix() / 60 * 60
	for _, p := range []*process{a, b} {
		var list []string
		for _, path := range []string{"web.a.load", "web.b.load", "web.b", "carbon.own"} {
			var points []string
			for i := range int64(300) {
				points = append(points, fmt.Sprintf("[%d,%d.5]", (now-i*60)*1000, i%17))
			}
			list = append(list, fmt.Sprintf(`{"name":%q,"skip_validate":true,"datapoints":[%s]}`, path, strings.Join(points, ",")))
		}
		if status, body := p.do("POST", "/api/v1/import", strings.Join(list, "\n")); status != 200 {
			t.Fatal(status, body)
		}
	}
	args := []string{"compare", "--api", "graphite", "--a", a.http, "--b", "http://" + b.http, "--start-relative", "8h", "--questions", "80", "--seed", "7"}
	out, _ := must(t, 0, args...)
	if !strings.Contains(out, "Graphite 1.1.10") || !strings.Contains(out, "compared   3 paths, 80 queries with ") || !strings.Contains(out, "no differences") {
		t.Error(out)
	}
	if out, errs := must(t, 2, append(args, "--metrics", "^unknown$")...); !strings.Contains(errs, "no path in common") {
		t.Error(out, errs)
	}
	b.do("POST", "/api/v1/import", fmt.Sprintf(`{"name":"web.a.load","skip_validate":true,"datapoints":[[%d,99.5]]}`+"\n"+`{"name":"new.path","skip_validate":true,"datapoints":[[%d,1]]}`, (now-600)*1000, now*1000))
	out, errs := must(t, 1, args...)
	for _, want := range []string{
		fmt.Sprintf(`[{"time":%d,"a":10.5,"b":99.5}]`, (now-600)*1000), `"target":"web.a.load"`, "series    ", "points    a ",
		`path "new.path" is listed by one side only; points differ`, "the servers differ",
	} {
		if !strings.Contains(out+errs, want) {
			t.Errorf("no %s in\n%s%s", want, out, errs)
		}
	}
}
