package local

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/timeline"
	"varve/internal/timeline/timelinetest"
)

var faultStep = flag.Int64("faults", 9, "of how many calls to the file system one fails, or is the last before a power cut; 1 = each")

// promises are what a script was told: by timeline, position and id.
type promises struct {
	sync.Mutex
	sure  map[string]string // acknowledged, and not being deleted: data
	maybe map[string]string // being appended or deleted
}

func (p *promises) copy() (sure, maybe map[string]string) {
	p.Lock()
	defer p.Unlock()
	return maps.Clone(p.sure), maps.Clone(p.maybe)
}

func keyOf(name string, e timeline.Event) string { return fmt.Sprintf("%s/%d/%s", name, e.Time, e.ID) }

// A script writes to timelines and deletes from them, always in the same order.
type script struct {
	promises
	shelf *Shelf
	e     *timeline.Engine
	base  int64
	now   func() time.Time
}

func newScript() *script {
	at := time.Now().Truncate(time.Hour)
	return &script{promises: promises{sure: map[string]string{}, maybe: map[string]string{}}, base: at.UnixMicro(), now: func() time.Time { return at }}
}

func (s *script) open(fs vfs.FS, o Options) (err error) {
	if s.shelf, err = Open(fs, "timelines", o); err != nil {
		return err
	}
	s.e, err = timeline.Open(s.shelf, timeline.Options{Upkeep: -1, Now: s.now})
	return err
}

func (s *script) close() error { return errors.Join(s.e.Close(), s.shelf.Close()) }

func (s *script) append(ctx context.Context, from, n int, names ...string) error {
	var events []timeline.Addressed
	s.Lock()
	for i := range n {
		e := timeline.Event{Time: s.base - int64(from+i)*7_000_000, ID: fmt.Sprint("e", from+i), Data: fmt.Appendf(nil, "data of %d%0*d", from+i, (from+i)%40, 0)}
		events = append(events, timeline.Addressed{Event: e, Timelines: names})
		for _, name := range names {
			s.maybe[keyOf(name, e)] = string(e.Data)
		}
	}
	s.Unlock()
	r, err := s.e.Append(ctx, events)
	if err != nil || r.Accepted < n {
		for _, rejected := range r.Rejected {
			err = errors.Join(err, rejected.Err)
		}
		return err
	}
	s.Lock()
	defer s.Unlock()
	for _, e := range events {
		for _, name := range names {
			s.sure[keyOf(name, e.Event)] = string(e.Data)
			delete(s.maybe, keyOf(name, e.Event))
		}
	}
	return nil
}

// remove deletes what matches by do.
func (s *script) remove(match func(key string) bool, do func() error) error {
	s.Lock()
	for key, data := range s.sure {
		if match(key) {
			s.maybe[key] = data
			delete(s.sure, key)
		}
	}
	s.Unlock()
	if err := do(); err != nil {
		return err
	}
	s.Lock()
	defer s.Unlock()
	for key := range s.maybe {
		if match(key) {
			delete(s.maybe, key)
		}
	}
	return nil
}

// run is the script.
func (s *script) run(ctx context.Context) error {
	if _, err := s.e.Propose(ctx, "index", timeline.Proposal{Mode: timeline.Index, Factor: 2}); err != nil {
		return err
	}
	for i := range 6 {
		if err := s.append(ctx, 100*i, 30, "plain", "index"); err != nil {
			return err
		}
		if err := s.append(ctx, 100*i+50, 1, "plain"); err != nil {
			return err
		}
		if err := s.shelf.db.Flush(); err != nil {
			return err
		}
	}
	if _, err := s.e.Propose(ctx, "plain", timeline.Proposal{Size: 60_000_000, Factor: 3}); err != nil {
		return err
	}
	from, until := s.base-250*7_000_000, s.base-110*7_000_000
	err := s.remove(func(key string) bool {
		var at int64
		_, err := fmt.Sscanf(key, "index/%d/", &at)
		return err == nil && at >= from && at <= until
	}, func() error { return s.e.Delete(ctx, "index", timeline.Deletion{From: &from, Until: &until}) })
	if err != nil {
		return err
	}
	err = s.remove(func(key string) bool { return key[:5] == "plain" }, func() error { return s.e.DeleteTimeline(ctx, "plain") })
	if err != nil {
		return err
	}
	if err := s.shelf.db.Compact(ctx, []byte{0}, []byte{255}, false); err != nil {
		return err
	}
	return s.append(ctx, 700, 20, "plain")
}

