package spooled

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"varve/internal/diskfs/crashfs"
	"varve/internal/safefile"
	"varve/internal/store"
	"varve/internal/timeline"
	"varve/internal/timeline/local"
	"varve/internal/units"
	"varve/internal/wal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A distant shelf can be away: then nothing can be read or written.
type distant struct {
	timeline.Shelf
	*deletions
	away   atomic.Bool
	loses  atomic.Bool            // the next Put is done, and its answer lost
	most   atomic.Int64           // entries of a Put, more fail; 0: any number
	before atomic.Pointer[func()] // called before the next Put

	refuses atomic.Pointer[func(timeline.Placed) error] // what a Put does not take, the others are put
}

// deletions are what the deletes of all servers of a shelf leave: notes, and tombstones as
// Cassandra has them, which hide what is put later with an earlier timestamp.
type deletions struct {
	mu         sync.Mutex
	all        map[string][]timeline.Deleted
	tombstones []tombstone
}

type tombstone struct {
	timeline.Part
	timeline.Range
	before time.Time
}

func (d *distant) Delete(ctx context.Context, p timeline.Part, ranges []timeline.Range, before time.Time) error {
	d.mu.Lock()
	for _, r := range ranges {
		d.tombstones = append(d.tombstones, tombstone{p, r, before})
	}
	d.mu.Unlock()
	return d.Shelf.Delete(ctx, p, ranges, before)
}

// hidden reports whether a tombstone hides an entry.
func (d *deletions) hidden(e timeline.Placed) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.tombstones, func(t tombstone) bool {
		return t.Part == e.Part && t.Contains(e.Position()) && e.Put.Before(t.before)
	})
}

func (d *deletions) NoteDeletion(_ context.Context, name string, one timeline.Deleted) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all[name] = append(d.all[name], one)
	return nil
}

func (d *deletions) Deletions(_ context.Context, name string, after time.Time, f func(timeline.Deleted) error) error {
	d.mu.Lock()
	all := slices.Clone(d.all[name])
	d.mu.Unlock()
	for _, one := range all {
		if one.Before.UnixMicro() <= after.UnixMicro() {
			continue
		}
		if err := f(one); err != nil {
			return err
		}
	}
	return nil
}

func (d *distant) check() error {
	if d.away.Load() {
		return &store.UnavailableError{Reason: "the storage is away"}
	}
	return nil
}

func (d *distant) History(ctx context.Context, name string) (timeline.History, error) {
	if err := d.check(); err != nil {
		return timeline.History{}, err
	}
	return d.Shelf.History(ctx, name)
}

func (d *distant) Mark(ctx context.Context, name string, starts []int64, now time.Time) error {
	if err := d.check(); err != nil {
		return err
	}
	return d.Shelf.Mark(ctx, name, starts, now)
}

func (d *distant) Put(ctx context.Context, entries []timeline.Placed) error {
	if err := d.check(); err != nil {
		return err
	}
	if f := d.before.Swap(nil); f != nil {
		(*f)()
	}
	if most := d.most.Load(); most > 0 && int64(len(entries)) > most {
		return &store.UnavailableError{Reason: "the storage went away meanwhile"}
	}
	failed := &timeline.PutError{Failed: map[int]error{}}
	if refuses := d.refuses.Load(); refuses != nil {
		for i := range entries {
			if err := (*refuses)(entries[i]); err != nil {
				failed.Failed[i] = err
			}
		}
	}
	taken := slices.Clone(entries)
	for i := len(taken) - 1; i >= 0; i-- {
		if failed.Failed[i] != nil || d.hidden(taken[i]) {
			taken = slices.Delete(taken, i, i+1)
		}
	}
	err := d.Shelf.Put(ctx, taken)
	if err == nil && len(failed.Failed) > 0 {
		return failed
	}
	if err == nil && d.loses.Swap(false) {
		return &store.UnavailableError{Reason: "the answer was lost"}
	}
	return err
}

// A world is a shelf with an engine and a spool over it.
type world struct {
	*distant
	e     *timeline.Engine
	s     *Spool
	clock atomic.Int64 // in microseconds; 0: it is that of the machine
}

func (w *world) now() time.Time {
	if us := w.clock.Load(); us != 0 {
		return time.UnixMicro(us)
	}
	return time.Now()
}

func open(t *testing.T, shelf *distant, fs vfs.FS, change func(*Options)) *world {
	t.Helper()
	w := &world{distant: shelf}
	var err error
	if w.e, err = timeline.Open(shelf, timeline.Options{Upkeep: -1, Now: w.now}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.e.Close() })
	o := Options{Engine: w.e, Names: []string{"a", "b"}, BytesMax: units.MiB}
	if change != nil {
		change(&o)
	}
	if w.s, err = Open(fs, "spool", o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.s.Close() })
	return w
}

func newDistant(t *testing.T) *distant {
	t.Helper()
	shelf, err := local.Open(vfs.NewMem(), "timelines", local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shelf.Close() })
	return &distant{Shelf: shelf, deletions: &deletions{all: map[string][]timeline.Deleted{}}}
}

func event(at int64, id string, names ...string) timeline.Addressed {
	return timeline.Addressed{Event: timeline.Event{Time: at, ID: id, Type: "t", Data: []byte("data of " + id)}, Timelines: names}
}

func (w *world) append(t *testing.T, events ...timeline.Addressed) {
	t.Helper()
	r, err := w.s.Append(t.Context(), events)
	if err != nil || r.Accepted != len(events) || len(r.IDs) != len(events) {
		t.Fatalf("%+v, %v", r, err)
	}
}

