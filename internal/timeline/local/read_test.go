package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/store"
	"varve/internal/timeline"
)

// A reading is a shelf with events of two timelines that refer to the same data.
type reading struct {
	fs    *crashfs.FS
	after []byte // where arrivals begin
	at    time.Time
}

const readingEvents = 12

func sharedKey(i int) timeline.PayloadKey { return timeline.PayloadKey{1, byte(i)} }

func readingEvent(name string, i int) timeline.Placed {
	data := bytes.Repeat([]byte{byte('a' + i%26)}, 2000)
	return timeline.Placed{
		Part: timeline.Part{Timeline: name, EndExcl: 1000}, MayPoint: true, Payload: data,
		Entry: timeline.Entry{Event: timeline.Event{Time: int64(i), ID: fmt.Sprint("e", i)}, Pointer: sharedKey(i), Size: len(data)},
	}
}

// uncached makes each read one from the disk.
func uncached(o *pebble.Options) {
	small(o)
	o.CacheSize = 1
}

func newReading(t *testing.T) *reading {
	t.Helper()
	r := &reading{fs: crashfs.New(), at: time.Unix(1e9, 0)}
	s := open(t, r.fs, Options{tune: uncached})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b"} {
		must(s.SetHistory(t.Context(), name, 0, timeline.History{Version: 1, Retention: time.Hour}))
	}
	first, err := s.Arrivals(t.Context(), "a", nil, timeline.Limit{Entries: 1, Bytes: 1})
	must(err)
	r.after = first.Next
	for i := range readingEvents {
		must(s.Mark(t.Context(), "a", []int64{int64(i) * 1000}, r.at))
		must(s.Put(t.Context(), []timeline.Placed{readingEvent("a", i), readingEvent("b", i)}))
		if i%4 == 3 {
			must(s.db.Flush())
		}
	}
	must(s.db.Flush())
	must(s.Close())
	return r
}

// A read is a method that reads from a shelf.
type read struct {
	name string
	of   func(ctx context.Context, s *Shelf) (any, error)
}

// reads returns all reads of a shelf.
func (r *reading) reads() []read {
	all := timeline.Limit{Entries: 1000, Bytes: 1 << 30}
	part := timeline.Part{Timeline: "b", EndExcl: 1000}
	return []read{
		{"Slice", func(ctx context.Context, s *Shelf) (any, error) {
			return s.Slice(ctx, part, timeline.All(), timeline.Ascending, all)
		}},
		{"Slice everything", func(ctx context.Context, s *Shelf) (any, error) {
			return s.Slice(ctx, timeline.Everything("a"), timeline.All(), timeline.Descending, all)
		}},
		{"Marks", func(ctx context.Context, s *Shelf) (any, error) {
			return s.Marks(ctx, "a", 0, 1e6, timeline.Ascending, 1000)
		}},
		{"Marks descending", func(ctx context.Context, s *Shelf) (any, error) {
			return s.Marks(ctx, "a", 0, 1e6, timeline.Descending, 1000)
		}},
		{"History", func(ctx context.Context, s *Shelf) (any, error) { return s.History(ctx, "a") }},
		{"Names", func(ctx context.Context, s *Shelf) (any, error) { return s.Names(ctx, "", "", 1000) }},
		{"Count", func(ctx context.Context, s *Shelf) (any, error) { return s.Count(ctx) }},
		{"Payload", func(ctx context.Context, s *Shelf) (any, error) {
			var texts []string
			for i := range readingEvents {
				text, err := s.Payload(ctx, sharedKey(i))
				if errors.Is(err, timeline.ErrNoPayload) {
					text, err = []byte("-"), nil
				}
				if err != nil {
					return nil, err
				}
				texts = append(texts, fmt.Sprintf("%d bytes of %c", len(text), text[0]))
			}
			return texts, nil
		}},
		{"Arrivals", func(ctx context.Context, s *Shelf) (any, error) {
			a, err := s.Arrivals(ctx, "a", r.after, all)
			return a.Entries, err
		}},
	}
}

// everything is what all reads of a sound disk return.
func (r *reading) everything(t *testing.T, s *Shelf) string {
	t.Helper()
	var b strings.Builder
	for _, of := range r.reads() {
		got, err := of.of(context.Background(), s)
		if err != nil {
			t.Fatalf("%s of a sound disk: %v", of.name, err)
		}
		fmt.Fprintln(&b, of.name, got)
	}
	return b.String()
}

// A badDisk lets one of the reads from files fail once it is armed, counted from there.
type badDisk struct {
	at, calls atomic.Int64
}

func (b *badDisk) wrap(fs vfs.FS) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		at := b.at.Load()
		if at == 0 || op.Kind != errorfs.OpFileRead && op.Kind != errorfs.OpFileReadAt {
			return nil
		}
		if b.calls.Add(1) == at {
			return syscall.EIO
		}
		return nil
	}))
}

