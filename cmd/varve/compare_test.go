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
	if !strings.Contains(out, "1 metrics, tags of 1, 30 questions") || !strings.Contains(out, "seed 7") || !strings.Contains(out, "no differences") {
		t.Error(out)
	}
	for _, nothing := range []struct{ args, want string }{
		{"--metrics ^unknown$", "no metric in common"},
		{"--from 1000 --to 90000", "no question met a point"},
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
	if out, errs = must(t, 2, "compare", "--a", a.http, "--b", "127.0.0.1:1"); !strings.Contains(errs, "b (http://127.0.0.1:1)") || strings.HasSuffix(out, "no differences\n") {
		t.Error(out, errs)
	}
	for _, wrong := range []struct{ args, want string }{
		{"--a x", "give both servers"},
		{"--a x --b y more", "not a flag"},
		{"--a x --b y --from 5 --start-relative 1d", "give one of them"},
		{"--a x --b y --from 5 --to 1", "end after it begins"},
		{"--a x --b y --start-relative 5", "want a time such as"},
		{"--a x --b y --start-relative 99999999w", "want a time such as"},
		{"--a x --b y --metrics (", "flag --metrics"},
		{"--a x --b y --questions -1", "flag --questions"},
		{"--a x --b y --seed -1", "flag --seed"},
		{"--a x --b y --for 0s", "flag --for"},
		{"--a ftp://x --b y", "want http://HOST:PORT"},
		{"--a x --b y --question 5", "did you mean --questions?"},
	} {
		if _, errs := must(t, 2, append([]string{"compare"}, strings.Fields(wrong.args)...)...); !strings.Contains(errs, wrong.want) {
			t.Errorf("%s: %s", wrong.args, errs)
		}
	}
}