// want drains the spool and compares the ids of a timeline, newest first.
func (w *world) want(t *testing.T, name string, ids ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := w.s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	p, err := w.e.Read(ctx, timeline.Query{Timelines: []string{name}, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range p.Events {
		if string(f.Data) != "data of "+f.ID || f.Type != "t" {
			t.Errorf("event %+v", f)
		}
		got = append(got, f.ID)
	}
	if fmt.Sprint(got) != fmt.Sprint(ids) {
		t.Errorf("timeline %s has %q, want %q", name, got, ids)
	}
}

const second = int64(1_000_000)

func count(c prometheus.Counter) float64 {
	var m dto.Metric
	c.Write(&m)
	return m.GetCounter().GetValue()
}

// While the storage is away the timelines of the spool take events, and others say that it is.
// Afterwards all are there.
func TestOutage(t *testing.T) {
	w := open(t, newDistant(t), vfs.NewMem(), nil)
	base := time.Now().Add(-time.Hour).UnixMicro()
	w.append(t, event(base, "before", "a"), event(base, "direct", "c"))
	w.want(t, "c", "direct")
	w.want(t, "a", "before")
	w.away.Store(true)
	for i := range 5 {
		w.append(t, event(base+int64(i+1)*second, fmt.Sprint("e", i), "a", "b"))
	}
	r, err := w.s.Append(t.Context(), []timeline.Addressed{event(base, "x", "c"), event(base+9*second, "y", "a"), event(base, "z", "a", "c"), event(base, "", "b")})
	if err != nil || r.Accepted != 2 || r.IDs[0] != "x" || r.IDs[1] != "y" || len(r.Rejected) != 2 || r.Rejected[0].Index != 0 || r.Rejected[1].Index != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	for _, r := range r.Rejected {
		if !errors.As(r.Err, new(*store.UnavailableError)) {
			t.Errorf("event %d: %v", r.Index, r.Err)
		}
	}
	if _, err := w.s.Append(t.Context(), []timeline.Addressed{event(base, "x", "c")}); err == nil {
		t.Error("a timeline that is not spooled takes an event")
	}
	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if err := w.s.Flush(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("flush during the outage: %v", err)
	}
	w.loses.Store(true) // and drained again
	w.away.Store(false)
	w.want(t, "a", "y", "e4", "e3", "e2", "e1", "e0", "before")
	if n := count(w.s.refused); n != 0 {
		t.Errorf("%v events were refused", n)
	}
	if w.s.waiting.Load() != 0 || w.s.bytes.Load() != 0 {
		t.Errorf("%d events, %d bytes are left", w.s.waiting.Load(), w.s.bytes.Load())
	}
}

// The health says what waits, since when and why, and whether events are taken.
func TestHealth(t *testing.T) {
	w := open(t, newDistant(t), vfs.NewMem(), func(o *Options) { o.BytesMax = 64 << 10 })
	if err := w.s.Healthy(); err != nil || !w.s.Health().Oldest.IsZero() {
		t.Errorf("a new spool: %+v", w.s.Health())
	}
	w.away.Store(true)
	began := time.Now().Add(-time.Second)
	w.append(t, event(began.UnixMicro(), "e", "a"))
	eventually(t, "a drain that fails twice", func() bool { return count(w.s.failed) >= 2 })
	h := w.s.Health()
	if h.Events != 1 || h.Bytes == 0 || h.BytesMax != 64<<10 || h.Refusing != nil || h.Failing == nil || h.Oldest.Before(began) || !h.Since.After(h.Oldest) || time.Since(h.Since) < pauseFirst {
		t.Errorf("during an outage: %+v", h)
	}
	if err := w.s.Healthy(); err == nil || !strings.Contains(err.Error(), "1 wait for it in") || !strings.Contains(err.Error(), "the storage is away") {
		t.Errorf("during an outage: %v", err)
	}
	large := event(began.UnixMicro(), "large", "a")
	large.Data = make([]byte, 64<<10)
	if _, err := w.s.Append(t.Context(), []timeline.Addressed{large}); err == nil {
		t.Error("a full spool takes an event")
	}
	if err := w.s.Healthy(); err == nil || !strings.Contains(err.Error(), "timeline.spool_bytes_max") {
		t.Errorf("a full spool: %v", err)
	}
	w.away.Store(false)
	w.want(t, "a", "e")
	eventually(t, "health", func() bool { return w.s.Healthy() == nil })
	w.s.Close()
	if err := w.s.Healthy(); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%s does not come", what)
		}
	}
}

// What was acknowledged outlives a power cut, also of a timeline that is not spooled any more.
func TestPowerCut(t *testing.T) {
	shelf := newDistant(t)
	shelf.away.Store(true)
	disk := crashfs.New()
	w := open(t, shelf, disk, nil)
	base := time.Now().Add(-time.Hour).UnixMicro()
	for i := range 10 {
		w.append(t, event(base+int64(i)*second, fmt.Sprint("e", i), "a"))
	}
	after := disk.CrashClone(vfs.CrashCloneCfg{})
	w.s.Close()
	again := open(t, shelf, after, func(o *Options) { o.Names = nil })
	if n := again.s.waiting.Load(); n != 10 {
		t.Errorf("%d events wait after the power cut", n)
	}
	shelf.away.Store(false)
	again.want(t, "a", "e9", "e8", "e7", "e6", "e5", "e4", "e3", "e2", "e1", "e0")
	again.s.Close()
	last := open(t, shelf, after, nil)
	if n := last.s.waiting.Load(); n != 0 {
		t.Errorf("%d events are drained again", n)
	}
}

// A full disk refuses events; when there is space again they are taken without a restart, and
// all acknowledged events exist.
func TestFullDisk(t *testing.T) {
	var full atomic.Bool
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		grows := op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFilePreallocate || op.Kind == errorfs.OpCreate
		if !full.Load() || !grows {
			return nil
		}
		return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
	}))
	w := open(t, newDistant(t), disk, nil)
	w.away.Store(true)
	base := time.Now().Add(-time.Hour).UnixMicro()
	w.append(t, event(base, "before", "a"))
	full.Store(true)
	for range 2 {
		if _, err := w.s.Append(t.Context(), []timeline.Addressed{event(base+second, "refused", "a")}); !errors.As(err, new(*store.UnavailableError)) {
			t.Errorf("on a full disk: %v", err)
		}
	}
	full.Store(false)
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		_, err := w.s.Append(t.Context(), []timeline.Addressed{event(base+2*second, "after", "a")})
		if err == nil {
			break
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
	w.away.Store(false)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := w.s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	p, err := w.e.Read(ctx, timeline.Query{Timelines: []string{"a"}})
	var ids []string
	for _, f := range p.Events {
		if f.ID != "refused" { // it may be there
			ids = append(ids, f.ID)
		}
	}
	if err != nil || fmt.Sprint(ids) != "[after before]" {
		t.Errorf("events %q, %v", ids, err)
	}
	if w.s.waiting.Load() != 0 || w.s.bytes.Load() != 0 {
		t.Errorf("%d events, %d bytes are left", w.s.waiting.Load(), w.s.bytes.Load())
	}
}

