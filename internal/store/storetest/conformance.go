package storetest

import (
	"bufio"
	"embed"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"
)

// Run checks that a store means what package store says. Each sub-test has an
// empty store of its own from newHarness. With -short, the test of 100,000
// series is left out.
func Run(t *testing.T, newHarness NewHarness) {
	for _, g := range groups() {
		t.Run(g.name, func(t *testing.T) {
			for _, c := range g.tests {
				t.Run(c.name, func(t *testing.T) { c.runOn(t, newHarness) })
			}
		})
	}
}

// group is a topic: one script file, or one file of Go tests.
type group struct {
	name  string
	tests []test
}

type test struct {
	name string
	run  func(e *env)
}

func groups() []group {
	return append(scriptGroups(),
		group{"blocks", blockTests}, group{"stats", statsTests}, group{"series", seriesTests}, group{"selecting", selectTests},
		group{"views", viewTests}, group{"expiry", expiryTests}, group{"service-keys", serviceKeyTests},
		group{"reopen", reopenTests}, group{"cancel", cancelTests}, group{"concurrent", concurrentTests})
}

// env is what a test works with: a store that is open, and the ops of the
// script language on it.
type env struct {
	testing.TB
	*runner
}

func (c test) runOn(tb testing.TB, newHarness NewHarness) {
	e := &env{TB: tb, runner: newRunner(tb, newHarness(tb))}
	defer e.close()
	c.run(e)
}

// must does ops that have no answer.
func (e *env) must(lines ...string) {
	e.Helper()
	for _, line := range lines {
		e.expect(line, "")
	}
}

// expect does one op and compares the answer.
func (e *env) expect(line, want string) {
	e.Helper()
	o, err := parseOp(line, e.origin)
	if err != nil {
		e.Fatal(err)
	}
	if got := e.do(o); got != want {
		e.Fatalf("%s\n got: %s\nwant: %s", line, indented(got), indented(want))
	}
}

func indented(text string) string {
	if text == "" {
		return "success, no answer"
	}
	return strings.ReplaceAll(text, "\n", "\n      ")
}

//go:embed scripts
var scripts embed.FS

// A scriptCase is one story: ops and the answers they must have.
type scriptCase struct {
	name   string
	file   string
	steps  []step
	usesAt bool // times relative to the origin
}

type step struct {
	line   string // where in the file, and the op
	number int
	want   string
}

// variations are what is done after each op that changes the store. No answer
// may depend on it.
var variations = []struct {
	name  string
	needs func(h *Harness) bool
	after func(r *runner)
}{
	{"plain", func(*Harness) bool { return true }, func(*runner) {}},
	{"flushed", func(h *Harness) bool { return h.Flush != nil }, (*runner).flush},
	{"merged", func(h *Harness) bool { return h.Merge != nil }, (*runner).merge},
	{"reopened", func(*Harness) bool { return true }, (*runner).reopen},
	{"crashed", func(h *Harness) bool { return h.Crash != nil }, (*runner).crash},
}

func scriptGroups() []group {
	files, err := scripts.ReadDir("scripts")
	if err != nil {
		panic(err) // embedded: cannot be missing
	}
	var out []group
	for _, f := range files {
		text, err := scripts.ReadFile("scripts/" + f.Name())
		if err != nil {
			panic(err)
		}
		g := group{name: strings.TrimSuffix(f.Name(), path.Ext(f.Name()))}
		for _, c := range parseCases(f.Name(), string(text)) {
			for _, v := range variations {
				g.tests = append(g.tests, test{c.name + "/" + v.name, func(e *env) {
					if !v.needs(e.h) {
						e.Skip("the store has no such thing")
					}
					c.run(e, v.after)
				}})
			}
		}
		out = append(out, g)
	}
	return out
}

// parseCases splits a script file. Answers are indented by two spaces; # begins
// a comment line.
func parseCases(file, text string) []scriptCase {
	var out []scriptCase
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "case "); ok {
			out = append(out, scriptCase{name: name, file: file})
			continue
		}
		if line == "" || line[0] == '#' {
			continue
		}
		c := &out[len(out)-1]
		answer, isAnswer := strings.CutPrefix(line, "  ")
		if !isAnswer {
			c.steps = append(c.steps, step{line: line, number: number})
			c.usesAt = c.usesAt || strings.Contains(line, "@")
			continue
		}
		s := &c.steps[len(c.steps)-1]
		if s.want != "" {
			s.want += "\n"
		}
		s.want += answer
	}
	return out
}

func (c scriptCase) run(e *env, after func(*runner)) {
	if c.usesAt {
		if e.h.Advance == nil {
			e.Skip("needs an exact clock")
		}
		e.origin = e.h.now().Truncate(time.Millisecond)
	}
	var story strings.Builder
	for _, s := range c.steps {
		o, err := parseOp(s.line, e.origin)
		if err != nil {
			e.Fatalf("%s:%d: %v", c.file, s.number, err)
		}
		fmt.Fprintln(&story, s.line)
		if got := e.do(o); got != s.want {
			e.Fatalf("%s:%d: the last line of this story has the wrong answer\n%s got: %s\nwant: %s",
				c.file, s.number, story.String(), indented(got), indented(s.want))
		}
		if o.changes() {
			after(e.runner)
		}
	}
}

// changes reports whether o changes what the store holds.
func (o op) changes() bool {
	switch o.verb {
	case "append", "delete", "set", "unset", "advance":
		return true
	}
	return false
}