// eachRead calls do with a fresh copy of the shelf, in which read n from a file fails, for each n
// until there is none. It returns how many reads failed.
func (r *reading) eachRead(t *testing.T, do func(s *Shelf, disk *badDisk, n int64)) (failed int64) {
	t.Helper()
	for n := int64(1); ; n++ {
		disk := &badDisk{}
		s := open(t, disk.wrap(r.fs.CrashClone(vfs.CrashCloneCfg{})), Options{tune: uncached})
		do(s, disk, n)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() || disk.calls.Load() < n {
			return n - 1
		}
	}
}

// TestReadErrorAtEachRead: what cannot be read is an error, never a shorter answer.
func TestReadErrorAtEachRead(t *testing.T) {
	r := newReading(t)
	for _, of := range r.reads() {
		t.Run(of.name, func(t *testing.T) {
			failed := r.eachRead(t, func(s *Shelf, disk *badDisk, n int64) {
				disk.at.Store(n)
				got, err := of.of(t.Context(), s)
				disk.at.Store(0)
				again, errAgain := of.of(t.Context(), s)
				if errAgain != nil {
					t.Fatalf("after read %d failed once: %v", n, errAgain)
				}
				var unavailable *store.UnavailableError
				if err != nil && (!errors.As(err, &unavailable) || !errors.Is(err, syscall.EIO)) {
					t.Errorf("read %d fails: %v", n, err)
				}
				if err == nil && fmt.Sprint(got) != fmt.Sprint(again) {
					t.Errorf("read %d fails: no error and %.100v, but then %.100v", n, got, again)
				}
			})
			if failed == 0 && of.name != "Count" {
				t.Error("it does not read from the disk")
			}
		})
	}
}

// TestReadErrorWhileWriting: a change for which the disk cannot be read is made as a whole or not at
// all, and is made when it is tried again. Data that the other timeline refers to stays.
func TestReadErrorWhileWriting(t *testing.T) {
	r := newReading(t)
	keys := func() (all []timeline.PayloadKey) {
		for i := range readingEvents {
			all = append(all, sharedKey(i))
		}
		return all
	}()
	for _, change := range []struct {
		name string
		do   func(ctx context.Context, s *Shelf) error
	}{
		{"the same events again", func(ctx context.Context, s *Shelf) error {
			var all []timeline.Placed
			for i := range readingEvents {
				all = append(all, readingEvent("a", i))
			}
			return s.Put(ctx, all)
		}},
		{"events with their own data", func(ctx context.Context, s *Shelf) error {
			e := readingEvent("a", 3)
			e.Pointer, e.Size, e.Payload, e.Data = timeline.PayloadKey{}, 0, nil, []byte("short")
			return s.Put(ctx, []timeline.Placed{e})
		}},
		{"DropPayloads", func(ctx context.Context, s *Shelf) error { return s.DropPayloads(ctx, keys, "a", r.at) }},
		{"Delete", func(ctx context.Context, s *Shelf) error {
			return s.Delete(ctx, timeline.Part{Timeline: "a", EndExcl: 1000}, []timeline.Range{{From: timeline.At(2), To: timeline.At(9)}}, r.at)
		}},
		{"Delete everything", func(ctx context.Context, s *Shelf) error {
			return s.Delete(ctx, timeline.Everything("a"), []timeline.Range{timeline.All()}, r.at)
		}},
		{"Unmark", func(ctx context.Context, s *Shelf) error {
			return s.Unmark(ctx, "a", []int64{0, 1000, 7000}, r.at.Add(time.Second))
		}},
		{"a later history", func(ctx context.Context, s *Shelf) error {
			err := s.SetHistory(ctx, "a", 1, timeline.History{Version: 2})
			if errors.Is(err, timeline.ErrConflict) { // it was set before
				return nil
			}
			return err
		}},
	} {
		s := open(t, r.fs.CrashClone(vfs.CrashCloneCfg{}), Options{tune: uncached})
		states := []string{r.everything(t, s)}
		if err := change.do(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", change.name, err)
		}
		states = append(states, r.everything(t, s))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		failed := r.eachRead(t, func(s *Shelf, disk *badDisk, n int64) {
			disk.at.Store(n)
			err := change.do(t.Context(), s)
			disk.at.Store(0)
			possible := states
			if err == nil {
				possible = states[1:]
			}
			if got := r.everything(t, s); !slices.Contains(possible, got) {
				t.Errorf("%s, read %d fails: %v, and there is\n%s", change.name, n, err, got)
			}
			if err := change.do(t.Context(), s); err != nil {
				t.Errorf("%s, after read %d failed once: %v", change.name, n, err)
			}
			if got := r.everything(t, s); got != states[1] {
				t.Errorf("%s again, after read %d failed: there is\n%s", change.name, n, got)
			}
		})
		if failed == 0 {
			t.Errorf("%s does not read from the disk", change.name)
		}
	}
}