// Events that wait are drained on a disk that stays full, and make room on it, also after a restart.
// Once there is more room, the log begins again.
func TestDrainOnAFullDisk(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			var full atomic.Bool
			disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				grows := op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFilePreallocate || op.Kind == errorfs.OpCreate
				if !full.Load() || !grows {
					return nil
				}
				return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
			}))
			shelf := newDistant(t)
			start := func() *world {
				return open(t, shelf, disk, func(o *Options) { o.Keyspace = "k" })
			}
			w := start()
			w.away.Store(true)
			base := time.Now().Add(-time.Hour).UnixMicro()
			w.append(t, event(base, "first", "a"), event(base+1, "second", "a"))
			full.Store(true)
			if _, err := w.s.Append(t.Context(), []timeline.Addressed{event(base+2, "refused", "b")}); !errors.As(err, new(*store.UnavailableError)) {
				t.Errorf("on a full disk: %v", err)
			}
			if restart {
				w.s.Close()
				w = start()
			}
			w.away.Store(false)
			w.want(t, "a", "second", "first")
			if segments, err := wal.Segments(disk, "spool"); err != nil || len(segments) > 0 || w.s.waiting.Load() != 0 || w.s.bytes.Load() != 0 {
				t.Errorf("%d events, %d bytes, segments %v are left, %v", w.s.waiting.Load(), w.s.bytes.Load(), segments, err)
			}
			full.Store(false)
			eventually(t, "room", func() bool {
				_, err := w.s.Append(t.Context(), []timeline.Addressed{event(base+3, "third", "a")})
				return err == nil
			})
			w.want(t, "a", "third", "second", "first")
			w.away.Store(true)
			w.append(t, event(base+4, "fourth", "a"))
			w.s.Close()
			if _, err := Open(disk, "spool", Options{Engine: w.e, Keyspace: "other"}); !errors.As(err, new(*MisdirectedError)) {
				t.Errorf("opened for another keyspace: %v", err)
			}
			w.away.Store(false)
			start().want(t, "a", "fourth", "third", "second", "first")
		})
	}
}

// Of the events of a call with one time and id the last one stays, also if some of them are not
// acknowledged by the spool, since they are of other timelines, too.
func TestLastOfACall(t *testing.T) {
	w := open(t, newDistant(t), vfs.NewMem(), nil)
	now := time.Now().UnixMicro()
	for i, names := range [][][]string{{{"a", "c"}, {"a"}}, {{"a"}, {"a", "c"}}, {{"b"}, {"c"}, {"a", "c"}, {"b"}, {"a"}}} {
		var events []timeline.Addressed
		last := map[string]int{}
		for n, to := range names {
			e := event(now+int64(i), "x", to...)
			e.Data = []byte(fmt.Sprint(n))
			events = append(events, e)
			for _, name := range to {
				last[name] = n
			}
		}
		w.append(t, events...)
		must(t, w.s.Flush(t.Context()))
		for name, n := range last {
			at := now + int64(i)
			p, err := w.e.Read(t.Context(), timeline.Query{Timelines: []string{name}, From: &at, Until: &at})
			if err != nil || len(p.Events) != 1 || string(p.Events[0].Data) != fmt.Sprint(n) {
				t.Errorf("call %d: timeline %s has %+v, want event %d; %v", i, name, p.Events, n, err)
			}
		}
	}
}

