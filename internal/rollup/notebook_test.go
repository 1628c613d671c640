package rollup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/downsample"
	"varve/internal/model"
	"varve/internal/safefile"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// An outage is a store that always accepts points, as one with a spool does, but
// answers nothing else while it is unavailable. Only trim releases its log.
type outage struct {
	faulty
	away atomic.Bool

	mu    sync.Mutex
	keys  map[store.Ref]string // of the series
	log   []store.Sample
	hours []byte // on disk
	notes *downsample.LogNotes
}

var _ downsample.Journal = (*outage)(nil)

var errAway = &store.UnavailableError{Reason: "the store is away"}

func newOutage(to *reference.Store) *outage {
	o := &outage{faulty: faulty{Store: to}}
	o.fault, o.keys = o.check, map[store.Ref]string{}
	return o
}

// restart simulates the start of another process.
func (o *outage) restart() {
	o.notes = &downsample.LogNotes{
		Store:  func(_ context.Context, text []byte) error { o.hours = text; return nil },
		Forget: func(context.Context) error { o.hours = nil; return nil },
	}
	if o.hours != nil {
		if err := o.notes.Restore(o.hours); err != nil {
			panic(err)
		}
	}
	o.notes.Replayed(&store.Batch{Samples: o.log}, func(id model.SeriesNumber) string { return o.keys[store.Ref(id)] })
}

// trim releases the log.
func (o *outage) trim(ctx context.Context) error {
	if err := o.notes.Trim(ctx); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.log = nil
	return nil
}

func (o *outage) Create(ctx context.Context, s model.Series) (store.Ref, error) {
	ref, err := o.faulty.Create(ctx, s)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.keys[ref] = string(s.AppendKey(nil))
	return ref, err
}

func (o *outage) Append(ctx context.Context, b *store.Batch) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.log = append(o.log, b.Samples...)
	return o.faulty.Append(ctx, b)
}

func (o *outage) BeforeTrim(f func(context.Context, store.KeyValues) error) {
	o.notes.BeforeTrim(func(ctx context.Context) error { return f(ctx, o) })
}

func (o *outage) Unnoted() *downsample.Hours       { return o.notes.Unnoted() }
func (o *outage) AddUnnoted(h *downsample.Hours)   { o.notes.AddUnnoted(h) }
func (o *outage) Settle(ctx context.Context) error { return o.notes.Settle(ctx) }

func (o *outage) check() error {
	if o.away.Load() {
		return errAway
	}
	return nil
}

// outageHarness is one node of several with a task.
func outageHarness(t *testing.T) (*harness, *outage, *crashfs.FS) {
	h := newHarness(t)
	o, fs := newOutage(h.store), crashfs.New()
	if err := errors.Join(fs.MkdirAll("data", 0o755), safefile.SyncDir(fs, "")); err != nil {
		t.Fatal(err)
	}
	h.front, h.node, h.notes = o, "a", fs
	h.restart(nil)
	h.start()
	time.Sleep(time.Second) // to be among the nodes
	h.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, minute, ""))
	time.Sleep(time.Hour + time.Second)
	return h, o, fs
}

// crash ends a node as a power cut would, and starts it again.
func (h *harness) crash(fs *crashfs.FS) *crashfs.FS {
	after := fs.CrashClone(vfs.CrashCloneCfg{})
	h.notes = after
	h.restart(nil)
	h.start()
	return after
}

// Late points are accepted while the store is unavailable, and their buckets are
// computed when it is back, whatever happens to the node in between.
func TestLatePointsInAnOutage(t *testing.T) {
	t.Run("in the log", func(t *testing.T) { testLatePointsInAnOutage(t, false) })
	t.Run("given up", func(t *testing.T) { testLatePointsInAnOutage(t, true) })
}

func testLatePointsInAnOutage(t *testing.T, trims bool) {
	synctest.Test(t, func(t *testing.T) {
		h, o, fs := outageHarness(t)
		trim := func() {
			if !trims {
				return
			}
			if err := o.trim(t.Context()); err != nil {
				t.Error(err)
			}
		}
		h.send("src", "a", 1, at(0, 59, 0))
		o.away.Store(true)
		h.send("src", "a", 5, at(-48, 0, 1))
		trim()
		fs = h.crash(fs)
		h.send("src", "a", 7, at(-24, 0, 1)) // the node has not seen its tasks since it was started
		trim()
		fs = h.crash(fs)
		h.send("src", "a", 9, at(-12, 0, 1))
		time.Sleep(time.Hour)
		o.away.Store(false)
		time.Sleep(2 * time.Hour)
		got := h.points("dst")
		for _, want := range []string{"1999-12-30T00:00 5", "1999-12-31T00:00 7", "1999-12-31T12:00 9"} {
			if !strings.Contains(got, want) {
				t.Errorf("there is no %q in\n%s", want, got)
			}
		}
		for name := range h.store.Keys(t.Context(), service, lateKey, "") {
			t.Errorf("%s is left in the store", name)
		}
		if n := h.scheduler.late.Count("", ""); n != 0 {
			t.Errorf("%d stretches are left", n)
		}
		if err := o.trim(t.Context()); err != nil {
			t.Error(err)
		}
		h.crash(fs)
		if n := h.scheduler.late.Count("", ""); n != 0 {
			t.Errorf("%d stretches come back", n)
		}
		h.stop()
	})
}

