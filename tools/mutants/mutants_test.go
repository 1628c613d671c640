package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func shop(t *testing.T) *pkg {
	t.Helper()
	packages, err := load(t.Context(), filepath.Join("testdata", "shop"), []string{"."})
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) != 1 {
		t.Fatalf("%d packages, want 1", len(packages))
	}
	return packages[0]
}

// TestPlaces lists all mutants: none of code that only logs, none of a capacity, none
// that does not compile.
func TestPlaces(t *testing.T) {
	var got []string
	drawn := draw(shop(t).places(), 1, 1000)
	for _, m := range drawn {
		line, _ := m.position()
		got = append(got, fmt.Sprintf("%02d %s: %s -> %s", line, m.operator, oneLine(string(m.file.source[m.start:m.end])), oneLine(m.text)))
	}
	slices.Sort(got)
	want := strings.Split(strings.TrimSpace(`
10 constant: 10 -> (10 + 1)
10 constant: 10 -> (10 - 1)
10 constant: 10 -> 0
27 comparison: > -> <=
27 comparison: > -> >=
28 dropped statement: return errMany -> (nothing)
28 swallowed error: return errMany -> _ = errMany; return nil
31 dropped statement: s.sold += n -> (nothing)
39 constant: 0 -> (0 + 1)
41 swallowed error: err != nil -> false && err != nil
42 dropped statement: return len(done), err -> (nothing)
42 swallowed error: return len(done), err -> _ = err; return len(done), nil
44 dropped statement: done = append(done, n) -> (nothing)
50 boolean: ! -> (nothing)
50 boolean: && -> ||
50 comparison: >= -> <
50 comparison: >= -> >
50 constant: 1 -> (1 + 1)
50 constant: 1 -> (1 - 1)
54 comparison: > -> <=
54 comparison: > -> >=
54 constant: 0 -> (0 + 1)
54 constant: 0 -> -1
54 constant: 3 -> (3 + 1)
54 constant: 3 -> (3 - 1)
54 constant: 3 -> 0
55 constant: 5 -> 0
55 dropped statement: time.Sleep(5 * time.Millisecond) -> (nothing)
56 dropped statement: n-- -> (nothing)
61 boolean: true -> false
`), "\n")
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("no mutant %q", w)
		}
	}
	for _, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("mutant %q is not wanted", g)
		}
	}
}

// TestConstantsBesideAnError: a constant that is returned together with an error is not mutated,
// unless the error may be nil.
func TestConstantsBesideAnError(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module beside\n\ngo 1.26\n",
		"a.go":   "// Package beside fails.\npackage beside\n\nfunc one(err error) (int, bool, error) {\n\tif err != nil {\n\t\treturn 7, true, err\n\t}\n\treturn 8, false, nil\n}\n\nfunc two(n int, err error) (int, error) { return n + 9, err }\n\nfunc three(err error) (int, error) {\n\tif err == nil {\n\t\treturn 5, other()\n\t}\n\treturn 6, err\n}\n\nfunc other() error { return nil }\n\ntype limit struct{ max int }\n\nfunc (*limit) Error() string { return \"limit\" }\n\nfunc four() (int, error) { return 4, &limit{3} }\n\nvar errFive error = &limit{}\n\nfunc five() (int, error) { return 1, errFive }\n\nfunc six(s struct{ err error }) (int, error) { return 2, s.err }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	packages, err := load(t.Context(), dir, []string{"."})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	swallowed := 0
	for _, p := range packages[0].places() {
		if p.operator == "swallowed error" {
			swallowed++
		}
		if p.operator == "constant" || p.operator == "boolean" {
			got = append(got, string(p.file.source[p.start:p.end]))
		}
	}
	if want := []string{"8", "false", "9", "5", "6", "3", "2"}; !slices.Equal(got, want) {
		t.Errorf("%q are mutated, want %q", got, want)
	}
	if want := 8; swallowed != want { // the returns of one to six, and the check in one
		t.Errorf("%d errors are swallowed, want %d", swallowed, want)
	}
}

func TestDrawIsRepeatable(t *testing.T) {
	names := func(seed uint64, n int) []string {
		var all []string
		for _, m := range draw(shop(t).places(), seed, n) {
			all = append(all, m.String())
		}
		return all
	}
	first := names(7, 12)
	if again := names(7, 12); !slices.Equal(first, again) {
		t.Errorf("seed 7 drew %q, then %q", first, again)
	}
	if fewer := names(7, 5); !slices.Equal(first[:5], fewer) {
		t.Errorf("5 mutants %q are not the first of 12 %q", fewer, first)
	}
	if other := names(8, 12); slices.Equal(first, other) {
		t.Error("seeds 7 and 8 drew the same")
	}
}

