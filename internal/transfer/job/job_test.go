package job

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/console"
	"varve/internal/ingest"
	"varve/internal/ingest/kairosjson"
	"varve/internal/kairos"
	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/remote"
	"varve/internal/store"
	"varve/internal/store/reference"
	"varve/internal/transfer"
)

func quiet() *console.Progress { return console.NewProgress(io.Discard, time.Now) }

// A world is a store, opened in the process and behind a server.
type world struct {
	store  store.Store
	sink   transfer.Sink
	remote Remote
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := reference.New(nil)
	registry := prometheus.NewRegistry()
	pipeline := ingest.New(s, ingest.DefaultConfig(), ingest.Options{Registerer: registry})
	t.Cleanup(pipeline.Close)
	api := kairos.New(s, agg.New(query.New(s, query.DefaultConfig(), registry, time.Now), nil), kairos.DefaultConfig(), "test", time.Now)
	mux := http.NewServeMux()
	for _, r := range slices.Concat(api.Routes(), transfer.NewAPI(s, pipeline, transfer.DefaultConfig(), registry, nil).Routes()) {
		mux.Handle(r.Method+" "+r.Path, r.Checked())
	}
	return &world{s, transfer.NewLocal(pipeline, "test"), Remote{served(t, mux)}}
}

func served(t *testing.T, h http.Handler) *remote.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	server, err := remote.New(strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	return server
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if text, err = io.ReadAll(z); err != nil {
			t.Fatal(err)
		}
	}
	return string(text)
}

func importFile(t *testing.T, path string, j *Import) (transfer.Position, error) {
	t.Helper()
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	j.In, j.Path, j.MaxLine, j.Progress = in, path, 1<<20, quiet()
	return j.Run(t.Context())
}

func lineOf(metric string, value int) string {
	return fmt.Sprintf("{\"name\":%q,\"tags\":{\"a\":\"b\"},\"datapoints\":[[1,%d,\"long\"]]}\n", metric, value)
}

// Imports and exports give the same result through an open store and through a server.
func TestPlaces(t *testing.T) {
	w := newWorld(t)
	text := lineOf("m", 1) + lineOf("n", 2)
	for i, sink := range []transfer.Sink{w.sink, w.remote} {
		path := filepath.Join(t.TempDir(), "in")
		write(t, path, text+"bad\n")
		at, err := importFile(t, path, &Import{Sink: sink, Stderr: io.Discard})
		if err != nil || at.Line != 3 || at.Points != 2 || at.Rejected != 1 {
			t.Errorf("sink %d: %+v, %v", i, at, err)
		}
		if got := read(t, path+".rejected"); !strings.HasPrefix(got, "line 3: malformed JSON") {
			t.Errorf("sink %d: reported %q", i, got)
		}
	}
	for i, source := range []Source{Local{w.store}, w.remote} {
		var out bytes.Buffer
		e := &Export{Source: source, Stdout: &out, Only: []string{"n", "nosuch", "m"}, Within: model.AllTime, Progress: quiet()}
		if err := e.Run(t.Context()); err != nil || out.String() != lineOf("n", 2)+lineOf("m", 1) || !slices.Equal(e.Unknown, []string{"nosuch"}) || e.Metrics != 3 {
			t.Errorf("source %d: %v, %q, unknown %q", i, err, &out, e.Unknown)
		}
		out.Reset()
		e = &Export{Source: source, Stdout: &out, Within: model.TimeRange{StartMS: 2, EndMS: 3}, Progress: quiet()}
		if err := e.Run(t.Context()); err != nil || out.Len() > 0 || e.Metrics != 2 {
			t.Errorf("source %d: %v, %q of another time", i, err, &out)
		}
	}
}

