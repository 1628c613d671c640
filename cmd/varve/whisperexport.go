package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"varve/internal/console"
	"varve/internal/graphite"
	"varve/internal/graphite/target"
	"varve/internal/retention"
	"varve/internal/transfer/job"
	"varve/internal/transfer/wsp"
	"varve/internal/units"
)

var exportWhisperCommand = command{
	name:     "export whisper",
	synopsis: "write series as Whisper files of Graphite",
	usage:    "DIR [--storage-schemas FILE] [--http-addr ADDR [--tenant NAME] | --data-dir DIR] [FLAGS]",
	help: `Writes series as Whisper's files below DIR, as carbon would have written them: a/b/c.wsp for
the path a.b.c, and files below _tagged for series with tags. Each file has the archives of
the first rule that matches its series. The rules are those of --storage-schemas; without it
those of the configuration that --config or the environment names: retention.policies, then
its storage-schemas.conf. Points are computed from the samples; buckets that the server has
downsampled are in the archive of their step. The samples come from the server at --http-addr,
or from the data directory that --data-dir, --config or the environment names. No server may
be using that directory. Without any of these, they come from the server at 127.0.0.1:8080.

Exit status: 0 everything is written, 1 the export could not be completed, 2 wrong command
line, 3 the export is complete except for what is reported.

` + transferFlags + `  --http-addr ADDR export from the server at ADDR
` + tenantFlag + `  --storage-schemas FILE
                   carbon's storage-schemas.conf: the archives, instead of those in the
                   configuration. A path that no rule matches is reported
  --storage-aggregation FILE
                   carbon's storage-aggregation.conf, with --storage-schemas; without it
                   points are averaged if at least half of them exist
  -n PATTERN       only paths that match, such as servers.*.load or a.**; for series with
                   tags the name must match. May be given more than once
  --end TIME       write the files as they would be at this time, instead of the present: ms
                   since 1970, or 2024-01-31T00:00:00Z
  --hashed         name the files of series with tags by a hash, as carbon does if
                   TAG_HASH_FILENAMES is on. Carbon then renames files with readable names
  --replace        overwrite existing files
  --keep           keep existing files: to continue after an interruption
  --rejected FILE  where to report what is not exported; DIR.rejected without it
`,
	run: exportWhisper,
}

func exportWhisper(t terminal, args []string) error {
	l, err := parseLine(args, "data-dir", "config", "http-addr", "tenant", "storage-schemas", "storage-aggregation", "n*", "end", "hashed?", "replace?", "keep?", "rejected")
	if err != nil {
		return err
	}
	j, err := l.whisperExport(t)
	if err != nil {
		return err
	}
	err = l.withSource(t, func(ctx context.Context, source job.Source) error {
		j.Source = source
		defer j.Progress.Clear()
		return j.Run(ctx)
	})
	switch {
	case err != nil && j.Source == nil:
		return err
	case err != nil:
		return fmt.Errorf("%w; to continue, run the same command again with --keep", err)
	}
	fmt.Fprintf(t.stderr, "%s of %s in %s\n", units.Count(j.Files, "file"), units.Count(j.Metrics, "metric"), j.Progress.Elapsed())
	for _, reason := range slices.Sorted(maps.Keys(j.Faulty)) {
		fmt.Fprintf(t.stderr, "  %s: %d series\n", reason, j.Faulty[reason])
	}
	fmt.Fprintln(t.stdout, "Export finished\nAll done")
	return leftOut(j.Reported, "fault", "found", j.Rejected)
}

// whisperExport reads the command line.
func (l line) whisperExport(t terminal) (*job.WhisperExport, error) {
	if len(l.words) != 1 {
		return nil, &usageError{errors.New("export whisper takes one directory: varve export whisper DIR")}
	}
	dir, err := filepath.Abs(l.words[0])
	if err != nil {
		return nil, err
	}
	_, replace := l.flags["replace"]
	_, keep := l.flags["keep"]
	_, hashed := l.flags["hashed"]
	if replace && keep {
		return nil, &usageError{errors.New("flags --replace and --keep: give one of them")}
	}
	j := &job.WhisperExport{Rejected: cmp.Or(l.flags["rejected"], dir+".rejected"), Progress: console.NewProgress(t.stderr, time.Now)}
	j.Tree = wsp.Export{Dir: dir, Hashed: hashed, Keep: keep}
	end := time.Now().UnixMilli()
	if err := l.time("end", &end); err != nil {
		return nil, err
	}
	j.Tree.Now = end / 1000
	for _, pattern := range l.all["n"] {
		glob, err := target.ParseGlob(pattern)
		if err != nil {
			return nil, &usageError{fmt.Errorf("flag -n: %w", err)}
		}
		j.Only = append(j.Only, glob)
	}
	if !replace && !keep {
		if err := j.CheckEmpty(); err != nil {
			return nil, err
		}
	}
	j.Tree.Book, err = l.archives(t)
	return j, err
}

// archives returns the rules for the files: those of --storage-schemas, or else those of
// the configuration.
func (l line) archives(t terminal) (*retention.Book, error) {
	log := slog.New(slog.NewTextHandler(t.stderr, nil))
	schemas, aggregation := l.flags["storage-schemas"], l.flags["storage-aggregation"]
	if schemas != "" {
		book, err := graphite.Config{StorageSchemas: schemas, StorageAggregation: aggregation}.Book(log)
		if err == nil && len(book.Rules) == 0 {
			err = fmt.Errorf("%s contains no rule", schemas)
		}
		return book, err
	}
	if aggregation != "" {
		return nil, &usageError{errors.New("flag --storage-aggregation: needs --storage-schemas; without both, the export uses the rules of the configuration")}
	}
	loaded, err := load(t, l.settings())
	if err != nil {
		return nil, err
	}
	c := loaded.Config
	book, err := c.Book(log)
	if err != nil {
		return nil, err
	}
	if book = book.For(cmp.Or(l.flags["tenant"], c.TenantOf(c.DataDir))); len(book.Rules) == 0 {
		return nil, &usageError{errors.New("no rules define the archives of the files; use --config with a configuration that has retention.policies or graphite.storage_schemas, or --storage-schemas with a file of carbon's")}
	}
	return book, nil
}
