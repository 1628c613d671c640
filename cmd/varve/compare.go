package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"varve/internal/comparison"
)

// Defaults and bounds of compare.
const (
	compareRange     = "7d"
	compareQuestions = 200
	maxQuestions     = 1_000_000
	compareFor       = 15 * time.Minute
	compareTimeout   = time.Minute     // of a request
	compareSettle    = 3 * time.Second // before a difference is looked at again
	compareUntil     = 2 * time.Minute // before now: what comes in is on its way to the other side
)

func compareCommand() command {
	return command{
		name:     "compare",
		synopsis: "ask two servers the same and report what differs",
		usage:    "--a URL --b URL [FLAGS]",
		help: `Asks two servers, each KairosDB or Varve, over KairosDB's HTTP API: for the names of
metrics, the tags of each, and then random questions about them. Nothing is changed.
The report lists what differs: the question, how many points each side has, and the
first points that differ. Where Varve answers otherwise on purpose nothing is asked.
A difference is looked at again, 3 s apart, before it is reported, since points may
come in meanwhile.

With --api graphite it asks two servers of Graphite's API, graphite-web or Varve: for their
paths, branch by branch, and then random targets, plain paths and functions of them. Points
are compared as archives have them, so Varve needs the storage rules of the other side.
Series with tags are not compared.

Flags:
  --api kairosdb|graphite
                        what is asked; kairosdb unless told otherwise
  --a URL, --b URL      the servers, for example http://10.0.0.1:8080. A user and password may
                        be in the URL: http://USER:PASSWORD@10.0.0.1:8080
  --from TIME, --to TIME
                        the time that is compared: milliseconds since 1970, 2026-01-31 or
                        2026-01-31T12:00:00Z. Without --to it ends two minutes ago
  --start-relative AGE  begin so long before the end, instead of --from: 90m, 12h, 30d, 8w; ` + compareRange + `
                        if neither is given
  --metrics PATTERN     only metrics or paths that match this regular expression. Without it all
                        but those that KairosDB (kairosdb.*) or carbon (carbon.*) writes about
                        itself all the time
  --questions N         random questions, ` + strconv.Itoa(compareQuestions) + ` unless told otherwise
  --seed N              draw the same questions as a report with this seed
  --tolerance X         with --api graphite: values may differ by this part of the largest one in
                        a series, 1e-9 unless told otherwise
  --for DURATION        end after so long, ` + "15m" + ` unless told otherwise; the report says what was
                        left out then

The report is written to standard output, progress to standard error. The exit status
is 0 if no difference was found, 1 if there are some, 2 for wrong use, if a server could
not be asked, or if there was nothing to compare; what was found until then is reported.
`,
		run: compare,
	}
}

// errDiffer makes the exit status of a comparison that has found something.
var errDiffer = errors.New("the servers differ")

// An incompleteError is that of a comparison that could not go on: neither equal nor
// different.
type incompleteError struct{ err error }

func (e *incompleteError) Error() string { return e.err.Error() }
func (e *incompleteError) Unwrap() error { return e.err }

