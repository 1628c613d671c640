package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"varve/internal/console"
	"varve/internal/store"
	"varve/internal/transfer/job"
	"varve/internal/units"
)

var exportCommand = command{
	name:     "export",
	synopsis: "write points to a file as KairosDB's export does",
	usage:    "[-f FILE] [-n METRIC]... [--http-addr ADDR [--tenant NAME] | --data-dir DIR] [FLAGS]",
	help: `Writes points as lines of JSON, each with at most 10,000 points of one series. Varve and
KairosDB can import the lines; KairosDB refuses those with values that only Varve holds.
The points come from the server at --http-addr, or from the data directory that --data-dir,
--config or the environment names. No server may be using that directory. Without any of
these, the points come from the server at 127.0.0.1:8080. varve export whisper writes
Graphite's files.

Exit status: 0 everything is written, 1 the export could not be completed, 2 wrong command
line, 3 the export is complete, but a metric that -n names does not exist.

` + transferFlags + `  --http-addr ADDR export from the server at ADDR, for example 127.0.0.1:8080
` + tenantFlag + `  -f FILE          write to FILE instead of standard output; with gzip if it ends in .gz
  -n METRIC        only this metric; may be given more than once
  -a               append to FILE, which must end with a whole line or gzip member
  -r FILE          write the names of finished metrics to FILE, and skip metrics named there:
                   to continue an interrupted export, run the same command again
  --start TIME     first time, as ms since 1970 or 2024-01-31T00:00:00Z
  --end TIME       last time, likewise
  --without-buckets
                   only points as they were sent, not the buckets that retention rules have
                   made of older ones. An import adds each bucket as a point: into a store
                   that has the bucket already, as after a backup was restored, export
                   without buckets
`,
	run: export,
}

func export(t terminal, args []string) error {
	l, err := parseFlags(args, "data-dir", "config", "http-addr", "tenant", "f", "n*", "a?", "r", "start", "end", "without-buckets?")
	if err != nil {
		return err
	}
	within, err := l.timeRange()
	if err != nil {
		return err
	}
	_, appending := l.flags["a"]
	buckets := store.BucketsAsSamples
	if _, without := l.flags["without-buckets"]; without {
		buckets = store.WithoutBuckets
	}
	e := &job.Export{Path: l.flags["f"], Stdout: t.stdout, Append: appending, Recovery: l.flags["r"], Only: l.all["n"], Within: within, Buckets: buckets,
		Progress: console.NewProgress(t.stderr, time.Now)}
	err = l.withSource(t, func(ctx context.Context, source job.Source) error {
		e.Source = source
		defer e.Progress.Clear()
		return e.Run(ctx)
	})
	if err != nil && e.Resumable() {
		return fmt.Errorf("%w; to continue, run the same command again", err)
	}
	if err != nil {
		return err
	}
	if e.Path != "" {
		fmt.Fprintln(t.stdout, "Export finished")
		fmt.Fprintf(t.stderr, "%s, %s in %s\n", units.Count(e.Metrics-e.Skipped, "metric"), units.Bytes(e.Bytes).Text(), e.Progress.Elapsed())
		if e.Skipped > 0 {
			fmt.Fprintf(t.stderr, "skipped %s that %s lists as finished; to export all again, remove it\n", units.Count(e.Skipped, "metric"), e.Recovery)
		}
	}
	fmt.Fprintln(t.stdout, "All done")
	if len(e.Unknown) > 0 {
		return &exitError{exitPart, fmt.Errorf("the export is complete, but there is no metric %s", strings.Join(e.Unknown, ", "))}
	}
	return nil
}

// withSource opens what the flags name for an export, and closes it when run has ended.
func (l line) withSource(t terminal, run func(ctx context.Context, source job.Source) error) error {
	if err := l.target(t); err != nil {
		return err
	}
	ctx, restore := interruptible()
	defer restore()
	source, closeSource, err := l.exportSource(ctx, t)
	if err != nil {
		return err
	}
	return interrupted(ctx, errors.Join(run(ctx, source), closeSource()))
}

func (l line) exportSource(ctx context.Context, t terminal) (job.Source, func() error, error) {
	if l.online() {
		s, err := l.reach(ctx)
		return job.Remote{Server: s}, func() error { return nil }, err
	}
	s, _, err := l.openStore(t, false, false)
	if err != nil {
		return nil, nil, err
	}
	return job.Local{Store: s}, s.Close, nil
}
