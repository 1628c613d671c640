package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/config"
	"varve/internal/ingest"
	"varve/internal/ingest/kairosjson"
	"varve/internal/kairos"
	"varve/internal/kairos/agg"
	"varve/internal/query"
	"varve/internal/rollup"
	"varve/internal/transfer"
	"varve/internal/work"
)

func importCommand() command {
	return command{
		name:     "import",
		synopsis: "read points from a file that KairosDB or varve has exported",
		usage:    "[-f FILE] [--http-addr ADDR | --data-dir DIR] [FLAGS]",
		help: `Reads lines of JSON, each with a metric or an array of them, as KairosDB's export writes
them; packed with gzip or not. The points go to the server at --http-addr, or into the
data directory that --data-dir, --config or the environment names. No server may be using
that directory. Without any of these, the points go to the server at 127.0.0.1:8080.

To continue an interrupted import, run the same command again. A line of which a part
cannot be stored is reported with its number and the reason; the other lines are stored.
Importing a line twice does no harm. varve import whisper reads Graphite's files.

Exit status: 0 all is stored, 1 the import could not be completed, 2 wrong command line,
3 the import is complete, but lines were rejected.

` + transferFlags + `  --http-addr ADDR give the points to the server that runs at ADDR
  --create         make a new store if the data directory has none
  -f FILE          read FILE instead of standard input
  --state FILE     where to remember how far it has come; FILE.state of -f without it
  --rejected FILE  where to report lines that were rejected; FILE.rejected of -f without
                   it, or standard error
`,
		run: importFile,
	}
}

// A rejectedError means that an import is complete but for some lines.
type rejectedError struct {
	lines int64
	where string
}

func (e *rejectedError) Error() string {
	if e.lines == 1 {
		return "1 line was rejected" + e.where
	}
	return fmt.Sprintf("%d lines were rejected%s", e.lines, e.where)
}

func importFile(t terminal, args []string) error {
	l, err := parseLine(args, "data-dir", "config", "http-addr", "create?", "f", "state", "rejected")
	if err != nil {
		return err
	}
	if err := l.noWords(); err != nil {
		return err
	}
	if err := l.target(t); err != nil {
		return err
	}
	if err := readable(l.flags["f"]); err != nil {
		return err // before a store is opened or made
	}
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer restore()
	sinks, c, closeSink, err := l.importSinks(t)
	if err != nil {
		return err
	}
	j := &importJob{path: l.flags["f"], to: l.place(c), statePath: l.flags["state"], rejected: rejectedFile{path: l.flags["rejected"]}, stderr: t.stderr, progress: newProgress(t.stderr)}
	if j.path != "" && j.statePath == "" {
		j.statePath = j.path + ".state"
	}
	if j.path != "" && j.rejected.path == "" {
		j.rejected.path = j.path + ".rejected"
	}
	at, err := j.run(ctx, sinks(), int(c.Transfer.MaxLine))
	j.progress.clear()
	if err = errors.Join(err, closeSink()); err != nil {
		if ctx.Err() != nil {
			err = errInterrupted
		}
		if j.statePath != "" && at.Line > 0 {
			err = fmt.Errorf("%w; %d lines are imported; to continue, run the same command again", err, at.Line)
		}
		return err
	}
	fmt.Fprintf(t.stderr, "%s, %s in %s\n", count(at.Line, "line"), count(at.Points, "point"), time.Since(j.progress.began).Round(time.Millisecond))
	fmt.Fprintln(t.stdout, "Import finished\nAll done")
	if at.Rejected > 0 {
		e := &rejectedError{lines: at.Rejected}
		if j.rejected.path != "" {
			e.where = ", see " + j.rejected.path
		}
		return e
	}
	return nil
}

// readable reports why a file cannot be read.
func readable(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return f.Close()
}

// place names the destination of an import, for its state file.
func (l line) place(c config.Config) string {
	if l.online() {
		return "http://" + dialable(l.flags["http-addr"])
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return c.DataDir
	}
	return dir
}

