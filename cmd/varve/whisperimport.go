package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"varve/internal/transfer/wsp"
)

func importWhisperCommand() command {
	return command{
		name:     "import whisper",
		synopsis: "read the history of a Graphite installation from its files",
		usage:    "DIR [--http-addr ADDR | --data-dir DIR] [FLAGS]",
		help: `Reads all files *.wsp below DIR, the directory that carbon calls whisper: a/b/c.wsp has
the points of the path a.b.c, and the files below _tagged have those of series with tags.
Each time is imported once, at the finest step that a file has of it. The points go to the
server at --http-addr, or into the data directory that --data-dir, --config or the
environment names. No server may be using that directory. Without any of these, the points
go to the server at 127.0.0.1:8080.

To continue an interrupted import, run the same command again. What is wrong with a file
is reported; the other files are imported. Importing a file twice does no harm.

Exit status: 0 all is stored, 1 the import could not be completed, 2 wrong command line,
3 the import is complete, but for what was reported.

` + transferFlags + `  --http-addr ADDR give the points to the server that runs at ADDR
  --create         make a new store if the data directory has none
  --dry-run        read everything, store nothing: tells what would be imported, and prints
                   a storage-schemas.conf and a storage-aggregation.conf that fit the files
  --prefix TEXT    put TEXT before each path without tags, for a DIR that is a part of a
                   tree: --prefix servers. for .../whisper/servers
  --series FILE    the names of series with tags, for files that are named by a hash: one a
                   line, or the answer of graphite-web's /tags/findSeries?expr=name=~.+
  --parallel N     files that are read at a time, ` + strconv.Itoa(defaultParallel()) + ` on this machine unless told otherwise
  --state FILE     where to remember how far it has come; DIR.state without it
  --rejected FILE  where to report what is wrong with files; DIR.rejected without it
`,
		run: importWhisper,
	}
}

// maxParallel bounds the files that are read at a time.
const maxParallel = 64

func defaultParallel() int { return min(runtime.GOMAXPROCS(0), 4) }

func importWhisper(t terminal, args []string) error {
	l, err := parseLine(args, "data-dir", "config", "http-addr", "create?", "dry-run?", "prefix", "series", "parallel", "state", "rejected")
	if err != nil {
		return err
	}
	j, err := l.whisperJob(t)
	if err != nil {
		return err
	}
	_, dry := l.flags["dry-run"]
	if dry {
		j.proposal = &wsp.Proposal{}
	} else if err := l.target(t); err != nil {
		return err
	}
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer restore()
	closeSink := func() error { return nil }
	if !dry {
		sinks, c, closeStore, err := l.importSinks(t)
		if err != nil {
			return err
		}
		closeSink, j.job.Sink, j.state.To = closeStore, sinks, l.place(c)
	}
	err = j.run(ctx)
	j.progress.clear()
	if err = errors.Join(err, closeSink()); err != nil {
		return j.failed(ctx, err)
	}
	return j.tell(t, dry)
}

// A whisperState is what a state file holds.
type whisperState struct {
	Root     string     `json:"root"`
	Prefix   string     `json:"prefix"`
	To       string     `json:"to"`
	After    string     `json:"after"`    // the last file up to which all is stored or reported
	Reported int64      `json:"reported"` // bytes of the report
	Totals   wsp.Totals `json:"totals"`
}

// A whisperJob is one run of the command.
type whisperJob struct {
	job       wsp.Import
	statePath string
	state     whisperState
	saved     time.Time
	report    rejectedFile
	proposal  *wsp.Proposal // of a dry run
	first     int64         // seconds
	last      int64
	bytes     int64        // of files that are done
	total     atomic.Int64 // bytes of all files, 0 before they are counted
	progress  *progress
	stderr    io.Writer
}