func compare(t terminal, args []string) error {
	l, err := parseLine(args, "api", "a", "b", "from", "to", "start-relative", "metrics", "questions", "seed", "tolerance", "for")
	if err != nil {
		return err
	}
	if err := l.noWords(); err != nil {
		return err
	}
	o, err := compareOptions(l, time.Now())
	if err != nil {
		return &usageError{err}
	}
	bar := newProgress(t.stderr)
	part := ""
	o.Progress = func(now string, done, total int) {
		if part != now {
			part, bar.began = now, bar.now()
		}
		bar.update(0, int64(done), int64(total), now)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := comparison.Run(ctx, o)
	bar.clear()
	if report == nil {
		return &usageError{err}
	}
	if err := report.WriteText(t.stdout); err != nil {
		return &incompleteError{err}
	}
	switch {
	case ctx.Err() != nil:
		return &incompleteError{errors.New("interrupted; the report is of what was compared until then")}
	case err != nil:
		return &incompleteError{err}
	case !report.Equal():
		return errDiffer
	case report.Nothing() != "":
		return &incompleteError{errors.New("nothing was compared: " + report.Nothing())}
	}
	return nil
}

func compareOptions(l line, now time.Time) (o comparison.Options, err error) {
	o = comparison.Options{
		A: l.flags["a"], B: l.flags["b"], Questions: compareQuestions, Seed: rand.Uint64() >> 32,
		Timeout: compareTimeout, Limit: compareFor, Settle: compareSettle,
		EndMS: now.Add(-compareUntil).UnixMilli(),
	}
	if o.A == "" || o.B == "" {
		return o, errors.New("give both servers: --a URL --b URL")
	}
	if err := l.compareAPI(&o); err != nil {
		return o, err
	}
	if err := l.compareTimes(&o); err != nil {
		return o, err
	}
	if text, ok := l.flags["metrics"]; ok {
		if o.Metrics, err = regexp.Compile(text); err != nil {
			return o, fmt.Errorf("flag --metrics: %w", err)
		}
	}
	if text, ok := l.flags["questions"]; ok {
		if o.Questions, err = strconv.Atoi(text); err != nil || o.Questions < 0 || o.Questions > maxQuestions {
			return o, fmt.Errorf("flag --questions: %q: want a number from 0 to %d", text, maxQuestions)
		}
	}
	if text, ok := l.flags["seed"]; ok {
		if o.Seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			return o, fmt.Errorf("flag --seed: %q: want a whole number", text)
		}
	}
	if text, ok := l.flags["for"]; ok {
		if o.Limit, err = parseAge(text); err != nil {
			return o, fmt.Errorf("flag --for: %w", err)
		}
	}
	return o, nil
}

// compareTolerance is how much sums may differ that were added up in another order.
const compareTolerance = 1e-9

// compareAPI reads what is asked.
func (l line) compareAPI(o *comparison.Options) (err error) {
	switch api := l.flags["api"]; api {
	case "", "kairosdb":
	case "graphite":
		o.Graphite, o.Tolerance = true, compareTolerance
	default:
		return fmt.Errorf("flag --api: %q: want kairosdb or graphite", api)
	}
	text, ok := l.flags["tolerance"]
	if !ok {
		return nil
	}
	if !o.Graphite {
		return errors.New("flag --tolerance: goes with --api graphite only")
	}
	if o.Tolerance, err = strconv.ParseFloat(text, 64); err != nil || !(o.Tolerance >= 0 && o.Tolerance <= 1) {
		return fmt.Errorf("flag --tolerance: %q: want a number from 0 to 1", text)
	}
	return nil
}

// compareTimes reads the range.
func (l line) compareTimes(o *comparison.Options) (err error) {
	if text, ok := l.flags["to"]; ok {
		if o.EndMS, err = parseTime(text); err != nil {
			return fmt.Errorf("flag --to: %w", err)
		}
	}
	from, absolute := l.flags["from"]
	age, relative := l.flags["start-relative"]
	switch {
	case absolute && relative:
		return errors.New("flags --from and --start-relative: give one of them")
	case absolute:
		if o.StartMS, err = parseTime(from); err != nil {
			return fmt.Errorf("flag --from: %w", err)
		}
	default:
		if !relative {
			age = compareRange
		}
		length, err := parseAge(age)
		if err != nil {
			return fmt.Errorf("flag --start-relative: %w", err)
		}
		o.StartMS = o.EndMS - length.Milliseconds()
	}
	if o.StartMS < 0 || o.EndMS < o.StartMS {
		return errors.New("the time that is compared must begin in 1970 or later, and end after it begins")
	}
	return nil
}

// parseAge reads a time such as 90m, 12h, 30d or 8w.
func parseAge(text string) (time.Duration, error) {
	bad := fmt.Errorf("%q: want a time such as 90m, 12h, 30d or 8w", text)
	number, unit := text, time.Duration(0)
	for suffix, u := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			number, unit = rest, u
		}
	}
	if unit == 0 {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return 0, bad
		}
		return d, nil
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n <= 0 || time.Duration(n) > (1<<63-1)/unit {
		return 0, bad
	}
	return time.Duration(n) * unit, nil
}