// importSinks opens what points go to. A sink is for one goroutine.
func (l line) importSinks(t terminal) (func() transfer.Sink, config.Config, func() error, error) {
	if l.online() {
		if err := l.reach(); err != nil {
			return nil, config.Config{}, nil, err
		}
		sink := &remoteSink{addr: dialable(l.flags["http-addr"])}
		return func() transfer.Sink { return sink }, config.Default(), func() error { return nil }, nil
	}
	_, create := l.flags["create"]
	s, c, err := l.openStore(t, true, create)
	if err != nil {
		return nil, c, nil, err
	}
	pipeline := ingest.New(s, c.Ingest, ingest.Options{Registerer: prometheus.NewRegistry()})
	engine := agg.New(query.New(s, c.Query, prometheus.NewRegistry(), time.Now), nil)
	api := kairos.New(s, engine, c.Kairos, versionText(), time.Now) // knows how tasks are written
	if err := rollup.Watch(context.Background(), s, pipeline, api, c.Rollups); err != nil {
		return nil, c, nil, errors.Join(err, s.Close())
	}
	return func() transfer.Sink { return transfer.NewLocal(pipeline, "varve import") }, c, s.Close, nil
}

// A remoteSink stores lines through a running server.
type remoteSink struct{ addr string }

// patience is how long a server that cannot take a block is tried again.
const patience = 2 * time.Minute

