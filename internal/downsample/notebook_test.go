package downsample

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestFailingNotebook: if any call fails while notes of late points are opened or read,
// that is an error, and there is no notebook: if notes were mistaken for empty, their buckets
// would not be recomputed.
func TestFailingNotebook(t *testing.T) {
	parse := func(text []byte, id string) (Task, error) { return Task{ID: id, JSON: string(text)}, nil }
	for n := int32(1); ; n++ {
		mem := vfs.NewMem()
		if err := mem.MkdirAll("data", 0o755); err != nil {
			t.Fatal(err)
		}
		b, err := openNotebook(mem, mem.PathJoin("data", "notes"), "task")
		if err != nil {
			t.Fatal(err)
		}
		if err := b.write(page{ID: "task", Task: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
		var calls atomic.Int32
		var failed errorfs.Op
		l := journaled(keepNothing)
		err = l.OpenBook(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if calls.Add(1) != n {
				return nil
			}
			failed = op
			return errorfs.ErrInjected
		})), mem.PathJoin("data", "notes"), parse)
		if calls.Load() < n {
			if err != nil || !l.HasBook() || !maps.Equal(taskIDs(l), map[string]bool{"task": true}) || n < 8 {
				t.Errorf("after %d calls: %v, %v", n-1, taskIDs(l), err)
			}
			return
		}
		if failed.Kind == errorfs.OpFileClose {
			continue // of a file that was only read
		}
		if !errors.Is(err, errorfs.ErrInjected) || l.HasBook() {
			t.Errorf("call %d, %v, fails: %v, %v", n, failed.Kind, taskIDs(l), err)
		}
	}
}

// TestDamagedNotebook: an unreadable file, or a task that cannot be parsed, is an error
// that names the file and the way out. Then there is no notebook, and notes are kept by
// Keep.
func TestDamagedNotebook(t *testing.T) {
	const name = "e3b98a4da31a127d4bde6e43033f66ba.json" // of task "t"
	for _, c := range []struct{ file, text, want string }{
		{name, `{`, "remove it"},
		{name, `{"id":"t","task":"gone"}`, ": gone"},
		{name, `{"id":"t","task":"x","late":{"m":[[60000,0]]},"crc32c":"01234567"}`, "damaged"},
		{unreadName, `{`, "remove it"},
		{unreadName, `{"m":[[0]]`, "remove it"},
	} {
		mem := vfs.NewMem()
		kept := 0
		l := journaled(func(context.Context, string, map[string]Spans) error { kept++; return nil })
		parse := func(text []byte, id string) (Task, error) {
			if string(text) == `"gone"` {
				return Task{}, errors.New("gone")
			}
			return Task{ID: id, JSON: string(text)}, nil
		}
		if err := l.OpenBook(mem, "notes", parse); err != nil || !l.HasBook() {
			t.Fatalf("an empty notebook: %v", err)
		}
		write(t, mem, "notes/"+name, `{"id":"t","task":"there","late":{}}`)
		write(t, mem, "notes/"+unreadName, `{"m":[[0,3600000]]}`)
		write(t, mem, "notes/left.tmp", "what a crash has left")
		l = journaled(l.o.Keep)
		if err := l.OpenBook(mem, "notes", parse); err != nil || !l.HasBook() || l.Watches("none") || !maps.Equal(taskIDs(l), map[string]bool{"t": true}) {
			t.Fatalf("%v, tasks %v", err, l.tasks)
		}
		if _, err := mem.Stat("notes/left.tmp"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("an unfinished file is still there: %v", err)
		}
		write(t, mem, "notes/"+c.file, c.text)
		l = journaled(l.o.Keep)
		if err := l.OpenBook(mem, "notes", parse); err == nil || l.HasBook() || !strings.Contains(err.Error(), "notes/"+c.file) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %q: %v, want %q", c.file, c.text, err, c.want)
		}
		watchSource(t, l)
		before := kept
		late(t, l, 1)()
		if err := l.Persist(t.Context(), l.o.Keep); err != nil || kept != before+1 {
			t.Errorf("%s of %q: a late point was kept %d times, %v", c.file, c.text, kept-before, err)
		}
		if err := l.AllRead(t.Context()); err != nil {
			t.Errorf("%s of %q: %v", c.file, c.text, err)
		}
	}
}

func taskIDs(l *LateList) map[string]bool {
	ids := map[string]bool{}
	for id := range l.tasks {
		ids[id] = true
	}
	return ids
}

