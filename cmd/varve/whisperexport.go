package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"varve/internal/graphite"
	"varve/internal/graphite/target"
	"varve/internal/model"
	"varve/internal/transfer/wsp"
)

func exportWhisperCommand() command {
	return command{
		name:     "export whisper",
		synopsis: "write series as files of Graphite",
		usage:    "DIR --storage-schemas FILE [--http-addr ADDR | --data-dir DIR] [FLAGS]",
		help: `Writes series as Whisper's files below DIR, as carbon would have written them with these
rules: a/b/c.wsp for the path a.b.c, and files below _tagged for series with tags. Each file
has the archives of the rule that its path matches, computed of the samples. The samples
come from the server at --http-addr, or from the data directory that --data-dir, --config
or the environment names. No server may be using that directory. Without any of these, they
come from the server at 127.0.0.1:8080.

Exit status: 0 all is written, 1 the export could not be completed, 2 wrong command line,
3 the export is complete, but for what was reported.

` + transferFlags + `  --http-addr ADDR export from the server that runs at ADDR
  --storage-schemas FILE
                   carbon's storage-schemas.conf: the archives. A path that no rule matches
                   is reported
  --storage-aggregation FILE
                   carbon's storage-aggregation.conf; without it points are averaged if half
                   of them are there
  -n PATTERN       only paths that match, such as servers.*.load or a.**; of series with tags
                   the name has to. May be given more than once
  --end TIME       write the files as they would be at this time, instead of the present: ms
                   since 1970, or 2024-01-31T00:00:00Z
  --hashed         name the files of series with tags by a hash, as carbon does where
                   TAG_HASH_FILENAMES is on. Carbon renames the others when it meets them
  --replace        write over files that are there
  --keep           leave files that are there: to go on after an interruption
  --rejected FILE  where to report what is not exported; DIR.rejected without it
`,
		run: exportWhisper,
	}
}

func exportWhisper(t terminal, args []string) error {
	l, err := parseLine(args, "data-dir", "config", "http-addr", "storage-schemas", "storage-aggregation", "n*", "end", "hashed?", "replace?", "keep?", "rejected")
	if err != nil {
		return err
	}
	j, err := l.whisperExport(t)
	if err != nil {
		return err
	}
	err = l.withSource(t, func(ctx context.Context, source exportSource) error {
		j.source = source
		defer j.progress.clear()
		return j.run(ctx)
	})
	switch {
	case err == nil:
		return j.tell(t)
	case j.source == nil:
		return err
	}
	return fmt.Errorf("%w; to go on, run the same command again with --keep", err)
}

// A whisperExport is one run of the command.
type whisperExport struct {
	job      wsp.Export
	source   exportSource
	only     []target.Glob
	report   rejectedFile
	progress *progress
	metrics  int64
	files    int64
	faulty   map[wsp.Reason]int64
}

// whisperExport reads the command line.
func (l line) whisperExport(t terminal) (*whisperExport, error) {
	if len(l.words) != 1 {
		return nil, &usageError{errors.New("export whisper wants one directory: varve export whisper DIR --storage-schemas FILE")}
	}
	dir, err := filepath.Abs(l.words[0])
	if err != nil {
		return nil, err
	}
	if l.flags["storage-schemas"] == "" {
		return nil, &usageError{errors.New("flag --storage-schemas: is missing; it says which archives the files have")}
	}
	_, replace := l.flags["replace"]
	_, keep := l.flags["keep"]
	_, hashed := l.flags["hashed"]
	if replace && keep {
		return nil, &usageError{errors.New("flags --replace and --keep: give one of them")}
	}
	j := &whisperExport{report: rejectedFile{path: dir + ".rejected"}, progress: newProgress(t.stderr), faulty: map[wsp.Reason]int64{}}
	j.job = wsp.Export{Dir: dir, Hashed: hashed, Keep: keep, Now: time.Now().Unix(), Done: j.done}
	if path, ok := l.flags["rejected"]; ok {
		j.report.path = path
	}
	if text, ok := l.flags["end"]; ok {
		ms, err := parseTime(text)
		if err != nil {
			return nil, &usageError{fmt.Errorf("flag --end: %w", err)}
		}
		j.job.Now = ms / 1000
	}
	for _, pattern := range l.all["n"] {
		glob, err := target.ParseGlob(pattern)
		if err != nil {
			return nil, &usageError{fmt.Errorf("flag -n: %w", err)}
		}
		j.only = append(j.only, glob)
	}
	if !replace && !keep {
		if err := isEmpty(dir); err != nil {
			return nil, err
		}
	}
	rules := graphite.Config{StorageSchemas: l.flags["storage-schemas"], StorageAggregation: l.flags["storage-aggregation"]}
	if j.job.Book, err = rules.Book(slog.New(slog.NewTextHandler(t.stderr, nil))); err != nil {
		return nil, err
	}
	if len(j.job.Book.Rules) == 0 {
		return nil, fmt.Errorf("%s has no rule", l.flags["storage-schemas"])
	}
	return j, nil
}

// isEmpty returns an error if something is in a directory, which need not be there.
func isEmpty(dir string) error {
	d, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := d.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%s is not empty, there is %s; --keep leaves files that are there, --replace writes over them", dir, names[0])
}

func (j *whisperExport) run(ctx context.Context) (err error) {
	if err := removeState(j.report.path); err != nil {
		return err
	}
	if err := j.job.Begin(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.job.End(), j.report.close()) }()
	names, err := j.names(ctx)
	if err != nil {
		return err
	}
	within := model.TimeRange{StartMS: max(j.job.Since(), 0) * 1000, EndMS: j.job.Now*1000 + 999}
	for _, name := range names {
		if !j.job.Has(name) {
			err := j.job.Metric(ctx, func(w io.Writer) error {
				return j.source.export(ctx, name, within, w, func(int, int) {})
			})
			if err != nil {
				return err
			}
		}
		j.metrics++
		j.progress.update(0, j.metrics, int64(len(names)), fmt.Sprintf("%d of %d metrics, %s", j.metrics, len(names), count(j.files, "file")))
	}
	return nil
}

// names are the metrics to export.
func (j *whisperExport) names(ctx context.Context) ([]string, error) {
	var names []string
	for name, err := range j.source.metrics(ctx) {
		if err != nil {
			return nil, err
		}
		if j.only == nil || slices.ContainsFunc(j.only, func(g target.Glob) bool { return g.Match(name) }) {
			names = append(names, name)
		}
	}
	return names, nil
}

func (j *whisperExport) done(o *wsp.Exported) error {
	if o.File != "" {
		j.files++
	}
	for _, f := range o.Faults {
		if f.Reason == wsp.IsThere {
			continue // that was asked for
		}
		j.faulty[f.Reason]++
		if err := j.report.write(fmt.Sprintf("%s: %s: %s\n", o.Series, f.Reason, f.Text)); err != nil {
			return err
		}
	}
	return nil
}

func (j *whisperExport) tell(t terminal) error {
	fmt.Fprintf(t.stderr, "%s of %s in %s\n", count(j.files, "file"), count(j.metrics, "metric"), time.Since(j.progress.began).Round(time.Millisecond))
	for _, reason := range slices.Sorted(maps.Keys(j.faulty)) {
		fmt.Fprintf(t.stderr, "  %s: %d series\n", reason, j.faulty[reason])
	}
	fmt.Fprintln(t.stdout, "Export finished\nAll done")
	return faultyFiles(sum(j.faulty), j.report.path, false)
}