// An import retries while the server is busy. It ends if the server refuses a block or stays busy.
func TestPatience(t *testing.T) {
	asked, answer := 0, func() (int, string) { return 503, "" }
	s := Remote{served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		status, text := answer()
		w.WriteHeader(status)
		io.WriteString(w, text)
	}))}
	lines := [][]byte{[]byte("a"), []byte("b")}
	answer = func() (int, string) {
		if asked < 3 {
			return 503, `{"errors":["busy"]}`
		}
		return 400, `{"line":2,"points":5,"rejected":1,"faults":[{"line":2,"errors":["bad"]}]}`
	}
	got, err := s.Store(t.Context(), lines)
	if err != nil || asked != 3 || len(got) != 2 || got[0].Points != 5 || !slices.Equal(got[1].Faults, []string{"bad"}) {
		t.Errorf("%v, %v, asked %d times", got, err, asked)
	}
	for text, want := range map[string]string{
		`{"errors":["no such thing"]}`:                     "no such thing",
		`{"rejected":1,"faults":[{"line":3,"errors":[]}]}`: "an error in line 3, but only 2 lines were sent",
	} {
		answer = func() (int, string) { return 400, text }
		if _, err := s.Store(t.Context(), lines); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	answer = func() (int, string) { cancel(); return 503, "busy" }
	if _, err := s.Store(ctx, lines); err == nil {
		t.Error("an interrupted import goes on")
	}
}

// An import does not resume into a store that has been replaced: the points that it had stored are gone. The
// documentation of state files says that another store is refused.
func TestImportIntoAPlaceMadeAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in")
	write(t, path, strings.Repeat(lineOf("m", 1), 2*transfer.BlockLines))
	for name, empty := range map[string]func(*world) Empty{
		"a store":  func(w *world) Empty { return Local{w.store}.Empty },
		"a server": func(w *world) Empty { return w.remote.Empty },
	} {
		old, anew := newWorld(t), newWorld(t)
		run := func(w *world, sink transfer.Sink) (transfer.Position, error) {
			return importFile(t, path, &Import{To: "here", Sink: sink, Empty: empty(w), Stderr: io.Discard})
		}
		if at, err := run(old, &failing{Sink: old.sink, at: 2}); err == nil || at.Line != transfer.BlockLines {
			t.Fatal(name, at, err)
		}
		want := fmt.Sprintf("%s.state says that %d points were imported into here, but the store is empty; remove this file to import all again", path, transfer.BlockLines)
		if at, err := run(anew, anew.sink); err == nil || err.Error() != want || at.Line != 0 {
			t.Errorf("%s: %+v, %v, want %s", name, at, err, want)
		}
		if at, err := run(old, old.sink); err != nil || at.Line != 2*transfer.BlockLines {
			t.Errorf("%s that has the points: %+v, %v", name, at, err)
		}
	}
	away := Remote{served(t, http.NotFoundHandler())}
	if empty, err := away.Empty(t.Context()); empty || err == nil {
		t.Error("a server that does not answer is empty:", empty, err)
	}
	writeOnly := Remote{served(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))}
	if empty, err := writeOnly.Empty(t.Context()); empty || err != nil {
		t.Error("a server for writing only:", empty, err)
	}
}

// meanwhile is a sink that runs a function before it stores the first block.
type meanwhile struct {
	transfer.Sink
	once func()
}

func (m *meanwhile) Store(ctx context.Context, lines [][]byte) ([]kairosjson.Line, error) {
	if f := m.once; f != nil {
		m.once = nil
		f()
	}
	return m.Sink.Store(ctx, lines)
}

