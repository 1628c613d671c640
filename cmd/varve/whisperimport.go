package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"varve/internal/console"
	"varve/internal/transfer/job"
	"varve/internal/transfer/wsp"
	"varve/internal/units"
)

var importWhisperCommand = command{
	name:     "import whisper",
	synopsis: "read the history of a Graphite installation from its files",
	usage:    "DIR [--http-addr ADDR [--tenant NAME] | --data-dir DIR] [FLAGS]",
	help: `Reads all *.wsp files below DIR, the directory that carbon calls whisper: a/b/c.wsp has
the points of the path a.b.c, and the files below _tagged have those of series with tags.
Each time is imported once, at the finest step that the file has for it. The points go to the
server at --http-addr, or into the data directory that --data-dir, --config or the
environment names. No server may be using that directory. Without any of these, the points
go to the server at 127.0.0.1:8080.

To continue an interrupted import, run the same command again. Problems of a file are
reported; the other files are imported. Importing a file twice does no harm.

Exit status: 0 all is stored, 1 the import could not be completed, 2 wrong command line,
3 the import is complete except for what is reported.

` + transferFlags + `  --http-addr ADDR send the points to the server at ADDR
` + tenantFlag + `  --create         create a store if the data directory has none
  --dry-run        read everything, store nothing: reports what would be imported, and prints
                   a storage-schemas.conf and a storage-aggregation.conf that fit the files
  --prefix TEXT    put TEXT before each path without tags, if DIR is only a part of a
                   tree: --prefix servers. for .../whisper/servers
  --series FILE    the names of series with tags, for files that are named by a hash: one a
                   line, or the answer of graphite-web's /tags/findSeries?expr=name=~.+
  --parallel N     files to read at a time, ` + strconv.Itoa(defaultParallel()) + ` on this machine by default
  --state FILE     where to record the progress; by default DIR.state
  --rejected FILE  where to report what is wrong with files; DIR.rejected without it
`,
	run: importWhisper,
}

// maxParallel bounds the files to read at a time.
const maxParallel = 64

func defaultParallel() int { return min(runtime.GOMAXPROCS(0), 4) }

func importWhisper(t terminal, args []string) error {
	l, err := parseLine(args, "data-dir", "config", "http-addr", "tenant", "create?", "dry-run?", "prefix", "series", "parallel", "state", "rejected")
	if err != nil {
		return err
	}
	j, err := l.whisperJob(t)
	if err != nil {
		return err
	}
	_, dry := l.flags["dry-run"]
	if dry {
		j.Proposal = &wsp.Proposal{}
	} else if err := l.target(t); err != nil {
		return err
	}
	ctx, restore := interruptible()
	defer restore()
	closeSink := func() error { return nil }
	if !dry {
		to, err := l.importTarget(ctx, t)
		if err != nil {
			return err
		}
		closeSink, j.Sink, j.Empty, j.To = to.close, to.sink, to.empty, l.place(to.config)
	}
	err = j.Run(ctx)
	j.Progress.Clear()
	if err = interrupted(ctx, errors.Join(err, closeSink())); err == nil {
		return tellWhisper(t, j)
	}
	if j.Resumable() {
		err = fmt.Errorf("%w; %s are imported; to continue, run the same command again", err, units.Count(j.Totals().Files, "file"))
	}
	return err
}

// whisperJob reads the command line.
func (l line) whisperJob(t terminal) (*job.WhisperImport, error) {
	if len(l.words) != 1 {
		return nil, &usageError{errors.New("import whisper takes one directory: varve import whisper DIR")}
	}
	root, err := filepath.Abs(l.words[0])
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(root); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, &usageError{fmt.Errorf("%s is not a directory", root)}
	}
	j := &job.WhisperImport{Root: root, Prefix: l.flags["prefix"], Parallel: defaultParallel(),
		State: cmp.Or(l.flags["state"], root+".state"), Rejected: cmp.Or(l.flags["rejected"], root+".rejected"),
		Stderr: t.stderr, Progress: console.NewProgress(t.stderr, time.Now)}
	if err := l.number("parallel", &j.Parallel, 1, maxParallel); err != nil {
		return nil, err
	}
	j.Names, err = readSeries(l.flags["series"])
	return j, err
}

func readSeries(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := wsp.ReadNames(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return names, nil
}

// tellWhisper prints a summary of an import.
func tellWhisper(t terminal, j *job.WhisperImport) error {
	n, dry := j.Totals(), j.Proposal != nil
	fmt.Fprintf(t.stderr, "%s, of which %d without points, %s in %s\n", units.Count(n.Files, "file"), n.Empty, units.Count(n.Points, "point"), j.Progress.Elapsed())
	for _, reason := range slices.Sorted(maps.Keys(n.Faulty)) {
		text := units.Count(n.Faulty[reason], "file")
		if left := n.Left[reason]; left > 0 {
			text += ", " + units.Count(left, "point")
		}
		fmt.Fprintf(t.stderr, "  %s: %s\n", reason, text)
	}
	if dry {
		if n.Points > 0 {
			fmt.Fprintf(t.stdout, "# %s of %s, from %s to %s, would be imported.\n\n", units.Count(n.Points, "point"), units.Count(n.Files, "file"), seconds(j.First), seconds(j.Last))
		}
		if err := j.Proposal.WriteText(t.stdout); err != nil {
			return err
		}
		j.Rejected = "" // the faults were reported
	} else {
		fmt.Fprintln(t.stdout, "Import finished\nAll done")
	}
	if n.Files == 0 && len(n.Faulty) == 0 {
		return fmt.Errorf("there are no *.wsp files below %s", j.Root)
	}
	return leftOut(wsp.Sum(n.Faulty), "fault", "found", j.Rejected)
}

func seconds(s int64) string { return time.Unix(s, 0).UTC().Format(time.RFC3339) }