// Invalid events are reported at once, and a full spool is not the client's fault.
func TestRefusals(t *testing.T) {
	w := open(t, newDistant(t), vfs.NewMem(), func(o *Options) { o.BytesMax = 64 << 10 })
	w.away.Store(true)
	now := time.Now().UnixMicro()
	r, err := w.s.Append(t.Context(), []timeline.Addressed{event(now, "", "a"), event(now+2*60*second, "early", "a"), event(now, "a\nb", "a"), event(timeline.MaxTime+1, "never", "b")})
	if err != nil || r.Accepted != 1 || len(r.Rejected) != 3 || r.IDs[0] == "" {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, r := range r.Rejected {
		if !errors.As(r.Err, new(*store.InputError)) {
			t.Errorf("event %d: %v", r.Index, r.Err)
		}
	}
	full := event(now, "large", "a")
	full.Data = bytes.Repeat([]byte("x"), 64<<10)
	if _, err := w.s.Append(t.Context(), []timeline.Addressed{full}); !errors.As(err, new(*store.UnavailableError)) || !strings.Contains(err.Error(), "timeline.spool_bytes_max") {
		t.Errorf("beyond the bound: %v", err)
	}
	w.s.Close()
	if _, err := w.s.Append(t.Context(), []timeline.Addressed{event(now, "x", "a")}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// What a timeline does not take any more is counted, and keeps nothing else from it.
func TestPastRetention(t *testing.T) {
	w := open(t, newDistant(t), vfs.NewMem(), nil)
	now := time.Now()
	w.append(t, event(now.UnixMicro(), "first", "a"))
	w.want(t, "a", "first")
	if _, err := w.e.SetRetention(t.Context(), "a", time.Hour); err != nil {
		t.Fatal(err)
	}
	w.append(t, event(now.Add(-2*time.Hour).UnixMicro(), "old", "a"), event(now.Add(-time.Minute).UnixMicro(), "new", "a"))
	w.want(t, "a", "first", "new")
	if n := count(w.s.refused); n != 1 {
		t.Errorf("%v events were refused, want 1", n)
	}
}

// An event that is too far ahead because the clock was set back is counted, and keeps nothing else from its timeline.
func TestClockSetBack(t *testing.T) {
	w := open(t, newDistant(t), vfs.NewMem(), nil)
	w.away.Store(true)
	now := time.Now()
	w.append(t, event(now.UnixMicro(), "ahead", "a"), event(now.AddDate(-2, 0, 0).UnixMicro(), "past", "a"))
	w.clock.Store(now.AddDate(-1, 0, 0).UnixMicro())
	w.away.Store(false)
	w.want(t, "a", "past")
	if n := count(w.s.refused); n != 1 {
		t.Errorf("%v events were refused, want 1", n)
	}
}

// another opens an engine of another server over the same shelf.
func (w *world) another(t *testing.T) *timeline.Engine {
	t.Helper()
	e, err := timeline.Open(&distant{Shelf: w.Shelf, deletions: w.deletions}, timeline.Options{Upkeep: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// deletes are the ways to delete the event "gone" of a time.
var deletes = map[string]func(context.Context, *timeline.Engine, int64) error{
	"by range": func(ctx context.Context, e *timeline.Engine, at int64) error {
		from := at - 5*second
		return e.Delete(ctx, "a", timeline.Deletion{From: &from, Until: &at})
	},
	"by id": func(ctx context.Context, e *timeline.Engine, _ int64) error {
		return e.Delete(ctx, "a", timeline.Deletion{ID: "gone"})
	},
	"by time and id": func(ctx context.Context, e *timeline.Engine, at int64) error {
		return e.Delete(ctx, "a", timeline.Deletion{From: &at, Until: &at, ID: "gone"})
	},
	"with its timeline": func(ctx context.Context, e *timeline.Engine, _ int64) error { return e.DeleteTimeline(ctx, "a") },
}

// A delete through another server holds for events that wait in the spool, also where there is
// no bucket or no timeline yet. Events that are acknowledged later are there.
func TestDeletedElsewhere(t *testing.T) {
	for name, remove := range deletes {
		for _, there := range []bool{false, true} { // a timeline, with events in another bucket
			t.Run(fmt.Sprint(name, " there ", there), func(t *testing.T) {
				w := open(t, newDistant(t), vfs.NewMem(), nil)
				other := w.another(t)
				at := time.Now().Add(-100 * 24 * time.Hour).UnixMicro()
				var kept []string
				if there {
					w.append(t, event(at+50*86400*second, "first", "a"))
					w.want(t, "a", "first")
					if kept = []string{"first"}; name == "with its timeline" {
						kept = nil
					}
				}
				w.away.Store(true)
				w.append(t, event(at, "gone", "a", "b"))
				must(t, remove(t.Context(), other, at))
				w.away.Store(false)
				w.want(t, "a", kept...)
				w.want(t, "b", "gone")
				if _, err := w.e.Layout(t.Context(), "a"); there == errors.Is(err, timeline.ErrNotFound) && name != "with its timeline" {
					t.Errorf("the timeline: %v", err)
				}
				if n := count(w.s.refused); n != 1 {
					t.Errorf("%v events were refused, want 1", n)
				}
				w.append(t, event(at, "gone", "a"))
				w.want(t, "a", append(kept, "gone")...)
			})
		}
	}
}

// A delete through another server that comes between the look for deletes and the put holds, also
// if the answer to the put is lost.
func TestDeletedWhilePut(t *testing.T) {
	for name, remove := range deletes {
		for _, loses := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " loses ", loses), func(t *testing.T) {
				w := open(t, newDistant(t), vfs.NewMem(), nil)
				other := w.another(t)
				at := time.Now().Add(-time.Hour).UnixMicro()
				w.loses.Store(loses)
				meanwhile := func() {
					if err := remove(t.Context(), other, at); err != nil {
						t.Error(err)
					}
				}
				w.before.Store(&meanwhile)
				w.append(t, event(at, "gone", "a"), event(at, "kept", "b"))
				w.want(t, "a")
				w.want(t, "b", "kept")
			})
		}
	}
}

// Large outages are drained in many portions.
func TestBacklog(t *testing.T) {
	w := open(t, newDistant(t), vfs.NewMem(), func(o *Options) { o.BytesMax = units.GiB })
	w.away.Store(true)
	base := time.Now().Add(-time.Hour).UnixMicro()
	const calls, each = 12, 1000 // more than are put at once
	for i := range calls {
		var events []timeline.Addressed
		for j := range each {
			e := event(base+int64(i*each+j), fmt.Sprint(i, "-", j), "a")
			e.Data = make([]byte, 400)
			events = append(events, e)
		}
		w.append(t, events...)
	}
	w.away.Store(false)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := w.s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	q := timeline.Query{Timelines: []string{"a"}, Limit: timeline.PageEventsMax}
	found := 0
	for end := false; !end; {
		p, err := w.e.Read(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		found, end, q.Cursor = found+len(p.Events), p.End, p.Cursor
	}
	if found != calls*each {
		t.Errorf("%d events, want %d", found, calls*each)
	}
}

// A storage that fails repeatedly accepts a backlog in parts: events that are put at once are put again
// as a whole, so it must not be much.
func TestBacklogByPortions(t *testing.T) {
	w := open(t, newDistant(t), vfs.NewMem(), nil)
	w.away.Store(true)
	base := time.Now().Add(-time.Hour).UnixMicro()
	var ids []string
	for i := range 1500 {
		id := fmt.Sprint("e", i)
		w.append(t, event(base-int64(i), id, "a"))
		ids = append(ids, id)
	}
	w.most.Store(1000)
	w.away.Store(false)
	w.want(t, "a", ids[:1000]...)
}

// Events that the storage does not take, because it refuses them or a node is away, wait: those
// before and behind them do not, and a delete since their acknowledgement holds.
func TestSomeAreRefused(t *testing.T) {
	for name, trouble := range map[string]error{"refused": errors.New("the value is too large"), "a node is away": &store.UnavailableError{Reason: "a node is away"}} {
		t.Run(name, func(t *testing.T) {
			disk := crashfs.New()
			shelf := newDistant(t)
			w := open(t, shelf, disk, nil)
			refuses := func(e timeline.Placed) error {
				if strings.HasPrefix(e.ID, "bad") && e.Timeline == "a" {
					return trouble
				}
				return nil
			}
			w.refuses.Store(&refuses)
			w.away.Store(true)
			base := time.Now().Add(-time.Hour).UnixMicro()
			w.append(t, event(base, "before", "a"))
			w.append(t, event(base+1, "bad1", "a", "b"), event(base+2, "beside", "a"), event(base+3, "bad2", "a"))
			w.append(t, event(base+4, "bad3", "a"))
			w.append(t, event(base+5, "behind", "b"))
			w.away.Store(false)
			has := func(name string, ids ...string) func() bool {
				return func() bool {
					p, err := w.e.Read(t.Context(), timeline.Query{Timelines: []string{name}})
					must(t, err)
					var got []string
					for _, f := range p.Events {
						got = append(got, f.ID)
					}
					return slices.Equal(got, ids)
				}
			}
			eventually(t, "others in a", has("a", "beside", "before"))
			eventually(t, "others in b", has("b", "behind", "bad1"))
			eventually(t, "only what is refused waits", func() bool { return w.s.Health().Events == 3 })
			if h := w.s.Health(); h.Failing == nil || !strings.Contains(h.Failing.Error(), trouble.Error()) || h.Oldest.IsZero() {
				t.Errorf("health %+v", h)
			}
			short, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer stop()
			if err := w.s.Flush(short); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("flush: %v", err)
			}
			at := base + 3
			must(t, w.e.Delete(t.Context(), "a", timeline.Deletion{From: &at, Until: &at}))
			after := disk.CrashClone(vfs.CrashCloneCfg{})
			w.s.Close()
			w = open(t, shelf, after, nil)
			w.append(t, event(base+6, "last", "a"))
			eventually(t, "the last one", has("a", "last", "beside", "before"))
			w.refuses.Store(nil)
			w.want(t, "a", "last", "bad3", "beside", "bad1", "before")
			w.want(t, "b", "behind", "bad1")
			if w.s.waiting.Load() != 0 || w.s.bytes.Load() != 0 {
				t.Errorf("%d events, %d bytes are left", w.s.waiting.Load(), w.s.bytes.Load())
			}
		})
	}
}

// TestOneTimelineIsAway: while the storage takes no event of one timeline, however many wait in front, those
// of others are put. A flush says what is missing; it does not if the storage is away altogether.
func TestOneTimelineIsAway(t *testing.T) {
	disk := crashfs.New()
	shelf := newDistant(t)
	w := open(t, shelf, disk, nil)
	lacks := &store.UnavailableError{Reason: "the keyspace lacks a table", Err: store.ErrLacks}
	refuses := func(e timeline.Placed) error {
		if e.Timeline == "a" {
			return lacks
		}
		return nil
	}
	w.refuses.Store(&refuses)
	w.away.Store(true)
	base := time.Now().Add(-time.Hour).UnixMicro()
	const many = 2*drainPlaces + 10
	at := base
	for range many / 10 {
		var some []timeline.Addressed
		for range 10 {
			at++
			some = append(some, event(at, fmt.Sprint("a", at), "a"))
		}
		w.append(t, some...)
	}
	w.append(t, event(at+1, "both", "a", "b"), event(at+2, "other", "b"))
	has := func(name string, n int) func() bool {
		return func() bool {
			p, err := w.e.Read(t.Context(), timeline.Query{Timelines: []string{name}})
			must(t, err)
			return len(p.Events) == n
		}
	}
	w.away.Store(false)
	eventually(t, "the events of b", has("b", 2))
	eventually(t, "only those of a wait", func() bool { return w.s.Health().Events == many+1 })
	if h := w.s.Health(); h.Failing == nil || !errors.Is(h.Failing, lacks) || w.s.Healthy() == nil {
		t.Errorf("health %+v", h)
	}
	if err := w.s.Flush(t.Context()); !errors.Is(err, store.ErrLacks) {
		t.Errorf("flush: %v", err)
	}
	w.append(t, event(at+3, "later", "b"))
	eventually(t, "a later event of b", has("b", 3))
	after := disk.CrashClone(vfs.CrashCloneCfg{})
	w.s.Close()
	w = open(t, shelf, after, nil)
	w.refuses.Store(nil)
	must(t, w.s.Flush(t.Context()))
	p, err := w.e.Read(t.Context(), timeline.Query{Timelines: []string{"a"}, Limit: many + 10})
	must(t, err)
	if n := len(p.Events); n != many+1 || !has("b", 3)() {
		t.Errorf("%d events in a, want %d", n, many+1)
	}
	if w.s.waiting.Load() != 0 || w.s.bytes.Load() != 0 {
		t.Errorf("%d events, %d bytes are left", w.s.waiting.Load(), w.s.bytes.Load())
	}
}

// testdata/record.txt has a record as bytes: it is read by every build.
func TestRecordFormat(t *testing.T) {
	at := time.UnixMicro(1_700_000_000_000_001)
	events := []timeline.Accepted{
		{Addressed: timeline.Addressed{Event: timeline.Event{Time: -5, ID: "id", Type: "deploy", Data: []byte{0, 1}}, Timelines: []string{"a", "team/web"}}, At: at},
		{Addressed: timeline.Addressed{Event: timeline.Event{Time: 1_700_000_000_000_000, ID: "x", Data: []byte{}}, Timelines: []string{"a"}}, At: at},
	}
	text, err := os.ReadFile("testdata/record.txt")
	if err != nil {
		t.Fatal(err)
	}
	want, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := encode(events); len(got) != 1 || !bytes.Equal(got[0].bytes, want) {
		t.Errorf("record %v, want %x", got, want)
	}
	if got, err := decode(want); err != nil || !reflect.DeepEqual(got, events) {
		t.Errorf("%+v, %v", got, err)
	}
	want = []byte{0x82, 0x80, 0xf2, 0x81, 0x83, 0x89, 0x85, 0x06, 0x80, 0x9c, 0x9c, 0x39} // a second record type: the clock was set back by a minute
	_, back, err := decodeAs(typeSetBack, want)
	if err != nil {
		t.Fatal(err)
	}
	if got := back.Append(nil); !bytes.Equal(got, want) {
		t.Errorf("%x, %v", got, err)
	}
	for _, bad := range [][]byte{nil, want[:8], want[:11], append(slices.Clone(want), 0), {2, 0}, {2, 1}} {
		if _, back, err := decodeAs(typeSetBack, bad); err == nil {
			t.Errorf("%x is read as %+v", bad, back)
		}
	}
}

// A record of another type, which a newer build has written, ends the start: it is not one of events.
func TestRecordOfANewerBuild(t *testing.T) {
	disk := vfs.NewMem()
	l, err := wal.Open(disk, "spool", wal.DefaultConfig(), wal.Options{})
	must(t, err)
	records, _ := encode([]timeline.Accepted{{Addressed: event(1, "e", "a"), At: time.UnixMicro(1)}})
	must(t, l.Wait(t.Context(), l.Append(typeSetBack+1, records[0].bytes)))
	must(t, l.Close())
	e, err := timeline.Open(newDistant(t), timeline.Options{Upkeep: -1})
	must(t, err)
	t.Cleanup(func() { e.Close() })
	s, err := Open(disk, "spool", Options{Engine: e, BytesMax: units.MiB})
	if err == nil {
		s.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "use a newer build") {
		t.Errorf("opened: %v", err)
	}
	if n, err := Waiting(disk, "spool"); err == nil {
		t.Errorf("%d events wait", n)
	}
}

// FuzzDecode: bytes of any kind are read or refused.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{2, 4, 1, 'a', 0, 1, 'x', 1, 1, 'n'})
	f.Fuzz(func(t *testing.T, b []byte) {
		events, err := decode(b)
		if err != nil || len(events) == 0 {
			return
		}
		records, _ := encode(events)
		again, err := decode(records[0].bytes)
		if err != nil || !reflect.DeepEqual(again, events) {
			t.Errorf("%+v, %v, want %+v", again, err, events)
		}
	})
}

// What waits for one keyspace is not put into another one, and not lost.
func TestAnotherKeyspace(t *testing.T) {
	shelf := newDistant(t)
	disk := vfs.NewMem()
	start := func(keyspace string) (*Spool, error) {
		t.Helper()
		e, err := timeline.Open(shelf, timeline.Options{Upkeep: -1})
		must(t, err)
		t.Cleanup(func() { e.Close() })
		s, err := Open(disk, "spool", Options{Engine: e, Names: []string{"a"}, Keyspace: keyspace, BytesMax: units.MiB})
		if err == nil {
			t.Cleanup(func() { s.Close() })
		}
		return s, err
	}
	for _, keyspace := range []string{"first", "second"} { // nothing waits
		s, err := start(keyspace)
		must(t, err)
		must(t, s.Close())
	}
	shelf.away.Store(true)
	s, err := start("second")
	must(t, err)
	w := &world{distant: shelf, e: s.options.Engine, s: s}
	w.append(t, event(time.Now().UnixMicro(), "e", "a"))
	must(t, s.Close())
	shelf.away.Store(false)
	const want = "1 events of timelines in spool wait for keyspace second, but the settings name keyspace third. Start with the previous settings and POST /admin/flush; or start"
	for range 2 {
		if _, err := start("third"); !errors.As(err, new(*MisdirectedError)) || !strings.HasPrefix(err.Error(), want) {
			t.Fatalf("opened for another keyspace: %v", err)
		}
	}
	if out, err := w.e.Read(t.Context(), timeline.Query{Timelines: []string{"a"}}); err != nil || len(out.Events) != 0 {
		t.Errorf("%+v, %v", out.Events, err)
	}
	must(t, disk.Remove("spool/"+targetName)) // a way out
	s, err = start("third")
	must(t, err)
	w = &world{distant: shelf, e: s.options.Engine, s: s}
	w.want(t, "a", "e")
}

// TestDamagedTarget: a flipped bit in the file of the target is an error with the way out, and no other
// keyspace. A file without a checksum, of an earlier build, is accepted.
func TestDamagedTarget(t *testing.T) {
	fs := vfs.NewMem()
	w := open(t, newDistant(t), fs, func(o *Options) { o.Keyspace = "keyspace_a" })
	w.s.Close()
	path := w.s.targetPath()
	text, err := safefile.Read(fs, path, targetBytesMax)
	must(t, err)
	for damaged, want := range map[string]string{
		strings.Replace(string(text), "keyspace_a", "keyspace_c", 1): "remove it",
		strings.Replace(string(text), `"keyspace"`, `"keyspacd"`, 1): "remove it",
		`{"keyspace":"keyspace_a"}`:                                  "",
	} {
		if damaged == string(text) {
			t.Fatalf("nothing is damaged in %s", text)
		}
		must(t, safefile.Replace(fs, path, []byte(damaged)))
		before, err := w.s.readTarget()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", damaged, before, err)
		}
	}
}

// A full disk keeps no server from starting.
func TestTargetOnAFullDisk(t *testing.T) {
	var full atomic.Bool
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && (op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpCreate) {
			return syscall.ENOSPC
		}
		return nil
	}))
	shelf := newDistant(t)
	for _, keyspace := range []string{"first", "second"} {
		open(t, shelf, disk, func(o *Options) { o.Keyspace = keyspace }).s.Close()
		full.Store(true)
	}
	full.Store(false)
	shelf.away.Store(true)
	w := open(t, shelf, disk, func(o *Options) { o.Keyspace = "second" })
	w.append(t, event(time.Now().UnixMicro(), "e", "a"))
	w.s.Close()
	if _, err := Open(disk, "spool", Options{Engine: w.e, Keyspace: "first"}); !errors.As(err, new(*MisdirectedError)) {
		t.Errorf("once there was room, opened for another keyspace: %v", err)
	}
}