// A second import of a file is refused while the first one runs. Before, the first one failed
// to rename in.state.new, although all was stored.
func TestImportsAtOnce(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(t.TempDir(), "in")
	write(t, path, lineOf("m", 1)+"bad\n")
	run := func(sink transfer.Sink) (transfer.Position, error) {
		return importFile(t, path, &Import{To: "here", Sink: sink, Stderr: io.Discard})
	}
	at, err := run(&meanwhile{w.sink, func() {
		if at, err := run(w.sink); err == nil || !strings.Contains(err.Error(), ".state.lock is locked") || at.Line != 0 {
			t.Errorf("the second: %+v, %v", at, err)
		}
	}})
	if err != nil || at.Line != 2 || at.Rejected != 1 || !strings.HasPrefix(read(t, path+".rejected"), "line 2: ") {
		t.Errorf("the first: %+v, %v", at, err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 2 {
		t.Errorf("left are %v, %v; want the file and the report", left, err)
	}
	if at, err := run(w.sink); err != nil || at.Line != 2 {
		t.Errorf("afterwards: %+v, %v", at, err)
	}
}

// An interrupted import finishes its block and resumes after it. If the block were stored in part,
// what a policy has downsampled of it would count twice when the block is sent again.
func TestInterruptedImportFinishesItsBlock(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(t.TempDir(), "in")
	write(t, path, strings.Repeat(lineOf("m", 1), 2*transfer.BlockLines))
	for _, sink := range []transfer.Sink{w.sink, w.remote} {
		ctx, cancel := context.WithCancel(t.Context())
		in, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		j := &Import{In: in, Path: path, To: "here", Sink: &meanwhile{sink, cancel}, Stderr: io.Discard, MaxLine: 1 << 20, Progress: quiet()}
		if at, err := j.Run(ctx); !errors.Is(err, context.Canceled) || at.Line != transfer.BlockLines || at.Points != transfer.BlockLines {
			t.Errorf("%T: %+v, %v", sink, at, err)
		}
		if at, err := importFile(t, path, &Import{To: "here", Sink: sink, Stderr: io.Discard}); err != nil || at.Points != 2*transfer.BlockLines {
			t.Errorf("%T goes on: %+v, %v", sink, at, err)
		}
	}
}

// failing is a sink that fails at a given call.
type failing struct {
	transfer.Sink
	calls, at int
}

func (f *failing) Store(ctx context.Context, lines [][]byte) ([]kairosjson.Line, error) {
	if f.calls++; f.calls == f.at {
		return nil, errors.New("the store is away")
	}
	return f.Sink.Store(ctx, lines)
}

// An import resumes after the last stored line, and reports each line once.
func TestImportGoesOn(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(t.TempDir(), "in")
	var text strings.Builder
	for i := range 3 * transfer.BlockLines {
		if i%1000 == 10 {
			text.WriteString("bad\n")
		} else {
			text.WriteString(lineOf("m", i))
		}
	}
	write(t, path, text.String())
	var said bytes.Buffer
	sink := &failing{Sink: w.sink, at: 2}
	run := func(to string) (transfer.Position, error) {
		return importFile(t, path, &Import{To: to, Sink: sink, Stderr: &said})
	}
	if at, err := run("here"); err == nil || at.Line != transfer.BlockLines {
		t.Fatal(at, err)
	}
	if _, err := run("elsewhere"); err == nil || !strings.Contains(err.Error(), "belongs to an import into here, not elsewhere") {
		t.Error(err)
	}
	at, err := run("here")
	if want := fmt.Sprintf("continuing after line %d of %s\n", transfer.BlockLines, path); err != nil || said.String() != want {
		t.Errorf("%v, said %q", err, &said)
	}
	if at.Line != 3*transfer.BlockLines || at.Rejected != 13 || at.Points != at.Line-at.Rejected || strings.Count(read(t, path+".rejected"), "\n") != 13 {
		t.Errorf("%+v, reported\n%s", at, read(t, path+".rejected"))
	}
	if _, err := os.Stat(path + ".state"); !os.IsNotExist(err) {
		t.Error("the state of an import that is complete is left")
	}
	write(t, path+".state", `{"offset":5,"line":1,"head":"another"}`)
	if _, err := run("here"); err == nil || !strings.Contains(err.Error(), "of another file") {
		t.Error(err)
	}
	write(t, path+".state", "none")
	if _, err := run("here"); err == nil || !strings.Contains(err.Error(), "remove it to begin again") {
		t.Error(err)
	}
}

// An import does not resume in a file whose text before the position has changed, as a later export to
// the same file changes it: the file begins as before, but has points there that are not stored.
func TestImportOfAChangedFile(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(t.TempDir(), "in")
	same := strings.Repeat(lineOf("m", 1), transfer.BlockLines-1)
	if len(same) < headBytes {
		t.Fatal("the beginning of the file is too short")
	}
	rest := strings.Repeat(lineOf("o", 1), transfer.BlockLines)
	run := func(sink transfer.Sink) (transfer.Position, error) {
		return importFile(t, path, &Import{To: "here", Sink: sink, Stderr: io.Discard})
	}
	for name, later := range map[string]string{
		"a point more":  same + lineOf("new", 1) + lineOf("n", 1) + rest,
		"another value": same + lineOf("n", 2) + rest,
		"a point less":  same + rest,
		"shorter":       same,
	} {
		write(t, path, same+lineOf("n", 1)+rest)
		if at, err := run(&failing{Sink: w.sink, at: 2}); err == nil || at.Line != transfer.BlockLines {
			t.Fatal(name, at, err)
		}
		state := read(t, path+".state")
		write(t, path, later)
		if at, err := run(w.sink); err == nil || !strings.Contains(err.Error(), "belongs to an import of an earlier content of "+path) || at.Line != 0 {
			t.Errorf("%s: %+v, %v", name, at, err)
		}
		if got := read(t, path+".state"); got != state {
			t.Errorf("%s: the state was changed to %s", name, got)
		}
		write(t, path, same+lineOf("n", 1)+rest+lineOf("more", 1)) // after the position, anything may have changed
		if at, err := run(w.sink); err != nil || at.Line != 2*transfer.BlockLines+1 {
			t.Errorf("%s, set right: %+v, %v", name, at, err)
		}
	}
}

// failingSource is a source that fails when a metric is exported.
type failingSource struct {
	Source
	at string
}

func (s failingSource) Export(ctx context.Context, metric string, within model.TimeRange, buckets store.BucketMode, w io.Writer, progress func(series, of int)) error {
	if metric != s.at {
		return s.Source.Export(ctx, metric, within, buckets, w, progress)
	}
	io.WriteString(w, lineOf(metric, 0)[:20])
	return errors.New("the source is away")
}

// An export that failed within a metric resumes with that metric, and its file has each metric once.
func TestExportGoesOn(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(t.TempDir(), "in")
	all := ""
	for i, name := range []string{"m", "n", "o", "two\nlines"} {
		all += lineOf(name, i)
	}
	write(t, path, all)
	if _, err := importFile(t, path, &Import{Sink: w.sink, Stderr: io.Discard}); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"out", "out.gz"} {
		dir := t.TempDir()
		run := func(s Source) (*Export, error) {
			e := &Export{Source: s, Path: filepath.Join(dir, file), Recovery: filepath.Join(dir, "done"), Within: model.AllTime, Progress: quiet()}
			return e, e.Run(t.Context())
		}
		if e, err := run(away{}); err == nil || !strings.Contains(err.Error(), "away") || e.Metrics > 0 {
			t.Errorf("%s: a source that is away: %v, %d metrics", file, err, e.Metrics)
		}
		e, err := run(failingSource{Local{w.store}, "n"})
		if err == nil || !e.Resumable() || e.Metrics != 1 {
			t.Fatalf("%s: %v, %d metrics", file, err, e.Metrics)
		}
		write(t, filepath.Join(dir, "done"), "m\nhalf a na") // as an interruption leaves it
		if e, err = run(w.remote); err != nil || e.Metrics != 4 {
			t.Fatalf("%s: %v, %d metrics", file, err, e.Metrics)
		}
		if got := read(t, filepath.Join(dir, file)); got != all {
			t.Errorf("%s holds\n%swant\n%s", file, got, all)
		}
		if got := read(t, filepath.Join(dir, "done")); got != "m\nn\no\n" {
			t.Errorf("%s: finished %q", file, got)
		}
		if err := os.Remove(filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
		if _, err = run(w.remote); err == nil || !strings.Contains(err.Error(), "the file with their points is missing") {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// A second export to the same file is refused while the first one runs. Before, the file had a mixture
// of both if their lines differed, and both succeeded.
func TestExportsAtOnce(t *testing.T) {
	w := newWorld(t)
	in := filepath.Join(t.TempDir(), "in")
	write(t, in, lineOf("m", 1))
	if _, err := importFile(t, in, &Import{Sink: w.sink, Stderr: io.Discard}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"out", "out.gz"} {
		path := filepath.Join(t.TempDir(), name)
		run := func(s Source) error {
			return (&Export{Source: s, Path: path, Within: model.AllTime, Progress: quiet()}).Run(t.Context())
		}
		err := run(listing{Local{w.store}, func() {
			if err := run(Local{w.store}); err == nil || !strings.Contains(err.Error(), ".lock is locked") || !strings.Contains(err.Error(), "-f") {
				t.Errorf("%s: the second: %v", name, err)
			}
		}})
		if err != nil || read(t, path) != lineOf("m", 1) {
			t.Errorf("%s: the first: %v, %q", name, err, read(t, path))
		}
		if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
			t.Errorf("left are %v, %v; want the file", left, err)
		}
		if err := run(Local{w.store}); err != nil {
			t.Errorf("%s: afterwards: %v", name, err)
		}
	}
}

// A second export with the same recovery file is refused while the first one runs, also to another file:
// each would skip what the other one has exported.
func TestExportsWithOneRecoveryFile(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	run := func(s Source, name string) error {
		return (&Export{Source: s, Path: filepath.Join(dir, name), Recovery: filepath.Join(dir, "done"), Within: model.AllTime, Progress: quiet()}).Run(t.Context())
	}
	err := run(listing{Local{w.store}, func() {
		if err := run(Local{w.store}, "second"); err == nil || !strings.Contains(err.Error(), "done.lock is locked") || !strings.Contains(err.Error(), "-r") {
			t.Errorf("the second: %v", err)
		}
	}}, "first")
	if err != nil {
		t.Errorf("the first: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "done.lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock is left: %v", err)
	}
}

// A device can be the file of an export, as /dev/stdout can. It cannot be synced.
func TestExportToADevice(t *testing.T) {
	e := &Export{Source: newWorld(t).remote, Path: os.DevNull, Within: model.AllTime, Progress: quiet()}
	if err := e.Run(t.Context()); err != nil {
		t.Error(err)
	}
}

// Other names of a file, such as /dev/fd/3, do not let two exports write to it, and the lock is beside
// the file. The standard output is refused: the command's messages would overwrite the points.
func TestExportToALink(t *testing.T) {
	w, dir, links := newWorld(t), t.TempDir(), t.TempDir()
	path, link := filepath.Join(dir, "out"), filepath.Join(links, "link")
	write(t, path, "")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	run := func(path string, s Source, stdout io.Writer) error {
		return (&Export{Source: s, Path: path, Stdout: stdout, Within: model.AllTime, Progress: quiet()}).Run(t.Context())
	}
	err := run(link, listing{Local{w.store}, func() {
		if err := run(path, Local{w.store}, nil); err == nil || !strings.Contains(err.Error(), path+".lock is locked") {
			t.Errorf("the second: %v", err)
		}
	}}, nil)
	if err != nil {
		t.Errorf("the first: %v", err)
	}

	write(t, path, "before")
	stdout, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	if err := run(link, Local{w.store}, stdout); err == nil || !strings.Contains(err.Error(), "leave out -f") || read(t, path) != "before" {
		t.Errorf("to the standard output: %v, %q", err, read(t, path))
	}
}

// listing is a source that calls first before it lists its metrics.
type listing struct {
	Source
	first func()
}

func (s listing) Metrics(ctx context.Context) iter.Seq2[string, error] {
	s.first()
	return s.Source.Metrics(ctx)
}

// An import that waits for input ends when its context is cancelled, although its input stays open,
// as a terminal does, or a pipe from a program that still runs.
func TestWaitingImportEnds(t *testing.T) {
	w := newWorld(t)
	in, more, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", lineOf("m", 1) + "half a line"} {
		ctx, interrupt := context.WithCancelCause(t.Context())
		because := errors.New("interrupted")
		ended := make(chan error)
		go func() {
			_, err := (&Import{Sink: w.sink, In: in, MaxLine: 1 << 20, Stderr: io.Discard, Progress: quiet()}).Run(ctx)
			ended <- err
		}()
		if _, err := io.WriteString(more, text); err != nil {
			t.Fatal(err)
		}
		interrupt(because)
		if err := <-ended; !errors.Is(err, because) {
			t.Errorf("after %q: %v", text, err)
		}
	}
	if err := errors.Join(more.Close(), in.Close()); err != nil {
		t.Error(err)
	}
}

// An import refuses a report that would overwrite its input, whatever name or link leads to it. The
// input is unchanged, and nothing is imported.
func TestReportIsNotTheImportedFile(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	path, link := filepath.Join(dir, "in"), filepath.Join(dir, "link")
	write(t, path, lineOf("m", 1))
	if err := os.Link(path, link); err != nil {
		t.Fatal(err)
	}
	for _, rejected := range []string{path, dir + "/./in", link} {
		_, err := importFile(t, path, &Import{Sink: w.sink, Stderr: io.Discard, Rejected: rejected})
		if err == nil || !strings.Contains(err.Error(), "is the file to be imported") {
			t.Errorf("--rejected %s: %v", rejected, err)
		}
		if got := read(t, path); got != lineOf("m", 1) {
			t.Errorf("--rejected %s: the file holds %q", rejected, got)
		}
		if names := metricNames(t, w); len(names) > 0 {
			t.Errorf("--rejected %s: %q are imported", rejected, names)
		}
	}
}

// If the recovery file is not a list of metrics, it stays unchanged, and so does the file of an
// earlier export: the user has confused -f and -r, or named another file.
func TestRecoveryFileOfAnotherKind(t *testing.T) {
	w := newWorld(t)
	in := filepath.Join(t.TempDir(), "in")
	write(t, in, lineOf("m", 1)+lineOf("n", 2))
	if _, err := importFile(t, in, &Import{Sink: w.sink, Stderr: io.Discard}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	raw := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	run := func(file, recovery string) error {
		if recovery != os.DevNull {
			recovery = filepath.Join(dir, recovery)
		}
		e := &Export{Source: Local{w.store}, Path: filepath.Join(dir, file), Recovery: recovery, Within: model.AllTime, Progress: quiet()}
		return e.Run(t.Context())
	}
	for _, file := range []string{"out", "out.gz"} {
		if err := run(file, file+".done"); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "picture"), "\x89PNG\n\x1a\n\xff\xfe\n and no line end")
	write(t, filepath.Join(dir, "cut"), "m\nn") // n is not finished
	for _, c := range []struct{ file, recovery, want string }{
		{"out.done", "out", "is an export"},
		{"out.gz.done", "out.gz", "is an export"},
		{"out", "out", "is both the output (-f) and the recovery file (-r)"},
		{"new", "new", "is both the output (-f) and the recovery file (-r)"},
		{"out.done", "out.done", "nothing was changed"},
		{"out", "picture", "is not a list of metrics"},
		{"nosuch", "cut", "the file with their points is missing"},
		{"out", os.DevNull, "is not a regular file"},
	} {
		files := []string{"out", "out.done", "out.gz", "out.gz.done", "picture", "cut"}
		var before []string
		for _, f := range files {
			before = append(before, raw(f))
		}
		if err := run(c.file, c.recovery); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("-f %s -r %s: %v", c.file, c.recovery, err)
		}
		for i, f := range files {
			if got := raw(f); got != before[i] {
				t.Errorf("-f %s -r %s changed %s from %q to %q", c.file, c.recovery, f, before[i], got)
				write(t, filepath.Join(dir, f), before[i])
			}
		}
	}
}

// full is a writer that accepts no bytes.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no room") }

// A failed read or write ends an export, and the metric is not recorded as finished.
func TestExportErrors(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	path := filepath.Join(dir, "in")
	write(t, path, lineOf("m", 1))
	if _, err := importFile(t, path, &Import{Sink: w.sink, Stderr: io.Discard}); err != nil {
		t.Fatal(err)
	}
	gone := Remote{served(t, http.NotFoundHandler())}
	for what, e := range map[string]*Export{
		"list metrics":     {Source: gone, Stdout: io.Discard},
		"export m":         {Source: gone, Stdout: io.Discard, Only: []string{"m"}},
		"no room":          {Source: Local{w.store}, Stdout: full{}, Recovery: filepath.Join(dir, "done")},
		"is a directory":   {Source: Local{w.store}, Stdout: io.Discard, Recovery: dir},
		"no such file":     {Source: Local{w.store}, Path: filepath.Join(dir, "nosuch", "out")},
		"is away":          {Source: failingSource{Local{w.store}, "m"}, Stdout: io.Discard},
		"404":              {Source: unknown{gone}, Stdout: io.Discard, Only: []string{"nosuch"}},
		"a gzip member of": {Source: Local{w.store}, Path: path + ".gz", Append: true},
		"a line of an exp": {Source: Local{w.store}, Path: path + ".txt", Append: true},
	} {
		write(t, path+".gz", "no gzip")
		write(t, path+".txt", "no line")
		e.Within, e.Progress = model.AllTime, quiet()
		if err := e.Run(t.Context()); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
	if got := read(t, filepath.Join(dir, "done")); got != "" {
		t.Errorf("finished %q", got)
	}
}

// unknown is a source that has no points of any metric, and cannot say whether a metric exists.
type unknown struct{ Source }

func (unknown) Export(context.Context, string, model.TimeRange, store.BucketMode, io.Writer, func(series, of int)) error {
	return nil
}

// The progress bar of an export moves within a metric, since one may hold all points.
func TestExportProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		e := &Export{total: 1, Progress: console.NewProgress(&out, time.Now)}
		tell := func() string {
			out.Reset()
			time.Sleep(20 * time.Second)
			e.showProgress()
			return out.String()
		}
		if got := tell(); strings.Contains(got, "%") {
			t.Errorf("%q of a metric of unknown size", got)
		}
		e.series(250_000, 1_000_000)
		if got := tell(); !strings.HasPrefix(got, " 25%") || !strings.Contains(got, "2m0s left") {
			t.Errorf("%q", got)
		}
		e.total, e.Metrics, e.share = 4, 1, 0.5
		if got := tell(); !strings.HasPrefix(got, " 38%  1 of 4 metrics") {
			t.Errorf("%q", got)
		}
	})
}

// An export that appends removes only the torn end that an interrupted export left.
func TestAppendingKeepsWhatIsThere(t *testing.T) {
	files, line := t.TempDir(), lineOf("m", 1)
	zip := func(text string) string {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		io.WriteString(z, text)
		z.Close()
		return packed.String()
	}
	whole := zip(line)
	noise := make([]byte, 300)
	for i := range noise {
		noise[i] = byte(i * i % 251)
	}
	damaged := []byte(whole + zip(line))
	damaged[len(whole)-6] ^= 1
	for _, tc := range []struct{ name, before, plain, resumed string }{
		{"precious.gz", "no gzip at all\n", "not compressed with gzip", "not compressed with gzip"},
		{"photo.gz", string(noise), "not compressed with gzip", "not compressed with gzip"},
		{"short.gz", "x", "nothing was changed", "nothing was changed"},
		{"other.gz", zip(string(noise))[:200], "nothing was changed", "not the beginning of a gzip member of an export"},
		{"torn.gz", whole + whole[:len(whole)-3], "within a gzip member, which begins at byte " + fmt.Sprint(len(whole)), ""},
		{"tail.gz", whole + "more", "not the beginning of a gzip member of an export", "not the beginning of a gzip member of an export"},
		{"damaged.gz", string(damaged), "cannot be decompressed after byte 0", "cannot be decompressed after byte 0"},
		{"notes", "my notes", "not the beginning of a line of an export", "not the beginning of a line of an export"},
		{"more", line + "my notes", "not the beginning of a line of an export", "not the beginning of a line of an export"},
		{"torn", line + line[:30], "within a line, which begins at byte " + fmt.Sprint(len(line)), ""},
		{"whole", "my notes\n", "", ""},
		{"empty.gz", "", "", ""},
	} {
		path := filepath.Join(files, tc.name)
		for _, resuming := range []bool{false, true} {
			write(t, path, tc.before)
			want := tc.plain
			if resuming {
				want = tc.resumed
			}
			out, err := openExport(path, nil, true, resuming, resuming)
			if err == nil {
				io.WriteString(out.w, line)
				err = errors.Join(out.endMetric(), out.close())
			}
			raw, readErr := os.ReadFile(path)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if (err != nil) != (want != "") || err != nil && (!strings.Contains(err.Error(), want) || string(raw) != tc.before) || err == nil && !strings.HasSuffix(read(t, path), line) {
				t.Errorf("%s, resuming %v: %v\nholds %q", tc.name, resuming, err, raw)
			}
		}
	}
}

// An export with a recovery file resumes, even if the first run was interrupted within the first metric,
// so that the file lists none.
func TestAppendingGoesOnBeforeTheFirstMetric(t *testing.T) {
	line := lineOf("m", 1)
	for _, name := range []string{"torn", "new"} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		before := ""
		if name == "torn" {
			before = line
			write(t, path, line+line[:30])
		}
		e := &Export{Path: path, Append: true, Recovery: filepath.Join(dir, "done"), Source: newWorld(t).remote, Progress: quiet(), Within: model.AllTime}
		if err := e.Run(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := read(t, path); got != before {
			t.Errorf("%s: the file has %q, want %q", name, got, before)
		}
	}
}

// An export that the server refuses leaves the file of an earlier export unchanged. An export that
// has nothing to write empties it.
func TestRefusedExportKeepsTheOldFile(t *testing.T) {
	refuses := Remote{served(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"errors":["no"]}`, http.StatusUnauthorized)
	}))}
	raw := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, name := range []string{"old", "old.gz"} {
		for _, only := range [][]string{nil, {"m"}} {
			path := filepath.Join(t.TempDir(), name)
			write(t, path, "an earlier export")
			e := &Export{Path: path, Only: only, Source: refuses, Progress: quiet(), Within: model.AllTime}
			if err := e.Run(t.Context()); err == nil {
				t.Fatal("a refused export succeeds")
			}
			if got := raw(path); got != "an earlier export" {
				t.Errorf("%s, metrics %q: the file has %q", name, only, got)
			}
			e = &Export{Path: path, Only: only, Source: newWorld(t).remote, Progress: quiet(), Within: model.AllTime}
			if err := e.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := raw(path); strings.Contains(got, "earlier") {
				t.Errorf("%s, metrics %q: an export of nothing leaves %q", name, only, got)
			}
		}
	}
}
