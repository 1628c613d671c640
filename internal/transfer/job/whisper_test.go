package job

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"varve/internal/graphite/target"
	"varve/internal/ingest/kairosjson"
	"varve/internal/model"
	"varve/internal/retention"
	"varve/internal/store"
	"varve/internal/transfer"
	"varve/internal/transfer/wsp"
)

// onePoints are the points of a file that Whisper wrote: one a minute, up to this time.
const (
	onePoints = 50
	oneFirst  = 1_699_996_980
	oneLast   = oneFirst + 49*60
)

// whisperTree makes a directory of copies of a file that Whisper wrote, and a damaged one.
func whisperTree(t *testing.T, files ...string) (root string) {
	t.Helper()
	text, err := os.ReadFile("../../graphite/whisper/testdata/one.wsp")
	if err != nil {
		t.Fatal(err)
	}
	root = filepath.Join(t.TempDir(), "whisper")
	for _, file := range files {
		path := filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(filepath.Base(file), "bad") {
			write(t, path, "bad")
		} else {
			write(t, path, string(text))
		}
	}
	return root
}

func newWhisperImport(root, to string, sink transfer.Sink, said *bytes.Buffer) *WhisperImport {
	return &WhisperImport{Root: root, To: to, Parallel: 1, State: root + ".state", Rejected: root + ".rejected",
		Sink: func() transfer.Sink { return sink }, Stderr: said, Progress: quiet()}
}

func metricNames(t *testing.T, w *world) []string {
	t.Helper()
	names, err := metricsOf(t.Context(), Local{w.store}, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// An import of files that failed resumes after the last file that was stored or reported, and
// reports each file once.
func TestWhisperImportGoesOn(t *testing.T) {
	w, said := newWorld(t), &bytes.Buffer{}
	root := whisperTree(t, "a.wsp", "b.wsp", "bad.wsp", "c.wsp", "d/bad.wsp")
	begun := newWhisperImport(root, "here", &failing{Sink: w.sink, at: 1}, said)
	if err := begun.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "the store is away") || begun.Resumable() {
		t.Fatal(err, begun.Resumable())
	}
	if names := metricNames(t, w); len(names) > 0 {
		t.Errorf("%q are stored by a sink that is away", names)
	}

	// As if it had been interrupted after the second file and a report of the third.
	write(t, root+".state", fmt.Sprintf(`{"root":%q,"prefix":"","to":"here","after":"b.wsp","reported":4,"totals":{"files":2,"points":100}}`, root))
	write(t, root+".rejected", "was\nbad.wsp: is reported again\n")
	for what, change := range map[string]func(*WhisperImport){
		"belongs to an import into here, not there": func(j *WhisperImport) { j.To = "there" },
		`to an import of ` + root + ` with the`:     func(j *WhisperImport) { j.Prefix = "p." },
		"remove it to begin again":                  func(j *WhisperImport) { j.Root = filepath.Dir(root) },
	} {
		j := newWhisperImport(root, "here", w.sink, said)
		change(j)
		if err := j.Run(t.Context()); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
	j := newWhisperImport(root, "here", w.sink, said)
	if err := j.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := "continuing after b.wsp; 2 files done\n"; said.String() != want || !j.Resumable() {
		t.Errorf("said %q, want %q", said, want)
	}
	if n := j.Totals(); n.Files != 3 || n.Points != 100+onePoints || n.Faulty[wsp.Damaged] != 2 || j.First != oneFirst || j.Last != oneLast {
		t.Errorf("%+v, from %d to %d", n, j.First, j.Last)
	}
	if names := metricNames(t, w); !slices.Equal(names, []string{"c"}) {
		t.Errorf("stored %q", names)
	}
	const want = "was\nbad.wsp: damaged: the file ends within its header, after 3 bytes\nd/bad.wsp: damaged: the file ends within its header, after 3 bytes\n"
	if got := read(t, root+".rejected"); got != want {
		t.Errorf("reported\n%s", got)
	}
	if _, err := os.Stat(root + ".state"); !os.IsNotExist(err) {
		t.Error("the state of an import that is complete is left:", err)
	}

	// The next import of the same files begins with an empty report.
	if err := os.Remove(filepath.Join(root, "bad.wsp")); err != nil {
		t.Fatal(err)
	}
	j = newWhisperImport(root, "there", w.sink, said)
	if err := j.Run(t.Context()); err != nil || j.Totals().Files != 3 || strings.Count(read(t, root+".rejected"), "\n") != 1 {
		t.Errorf("%v, %+v, reported %q", err, j.Totals(), read(t, root+".rejected"))
	}
}

// lastCalls is a sink that calls a function of the test before each block.
type lastCalls struct {
	transfer.Sink
	before func()
}

func (s lastCalls) Store(ctx context.Context, lines [][]byte) ([]kairosjson.Line, error) {
	s.before()
	return s.Sink.Store(ctx, lines)
}

// If the state cannot be written, an import ends before it stores points. If the report cannot be
// written, it ends before it omits points unreported.
func TestWhisperImportErrors(t *testing.T) {
	w, said := newWorld(t), &bytes.Buffer{}
	root := whisperTree(t, "a.wsp", "bad.wsp")
	j := newWhisperImport(root, "", lastCalls{w.sink, func() { t.Error("points are stored without a state") }}, said)
	j.State = filepath.Join(root, "nosuch", "state")
	if err := j.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "use --state and --rejected to name other files") {
		t.Error(err)
	}
	written := false
	j = newWhisperImport(root, "", lastCalls{w.sink, func() {
		_, err := os.Stat(root + ".state")
		written = err == nil
	}}, said)
	j.Rejected = filepath.Join(root, "nosuch", "report")
	if err := j.Run(t.Context()); !errors.Is(err, os.ErrNotExist) || !written {
		t.Error(err, written)
	}
	write(t, root+".state", `{"root":"`+root+`","prefix":"","to":"","after":"z.wsp","crc32c":"01234567"}`)
	if err := newWhisperImport(root, "", w.sink, said).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Error(err)
	}
	write(t, root+".state", "none")
	if err := newWhisperImport(root, "", w.sink, said).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "is not the state") {
		t.Error(err)
	}
}