// TestMissingLog: a directory that was restored without its log says so, once; a new one and one
// that was first used on a full disk do not.
func TestMissingLog(t *testing.T) {
	var full atomic.Bool
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && (op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpCreate) && !strings.Contains(op.Path, targetName) {
			return syscall.ENOSPC
		}
		return nil
	}))
	shelf := newDistant(t)
	start := func(what string, tells bool) {
		t.Helper()
		var logged bytes.Buffer
		w := open(t, shelf, disk, func(o *Options) {
			o.Keyspace, o.Logger = "k", slog.New(slog.NewTextHandler(&logged, nil))
		})
		must(t, w.s.Close())
		if said := strings.Contains(logged.String(), "log of the spool of timelines is missing"); said != tells {
			t.Errorf("%s: said that the log is missing: %t, want %t\n%s", what, said, tells, &logged)
		}
	}
	full.Store(true) // but for the small target
	w := open(t, shelf, disk, func(o *Options) { o.Keyspace = "k" })
	w.s.Close()
	full.Store(false)
	start("first used on a full disk", false)
	start("all there", false)
	segments, err := wal.Segments(disk, "spool")
	must(t, err)
	if len(segments) == 0 {
		t.Fatal("there is no log to lose")
	}
	names, err := disk.List("spool")
	must(t, err)
	for _, name := range names {
		if name != targetName {
			must(t, disk.Remove("spool/"+name))
		}
	}
	start("log missing", true)
	start("after that", false)
}

