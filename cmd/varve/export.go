package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"varve/internal/model"
	"varve/internal/transfer"
)

func exportCommand() command {
	return command{
		name:     "export",
		synopsis: "write points to a file as KairosDB's export does",
		usage:    "[-f FILE] [-n METRIC]... [--http-addr ADDR | --data-dir DIR] [FLAGS]",
		help: `Writes points as lines of JSON, each with at most 10,000 points of one series. Varve and
KairosDB can import the lines; KairosDB refuses those with values that only Varve holds.
The points come from the server at --http-addr, or from the data directory that --data-dir,
--config or the environment names. No server may be using that directory. Without any of
these, the points come from the server at 127.0.0.1:8080. varve export whisper writes
Graphite's files.

Exit status: 0 all is written, 1 the export could not be completed, 2 wrong command line,
3 the export is complete, but a metric that -n names does not exist.

` + transferFlags + `  --http-addr ADDR export from the server that runs at ADDR, for example 127.0.0.1:8080
  -f FILE          write to FILE instead of standard output; packed if it ends in .gz
  -n METRIC        only this metric; may be given more than once
  -a               append to FILE, which must end with a whole line or packed part
  -r FILE          write the names of finished metrics to FILE, and skip metrics named there:
                   to continue an interrupted export, run the same command again
  --start TIME     first time, as ms since 1970 or 2024-01-31T00:00:00Z
  --end TIME       last time, likewise
`,
		run: export,
	}
}

func export(t terminal, args []string) error {
	l, err := parseLine(args, "data-dir", "config", "http-addr", "f", "n*", "a?", "r", "start", "end")
	if err != nil {
		return err
	}
	if err := l.noWords(); err != nil {
		return err
	}
	within, err := l.timeRange()
	if err != nil {
		return err
	}
	e := &exportJob{only: l.all["n"], within: within, progress: newProgress(t.stderr)}
	err = l.withSource(t, func(ctx context.Context, source exportSource) error {
		e.source = source
		defer e.progress.clear()
		return e.run(ctx, t.stdout, l)
	})
	if err != nil {
		return fmt.Errorf("%w%s", err, e.wayOn(l))
	}
	if l.flags["f"] != "" {
		fmt.Fprintln(t.stdout, "Export finished")
		fmt.Fprintf(t.stderr, "%s, %s in %s\n", count(e.done, "metric"), size(e.bytes), time.Since(e.progress.began).Round(time.Millisecond))
	}
	fmt.Fprintln(t.stdout, "All done")
	if len(e.unknown) > 0 {
		return &unknownError{e.unknown}
	}
	return nil
}

// An unknownError means that an export is complete, but some of the metrics that
// were asked for do not exist.
type unknownError struct{ metrics []string }

func (e *unknownError) Error() string {
	return "the export is complete, but there is no metric " + strings.Join(e.metrics, ", ")
}

// timeRange reads --start and --end.
func (l line) timeRange() (model.TimeRange, error) {
	text := map[string]string{}
	for _, name := range []string{"start", "end"} {
		text[name] = l.flags[name]
		if at, err := time.Parse(time.RFC3339Nano, text[name]); err == nil {
			text[name] = strconv.FormatInt(at.UnixMilli(), 10)
		}
	}
	within, err := transfer.Range(text["start"], text["end"])
	if err != nil {
		return within, &usageError{fmt.Errorf("%w; want ms since 1970 or a time such as 2024-01-31T00:00:00Z", err)}
	}
	return within, nil
}

// An exportJob is one run of the command.
type exportJob struct {
	source   exportSource
	only     []string
	within   model.TimeRange
	progress *progress
	out      *exportFile
	recovery *recovery
	done     int64    // metrics
	total    int64    // metrics
	share    float64  // part of the current metric that is written
	shared   bool     // share is known
	bytes    int64    // unpacked
	unknown  []string // metrics of only that do not exist
}

// wayOn says how to continue after a failure.
func (e *exportJob) wayOn(l line) string {
	if e.out != nil && l.flags["r"] != "" && l.flags["f"] != "" {
		return "; to continue, run the same command again"
	}
	return ""
}

// names are the metrics to export.
func (e *exportJob) names(ctx context.Context) ([]string, error) {
	if e.only != nil {
		return e.only, nil
	}
	var names []string
	for name, err := range e.source.metrics(ctx) {
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

func (e *exportJob) run(ctx context.Context, stdout io.Writer, l line) (err error) {
	if e.recovery, err = openRecovery(l.flags["r"]); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.recovery.close()) }()
	_, appending := l.flags["a"]
	if e.out, err = openExport(l.flags["f"], stdout, appending, len(e.recovery.done) > 0); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.out.close()) }()
	names, err := e.names(ctx)
	if err != nil {
		return err
	}
	e.total = int64(len(names))
	skipped := int64(0)
	for _, name := range names {
		if e.recovery.done[name] {
			skipped++
			e.done++
			continue
		}
		before := e.bytes
		e.share, e.shared = 0, false
		if err := e.source.export(ctx, name, e.within, exportWriter{e, skipped}, e.series); err != nil {
			return err
		}
		if e.only != nil && e.bytes == before { // nothing in the range, or no such metric
			there, err := e.source.has(ctx, name)
			if err != nil {
				return err
			}
			if !there {
				e.unknown = append(e.unknown, name)
			}
		}
		if err := e.out.endMetric(); err != nil {
			return err
		}
		e.done++
		if err := e.recovery.note(name, e.out); err != nil {
			return err
		}
	}
	return e.recovery.flush(e.out)
}

// series records which part of the current metric is written.
func (e *exportJob) series(series, of int) {
	e.share, e.shared = float64(series)/float64(max(of, 1)), true
}

// tell shows the progress in thousandths of a metric, since one metric may hold
// all points. A server does not say how much of a metric it has sent.
func (e *exportJob) tell(skipped int64) {
	const parts = 1000
	total := e.total * parts
	if e.total == 1 && !e.shared {
		total = 0
	}
	e.progress.update(skipped*parts, e.done*parts+int64(e.share*parts), total,
		fmt.Sprintf("%d of %d metrics, %s, %s/s", e.done, e.total, size(e.bytes), size(e.progress.rate(e.bytes))))
}

// An exportWriter counts what goes to the file.
type exportWriter struct {
	job     *exportJob
	skipped int64
}

func (w exportWriter) Write(p []byte) (int, error) {
	n, err := w.job.out.w.Write(p)
	e := w.job
	e.bytes += int64(n)
	e.tell(w.skipped)
	return n, err
}