// check opens the remaining files, and compares them with the promises before and after the
// moment that it is of.
func (s *script) check(fs vfs.FS, o Options, before, after, maybeBefore, maybeAfter map[string]string) error {
	shelf, err := Open(fs, "timelines", o)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer shelf.Close()
	for what, over := range map[string]timeline.Shelf{"as a whole": shelf, "by bucket": timelinetest.Buckets(shelf)} {
		found, err := s.everything(over)
		if err != nil {
			return fmt.Errorf("read %s: %w", what, err)
		}
		for key, data := range before {
			if _, still := after[key]; !still {
				continue
			}
			if got, ok := found[key]; !ok || got != data {
				return fmt.Errorf("%s: the event %s was acknowledged, but there is %q, %v", what, key, got, ok)
			}
		}
		for key := range found {
			known := false
			for _, m := range []map[string]string{before, after, maybeBefore, maybeAfter} {
				_, in := m[key]
				known = known || in
			}
			if !known {
				return fmt.Errorf("%s: the event %s is there, but was never appended, or was deleted", what, key)
			}
		}
	}
	return nil
}

func (s *script) everything(shelf timeline.Shelf) (map[string]string, error) {
	e, err := timeline.Open(shelf, timeline.Options{Upkeep: -1, Now: s.now})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	found := map[string]string{}
	for _, name := range []string{"plain", "index"} {
		for q := (timeline.Query{Timelines: []string{name}, Limit: 50}); ; {
			p, err := e.Read(context.Background(), q)
			if err != nil {
				return nil, err
			}
			for _, f := range p.Events {
				data := string(f.Data)
				if f.Missing {
					data = "(missing)"
				}
				found[keyOf(name, f.Event)] = data
			}
			if p.End {
				break
			}
			q.Cursor = p.Cursor
		}
	}
	return found, nil
}

// TestPowerCuts cuts the power before each call to the file system: what was acknowledged
// is there, what was deleted is not, and nothing else is, read as a whole and by buckets,
// whose marks were durable before the events. With everything left it is a kill -9.
func TestPowerCuts(t *testing.T) {
	mem := crashfs.New()
	s := newScript()
	var calls, cuts atomic.Int64
	var one sync.Mutex
	offset := rand.Int64N(*faultStep)
	random := rand.New(rand.NewPCG(1, 2))
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(errorfs.Op) error {
		if calls.Add(1)%*faultStep != offset || t.Failed() {
			return nil
		}
		one.Lock()
		defer one.Unlock()
		for _, percent := range []int{0, 50, 100} {
			before, maybeBefore := s.copy()
			left := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: random})
			after, maybeAfter := s.copy()
			cuts.Add(1)
			if err := s.check(left, Options{tune: small}, before, after, maybeBefore, maybeAfter); err != nil {
				t.Errorf("before call %d, with %d%% of what was not synced: %v", calls.Load(), percent, err)
			}
		}
		return nil
	}))
	if err := s.open(fs, Options{tune: small}); err != nil {
		t.Fatal(err)
	}
	if err := s.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if sure, maybe := s.copy(); len(sure) == 0 || len(maybe) > 0 {
		t.Errorf("at the end %d events are sure and %d are not", len(sure), len(maybe))
	}
	t.Logf("%d calls, %d power cuts", calls.Load(), cuts.Load())
}

const faultVariable = "VARVE_TIMELINES_FAULT"

