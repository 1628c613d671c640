package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A suite is the tests of one package, and their results over unchanged code.
type suite struct {
	path, dir string
	quick     []string // tests to run first: most mutants fail one of them
	elapsed   time.Duration
	switched  string       // test binary of all numbered mutants; "": build each alone
	reached   map[int]bool // numbers of the mutants that the tests reach
}

// quickMost is the total time of the tests that run first.
const quickMost = 2 * time.Second

// timedOut is how a mutant is killed whose tests exceed their time limit.
const timedOut = "timeout"

// An outcome is the result of running a mutant.
type outcome struct {
	killed  bool
	how     string // the test that failed, "timeout", "no test runs this line"
	invalid bool   // the compiler rejects it, although the type checker did not
	err     error
}

// runAll runs the mutants and writes the outcome of each.
func (o *options) runAll(ctx context.Context, packages []*pkg, mutants []mutant) error {
	began := time.Now()
	temp, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	overlay, err := switchAll(filepath.Join(temp, "switched"), packages, mutants)
	if err != nil {
		return err
	}
	suites, err := o.suites(ctx, temp, overlay, packages, mutants)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.out, "the tests pass over unchanged code: %s\n", time.Since(began).Round(time.Second))

	var (
		mu        sync.Mutex
		next      int
		done      int
		killed    int
		timeouts  int // of those killed
		invalid   int
		survivors []string
		failed    error
		wg        sync.WaitGroup
	)
	for job := range max(o.jobs, 1) {
		wg.Go(func() {
			dir := filepath.Join(temp, "job"+strconv.Itoa(job))
			for {
				mu.Lock()
				if next == len(mutants) || failed != nil || ctx.Err() != nil || time.Since(began) > o.limit {
					mu.Unlock()
					return
				}
				i := next
				next++
				mu.Unlock()
				m := mutants[i]
				start := time.Now()
				result := o.runOne(ctx, dir, m, suites[m.file.pkg])
				mu.Lock()
				switch {
				case ctx.Err() != nil:
				case result.err != nil:
					failed = cmp.Or(failed, fmt.Errorf("%s: %w", m, result.err))
				default:
					done++
					word := "SURVIVED"
					if result.invalid {
						word, invalid = "invalid", invalid+1
					} else if result.killed {
						word, killed = "killed", killed+1
						if result.how == timedOut {
							timeouts++
						}
					} else {
						before, after := m.lines()
						line, column := m.position()
						survivors = append(survivors, fmt.Sprintf("%s:%d:%d %s (%s)\n\t- %s\n\t+ %s", m.file.short, line, column, m.operator, result.how, before, after))
					}
					fmt.Fprintf(o.out, "%d/%d %s %s [%s, %.1fs]\n", o.skip+i+1, o.skip+len(mutants), word, m, result.how, time.Since(start).Seconds())
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	slices.Sort(survivors)
	if len(survivors) > 0 {
		fmt.Fprintf(o.out, "\nsurvivors:\n%s\n", strings.Join(survivors, "\n"))
	}
	fmt.Fprintf(o.out, "\nseed %d: %d of %d mutants run in %s: %d killed, %d of them by timeout, %d survived", o.seed, done-invalid, len(mutants), time.Since(began).Round(time.Second), killed, timeouts, len(survivors))
	if n := done - invalid; n > 0 {
		fmt.Fprintf(o.out, " (%d %% killed)", 100*killed/n)
	}
	fmt.Fprintln(o.out)
	if done < len(mutants) {
		fmt.Fprintf(o.out, "stopped before the end; continue with -skip %d\n", o.skip+done)
	}
	return ctx.Err()
}

// suites runs the tests of every package with mutants over unchanged code. They must
// pass; their duration determines the time limit of a mutant.
func (o *options) suites(ctx context.Context, temp, overlay string, packages []*pkg, mutants []mutant) (map[*pkg][]*suite, error) {
	suites := map[*pkg][]*suite{}
	known := map[string]*suite{}
	for _, p := range packages {
		if !slices.ContainsFunc(mutants, func(m mutant) bool { return m.file.pkg == p }) {
			continue
		}
		paths := []string{p.path}
		if len(o.tests) > 0 {
			listed, err := o.goRun(ctx, append([]string{"list", "-f", "{{.ImportPath}}"}, o.tests...)...)
			if err != nil {
				return nil, err
			}
			paths = strings.Fields(string(listed))
		}
		for _, path := range paths {
			if known[path] == nil {
				s, err := o.baseline(ctx, temp, path, overlay)
				if err != nil {
					return nil, err
				}
				known[path] = s
				fmt.Fprintf(o.out, "tests of %s: %.1fs\n", path, s.elapsed.Seconds())
			}
			if known[path].elapsed > 0 {
				suites[p] = append(suites[p], known[path])
			}
		}
		slices.SortStableFunc(suites[p], func(a, b *suite) int { return cmp.Compare(a.elapsed, b.elapsed) })
	}
	return suites, nil
}

func (o *options) goRun(ctx context.Context, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = o.dir
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s%s", strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return out, nil
}

var passed = regexp.MustCompile(`(?m)^--- PASS: (\S+) \(([0-9.]+)s\)`)

// baseline runs the tests of a package over unchanged code: in a binary that has all mutants
// and switches none on, or, if they fail there, in a binary without mutants.
func (o *options) baseline(ctx context.Context, temp, path, overlay string) (*suite, error) {
	listed, err := o.goRun(ctx, "list", "-f", "{{.Dir}}\n{{len .TestGoFiles}}{{len .XTestGoFiles}}", path)
	if err != nil {
		return nil, err
	}
	dir, tests, _ := strings.Cut(strings.TrimSpace(string(listed)), "\n")
	s := &suite{path: path, dir: dir, reached: map[int]bool{}}
	if tests == "00" {
		return s, nil
	}
	temp, err = os.MkdirTemp(temp, "baseline-")
	if err != nil {
		return nil, err
	}
	switched, reached := filepath.Join(temp, "switched.test"), filepath.Join(temp, "reached")
	if err := os.WriteFile(reached, nil, 0o666); err != nil {
		return nil, err
	}
	switchedErr := o.pass(ctx, s, temp, switched, overlay, reachedVariable+"="+reached)
	if switchedErr == nil {
		s.switched = switched
		return s, s.readReached(reached)
	}
	if err := o.pass(ctx, s, temp, filepath.Join(temp, "plain.test"), ""); err != nil {
		return nil, fmt.Errorf("the tests of %s fail over unchanged code: %w", path, err)
	}
	fmt.Fprintf(o.out, "each mutant is built alone, since with all mutants in a binary: %v\n", switchedErr)
	return s, nil
}

// pass builds a test binary, runs its tests, which must pass, and measures their time.
func (o *options) pass(ctx context.Context, s *suite, temp, binary, overlay string, environment ...string) error {
	if err := o.build(ctx, s, binary, overlay); err != nil {
		return err
	}
	began := time.Now()
	out, err := o.test(ctx, s, temp, binary, append(environment, on(reportReached)), time.Hour, "-test.v")
	if err != nil {
		return fmt.Errorf("%w\n%s", err, tail(out))
	}
	s.elapsed, s.quick = time.Since(began), quickest(out)
	return nil
}

// on returns the variable of the environment that switches a mutant on.
func on(number int) string { return onVariable + "=" + strconv.Itoa(number) }

// build builds a test binary. -w omits the debugger's tables, which no test reads, and halves
// the time of linking. Vet would reject mutants such as x == a && x == b.
func (o *options) build(ctx context.Context, s *suite, binary, overlay string) error {
	args := []string{"test", "-c", "-vet=off", "-ldflags=-w", "-o", binary, s.path}
	if overlay != "" {
		args = slices.Insert(args, 1, "-overlay="+overlay)
	}
	_, err := o.goRun(ctx, args...)
	return err
}

// quickest returns the names of the fastest tests, which take at most quickMost together.
func quickest(verbose []byte) []string {
	type timed struct {
		name    string
		seconds float64
	}
	var all []timed
	for _, m := range passed.FindAllSubmatch(verbose, -1) {
		seconds, err := strconv.ParseFloat(string(m[2]), 64)
		if err == nil {
			all = append(all, timed{string(m[1]), seconds})
		}
	}
	slices.SortStableFunc(all, func(a, b timed) int { return cmp.Compare(a.seconds, b.seconds) })
	var names []string
	sum := 0.0
	for _, t := range all {
		if sum += t.seconds; sum > quickMost.Seconds() {
			break
		}
		names = append(names, t.name)
	}
	return names
}

// readReached reads the numbers that mutantReport has written.
func (s *suite) readReached(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, line := range strings.Fields(string(text)) {
		number, err := strconv.Atoi(line)
		if err != nil {
			return fmt.Errorf("reached mutants: %w", err)
		}
		s.reached[number] = true
	}
	return nil
}

// reaches reports whether the tests may reach the mutant.
func (s *suite) reaches(m mutant) bool {
	return s.switched == "" || m.number == 0 || s.reached[m.number]
}

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// buildAlone builds the tests with one mutant in dir.
func (o *options) buildAlone(ctx context.Context, dir string, m mutant, s *suite) (binary string, err error) {
	changed, overlay, binary := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutant.test")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{m.file.path: changed}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.MkdirAll(dir, 0o777), os.WriteFile(changed, m.source(), 0o666), os.WriteFile(overlay, text, 0o666)); err != nil {
		return "", err
	}
	return binary, o.build(ctx, s, binary, overlay)
}

// runOne runs the tests with one mutant until one fails.
func (o *options) runOne(ctx context.Context, dir string, m mutant, suites []*suite) outcome {
	how := "no test runs this line"
	for _, s := range suites {
		if !s.reaches(m) {
			continue
		}
		how = "all tests pass"
		binary := s.switched
		if binary == "" || m.number == 0 {
			var err error
			if binary, err = o.buildAlone(ctx, dir, m, s); err != nil {
				if ctx.Err() == nil && len(o.tests) == 0 {
					return outcome{invalid: true, how: "does not compile"}
				}
				return outcome{err: err}
			}
		}
		most := max(o.timeoutMin, 5*s.elapsed)
		var rest []string
		if len(s.quick) > 0 {
			names := "^(" + strings.Join(s.quick, "|") + ")$"
			rest = []string{"-test.skip", names}
			if o := o.kill(ctx, s, dir, binary, m.number, min(most, max(o.timeoutMin, 5*quickMost)), "-test.run", names); o.killed || o.err != nil {
				return o
			}
		}
		if o := o.kill(ctx, s, dir, binary, m.number, most, rest...); o.killed || o.err != nil {
			return o
		}
	}
	return outcome{how: how}
}

// kill runs a test binary with a mutant switched on and reports whether it failed.
func (o *options) kill(ctx context.Context, s *suite, dir, binary string, number int, most time.Duration, args ...string) outcome {
	out, err := o.test(ctx, s, dir, binary, []string{on(number)}, most, append(args, "-test.failfast")...)
	var exit *exec.ExitError
	switch {
	case err == nil, ctx.Err() != nil:
		return outcome{err: ctx.Err()}
	case bytes.Contains(out, []byte("panic: test timed out")), errors.Is(err, context.DeadlineExceeded):
		return outcome{killed: true, how: timedOut}
	case !errors.As(err, &exit):
		return outcome{err: fmt.Errorf("run tests: %w", err)}
	}
	if names := failure.FindAllSubmatch(out, -1); len(names) > 0 {
		return outcome{killed: true, how: string(names[0][1])}
	}
	return outcome{killed: true, how: "crash"}
}

// test runs a test binary in its package's directory, with a temporary directory of its
// own, and with environment. rapid writes no files for the next run. Where the shell has ulimit -v, memory is
// limited, because a mutant may allocate without end.
func (o *options) test(ctx context.Context, s *suite, dir, binary string, environment []string, most time.Duration, args ...string) ([]byte, error) {
	temp := filepath.Join(dir, "tmp")
	if err := os.MkdirAll(temp, 0o777); err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	args = append(args, "-test.timeout", most.String())
	if o.short {
		args = append(args, "-test.short")
	}
	if o.run != "" && !slices.Contains(args, "-test.run") {
		args = append(args, "-test.run", o.run)
	}
	ctx, cancel := context.WithTimeout(ctx, most+10*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, binary, args...)
	if runtime.GOOS == "linux" {
		limit := fmt.Sprintf(`ulimit -v %d 2>/dev/null; exec "$0" "$@"`, o.memoryKiB)
		command = exec.CommandContext(ctx, "sh", append([]string{"-c", limit, binary}, args...)...)
	}
	command.Dir, command.WaitDelay = s.dir, 5*time.Second
	command.Env = slices.Concat(os.Environ(), []string{"TMPDIR=" + temp, "RAPID_NOFAILFILE=1"}, environment)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	err := command.Run()
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return out.Bytes(), err
}

// tail returns the last lines of a test's output.
func tail(out []byte) string {
	const most = 30
	var lines []string
	for scanner := bufio.NewScanner(bytes.NewReader(out)); scanner.Scan(); {
		lines = append(lines, scanner.Text())
	}
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
