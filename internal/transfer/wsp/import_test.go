package wsp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"

	"varve/internal/graphite/whisper"
	"varve/internal/ingest/kairosjson"
	"varve/internal/retention"
	"varve/internal/transfer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const now = 1_700_000_000

// A memory is a file in memory.
type memory []byte

func (m memory) WriteAt(p []byte, at int64) (int, error) { return copy(m[at:], p), nil }

// file makes a file with n points, a minute apart, of which the last is at now.
func file(t testing.TB, n int, stages string, a retention.Aggregation) *fstest.MapFile {
	t.Helper()
	parsed, err := retention.ParseStages(stages)
	if err != nil {
		t.Fatal(err)
	}
	h, err := whisper.NewHeader(parsed, &a)
	if err != nil {
		t.Fatal(err)
	}
	m := make(memory, h.Size())
	w, err := whisper.NewWriter(m, h, &a, now)
	for i := range n {
		if err == nil {
			err = w.Add(whisper.Point{Time: now - now%60 - int64(n-1-i)*60, Value: float64(i)})
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return &fstest.MapFile{Data: m}
}

var average = retention.DefaultAggregation

// A sink keeps its lines, and refuses those that contain a given text.
type sink struct {
	mu     sync.Mutex
	points map[string]int // number of points, by the beginning of the line
	calls  int
	most   int // bytes of a call
	refuse string
	fail   error
}

func (s *sink) Store(_ context.Context, lines [][]byte) ([]kairosjson.Line, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	bytes := 0
	for _, line := range lines {
		bytes += len(line)
	}
	s.most = max(s.most, bytes)
	if s.fail != nil {
		return nil, s.fail
	}
	results := make([]kairosjson.Line, len(lines))
	for i, line := range lines {
		var m struct {
			Name       string
			Tags       map[string]string
			Datapoints [][3]any
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		name := m.Name
		for _, tag := range slices.Sorted(maps.Keys(m.Tags)) {
			name += ";" + tag + "=" + m.Tags[tag]
		}
		if s.refuse != "" && strings.Contains(name, s.refuse) {
			results[i].Faults = []string{"no such thing"}
			continue
		}
		results[0].Points += len(m.Datapoints) // like a server, which reports only the total
		if s.points == nil {
			s.points = map[string]int{}
		}
		s.points[name] += len(m.Datapoints)
	}
	return results, nil
}

// importAll imports a tree. It returns the names of the finished files, in order.
func importAll(t *testing.T, m *Import, s *sink) (done []string, outcomes map[string]*Outcome) {
	t.Helper()
	outcomes = map[string]*Outcome{}
	m.Now = now
	if s != nil {
		m.Sink = func() transfer.Sink { return s }
	}
	m.Done = func(o *Outcome) error {
		done = append(done, o.Path)
		outcomes[o.Path] = o
		return nil
	}
	if err := m.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return done, outcomes
}

func TestImport(t *testing.T) {
	series := "disk.used;dc=a;host=b"
	hash := whisper.Hash(series)
	readable, err := whisper.FileOf(series, false)
	if err != nil {
		t.Fatal(err)
	}
	hashed, _ := whisper.FileOf("cpu;host=c", true)
	one := file(t, 30_000, "60s:30d", average)
	tree := fstest.MapFS{
		"a/b.wsp":                              one,
		"a/b/c.wsp":                            file(t, 10, "60s:1d,5m:7d", average),
		"a.wsp":                                file(t, 0, "60s:1d", average),
		"other.txt":                            {Data: []byte("text")},
		"bad/text.wsp":                         {Data: []byte("this is a text and no file of points")},
		"bad/empty.wsp":                        {},
		"bad/short.wsp":                        {Data: one.Data[:5000]},
		"bad/packed.wsp":                       {Data: []byte("whisper_compressed and more than that")},
		"bad/pipe.wsp":                         {Mode: fs.ModeNamedPipe},
		"bad/no.path.wsp":                      one,
		readable:                               file(t, 5, "60s:1d", average),
		hashed:                                 file(t, 6, "60s:1d", average),
		"_tagged/" + hash[:3] + "/x/a;b=c.wsp": one,
		"_tagged/123/456/" + strings.Repeat("0", 64) + ".wsp": one,
		"refused.wsp": file(t, 7, "60s:1d", average),
	}
	var before []string
	for _, parallel := range []int{1, 3, 20} {
		s := &sink{refuse: "refused"}
		done, outcomes := importAll(t, &Import{Tree: tree, Parallel: parallel, Prefix: "p.", Names: map[string]string{whisper.Hash("cpu;host=c"): "cpu;host=c"}}, s)
		want := map[string]int{"p.a.b": 30_000, "p.a.b.c": 10, series: 5, "cpu;host=c": 6}
		if !maps.Equal(s.points, want) {
			t.Errorf("stored %v, want %v", s.points, want)
		}
		if before = append(before, strings.Join(done, " ")); before[0] != strings.Join(done, " ") || len(done) != 14 {
			t.Errorf("%d files, in the order %v; before %v", len(done), done, before[0])
		}
		if !slices.IsSortedFunc(done, inOrder) {
			t.Errorf("order of %v", done)
		}
		var totals Totals
		for _, o := range outcomes {
			totals.Add(o)
		}
		wantFaulty := map[Reason]int64{Damaged: 2, NotWhisper: 2, Compressed: 1, BadName: 2, Nameless: 1, Refused: 1}
		if totals.Files != 6 || totals.Empty != 1 || totals.Points != 30_021 || !maps.Equal(totals.Faulty, wantFaulty) || totals.Left[Refused] != 7 {
			t.Errorf("%+v", totals)
		}
		o := outcomes["a/b.wsp"]
		if o.Series != "p.a.b" || o.Points != 30_000 || o.Last != now-now%60 || o.First != o.Last-29_999*60 || o.Bytes != int64(len(one.Data)) {
			t.Errorf("%+v", o)
		}
		if f := outcomes["refused.wsp"].Faults; len(f) != 1 || f[0].Text != "no such thing" {
			t.Errorf("%+v", f)
		}
	}
}

// An import begins after a given file, wherever in the tree that is.
func TestImportAfter(t *testing.T) {
	tree := fstest.MapFS{}
	for _, path := range []string{"a/b.wsp", "a/b/c.wsp", "a/b/d/e.wsp", "a.wsp", "b/a.wsp", "b/b/c.wsp", "c.wsp", "a-b/c.wsp"} {
		tree[path] = file(t, 1, "60s:1d", average)
	}
	all, _ := importAll(t, &Import{Tree: tree}, &sink{})
	if len(all) != len(tree) {
		t.Fatalf("%v", all)
	}
	for i, after := range all {
		done, _ := importAll(t, &Import{Tree: tree, After: after}, &sink{})
		if !slices.Equal(done, all[i+1:]) {
			t.Errorf("after %s: %v, want %v", after, done, all[i+1:])
		}
		bytes, err := Size(t.Context(), tree, after)
		if want := int64(len(done) * len(tree[after].Data)); err != nil || bytes != want {
			t.Errorf("after %s: %d bytes, want %d, %v", after, bytes, want, err)
		}
	}
}

var errBroken = errors.New("broken")

func TestImportEndsWithItsErrors(t *testing.T) {
	tree := fstest.MapFS{"a.wsp": file(t, 1000, "60s:1d", average), "b.wsp": file(t, 1000, "60s:1d", average)}
	m := &Import{Tree: tree, Now: now, Sink: func() transfer.Sink { return &sink{fail: errBroken} }, Done: func(*Outcome) error {
		t.Error("a file is done that was not stored")
		return nil
	}}
	if err := m.Run(t.Context()); !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "a.wsp") {
		t.Errorf("%v", err)
	}
	m = &Import{Tree: tree, Now: now, Sink: func() transfer.Sink { return &sink{} }, Done: func(*Outcome) error { return errBroken }}
	if err := m.Run(t.Context()); !errors.Is(err, errBroken) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errBroken)
	if err := m.Run(ctx); !errors.Is(err, errBroken) {
		t.Errorf("%v", err)
	}
	m.Tree = fstest.MapFS{"dir": tree["a.wsp"]}
	if err := (&Import{Tree: must(fs.Sub(m.Tree, "nosuch")), Done: m.Done}).Run(t.Context()); err == nil {
		t.Error("a root that is not there is no error")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Files whose points wait in a block do not block the walk that would fill it.
func TestManySmallFiles(t *testing.T) {
	tree := fstest.MapFS{"a.wsp": file(t, 100, "60s:1d", average)}
	for i := range maxAhead + 100 {
		tree[fmt.Sprintf("b%05d.wsp", i)] = &fstest.MapFile{}
	}
	for _, parallel := range []int{1, 7} {
		s := &sink{}
		done, _ := importAll(t, &Import{Tree: tree, Parallel: parallel}, s)
		if len(done) != len(tree) || s.points["a"] != 100 {
			t.Errorf("%d of %d files are done, %d points", len(done), len(tree), s.points["a"])
		}
	}
}

// A waiting tree opens no directory z before go is closed.
type waiting struct {
	fstest.MapFS
	goOn chan struct{}
}

func (w waiting) ReadDir(name string) ([]fs.DirEntry, error) {
	if name == "z" {
		<-w.goOn
	}
	return w.MapFS.ReadDir(name)
}

// A stopping sink fails, and lets the walk continue.
type stopping struct{ goOn chan struct{} }

func (s stopping) Store(context.Context, [][]byte) ([]kairosjson.Line, error) {
	close(s.goOn)
	return nil, errBroken
}

// What a worker stores while it waits for files can fail, too.
func TestImportEndsWhileItWaits(t *testing.T) {
	tree := waiting{fstest.MapFS{"a.wsp": file(t, 10, "60s:1d", average), "z/text": {}}, make(chan struct{})}
	m := &Import{Tree: tree, Now: now, Sink: func() transfer.Sink { return stopping{tree.goOn} }, Done: func(*Outcome) error { return nil }}
	if err := m.Run(t.Context()); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
}

// Files without lines are done as soon as they are many, and the error of Done counts then.
func TestManyFilesAreDoneInTime(t *testing.T) {
	q := &queue{ahead: make(chan struct{}, maxAhead), done: func(*Outcome) error { return errBroken }}
	w, files := &worker{m: &Import{}, queue: q}, make(chan *job, 1)
	for n := 1; n <= transfer.BlockLines; n++ {
		if err := q.hand(t.Context(), entry{fault: &Fault{Reason: Damaged}}, files); err != nil {
			t.Fatal(err)
		}
		if err := w.file(t.Context(), <-files); (err != nil) != (n == transfer.BlockLines) || err != nil && !errors.Is(err, errBroken) {
			t.Fatalf("file %d: %v", n, err)
		}
	}
}

// A stumbling sink fails once.
type stumbling struct {
	sink
	failed bool
}

func (s *stumbling) Store(ctx context.Context, lines [][]byte) ([]kairosjson.Line, error) {
	if !s.failed {
		s.failed = true
		return nil, errBroken
	}
	return s.sink.Store(ctx, lines)
}

// A block in the middle of a file that is not stored ends the import.
func TestImportEndsWithinAFile(t *testing.T) {
	m := &Import{Tree: fstest.MapFS{"a.wsp": file(t, 250_000, "60s:300d", average)}, Now: now, Sink: func() transfer.Sink { return &stumbling{} }, Done: func(*Outcome) error {
		t.Error("a file is done that was not stored")
		return nil
	}}
	if err := m.Run(t.Context()); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
}

// Blocks are neither longer than they should be, nor much shorter.
func TestBlocksOfAFile(t *testing.T) {
	s := &sink{}
	importAll(t, &Import{Tree: fstest.MapFS{"a.wsp": file(t, 250_000, "60s:300d", average)}}, s)
	if s.points["a"] != 250_000 || s.calls != 2 || s.most > transfer.BlockBytes+1<<20 {
		t.Errorf("%d points in %d blocks of at most %d bytes", s.points["a"], s.calls, s.most)
	}
}

func TestReadOnly(t *testing.T) {
	tree := fstest.MapFS{"a.wsp": file(t, 100, "60s:1d", average)}
	_, outcomes := importAll(t, &Import{Tree: tree}, nil)
	if o := outcomes["a.wsp"]; o.Points != 100 || len(o.Faults) > 0 {
		t.Errorf("%+v", o)
	}
}

func TestReadNames(t *testing.T) {
	want := map[string]string{whisper.Hash("a;b=c"): "a;b=c", whisper.Hash("d.e;f=ü g"): "d.e;f=ü g"}
	for _, text := range []string{"a;b=c\nplain\n\n d.e;f=ü g\r\n", `["a;b=c", "plain", "d.e;f=\u00fc g"]`} {
		got, err := ReadNames(strings.NewReader(text))
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{`["a;b=c"`, `[1]`, strings.Repeat("a", maxNameBytes+1)} {
		if got, err := ReadNames(strings.NewReader(text)); err == nil {
			t.Errorf("%.20q: %v", text, got)
		}
	}
}

// The proposed files give each path the settings of its file.
func TestProposal(t *testing.T) {
	type settings struct {
		stages string
		how    retention.Aggregation
	}
	plain := settings{"1m:1d,5m:1w", average}
	counts := settings{"10s:6h,1m:1w", retention.Aggregation{Method: retention.Sum}}
	fine := settings{"1s:1h", retention.Aggregation{Method: retention.Max, XFilesFactor: 0.1}}
	paths := map[string]settings{}
	for i := range 200 {
		paths[fmt.Sprintf("servers.w%d.load", i)] = plain
		paths[fmt.Sprintf("servers.w%d.count", i)] = counts
		paths[fmt.Sprintf("net.r%d.if+%%.count", i)] = counts
		paths[fmt.Sprintf("net.r%d.max", i)] = plain
		paths[fmt.Sprintf("fine.%d.%d", i, i%7)] = fine
		paths[fmt.Sprintf("disk.count;host=h%d", i)] = counts
	}
	paths["count"] = counts
	var p Proposal
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		s := paths[path]
		h, err := whisper.NewHeader(must(retention.ParseStages(s.stages)), &s.how)
		if err != nil {
			t.Fatal(err)
		}
		p.Add(path, h)
	}
	var text bytes.Buffer
	if err := p.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	schemas, aggregations, _ := strings.Cut(text.String(), "# storage-aggregation.conf")
	var book retention.Book
	var err error
	if book.Rules, _, err = retention.ParseSchemas(schemas); err != nil {
		t.Fatal(err)
	}
	if book.Aggregations, _, err = retention.ParseAggregations(aggregations); err != nil {
		t.Fatal(err)
	}
	told := 0
	for path, s := range paths {
		got := book.Of(retention.ParsePath(path))
		if got.Rule == nil || got.Rule.Stages.String() != s.stages || got.Aggregation.Method != s.how.Method || got.Aggregation.XFilesFactor != s.how.XFilesFactor {
			t.Errorf("%s: %v %v", path, got.Rule, got.Aggregation)
			told++
		}
	}
	if told > 0 || strings.Contains(text.String(), "cannot be told") {
		t.Errorf("%s", &text)
	}
}

// Groups that names do not distinguish are reported, not guessed.
func TestProposalWithoutTraits(t *testing.T) {
	var p Proposal
	for i := range 300 {
		stages := "1m:1d"
		if i%3 == 0 {
			stages = "10s:1d"
		}
		h, err := whisper.NewHeader(must(retention.ParseStages(stages)), &average)
		if err != nil {
			t.Fatal(err)
		}
		p.Add(fmt.Sprintf("a.b%d.c", i), h)
	}
	var text bytes.Buffer
	if err := p.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# 100 paths, such as a.b0.c, cannot be distinguished", "# retentions = 10s:1d", "pattern = .*\nretentions = 1m:1d"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
}