// Notes that an earlier version has stored in the store are adopted.
func TestNotesOfTheStoreAreTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, fs := outageHarness(t)
		key, name := firstKey(h, "t"), h.scheduler.late.keyOf("t")
		h.stop()
		if err := h.store.Set(t.Context(), service, lateKey, name, fmt.Sprintf(`{%q:[[%d,%d]]}`, key, at(-30, 0, 0), at(-30, 1, 0))); err != nil {
			t.Fatal(err)
		}
		fs = h.crash(fs)
		if _, err := h.store.Get(t.Context(), service, lateKey, name); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("they are still in the store: %v", err)
		}
		h.stop()
		h.notes = fs.CrashClone(vfs.CrashCloneCfg{})
		h.restart(nil)
		if got := h.scheduler.late.Take("t", key); !slices.Equal(got, downsample.Spans{{FromMS: at(-30, 0, 0), UntilMS: at(-30, 1, 0)}}) {
			t.Errorf("noted are %v", got)
		}
	})
}

// A task that was deleted elsewhere while the node was down is not watched.
func TestNotesOfADeletedTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, fs := outageHarness(t)
		h.stop()
		if err := h.scheduler.catalogue.remove(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
		fs = h.crash(fs)
		h.send("src", "a", 1, at(-48, 0, 0))
		if n := h.scheduler.late.Count("", ""); n != 0 {
			t.Errorf("%d stretches are noted", n)
		}
		h.stop()
		if names, err := fs.List("data/rollups"); err != nil || len(names) != 0 {
			t.Errorf("files %v, %v", names, err)
		}
	})
}

// If notes cannot be kept on disk, they are kept in the store.
func TestNotesWithoutADisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, o, fs := outageHarness(t)
		h.stop()
		names, err := fs.List("data/rollups")
		if err != nil || len(names) != 1 {
			t.Fatalf("files %v, %v", names, err)
		}
		f, err := fs.Create("data/rollups/"+names[0], vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		f.Close() // empty: somebody has damaged it
		var log bytes.Buffer
		h.log = slog.New(slog.NewTextHandler(&log, nil))
		h.restart(nil)
		if !strings.Contains(log.String(), "cannot be recorded on disk") || !strings.Contains(log.String(), names[0]) {
			t.Errorf("the log has %s", &log)
		}
		h.start()
		h.send("src", "a", 1, at(-48, 0, 0))
		if err := o.trim(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := o.Get(t.Context(), service, lateKey, h.scheduler.late.keyOf("t")); err != nil {
			t.Errorf("not noted in the store: %v", err)
		}
		h.stop()
	})
}

// On a full disk notes go to the store, so that the log can be released. If the store
// is unavailable too, the log stays. When there is space, notes are in files again.
func TestNotesOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, o, fs := outageHarness(t)
		var full atomic.Bool
		h.stop()
		h.notes = errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if full.Load() && op.Kind == errorfs.OpFileWrite {
				return syscall.ENOSPC
			}
			return nil
		}))
		h.restart(nil)
		h.scheduler.Load(t.Context())
		full.Store(true)
		o.away.Store(true)
		h.send("src", "a", 1, at(-48, 0, 0)) // the log had some room
		if err := o.trim(t.Context()); !errors.Is(err, syscall.ENOSPC) || !errors.Is(err, errAway) {
			t.Errorf("notes have no place: %v", err)
		}
		o.away.Store(false)
		if err := o.trim(t.Context()); err != nil {
			t.Error(err)
		}
		key, name := firstKey(h, "t"), h.scheduler.late.keyOf("t")
		beside := func(want error) {
			t.Helper()
			if _, err := h.store.Get(t.Context(), service, lateKey, name); !errors.Is(err, want) {
				t.Errorf("in the store: %v, want %v", err, want)
			}
		}
		beside(nil)
		full.Store(false)
		h.crash(fs)
		if got := h.scheduler.late.Take("t", key); !slices.Equal(got, downsample.Spans{{FromMS: at(-48, 0, 0), UntilMS: at(-48, 1, 0)}}) {
			t.Errorf("after a crash %v are noted", got)
		}
		beside(store.ErrNotFound)
		h.stop()
	})
}

// Notes that had to go to the store are removed from it when there is space again.
func TestNotesGoBackToFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, o, fs := outageHarness(t)
		var full atomic.Bool
		h.stop()
		h.notes = errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if full.Load() && op.Kind == errorfs.OpFileWrite {
				return syscall.ENOSPC
			}
			return nil
		}))
		h.restart(nil)
		h.start()
		full.Store(true)
		h.send("src", "a", 1, at(-48, 0, 0))
		if err := o.trim(t.Context()); err != nil {
			t.Error(err)
		}
		full.Store(false)
		h.send("src", "a", 1, at(-24, 0, 0))
		if err := o.trim(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := h.store.Get(t.Context(), service, lateKey, h.scheduler.late.keyOf("t")); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("in the store: %v", err)
		}
		key := firstKey(h, "t")
		h.stop()
		h.notes = fs.CrashClone(vfs.CrashCloneCfg{})
		h.restart(nil)
		if n := len(h.scheduler.late.Take("t", key)); n != 2 {
			t.Errorf("%d stretches are in files", n)
		}
	})
}

// A node that starts on a full disk runs the tasks that it knew, since there is nothing
// to write about them.
func TestStartOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, fs := outageHarness(t)
		h.stop()
		h.notes = errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpCreate {
				return syscall.ENOSPC
			}
			return nil
		}))
		h.restart(nil)
		h.start()
		defer h.stop()
		time.Sleep(time.Second)
		if ids := h.scheduler.ids(); len(ids) != 1 || !h.scheduler.late.HasBook() {
			t.Errorf("tasks %v run", ids)
		}
	})
}