// A dry run stores and writes nothing, and prints what an import would do.
func TestWhisperDryRun(t *testing.T) {
	said := &bytes.Buffer{}
	root := whisperTree(t, "a.wsp", "bad.wsp")
	j := newWhisperImport(root, "", nil, said)
	j.Sink, j.Proposal = nil, &wsp.Proposal{}
	if err := j.Run(t.Context()); err != nil || j.Resumable() {
		t.Error(err, j.Resumable())
	}
	var proposed bytes.Buffer
	if err := j.Proposal.WriteText(&proposed); err != nil || !strings.Contains(proposed.String(), "retentions = 1m:50m\n") {
		t.Errorf("%v, proposed %s", err, &proposed)
	}
	if n := j.Totals(); n.Files != 1 || n.Points != onePoints || said.String() != "bad.wsp: damaged: the file ends within its header, after 3 bytes\n" {
		t.Errorf("%+v, said %q", n, said)
	}
	if left, err := filepath.Glob(root + ".*"); len(left) > 0 || err != nil {
		t.Errorf("a dry run leaves %q, %v", left, err)
	}
}

// An export that keeps the files of an earlier run keeps its report too: what these files lack is still
// missing.
func TestWhisperExportKeepsItsReport(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a.b", `no\nrule`} {
		line := []byte(`{"name":"` + name + `","tags":{},"skip_validate":true,"datapoints":[[1699999840000,1,"long"],[1699999900000,"text","string"]]}`)
		if got, err := w.sink.Store(t.Context(), [][]byte{line}); err != nil || len(got[0].Faults) > 0 {
			t.Fatal(got, err)
		}
	}
	rules, _, err := retention.ParseSchemas("[all]\npattern = ^a\nretentions = 60:50\n")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "out")
	reports := filepath.Join(t.TempDir(), "reports")
	report := filepath.Join(reports, "out.rejected")
	run := func(keep bool) (*WhisperExport, error) {
		j := &WhisperExport{Source: w.remote, Rejected: report, Progress: quiet()}
		j.Tree = wsp.Export{Dir: dir, Book: &retention.Book{Rules: rules}, Now: oneLast, Keep: keep}
		return j, j.Run(t.Context())
	}
	export := func(keep bool) *WhisperExport {
		t.Helper()
		j, err := run(keep)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	if _, err := run(false); err == nil { // the report cannot be written, as on a full disk
		t.Fatal("exported without a report")
	}
	if err := os.Mkdir(reports, 0o700); err != nil {
		t.Fatal(err)
	}
	first := export(true)
	want := read(t, report)
	if first.Files != 1 || first.Reported != 2 || !strings.HasPrefix(want, "a.b: "+string(wsp.NoNumber)) {
		t.Fatalf("%d files, reported %q", first.Files, want)
	}
	if again := export(true); again.Files != 0 || again.Reported != 2 || read(t, report) != want {
		t.Errorf("kept: %d files, reported %q", again.Files, read(t, report))
	}
	write(t, report, "half a li") // as an interruption leaves it
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if again := export(true); again.Files != 1 || again.Reported != 2 || read(t, report) != want {
		t.Errorf("written again: %d files, reported %q", again.Files, read(t, report))
	}
}