// whisperJob reads the command line.
func (l line) whisperJob(t terminal) (*whisperJob, error) {
	if len(l.words) != 1 {
		return nil, &usageError{errors.New("import whisper wants one directory: varve import whisper DIR")}
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
	j := &whisperJob{statePath: root + ".state", report: rejectedFile{path: root + ".rejected"}, progress: newProgress(t.stderr), stderr: t.stderr}
	j.state.Root, j.state.Prefix = root, l.flags["prefix"]
	if path, ok := l.flags["state"]; ok {
		j.statePath = path
	}
	if path, ok := l.flags["rejected"]; ok {
		j.report.path = path
	}
	j.job = wsp.Import{Tree: os.DirFS(root), Prefix: l.flags["prefix"], Now: time.Now().Unix(), Parallel: defaultParallel(), Done: j.done}
	if text, ok := l.flags["parallel"]; ok {
		if j.job.Parallel, err = strconv.Atoi(text); err != nil || j.job.Parallel < 1 || j.job.Parallel > maxParallel {
			return nil, &usageError{fmt.Errorf("flag --parallel: %q: want a number from 1 to %d", text, maxParallel)}
		}
	}
	j.job.Names, err = readSeries(l.flags["series"])
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

func (j *whisperJob) run(ctx context.Context) (err error) {
	if j.proposal == nil {
		if err := j.resume(); err != nil {
			return err
		}
		if err := saveState(j.statePath, &j.state); err != nil { // not after the first files
			return fmt.Errorf("%w; --state and --rejected name files elsewhere", err)
		}
		defer func() { err = errors.Join(err, j.report.close()) }()
	}
	ctx, stop := context.WithCancel(ctx)
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		if _, bytes, err := wsp.Count(ctx, j.job.Tree, j.job.After); err == nil { // else nothing is forecast
			j.total.Store(bytes)
		}
	}()
	err = j.job.Run(ctx)
	stop()
	<-counted
	if j.proposal != nil {
		return err
	}
	if err != nil {
		return errors.Join(err, j.save())
	}
	return removeState(j.statePath)
}

// removeState removes a state file, which need not be there.
func removeState(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// resume reads the state that an interrupted import of the same files has left.
func (j *whisperJob) resume() error {
	text, err := os.ReadFile(j.statePath)
	if errors.Is(err, fs.ErrNotExist) {
		return removeState(j.report.path) // of an earlier import
	}
	if err != nil {
		return err
	}
	was := whisperState{}
	if err := json.Unmarshal(text, &was); err != nil {
		return fmt.Errorf("%s is not the state of an import; remove it to begin again: %w", j.statePath, err)
	}
	if was.Root != j.state.Root || was.Prefix != j.state.Prefix {
		return fmt.Errorf("%s is of an import of %s with the prefix %q; remove it to begin again", j.statePath, was.Root, was.Prefix)
	}
	if was.To != j.state.To {
		return fmt.Errorf("%s is of an import into %s, not %s; remove it to import all files there, or name another state file with --state", j.statePath, was.To, j.state.To)
	}
	j.state, j.job.After, j.report.at = was, was.After, was.Reported
	if was.After != "" {
		fmt.Fprintf(j.stderr, "going on behind %s, after %s\n", was.After, count(was.Totals.Files, "file"))
	}
	return nil
}

// stateEvery is how often the state of an import of files is written.
const stateEvery = time.Second

// done takes what became of a file.
func (j *whisperJob) done(o *wsp.Outcome) error {
	j.state.Totals.Add(o)
	j.state.After = o.Path
	j.bytes += o.Bytes
	if o.Points > 0 && (j.first == 0 || o.First < j.first) {
		j.first = o.First
	}
	j.last = max(j.last, o.Last)
	if j.proposal != nil && o.Header != nil {
		j.proposal.Add(o.Series, o.Header)
	}
	for _, f := range o.Faults {
		if err := j.fault(o.Path, f); err != nil {
			return err
		}
	}
	n := j.state.Totals
	j.progress.update(0, j.bytes, j.total.Load(), fmt.Sprintf("%d files, %d points, %s, %s/s, %d files with faults",
		n.Files, n.Points, size(j.bytes), size(j.progress.rate(j.bytes)), sum(n.Faulty)))
	if j.proposal != nil || time.Since(j.saved) < stateEvery {
		return nil
	}
	return j.save()
}

func sum(counts map[wsp.Reason]int64) (all int64) {
	for _, n := range counts {
		all += n
	}
	return all
}

func (j *whisperJob) fault(path string, f wsp.Fault) error {
	text := fmt.Sprintf("%s: %s: %s\n", path, f.Reason, f.Text)
	if j.proposal == nil {
		return j.report.write(text)
	}
	j.progress.clear()
	_, err := io.WriteString(j.stderr, text)
	return err
}

func (j *whisperJob) save() error {
	if j.state.After == "" {
		return nil
	}
	j.saved, j.state.Reported = time.Now(), j.report.at
	return saveState(j.statePath, &j.state)
}

// failed is the error of an import that is not complete.
func (j *whisperJob) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = errInterrupted
	}
	if j.proposal == nil && j.state.After != "" {
		err = fmt.Errorf("%w; %s are imported; to continue, run the same command again", err, count(j.state.Totals.Files, "file"))
	}
	return err
}

// tell sums an import up.
func (j *whisperJob) tell(t terminal, dry bool) error {
	n := j.state.Totals
	fmt.Fprintf(t.stderr, "%s, of which %d without points, %s in %s\n", count(n.Files, "file"), n.Empty, count(n.Points, "point"), time.Since(j.progress.began).Round(time.Millisecond))
	for _, reason := range slices.Sorted(maps.Keys(n.Faulty)) {
		text := count(n.Faulty[reason], "file")
		if left := n.Left[reason]; left > 0 {
			text += ", " + count(left, "point")
		}
		fmt.Fprintf(t.stderr, "  %s: %s\n", reason, text)
	}
	if dry {
		if n.Points > 0 {
			fmt.Fprintf(t.stdout, "# %s of %s, from %s to %s, would be imported.\n\n", count(n.Points, "point"), count(n.Files, "file"), seconds(j.first), seconds(j.last))
		}
		if err := j.proposal.WriteText(t.stdout); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(t.stdout, "Import finished\nAll done")
	}
	if n.Files == 0 && len(n.Faulty) == 0 {
		return fmt.Errorf("there is no file *.wsp below %s", j.state.Root)
	}
	return faultyFiles(sum(n.Faulty), j.report.path, dry)
}

func seconds(s int64) string { return time.Unix(s, 0).UTC().Format(time.RFC3339) }

// A faultyError means that an import is complete but for what was wrong with files.
type faultyError struct{ text string }

func (e *faultyError) Error() string { return e.text }

func faultyFiles(n int64, where string, dry bool) error {
	if n == 0 {
		return nil
	}
	text := "1 fault was found"
	if n > 1 {
		text = fmt.Sprintf("%d faults were found", n)
	}
	if !dry {
		text += ", see " + where
	}
	return &faultyError{text}
}
