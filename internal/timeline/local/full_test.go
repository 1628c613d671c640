package local

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/store"
	"varve/internal/timeline"
)

// A disk that is full while full is set. Logs are what grows.
type fullable struct {
	vfs.FS
	full atomic.Bool
}

func newFullable() *fullable {
	d := &fullable{}
	d.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		written := op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
		if !d.full.Load() || !written || !strings.HasSuffix(op.Path, ".log") && !strings.HasSuffix(op.Path, "probe") {
			return nil
		}
		return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
	}))
	return d
}

// TestFullDisk: on a full disk writes are refused, reads continue, and when there is space
// again writes are taken without a restart. What was acknowledged is there, and a reader
// that follows misses nothing.
func TestFullDisk(t *testing.T) {
	disk := newFullable()
	s := open(t, disk, Options{Fatal: func(reason string) { t.Error("fatal: " + reason) }})
	defer s.Close()
	e, err := timeline.Open(s, timeline.Options{Upkeep: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	tail, err := e.Tail(t.Context(), timeline.TailQuery{Timeline: "t"})
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	put := func(id string) error {
		r, err := e.Append(t.Context(), []timeline.Addressed{{Event: timeline.Event{Time: 1, ID: id, Data: make([]byte, 40_000)}, Timelines: []string{"t"}}})
		if err == nil && len(r.Rejected) > 0 {
			err = r.Rejected[0].Err
		}
		return err
	}
	acknowledged := map[string]bool{}
	ok := func(id string) {
		t.Helper()
		if err := put(id); err != nil {
			t.Fatal(err)
		}
		acknowledged[id] = true
	}
	for round := range 3 {
		ok(fmt.Sprint(round, "before"))
		disk.full.Store(true)
		var writers sync.WaitGroup // many at once: none may meet a log that has failed
		for w := range 8 {
			writers.Go(func() {
				for i := range 5 {
					if err := put(fmt.Sprint(round, "refused", w, i)); !errors.As(err, new(*store.UnavailableError)) || !strings.Contains(err.Error(), "the disk is full") {
						t.Errorf("on a full disk: %v", err)
					}
				}
			})
		}
		writers.Wait()
		s.disk.Look(s.resume)
		if err := s.Healthy(); err == nil || strings.Contains(err.Error(), "restart") {
			t.Errorf("the health of a full disk is %v", err)
		}
		if f, err := e.Latest(t.Context(), "t"); err != nil || len(f.Data) != 40_000 {
			t.Errorf("reading on a full disk: %v", err)
		}
		disk.full.Store(false)
		if !s.disk.Look(s.resume) || s.Healthy() != nil {
			t.Fatalf("with space again: %v", s.Healthy())
		}
		ok(fmt.Sprint(round, "after"))
	}
	arrived := map[string]bool{}
	for len(arrived) == 0 || !arrived["2after"] {
		some, err := tail.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range some {
			arrived[a.ID] = true
		}
	}
	p, err := e.Read(t.Context(), timeline.Query{Timelines: []string{"t"}, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, f := range p.Events {
		found[f.ID] = true
	}
	for id := range acknowledged {
		if !found[id] || !arrived[id] {
			t.Errorf("%s was acknowledged: found %v, followed %v", id, found[id], arrived[id])
		}
	}
}

// A smallDisk has little free space while small is set.
type smallDisk struct {
	vfs.FS
	small atomic.Bool
}

func (d *smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	if d.small.Load() {
		return vfs.DiskUsage{AvailBytes: 99 << 20}, nil
	}
	return vfs.DiskUsage{AvailBytes: 200 << 20}, nil
}

// TestNearlyFullDisk: below embedded.min_free_bytes events are refused, and requests that free space continue:
// deletes and retention.
func TestNearlyFullDisk(t *testing.T) {
	disk := &smallDisk{FS: vfs.NewMem()}
	s := open(t, disk, Options{MinFreeBytes: 100 << 20})
	defer s.Close()
	e, err := timeline.Open(s, timeline.Options{Upkeep: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Propose(t.Context(), "separate", timeline.Proposal{Mode: timeline.Index}); err != nil {
		t.Fatal(err)
	}
	put := func(at int64, id, name string) error {
		r, err := e.Append(t.Context(), []timeline.Addressed{{Event: timeline.Event{Time: at, ID: id, Data: []byte("data")}, Timelines: []string{name}}})
		if err == nil && len(r.Rejected) > 0 {
			err = r.Rejected[0].Err
		}
		return err
	}
	for _, name := range []string{"t", "separate", "whole", "old"} {
		for at := range int64(3) {
			if err := put(at, "x", name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := e.SetRetention(t.Context(), "old", time.Hour); err != nil {
		t.Fatal(err)
	}
	disk.small.Store(true)
	s.disk.Look(s.resume)
	if err := put(3, "x", "t"); !errors.As(err, new(*store.UnavailableError)) || !strings.Contains(err.Error(), "nearly full") {
		t.Errorf("an event on a disk that is nearly full: %v", err)
	}
	for name, free := range map[string]func() error{
		"delete by id":      func() error { return e.Delete(t.Context(), "t", timeline.Deletion{ID: "x"}) },
		"delete with data":  func() error { return e.Delete(t.Context(), "separate", timeline.Deletion{Until: new(int64(5))}) },
		"delete a timeline": func() error { return e.DeleteTimeline(t.Context(), "whole") },
		"retention":         func() error { return e.Upkeep(t.Context()) },
	} {
		if err := free(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, table := range []byte{tableEvent, tablePayload} {
		if err := s.walk(t.Context(), "read", []byte{table}, []byte{table + 1}, false, func(it *pebble.Iterator) (bool, error) {
			t.Errorf("a row of table %c is left: %x", table, it.Key())
			return true, nil
		}); err != nil {
			t.Error(err)
		}
	}
	disk.small.Store(false)
	s.disk.Look(s.resume)
	if err := put(3, "x", "t"); err != nil {
		t.Errorf("with space again: %v", err)
	}
}