func TestWhisperExport(t *testing.T) {
	w := newWorld(t)
	root := whisperTree(t, "g/a.wsp", "g/b.wsp", "h.wsp")
	if err := newWhisperImport(root, "", w.sink, &bytes.Buffer{}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	line := []byte(`{"name":"g.text","tags":{"a":"b"},"datapoints":[[1699999900000,"text","string"]]}`)
	if got, err := w.sink.Store(t.Context(), [][]byte{line}); err != nil || len(got[0].Faults) > 0 {
		t.Fatal(got, err)
	}
	rules, _, err := retention.ParseSchemas("[all]\npattern = .\nretentions = 60:50\n")
	if err != nil {
		t.Fatal(err)
	}
	glob, err := target.ParseGlob("g.*")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "out")
	export := func(source Source, only []target.Glob, keep bool) (*WhisperExport, error) {
		j := &WhisperExport{Source: source, Only: only, Rejected: dir + ".rejected", Progress: quiet()}
		j.Tree = wsp.Export{Dir: dir, Book: &retention.Book{Rules: rules}, Now: oneLast, Keep: keep}
		return j, j.Run(t.Context())
	}
	empty := func() error { return (&WhisperExport{Tree: wsp.Export{Dir: dir}}).CheckEmpty() }
	if err := empty(); err != nil {
		t.Error(err)
	}
	for _, source := range []Source{Local{w.store}, w.remote} {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		j, err := export(source, []target.Glob{glob}, false)
		if err != nil || j.Files != 2 || j.Metrics != 3 || !maps.Equal(j.Faulty, map[wsp.Reason]int64{wsp.NoNumber: 1}) {
			t.Errorf("%v, %d files of %d metrics, %v", err, j.Files, j.Metrics, j.Faulty)
		}
		if got := read(t, dir+".rejected"); !strings.HasPrefix(got, "g.text;a=b: samples that are not finite numbers: ") || strings.Count(got, "\n") != 1 {
			t.Errorf("reported %q", got)
		}
		if _, err := os.Stat(filepath.Join(dir, "h.wsp")); err == nil {
			t.Error("a path that was not asked for is exported")
		}
		again := newWorld(t)
		if err := newWhisperImport(dir, "", again.sink, &bytes.Buffer{}).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"g.a", "g.b"} {
			was, is := exported(t, w, name), exported(t, again, name)
			if was != is || strings.Count(is, "double") != onePoints {
				t.Errorf("%s\nwas %s\nis  %s", name, was, is)
			}
		}
		if err := empty(); err == nil || !strings.Contains(err.Error(), "is not empty, it contains g; --keep") {
			t.Error(err)
		}
		if j, err := export(source, nil, true); err != nil || j.Files != 1 || j.Metrics != 4 || len(j.Faulty) != 1 {
			t.Errorf("going on: %v, %d files of %d metrics, %v", err, j.Files, j.Metrics, j.Faulty)
		}
	}
	if _, err := export(away{}, nil, false); err == nil || !strings.Contains(err.Error(), "away") {
		t.Error("a source that is away:", err)
	}
	write(t, dir+".file", "")
	if err := (&WhisperExport{Tree: wsp.Export{Dir: dir + ".file"}}).CheckEmpty(); err == nil {
		t.Error("a file is taken for an empty directory")
	}
}

// exported returns what an export of a metric writes.
func exported(t *testing.T, w *world, metric string) string {
	t.Helper()
	var out bytes.Buffer
	if err := (Local{w.store}).Export(t.Context(), metric, model.AllTime, store.BucketsAsSamples, &out, func(int, int) {}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// away is a source that lists one metric and then fails.
type away struct{ Local }

func (away) Metrics(context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if yield("m", nil) {
			yield("", errors.New("the source is away"))
		}
	}
}