// TestAnotherStorage: events that were put while another storage may have answered are put again
// once it is the right one, and nothing is put before.
func TestAnotherStorage(t *testing.T) {
	var answers atomic.Int64 // of Confirm: how many more say yes
	w := open(t, newDistant(t), vfs.NewMem(), func(o *Options) {
		o.Confirm = func(context.Context) error {
			if answers.Add(-1) < 0 {
				return &store.UnavailableError{Reason: "another cluster answers"}
			}
			return nil
		}
	})
	failed := func(times float64) {
		t.Helper()
		for end := time.Now().Add(time.Minute); count(w.s.failed) < times; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%v drains have failed, want %v", count(w.s.failed), times)
			}
		}
	}
	w.append(t, event(time.Now().UnixMicro(), "e", "a"))
	failed(1)
	if p, err := w.e.Read(t.Context(), timeline.Query{Timelines: []string{"a"}}); err != nil || len(p.Events) > 0 {
		t.Errorf("%d events were put into another storage, %v", len(p.Events), err)
	}
	answers.Store(1) // before, and not after
	failed(count(w.s.failed) + 1)
	if h := w.s.Health(); h.Events != 1 {
		t.Errorf("%d events wait that may be elsewhere", h.Events)
	}
	if got := count(w.s.put); got != 0 {
		t.Errorf("%v events count as put that may be elsewhere", got)
	}
	answers.Store(1 << 40)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, w.s.Flush(ctx))
	w.want(t, "a", "e")
	if got := count(w.s.put); got != 1 {
		t.Errorf("%v events count as put, want that of the last attempt", got)
	}
}

