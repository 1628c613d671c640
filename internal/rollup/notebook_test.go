package rollup

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/downsample"
	"varve/internal/ingest"
	"varve/internal/model"
	"varve/internal/safefile"
	"varve/internal/store"
	"varve/internal/store/storetest"
)

// An outage is a store that takes points always, as one with a spool does, and
// answers nothing else while it is away.
type outage struct {
	faulty
	away atomic.Bool
}

var errAway = &store.UnavailableError{Reason: "the store is away"}

func newOutage(to *storetest.Reference) *outage {
	o := &outage{faulty: faulty{Reference: to}}
	o.fault = o.check
	return o
}

func (o *outage) check() error {
	if o.away.Load() {
		return errAway
	}
	return nil
}

// outageHarness is one node of several with a task.
func outageHarness(t *testing.T) (*harness, *outage, *vfs.MemFS) {
	h := newHarness(t)
	o, fs := newOutage(h.store), vfs.NewCrashableMem()
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
func (h *harness) crash(fs *vfs.MemFS) *vfs.MemFS {
	after := fs.CrashClone(vfs.CrashCloneCfg{})
	h.notes = after
	h.restart(nil)
	h.start()
	return after
}

// Late points are taken while the store is away, and their buckets are computed
// when it is back, whatever becomes of the node in between.
func TestLatePointsInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, o, fs := outageHarness(t)
		h.send("src", "a", 1, at(0, 59, 0))
		o.away.Store(true)
		h.send("src", "a", 5, at(-48, 0, 1))
		fs = h.crash(fs)
		h.send("src", "a", 7, at(-24, 0, 1)) // the node has not seen its tasks since it was started
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
		h.crash(fs)
		if n := h.scheduler.late.Count("", ""); n != 0 {
			t.Errorf("%d stretches come back", n)
		}
		h.stop()
	})
}

// Notes that an earlier version has left in the store are taken over.
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

// Where notes cannot be kept on disk, they are kept in the store.
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
		h.start()
		if !strings.Contains(log.String(), "cannot be noted on disk") || !strings.Contains(log.String(), names[0]) {
			t.Errorf("the log has %s", &log)
		}
		h.send("src", "a", 1, at(-48, 0, 0))
		if _, err := o.Get(t.Context(), service, lateKey, h.scheduler.late.keyOf("t")); err != nil {
			t.Errorf("not noted in the store: %v", err)
		}
		h.stop()
	})
}

// While the disk is full, senders of late points are told to try again: nobody drops
// the points as refused.
func TestNotesOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, fs := outageHarness(t)
		var full bool
		h.notes = errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if full && op.Kind == errorfs.OpFileWrite {
				return syscall.ENOSPC
			}
			return nil
		}))
		h.restart(nil)
		h.scheduler.Load(t.Context())
		full = true
		w := h.pipeline.NewWriter(h.pipeline.Protocol("test"), "", 0)
		late := func() error {
			_, err := w.Ingest(t.Context(), 1, func() error {
				ref, err := w.ResolveTyped(model.TypeLong, &ingest.Names{Metric: "src", Tags: []model.Tag{{Name: "host", Value: "a"}}})
				w.Batch().AddLong(ref, at(-48, 0, 0), 1, 0)
				return err
			})
			return err
		}
		if err := late(); ingest.OutcomeOf(err) != ingest.Busy || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a late point on a full disk: %v", err)
		}
		full = false
		if err := late(); err != nil {
			t.Error(err)
		}
		if n := h.scheduler.late.Count("", ""); n != 1 {
			t.Errorf("%d stretches are noted", n)
		}
	})
}

// A node that is started on a full disk runs the tasks that it knew: there is nothing
// to be noted of them.
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