// TestRun runs some mutants of the shop, whose tests have known gaps.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a package for each mutant")
	}
	before, err := os.ReadFile(filepath.Join("testdata", "shop", "shop.go"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	o := options{seed: 199, count: 9, jobs: 2, limit: 5 * time.Minute, dir: filepath.Join("testdata", "shop"),
		packages: []string{"."}, out: &out, memoryKiB: 16 << 20, timeoutMin: 2 * time.Second}
	if err := o.do(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, out.Bytes())
	}
	for _, want := range []string{
		"SURVIVED shop.go:54 constant: 3 -> 0 [all tests pass",
		"SURVIVED shop.go:61 boolean: true -> false [no test runs this line",
		"killed shop.go:27 comparison: > -> >= [TestSell",
		"killed shop.go:41 swallowed error: err != nil -> false && err != nil [TestSell",
		"killed shop.go:56 dropped statement: n-- -> (nothing) [timeout",
		"shop.go:61:9 boolean (no test runs this line)\n\t- return true\n\t+ return false\n",
		"seed 199: 9 of 9 mutants run in ",
		"5 killed, 1 of them by timeout, 4 survived (55 % killed)",
	} {
		if !strings.Contains(strings.ReplaceAll(out.String(), filepath.Join("testdata", "shop")+"/", ""), want) {
			t.Errorf("output lacks %q", want)
		}
	}
	if t.Failed() {
		t.Logf("output:\n%s", out.Bytes())
	}
	if after, err := os.ReadFile(filepath.Join("testdata", "shop", "shop.go")); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the run changed the source (%v)", err)
	}
}

func TestRunNeedsPassingTests(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module broken\n\ngo 1.26\n",
		"a.go":      "// Package broken fails.\npackage broken\n\nfunc one() int { return 1 }\n",
		"a_test.go": "package broken\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {\n\tif one() != 2 {\n\t\tt.Fatal(\"not two\")\n\t}\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	o := options{seed: 1, count: 1, limit: time.Minute, dir: dir, packages: []string{"."}, out: new(bytes.Buffer), memoryKiB: 16 << 20, timeoutMin: time.Second}
	err := o.do(t.Context())
	if err == nil || !strings.Contains(err.Error(), "fail over unchanged code") || !strings.Contains(err.Error(), "not two") {
		t.Errorf("error %v, want one that shows the failing test", err)
	}
}

func TestRunEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := options{seed: 1, count: 1, limit: time.Minute, dir: filepath.Join("testdata", "shop"), packages: []string{"."}, out: new(bytes.Buffer)}
	if err := o.do(ctx); err == nil {
		t.Error("no error")
	}
}

func TestQuickest(t *testing.T) {
	out := []byte("=== RUN   TestSlow\n--- PASS: TestSlow (3.00s)\n    --- PASS: TestSlow/sub (0.10s)\n--- PASS: TestA (1.20s)\n--- PASS: TestB (0.00s)\n--- SKIP: TestC (0.00s)\n--- PASS: TestD (1.00s)\n")
	if got, want := quickest(out), []string{"TestB", "TestD"}; !slices.Equal(got, want) {
		t.Errorf("quickest tests %q, want %q", got, want)
	}
}

// TestNoFilesOfFailures: rapid writes no file for the failure of a mutant.
func TestNoFilesOfFailures(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "binary")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\necho $RAPID_NOFAILFILE $TMPDIR\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	o := options{memoryKiB: 16 << 20}
	out, err := o.test(t.Context(), &suite{dir: dir}, dir, binary, nil, time.Minute)
	if want := "1 " + filepath.Join(dir, "tmp") + "\n"; err != nil || string(out) != want {
		t.Errorf("a test binary sees %q, want %q (%v)", out, want, err)
	}
}

// TestSwitchAll: mutants are compiled together unless they need a constant, also where one
// contains another.
func TestSwitchAll(t *testing.T) {
	p := shop(t)
	drawn := draw(p.places(), 1, 1000)
	dir := t.TempDir()
	if _, err := switchAll(dir, []*pkg{p}, drawn); err != nil {
		t.Fatal(err)
	}
	for i, m := range drawn {
		line, _ := m.position()
		want := i + 1
		if line == 10 { // const most = 10
			want = 0
		}
		if m.number != want {
			t.Errorf("%s has number %d, want %d", m, m.number, want)
		}
	}
}

// TestSwitched: a mutant inside another one takes effect while the outer one is off.
func TestSwitched(t *testing.T) {
	p := shop(t)
	var line50 []mutant
	for _, place := range p.places() {
		m := mutant{place: place, text: place.texts[0]}
		if line, _ := m.position(); line == 50 && m.operator != "dropped statement" {
			line50 = append(line50, m)
		}
	}
	text, err := switchFile(p.files[0], fmt.Sprintf(switchCode, "shop", 9), line50)
	if err != nil {
		t.Fatal(err)
	}
	want := "return (mutantAt(1) && (day >= 1 || !holiday) || mutantOn != 1 && (" +
		"(mutantAt(2) && (day > 1) || mutantOn != 2 && (day >= mutantPick[int](3, (1 + 1), 1))) && " +
		"(mutantAt(4) && (holiday) || mutantOn != 4 && (!holiday))))"
	if got := strings.TrimSpace(strings.Split(text, "\n")[49]); got != want {
		t.Errorf("line 50 is\n%s\nwant\n%s", got, want)
	}
}