// A setBack is a server whose clock is ahead by a year until it is set back, and which does not
// know that it is set as long as it is ahead.
type setBack struct {
	shelf *distant
	disk  vfs.FS
	ahead atomic.Int64
}

func newSetBack(t *testing.T) *setBack {
	b := &setBack{shelf: newDistant(t), disk: vfs.NewMem()}
	b.ahead.Store(int64(365 * 24 * time.Hour))
	return b
}

// start starts the server, whose storage is not confirmed if confirm returns an error.
func (b *setBack) start(t *testing.T, confirm func(context.Context) error) *world {
	t.Helper()
	w := &world{distant: b.shelf}
	var err error
	w.e, err = timeline.Open(b.shelf, timeline.Options{
		Upkeep: -1,
		Now:    func() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) },
		Changeable: func(context.Context) error {
			if b.ahead.Load() != 0 {
				return &store.UnavailableError{Reason: "the clock is not set"}
			}
			return nil
		},
	})
	must(t, err)
	t.Cleanup(func() { w.e.Close() })
	w.s, err = Open(b.disk, "spool", Options{Engine: w.e, Confirm: confirm, Names: []string{"a"}, BytesMax: units.MiB})
	must(t, err)
	t.Cleanup(func() { w.s.Close() })
	return w
}

// once returns a confirmation that succeeds once, and a channel that is closed when it was wanted again.
func (b *setBack) once() (confirm func(context.Context) error, again chan struct{}) {
	again = make(chan struct{})
	n := 0
	return func(context.Context) error {
		if b.ahead.Load() != 0 {
			return nil
		}
		if n++; n == 2 {
			close(again)
		}
		if n > 1 {
			return &store.UnavailableError{Reason: "it is not known which cluster answers"}
		}
		return nil
	}, again
}

// fill accepts events that do not fit into one put.
func (b *setBack) fill(t *testing.T, w *world, at int64) {
	t.Helper()
	for i := range 2 {
		var events []timeline.Addressed
		for k := range drainPlaces * 2 / 3 {
			events = append(events, event(at, fmt.Sprint(i, "-", k), "a"))
		}
		w.append(t, events...)
	}
}

// What was accepted by a clock that was far ahead, and was put once the clock was set, does not come
// back after a restart if another server has deleted it in between.
func TestClockSetBackAndRestart(t *testing.T) {
	b := newSetBack(t)
	w, at := b.start(t, nil), time.Now().Add(-time.Minute).UnixMicro()
	other := w.another(t)
	put := make(chan struct{})
	leave := func() { // the event is put, and the server does not know it any more
		b.shelf.away.Store(true)
		b.shelf.loses.Store(true)
		close(put)
	}
	b.shelf.before.Store(&leave)
	w.append(t, event(at, "x", "a"))
	b.ahead.Store(0)
	<-put
	eventually(t, "the event is there", func() bool {
		p, err := other.Read(t.Context(), timeline.Query{Timelines: []string{"a"}, Limit: 10})
		return err == nil && len(p.Events) == 1
	})
	must(t, other.Delete(t.Context(), "a", timeline.Deletion{From: &at}))
	must(t, w.s.Close())
	b.shelf.away.Store(false)
	b.start(t, nil).want(t, "a")
}