// TestErrorAtEachCall lets writes fail from one call to the file system on, of an even number
// those to logs, since the disk is full. Requests fail
// then, or the shelf calls Fatal, and what was acknowledged is there after a start on a
// sound disk. What has called Fatal cannot be closed, so each run is a process.
func TestErrorAtEachCall(t *testing.T) {
	if at := os.Getenv(faultVariable); at != "" {
		n, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		failFrom(t, n)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	runs := 0
	for at := 1 + rand.Int64N(5**faultStep); ; at += 5 * *faultStep {
		cmd := exec.Command(self, "-test.run=^TestErrorAtEachCall$", "-test.v")
		cmd.Env = append(os.Environ(), faultVariable+"="+strconv.FormatInt(at, 10))
		out, err := cmd.CombinedOutput()
		runs++
		if err != nil {
			t.Fatalf("from call %d on: %v\n%s", at, err, out)
		}
		if runs > 2000 {
			t.Fatal("the runs do not come to an end")
		}
		if bytes.Contains(out, []byte("no call failed")) {
			break
		}
	}
	t.Logf("%d runs", runs)
}

// failFrom runs the script in a process of its own.
func failFrom(t *testing.T, at int64) {
	mem := crashfs.New()
	s := newScript()
	var calls, failed atomic.Int64
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if calls.Add(1) < at || op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		errno := syscall.EIO
		if at%2 == 0 { // a full disk; what runs in the background waits for space
			if errno = syscall.ENOSPC; !strings.HasSuffix(op.Path, ".log") {
				return nil
			}
		}
		failed.Add(1)
		return &os.PathError{Op: "write", Path: op.Path, Err: errno}
	}))
	verify := func() {
		sure, maybe := s.copy()
		left := mem.CrashClone(vfs.CrashCloneCfg{})
		if err := s.check(left, Options{}, sure, sure, maybe, maybe); err != nil && (len(sure) > 0 || s.e != nil) {
			t.Errorf("write errors from call %d on: %v", at, err)
		}
		if failed.Load() == 0 {
			fmt.Println("no call failed")
		}
		if t.Failed() {
			os.Exit(1)
		}
		os.Exit(0)
	}
	var fatal sync.Once
	err := s.open(fs, Options{tune: small, Fatal: func(string) {
		fatal.Do(verify)
		select {}
	}})
	if err == nil {
		err = s.run(t.Context())
	}
	if failed.Load() == 0 && err != nil {
		t.Errorf("without a failed call: %v", err)
	}
	fatal.Do(verify)
	select {}
}

// TestPowerCutsOfResent cuts the power before each call to the file system, while an event of
// two timelines is sent again with other data: in each timeline there is the event that was
// acknowledged last or the one on its way, with its data, and no other data is left.
func TestPowerCutsOfResent(t *testing.T) {
	mem := crashfs.New()
	s := newScript()
	var now struct {
		sync.Mutex
		sure, next int // numbers of the data
	}
	data := func(i int) string { return strings.Repeat(fmt.Sprint("data ", i, " "), 100) }
	look := func(left vfs.FS, sure, next int) error {
		shelf, err := Open(left, "timelines", Options{tune: small})
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		defer shelf.Close()
		if sure == 0 {
			return nil
		}
		found, err := s.everything(shelf)
		if err != nil {
			return err
		}
		kept := map[string]bool{}
		for key, got := range found {
			if kept[got] = true; got != data(sure) && got != data(next) {
				return fmt.Errorf("%s is %.20q, want that of %d or %d", key, got, sure, next)
			}
		}
		if n := payloads(t, shelf); len(found) != 2 || n != len(kept) {
			return fmt.Errorf("%d events refer to %d of %d payloads", len(found), len(kept), n)
		}
		return nil
	}
	var calls atomic.Int64
	random := rand.New(rand.NewPCG(1, 2))
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(errorfs.Op) error {
		now.Lock()
		defer now.Unlock()
		if calls.Add(1); t.Failed() {
			return nil
		}
		for _, percent := range []int{0, 50, 100} {
			left := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: random})
			if err := look(left, now.sure, now.next); err != nil {
				t.Errorf("before call %d, with %d%% of what was not synced, %d of %d acknowledged: %v", calls.Load(), percent, now.sure, now.next, err)
			}
		}
		return nil
	}))
	if err := s.open(fs, Options{tune: small}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"plain", "index"} {
		if _, err := s.e.Propose(t.Context(), name, timeline.Proposal{Mode: timeline.Index}); err != nil {
			t.Fatal(err)
		}
	}
	set := func(at *int, i int) {
		now.Lock()
		defer now.Unlock()
		*at = i
	}
	for i := 1; i <= 12; i++ {
		set(&now.next, i)
		e := timeline.Event{Time: s.base, ID: "e", Data: []byte(data(i))}
		if r, err := s.e.Append(t.Context(), []timeline.Addressed{{Event: e, Timelines: []string{"plain", "index"}}}); err != nil || r.Accepted != 1 {
			t.Fatal(r, err)
		}
		set(&now.sure, i)
		if i%4 == 0 {
			if err := s.shelf.db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d power cuts", 3*calls.Load())
}

// payloads counts separately stored data.
func payloads(t *testing.T, s *Shelf) (n int) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{tablePayload}, UpperBound: []byte{tablePayload + 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		n++
	}
	return n
}
