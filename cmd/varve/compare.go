package main

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"time"

	"varve/internal/comparison"
	"varve/internal/console"
)

// Defaults and bounds of compare.
const (
	compareRange     = 7 * 24 * time.Hour
	compareQuestions = 200
	maxQuestions     = 1_000_000
	compareFor       = 15 * time.Minute
	compareTimeout   = time.Minute     // of a request
	compareSettle    = 3 * time.Second // before a difference is checked again
	compareUntil     = 2 * time.Minute // before now: newer points may still be on their way to the other side
)

var compareCommand = command{
	name:     "compare",
	synopsis: "compare two servers and report differences",
	usage:    "--a URL --b URL [FLAGS]",
	help: `Compares two servers, each KairosDB or Varve, over KairosDB's HTTP API: the names of
metrics, the tags of each, and then random queries. Nothing is changed. For each
difference, the report has the query, the number of points on each side, and the first
points that differ. Queries that Varve answers differently on purpose are left out.
Points may still be arriving, so a difference is checked again, 3 s apart, before it is
reported.

With --api graphite it compares two servers of Graphite's API, graphite-web or Varve: their
paths, branch by branch, and then random targets, plain paths and functions of them. Points
are compared at the resolution of the archives, so Varve needs the storage rules of the
other side. Series with tags are not compared.

Flags:
  --api kairosdb|graphite
                        the API to compare (kairosdb)
  --a URL, --b URL      the servers, for example http://10.0.0.1:8080. A user and password may
                        be in the URL: http://USER:PASSWORD@10.0.0.1:8080
  --from TIME, --to TIME
                        the time range: milliseconds since 1970, 2026-01-31 or
                        2026-01-31T12:00:00Z. Without --to it ends two minutes ago
  --start-relative AGE  begin this long before the end, instead of --from: 90m, 12h, 30d, 8w;
                        7d if neither is given
  --metrics PATTERN     only metrics or paths that match this regular expression. By
                        default all, except metrics that KairosDB (kairosdb.*) or carbon
                        (carbon.*) writes about itself
  --questions N         number of random queries, ` + strconv.Itoa(compareQuestions) + ` by default
  --seed N              repeat the queries of the report with this seed
  --tolerance X         with --api graphite: allowed difference, as a fraction of the largest
                        value of a series (1e-9)
  --for DURATION        end after this long (15m); the report says what was
                        not compared

The report is written to standard output, progress to standard error. The exit status
is 0 if there is no difference, 1 if there are some, and 2 for wrong usage, if a server
could not be queried, or if there was nothing to compare. Differences found before a
failure are reported.
`,
	run: compare,
}

// errDiffer sets the exit status of a comparison that has found something.
var errDiffer = errors.New("the servers differ")

func compare(t terminal, args []string) error {
	l, err := parseFlags(args, "api", "a", "b", "from", "to", "start-relative", "metrics", "questions", "seed", "tolerance", "for")
	if err != nil {
		return err
	}
	o, err := compareOptions(l, time.Now())
	if err != nil {
		return &usageError{err}
	}
	bar := console.NewProgress(t.stderr, time.Now)
	part := ""
	o.Progress = func(now string, done, total int) {
		if part != now {
			part = now
			bar.Restart()
		}
		bar.Update(0, int64(done), int64(total), now)
	}
	ctx, stop := interruptible()
	defer stop()
	report, err := comparison.Run(ctx, o)
	bar.Clear()
	if report == nil {
		return &usageError{err}
	}
	switch written := report.WriteText(t.stdout); {
	case ctx.Err() != nil:
		err = errors.New("interrupted; the report covers what was compared until then")
	case cmp.Or(written, err) != nil:
		err = cmp.Or(written, err)
	case !report.Equal():
		return errDiffer
	case report.Nothing() != "":
		err = errors.New("nothing was compared: " + report.Nothing())
	default:
		return nil
	}
	return &exitError{exitUsage, err} // neither equal nor different
}

func compareOptions(l line, now time.Time) (o comparison.Options, err error) {
	o = comparison.Options{
		A: l.flags["a"], B: l.flags["b"], Queries: compareQuestions, Seed: rand.Uint64() >> 32,
		Timeout: compareTimeout, Limit: compareFor, Settle: compareSettle,
		EndMS: now.Add(-compareUntil).UnixMilli(),
	}
	if o.A == "" || o.B == "" {
		return o, errors.New("give both servers: --a URL --b URL")
	}
	return o, cmp.Or(l.compareAPI(&o), l.compareTimes(&o),
		l.value("metrics", func(text string) (err error) { o.Metrics, err = regexp.Compile(text); return err }),
		l.number("questions", &o.Queries, 0, maxQuestions),
		l.value("seed", func(text string) (err error) { o.Seed, err = parseWhole(text); return err }),
		l.age("for", &o.Limit))
}

// compareTolerance is the allowed difference of sums that were added in different
// orders.
const compareTolerance = 1e-9

// compareAPI reads the flags about the API and the queries.
func (l line) compareAPI(o *comparison.Options) (err error) {
	switch api := l.flags["api"]; api {
	case "", "kairosdb":
	case "graphite":
		o.Graphite, o.Tolerance = true, compareTolerance
	default:
		return fmt.Errorf("flag --api: %q: want kairosdb or graphite", api)
	}
	return l.value("tolerance", func(text string) error {
		if !o.Graphite {
			return errors.New("needs --api graphite")
		}
		if o.Tolerance, err = strconv.ParseFloat(text, 64); err != nil || !(o.Tolerance >= 0 && o.Tolerance <= 1) {
			return fmt.Errorf("%q: want a number from 0 to 1", text)
		}
		return nil
	})
}

// compareTimes reads the range.
func (l line) compareTimes(o *comparison.Options) (err error) {
	_, absolute := l.flags["from"]
	_, relative := l.flags["start-relative"]
	if absolute && relative {
		return errors.New("flags --from and --start-relative: give one of them")
	}
	length := compareRange
	if err := cmp.Or(l.time("to", &o.EndMS), l.age("start-relative", &length)); err != nil {
		return err
	}
	o.StartMS = o.EndMS - length.Milliseconds()
	if err := l.time("from", &o.StartMS); err != nil {
		return err
	}
	if o.StartMS < 0 || o.EndMS < o.StartMS {
		return errors.New("the compared time range must begin in 1970 or later, and end after it begins")
	}
	return nil
}