func write(t *testing.T, mem vfs.FS, path, text string) {
	t.Helper()
	f, err := mem.Create(path, "test")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNotebookWithoutDirectory: a directory that cannot be created, or whose creation cannot be made durable, is
// an error, also if the directory is there afterwards.
func TestNotebookWithoutDirectory(t *testing.T) {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("data/notes", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []errorfs.OpKind{errorfs.OpMkdirAll, errorfs.OpFileSync} {
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == kind {
				return errorfs.ErrInjected
			}
			return nil
		}))
		if b, err := openNotebook(fs, "data/notes", "task"); b != nil || !errors.Is(err, errorfs.ErrInjected) || !strings.Contains(err.Error(), "create the directory") {
			t.Errorf("call of kind %d fails: %v", kind, err)
		}
	}
}

// TestUnwritableNotebook: notes that cannot be written to a notebook are kept in the
// store until they can. If the store fails too, the log must stay.
func TestUnwritableNotebook(t *testing.T) {
	var broken atomic.Bool
	var keepErr error
	beside, kept := map[string]Spans{}, 0
	l := journaled(func(_ context.Context, _ string, late map[string]Spans) error {
		kept++
		if keepErr == nil {
			beside = late
		}
		return keepErr
	})
	if err := l.OpenBook(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return errorfs.ErrInjected
		}
		return nil
	})), "notes", nil); err != nil {
		t.Fatal(err)
	}
	watchSource(t, l)
	if err := l.AllRead(t.Context()); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	late(t, l, 1)()
	keepErr = errors.New("away")
	if err := l.Persist(t.Context(), l.o.Keep); !errors.Is(err, keepErr) || !errors.Is(err, errorfs.ErrInjected) || !strings.Contains(err.Error(), "notes/") {
		t.Errorf("notes that are nowhere: %v", err)
	}
	keepErr = nil
	if err := l.Persist(t.Context(), l.o.Keep); err != nil || !slices.Equal(beside["x"], Spans{{0, hourMS}}) {
		t.Errorf("beside the notebook are %v, %v", beside, err)
	}
	broken.Store(false)
	keepErr = errors.New("away")
	late(t, l, 5*hourMS)()
	if err := l.Persist(t.Context(), l.o.Keep); err != nil || len(beside) == 0 {
		t.Errorf("beside are %v although the store is away, %v", beside, err)
	}
	keepErr = nil
	late(t, l, 9*hourMS)()
	if err := l.Persist(t.Context(), l.o.Keep); err != nil || len(beside) > 0 {
		t.Errorf("beside a notebook that is well are %v, %v", beside, err)
	}
	kept = 0
	late(t, l, 13*hourMS)()
	if err := l.Persist(t.Context(), l.o.Keep); err != nil || kept != 0 {
		t.Errorf("beside a notebook that is well, notes were kept %d times, %v", kept, err)
	}
}

// Ingest locks the list for each batch, so no file is read or written meanwhile.
func TestNoFileIsTouchedUnderTheLock(t *testing.T) {
	var l *LateList
	calls := 0
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		calls++
		if !l.mu.TryRLock() {
			t.Errorf("%v while the list is locked", op.Kind)
			return nil
		}
		l.mu.RUnlock()
		return nil
	}))
	l = journaled(keepNothing)
	must(t, l.OpenBook(fs, "notes", nil))
	watchSource(t, l)
	must(t, l.AllRead(t.Context()))
	late(t, l, 1)()
	must(t, l.Persist(t.Context(), keepNothing))
	l.Take("t", "x")
	must(t, l.Done(t.Context(), "t", map[string]Spans{"x": {{0, hourMS}}}))
	before := calls
	if l.Forget("t"); calls != before+1 {
		t.Errorf("%d calls to forget a task", calls-before)
	}
}

// A task that is forgotten while its file is written has no file afterwards. It could replace that
// of a task with the same id.
func TestForgetWhileAFileIsWritten(t *testing.T) {
	var l *LateList
	var forgets sync.WaitGroup
	mem, forget := vfs.NewMem(), false
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if forget && op.Kind == errorfs.OpRename {
			forget = false
			forgets.Go(func() { l.Forget("t") })
			for l.Watches("t") {
				runtime.Gosched()
			}
		}
		return nil
	}))
	l = journaled(keepNothing)
	must(t, l.OpenBook(fs, "notes", nil))
	watchSource(t, l)
	must(t, l.AllRead(t.Context()))
	late(t, l, 1)()
	forget = true
	must(t, l.Persist(t.Context(), keepNothing))
	forgets.Wait()
	wantFiles(t, mem, map[string]string{})
}

// journaled is a list of notes of samples in a log.
func journaled(keep Keep) *LateList {
	return NewLateList(Options{Keep: keep, Journal: newLogged(), Horizon: time.Hour, Most: 100, Now: time.Now, What: "task"})
}