// The same if the storage goes away after the first events, before any or all of them are put, also
// if some are logged again because their timeline fails.
func TestClockSetBackAndInterrupted(t *testing.T) {
	for _, fails := range []bool{false, true} {
		b := newSetBack(t)
		confirm, again := b.once()
		w, at := b.start(t, confirm), time.Now().Add(-time.Minute).UnixMicro()
		other := w.another(t)
		b.fill(t, w, at)
		if fails {
			refuse := func(e timeline.Placed) error {
				if e.ID == "0-7" {
					return errors.New("this event fails")
				}
				return nil
			}
			b.shelf.refuses.Store(&refuse)
		}
		b.ahead.Store(0)
		<-again
		must(t, other.Delete(t.Context(), "a", timeline.Deletion{From: &at}))
		must(t, w.s.Close())
		b.shelf.refuses.Store(nil)
		w = b.start(t, nil)
		w.append(t, event(at, "later", "a"))
		w.want(t, "a", "later")
		eventually(t, "an empty log", func() bool { return w.s.bytes.Load() == 0 })
	}
}

// However often a server is interrupted while it puts what a wrong clock has accepted, the log grows
// by little, and nothing is lost.
func TestClockSetBackDoesNotFillTheLog(t *testing.T) {
	b := newSetBack(t)
	w, at := b.start(t, nil), time.Now().Add(-time.Minute).UnixMicro()
	b.fill(t, w, at)
	first := w.s.bytes.Load()
	for range 5 {
		must(t, w.s.Close())
		confirm, again := b.once()
		b.ahead.Store(0)
		w = b.start(t, confirm)
		<-again
	}
	must(t, w.s.Close())
	confirm, _ := b.once()
	w = b.start(t, confirm)
	if grown := w.s.bytes.Load() - first; grown > 1000 {
		t.Errorf("the log has grown from %d bytes by %d", first, grown)
	}
	must(t, w.s.Close())
	w = b.start(t, nil)
	must(t, w.s.Flush(t.Context()))
	p, err := w.e.Read(t.Context(), timeline.Query{Timelines: []string{"a"}, Limit: 1000})
	if err != nil || len(p.Events) != 1000 {
		t.Errorf("%d events, %v", len(p.Events), err)
	}
	if n := count(w.s.refused); n != 0 {
		t.Errorf("%v events were refused", n)
	}
}

// TestDamagedLog: the spool does not open with a damaged log, and says how to continue without the
// damaged file.
func TestDamagedLog(t *testing.T) {
	disk := vfs.NewMem()
	for i := range int64(3) { // each in a segment of its own
		l, err := wal.Open(disk, "spool", wal.DefaultConfig(), wal.Options{})
		must(t, err)
		records, _ := encode([]timeline.Accepted{{Addressed: event(i, fmt.Sprint("e", i+1), "a"), At: time.UnixMicro(1)}})
		must(t, l.Wait(t.Context(), l.Append(typeEvents, records[0].bytes)))
		must(t, l.Close())
	}
	file := func(s wal.Segment) string { return disk.PathJoin("spool", s.FileName()) }
	f, err := disk.OpenReadWrite(file(2), vfs.WriteCategoryUnspecified)
	must(t, err)
	_, err = f.WriteAt([]byte("damage"), 50)
	must(t, errors.Join(err, f.Close()))
	fails := func(why string) {
		t.Helper()
		_, err := Waiting(disk, "spool")
		if !errors.As(err, new(*store.CorruptionError)) || !strings.Contains(err.Error(), "move this file and those with lower numbers out of spool") {
			t.Errorf("%s: %v", why, err)
		}
	}
	fails("damaged")
	must(t, disk.Rename(file(2), "away2"))
	fails("one file is moved")
	must(t, disk.Rename(file(1), "away1"))
	open(t, newDistant(t), disk, nil).want(t, "a", "e3")
}

// TestDamagedStorage: if the storage reads damaged data while the spool is drained, the error does not
// tell to move the log away, which is healthy.
func TestDamagedStorage(t *testing.T) {
	w := open(t, newDistant(t), vfs.NewMem(), nil)
	refuse := func(timeline.Placed) error {
		return &store.CorruptionError{File: "timeline_events", Reason: "event \"e\" has no data"}
	}
	w.refuses.Store(&refuse)
	w.append(t, event(time.Now().UnixMicro(), "e", "a"))
	eventually(t, "a drain that fails", func() bool { return w.s.failing.Load() != nil })
	if err := w.s.failing.Load().err; !errors.As(err, new(*store.CorruptionError)) || strings.Contains(err.Error(), "move") {
		t.Errorf("the drain failed: %v", err)
	}
	w.refuses.Store(nil)
	w.want(t, "a", "e")
}

// TestClockBehindForLong: a clock was behind until it was set, for longer than it was behind. An event
// of that time whose first put failed is put again with the same write timestamp.
func TestClockBehindForLong(t *testing.T) {
	b := newSetBack(t)
	b.ahead.Store(int64(-20 * time.Minute))
	var puts []time.Time
	refuse := func(e timeline.Placed) error {
		if e.ID != "x" {
			return nil
		}
		if puts = append(puts, e.Put); len(puts) == 1 {
			return errors.New("this event fails")
		}
		return nil
	}
	b.shelf.refuses.Store(&refuse)
	w, at := b.start(t, nil), time.Now().Add(-time.Hour).UnixMicro()
	w.append(t, event(at, "x", "a"))
	for b.ahead.Load() < int64(-200*time.Second) {
		b.ahead.Add(int64(100 * time.Second)) // as if time passed
		w.append(t, event(at, fmt.Sprint(b.ahead.Load()), "a"))
	}
	b.ahead.Store(0)
	must(t, w.s.Flush(t.Context()))
	if len(puts) != 2 || !puts[0].Equal(puts[1]) {
		t.Errorf("the event was put at %v, want twice the same", puts)
	}
}