// Store implements transfer.Sink.
func (s *remoteSink) Store(ctx context.Context, lines [][]byte) ([]kairosjson.Line, error) {
	body := bytes.Join(lines, []byte("\n"))
	deadline := time.Now().Add(patience)
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		report, again, err := s.post(ctx, body)
		if err == nil {
			return resultsOf(report, len(lines))
		}
		if !again || time.Now().After(deadline) || ctx.Err() != nil {
			return nil, err
		}
		if err := work.Pause(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// post sends a block; again reports that it is worth another try.
func (s *remoteSink) post(ctx context.Context, body []byte) (report *transfer.Report, again bool, err error) {
	response, err := ask(ctx, http.MethodPost, s.addr, "/api/v1/import", "application/x-ndjson", bytes.NewReader(body))
	if wrong := (*usageError)(nil); errors.As(err, &wrong) {
		return nil, false, err
	}
	if err != nil {
		return nil, true, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 256<<20))
	if err != nil {
		return nil, true, err
	}
	report = &transfer.Report{}
	err = json.Unmarshal(text, report)
	switch {
	case response.StatusCode == http.StatusServiceUnavailable:
		return nil, true, fmt.Errorf("the server at %s answers %s %.300s", s.addr, response.Status, text)
	case response.StatusCode == http.StatusOK && err == nil:
		return report, false, nil
	case response.StatusCode == http.StatusBadRequest && err == nil && report.Rejected > 0:
		return report, false, nil
	}
	return nil, false, fmt.Errorf("the server at %s answers %s %.300s", s.addr, response.Status, text)
}

// resultsOf turns a report into what became of each line. It has the points of
// all lines in the first.
func resultsOf(report *transfer.Report, n int) ([]kairosjson.Line, error) {
	results := make([]kairosjson.Line, n)
	if n > 0 {
		results[0].Points = int(report.Points)
	}
	for _, f := range report.Faults {
		if f.Line < 1 || f.Line > int64(n) {
			return nil, fmt.Errorf("the server reports a fault of line %d of %d", f.Line, n)
		}
		results[f.Line-1].Faults = f.Reasons
	}
	return results, nil
}

// An importState is what a state file holds.
type importState struct {
	transfer.Position
	Head     string `json:"head"`     // of the file that is imported: hash of its beginning
	To       string `json:"to"`       // where the points go
	Reported int64  `json:"reported"` // bytes of the report of rejected lines
}

// An importJob is one run of the command.
type importJob struct {
	path, statePath string
	to              string
	stderr          io.Writer
	progress        *progress

	state    importState
	rejected rejectedFile
	before   int64 // bytes of the file that an earlier run has read
	total    int64
}

func (j *importJob) run(ctx context.Context, sink transfer.Sink, maxLine int) (at transfer.Position, err error) {
	in := os.Stdin
	if j.path != "" {
		if in, err = os.Open(j.path); err != nil {
			return at, err
		}
		defer in.Close()
		if err := j.resume(in); err != nil {
			return at, err
		}
	}
	if info, err := in.Stat(); err == nil && info.Mode().IsRegular() {
		j.total = info.Size()
	}
	read := &readCounter{r: in}
	text, err := transfer.Unpack(read)
	if err != nil {
		return at, fmt.Errorf("unpack %s: %w", j.path, err)
	}
	if _, err := io.CopyN(io.Discard, text, j.state.Offset); err != nil {
		return at, fmt.Errorf("go to where the last import stopped in %s: %w", j.path, err)
	}
	j.before = read.n.Load()
	defer func() { err = errors.Join(err, j.rejected.close()) }()
	m := &transfer.Import{Sink: sink, MaxLine: maxLine, Reject: j.reject, Acknowledge: func(p transfer.Position) error {
		n := read.n.Load()
		j.progress.update(j.before, n, j.total, fmt.Sprintf("%s read, %d lines, %d points, %d lines rejected, %s/s",
			size(n), p.Line, p.Points, p.Rejected, size(j.progress.rate(n-j.before))))
		return j.acknowledge(p)
	}}
	at, err = m.Run(ctx, text, j.state.Position)
	if err == nil && j.statePath != "" {
		err = os.Remove(j.statePath)
	}
	return at, err
}

// A readCounter counts the bytes read.
type readCounter struct {
	r io.Reader
	n atomic.Int64
}

func (c *readCounter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// headBytes is how much of a file tells it from others.
const headBytes = 64 << 10

// resume reads the state that an interrupted import of the same file has left.
func (j *importJob) resume(in *os.File) error {
	head := make([]byte, headBytes)
	n, err := in.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", j.path, err)
	}
	sum := sha256.Sum256(head[:n])
	own := hex.EncodeToString(sum[:])
	text, err := os.ReadFile(j.statePath)
	if errors.Is(err, os.ErrNotExist) {
		j.state.Head, j.state.To = own, j.to
		if err := os.Remove(j.rejected.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err // of an earlier import
		}
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &j.state); err != nil {
		return fmt.Errorf("%s is not the state of an import; remove it to begin again: %w", j.statePath, err)
	}
	if j.state.Head != own {
		return fmt.Errorf("%s is of an import of another file than %s; remove it to begin again", j.statePath, j.path)
	}
	if j.state.To != "" && j.state.To != j.to {
		return fmt.Errorf("%s is of an import into %s, not %s; remove it to import all lines there, or name another state file with --state", j.statePath, j.state.To, j.to)
	}
	j.rejected.at = j.state.Reported
	if j.state.Line > 0 {
		fmt.Fprintf(j.stderr, "going on after line %d of %s\n", j.state.Line, j.path)
	}
	return nil
}

// reject reports a line.
func (j *importJob) reject(r transfer.Rejected) error {
	text := fmt.Sprintf("line %d: %s\n", r.Line, strings.Join(r.Reasons, "; "))
	if j.rejected.path == "" {
		j.progress.clear()
		_, err := io.WriteString(j.stderr, text)
		return err
	}
	return j.rejected.write(text)
}

// acknowledge remembers a position.
func (j *importJob) acknowledge(p transfer.Position) error {
	j.state.Position, j.state.Reported = p, j.rejected.at
	if j.statePath == "" {
		return nil
	}
	return saveState(j.statePath, &j.state)
}

// saveState writes the state of an import. The file is replaced, so that there is
// always a whole one.
func saveState(path string, state any) error {
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	fresh := path + ".new"
	if err := os.WriteFile(fresh, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// A rejectedFile is the report of what an import has not stored. What was reported
// after the last state is reported again, over what there is.
type rejectedFile struct {
	path string
	at   int64    // bytes that were written
	f    *os.File // nil before the first report
}

func (r *rejectedFile) write(text string) error {
	if r.f == nil {
		f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		r.f = f
		if err := f.Truncate(r.at); err != nil {
			return err
		}
		if _, err := f.Seek(r.at, io.SeekStart); err != nil {
			return err
		}
	}
	n, err := r.f.WriteString(text)
	r.at += int64(n)
	return err
}

func (r *rejectedFile) close() error {
	if r.f == nil {
		return nil
	}
	return r.f.Close()
}
