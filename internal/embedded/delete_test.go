package embedded

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/embedded/datadir"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/units"
)

// quietConfig makes a store do nothing by itself, but for merges after deletes.
func quietConfig(durability string) Config {
	c := DefaultConfig()
	c.CheckpointInterval, c.MaintenanceInterval = time.Hour, time.Hour
	c.MergeFiles = 100
	c.MinFreeBytes = 0
	c.LateHold = 0
	c.Log.Durability = durability
	c.Log.SyncInterval = time.Minute
	return c
}

func mustOpen(t *testing.T, fs vfs.FS, cfg Config) *Store {
	t.Helper()
	s, err := Open(fs, "data", cfg, Options{Section: "embedded"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// erase deletes the samples of "crash" with numbers in [from, to).
func erase(s *Store, from, to int64) error {
	return s.Delete(context.Background(), store.Deletion{Metric: "crash", Range: model.TimeRange{StartMS: crashOrigin + from*1000, EndMS: crashOrigin + to*1000 - 1}})
}

// remaining returns the values in [from, to), by number.
func (c *crashSeries) remaining(t *testing.T, s *Store, from, to int64) map[int64]int64 {
	t.Helper()
	found := make(map[place]int64)
	if err := (&promises{}).readSamples(s, found); err != nil {
		t.Fatal(err)
	}
	values := make(map[int64]int64)
	for at, v := range found {
		if n := (at.ms - crashOrigin) / 1000; at.series == c.Metric+" "+mustGet(c.Tags, "n") && n >= from && n < to {
			values[n] = v
		}
	}
	return values
}

// overwrite writes value to the samples with numbers in [from, to).
func (c *crashSeries) overwrite(t *testing.T, s *Store, from, to, value int64) {
	t.Helper()
	ref, err := s.Create(context.Background(), c.Series)
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	b.Reset(s.Epoch())
	for i := from; i < to; i++ {
		b.AddLong(ref, crashOrigin+i*1000, value, 0)
	}
	if err := s.Append(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
}

// brokenLog returns a file system in which the log cannot be written while there is an error.
func brokenLog(fs vfs.FS) (vfs.FS, *atomic.Pointer[syscall.Errno]) {
	var broken atomic.Pointer[syscall.Errno]
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if err := broken.Load(); err != nil && strings.Contains(op.Path, "/"+datadir.Log+"/") && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return *err
		}
		return nil
	})), &broken
}

// TestDeletionIsWhole cuts the power, or breaks the log, before a deletion is durable in the log. It
// concerns samples in a file and in the log. Merges must not carry it out in the file alone.
func TestDeletionIsWhole(t *testing.T) {
	for lost, want := range map[string]int{"power cut": 0, "log failure": 1100} {
		t.Run(lost, func(t *testing.T) {
			mem := crashfs.New()
			fs, broken := brokenLog(mem)
			cfg := quietConfig("interval")
			s := mustOpen(t, fs, cfg)
			c := newCrashSeries(1)[0]
			c.writeOnce(context.Background(), s, 1000)
			s.must(t, s.checkpoint())
			c.overwrite(t, s, 1000, 1100, 1)
			s.must(t, s.log.Sync(context.Background()))
			if lost == "log failure" {
				broken.Store(new(syscall.EIO))
			}
			if err := erase(s, 0, 1100); (err != nil) != (broken.Load() != nil) {
				t.Fatal(err)
			}
			if err := s.maintain(context.Background()); (err != nil) != (broken.Load() != nil) {
				t.Errorf("the merge: %v", err)
			}
			disk := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, 1))})
			broken.Store(nil)
			s.Close()
			s = mustOpen(t, disk, cfg)
			defer s.Close()
			if n := len(c.remaining(t, s, 0, 1100)); n != want {
				t.Errorf("%d samples of 1100 are there after the restart, want %d", n, want)
			}
		})
	}
}

// TestFailedLogEndsMerges: as long as a deletion cannot become durable, no merge writes files, which it
// could only throw away, at each look for one.
func TestFailedLogEndsMerges(t *testing.T) {
	for _, durability := range []string{"fsync", "interval"} {
		t.Run(durability, func(t *testing.T) {
			fs, broken := brokenLog(crashfs.New())
			files := 0
			s := mustOpen(t, errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind == errorfs.OpCreate && strings.Contains(op.Path, "/"+datadir.Blocks+"/") {
					files++
				}
				return nil
			})), quietConfig(durability))
			defer s.Close()
			newCrashSeries(1)[0].writeOnce(context.Background(), s, 1000)
			s.must(t, s.checkpoint())
			broken.Store(new(syscall.EIO))
			if err := erase(s, 0, 700); err == nil {
				t.Fatal("no error although the log has failed")
			}
			before := files
			if err := s.maintain(context.Background()); err == nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("the merge: %v", err)
			}
			if files != before {
				t.Errorf("the merge wrote %d files", files-before)
			}
		})
	}
}

// TestDeleteAfterALostDelete loses a deletion that a merge has applied already, because the disk was
// full for the log. The next one works nevertheless, before and after merges and restarts.
func TestDeleteAfterALostDelete(t *testing.T) {
	mem := crashfs.New()
	fs, broken := brokenLog(mem)
	cfg := quietConfig("interval")
	s := mustOpen(t, fs, cfg)
	c := newCrashSeries(1)[0]
	c.writeOnce(context.Background(), s, 1000)
	s.must(t, s.checkpoint())
	s.must(t, erase(s, 0, 100))
	if _, err := s.log.Current().Rotate(); err != nil { // the log is synced up to here
		t.Fatal(err)
	}
	c.overwrite(t, s, 999, 1000, 999)
	broken.Store(new(syscall.ENOSPC))
	if err := erase(s, 100, 200); err == nil {
		t.Fatal("no error while the disk is full")
	}
	s.must(t, s.maintain(context.Background())) // applies both
	disk := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, 1))})
	broken.Store(nil)
	s.Close()

	for restart := range int64(4) {
		s = mustOpen(t, disk, cfg)
		from := 200 + 100*restart
		if n := len(c.remaining(t, s, from, from+100)); n != 100 {
			t.Fatalf("start %d: %d samples of 100 before the delete", restart, n)
		}
		s.must(t, erase(s, from, from+100))
		if n := len(c.remaining(t, s, 0, from+100)); n != 0 {
			t.Fatalf("start %d: %d samples are there after the delete", restart, n)
		}
		s.must(t, s.maintain(context.Background()))
		if restart%2 == 0 {
			s.must(t, s.checkpoint())
		}
		if n := len(c.remaining(t, s, 0, from+100)); n != 0 {
			t.Fatalf("start %d: %d samples are back after a merge", restart, n)
		}
		s.must(t, s.Close())
	}
}

func (s *Store) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestLostDeleteRevealsNothing loses a deletion, because the disk is full for the log, after a merge
// has applied it to a file with newer samples. The older ones of the same times, in a
// file that was not merged, must not reappear.
func TestLostDeleteRevealsNothing(t *testing.T) {
	mem := crashfs.New()
	fs, broken := brokenLog(mem)
	s := mustOpen(t, fs, quietConfig("interval"))
	c := newCrashSeries(1)[0]
	c.overwrite(t, s, 0, 10_000, 1)
	s.must(t, s.checkpoint())
	c.overwrite(t, s, 100, 120, 2)
	s.must(t, s.checkpoint())
	broken.Store(new(syscall.ENOSPC))
	if err := erase(s, 100, 120); err == nil {
		t.Fatal("no error while the disk is full")
	}
	s.must(t, s.maintain(context.Background()))
	if files := s.Usage().Files; files != 1 {
		t.Fatalf("%d files: the newer one should have gone, the older not been merged", files)
	}
	disk := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, 1))})
	broken.Store(nil)
	s.Close()
	s = mustOpen(t, disk, quietConfig("interval"))
	defer s.Close()
	for n, v := range c.remaining(t, s, 100, 120) {
		if v != 2 {
			t.Fatalf("sample %d is %d, which was overwritten", n, v)
		}
	}
}

// TestRecordsLargerThanTheBuffer: a batch, and a deletion, that the log's buffer
// does not hold are taken, and so is what follows them.
func TestRecordsLargerThanTheBuffer(t *testing.T) {
	cfg := quietConfig("fsync")
	cfg.Log.BufferBytes = 4 * units.KiB
	mem := crashfs.New()
	s := mustOpen(t, mem, cfg)
	all := newCrashSeries(2000)
	ctx := context.Background()
	var b store.Batch
	b.Reset(s.Epoch())
	for i, c := range all {
		if i%2 == 0 { // the deletion's ids do not compress
			c.Series.Metric = "other"
		}
		ref, err := s.Create(ctx, c.Series)
		s.must(t, err)
		for n := range int64(5) {
			b.AddLong(ref, crashOrigin+n*1000, rand.Int64(), 0)
		}
	}
	s.must(t, s.Append(ctx, &b))
	s.must(t, s.Delete(ctx, store.Deletion{Metric: "other", Range: model.AllTime}))
	all[1].appendUntil(t, s, true)
	s.must(t, s.Healthy())
	s = reopenAfterKill(t, mem, s)
	defer s.Close()
	if n := s.SeriesCount(); n != len(all)/2 {
		t.Errorf("%d series after a restart, want %d", n, len(all)/2)
	}
}

// TestShutdownIsNoFailure: requests that meet a closing store get ErrClosed, and
// nobody is told that the log failed.
func TestShutdownIsNoFailure(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), quietConfig("fsync"))
	c := newCrashSeries(1)[0]
	c.writeOnce(context.Background(), s, 10)
	s.must(t, s.log.Current().Close()) // as Close does, while requests are under way
	var b store.Batch
	b.Reset(s.Epoch())
	ref, err := s.Create(context.Background(), c.Series)
	s.must(t, err)
	b.AddLong(ref, crashOrigin, 1, 0)
	if err := s.Append(context.Background(), &b); err != store.ErrClosed {
		t.Errorf("Append: %v, want ErrClosed", err)
	}
	if err := erase(s, 0, 1); err != store.ErrClosed {
		t.Errorf("Delete: %v, want ErrClosed", err)
	}
	if s.log.Failure() != nil {
		t.Errorf("the store has failed: %v", s.log.Failure())
	}
	s.Close()
}

// TestForgettingVoidsOnlyItsRefs: a batch that was built before series were
// forgotten is stored if it has none of them.
func TestForgettingVoidsOnlyItsRefs(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), quietConfig("fsync"))
	defer s.Close()
	ctx := context.Background()
	kept, gone := newCrashSeries(2)[0], newCrashSeries(2)[1]
	gone.Series.Metric = "gone"
	for _, c := range []*crashSeries{kept, gone} {
		c.overwrite(t, s, 0, 1, 1)
	}
	build := func(series ...*crashSeries) *store.Batch {
		var b store.Batch
		b.Reset(s.Epoch())
		for _, c := range series {
			ref, err := s.Create(ctx, c.Series)
			s.must(t, err)
			b.AddLong(ref, crashOrigin+5000, 5, 0)
		}
		return &b
	}
	others, both := build(kept), build(kept, gone)
	s.must(t, s.Delete(ctx, store.Deletion{Metric: "gone", Range: model.AllTime}))
	if err := s.Append(ctx, both); err != store.ErrStale {
		t.Errorf("a batch with a forgotten series: %v, want ErrStale", err)
	}
	if n := len(kept.remaining(t, s, 5, 6)); n != 0 {
		t.Error("a part of it was stored")
	}
	s.must(t, s.Append(ctx, others))
	if n := len(kept.remaining(t, s, 5, 6)); n != 1 {
		t.Error("the other batch was not stored")
	}
}

// TestErasingInSlices writes to series, and freezes the head, while a deletion is
// carried out: what was written after it stays, what was before it goes.
func TestErasingInSlices(t *testing.T) {
	for _, then := range []string{"finished", "cancelled", "checkpoint", "another delete"} {
		t.Run(then, func(t *testing.T) {
			s := mustOpen(t, vfs.NewMem(), quietConfig("fsync"))
			defer s.Close()
			ctx := context.Background()
			all := newCrashSeries(3)
			for _, c := range all {
				c.overwrite(t, s, 0, 100, 1)
			}
			ids, logged, err := s.logDeletion(ctx, store.Deletion{Metric: "crash", Range: model.AllTime})
			s.must(t, err)
			s.must(t, logged.Wait(ctx))
			all[0].overwrite(t, s, 50, 60, 2)
			switch then {
			case "finished":
				s.must(t, s.finishErasing(ctx))
				s.must(t, s.forgetEmpty(ctx, ids))
			case "cancelled":
				ended, cancel := context.WithCancel(ctx)
				cancel()
				if err := s.finishErasing(ended); err != context.Canceled {
					t.Fatal(err)
				}
				s.leaveDoubt(ids)
				if s.doubts() != 3 {
					t.Errorf("%d doubts", s.doubts())
				}
				s.settleDoubts(ctx)
			case "checkpoint":
				s.must(t, s.checkpoint())
				s.must(t, s.forgetEmpty(ctx, ids))
			case "another delete":
				s.must(t, erase(s, 50, 55))
			}
			for i, c := range all {
				want := 0
				if i == 0 {
					want = 10
				}
				if then == "another delete" {
					want /= 2
				}
				if n := len(c.remaining(t, s, 0, 100)); n != want {
					t.Errorf("series %d has %d samples, want %d", i, n, want)
				}
			}
			if n := s.SeriesCount(); n != 1 {
				t.Errorf("%d series are known, want 1", n)
			}
		})
	}
}

// TestForgettingBesideACheckpoint: a sample that comes after its series was found
// empty, and moves into a frozen head or a file, keeps the series.
func TestForgettingBesideACheckpoint(t *testing.T) {
	for _, place := range []string{"active", "frozen", "file"} {
		s := mustOpen(t, vfs.NewMem(), quietConfig("fsync"))
		c := newCrashSeries(1)[0]
		c.overwrite(t, s, 0, 10, 1)
		s.merging.Lock() // merges forget series too
		s.must(t, s.checkpoint())
		ref, err := s.Create(context.Background(), c.Series)
		s.must(t, err)
		_, logged, err := s.logDeletion(context.Background(), store.Deletion{Metric: "crash", Range: model.AllTime})
		s.must(t, err)
		s.must(t, logged.Wait(context.Background()))
		st := s.acquire()
		if has, err := s.hasSamples(context.Background(), st, model.SeriesNumber(ref)); has || err != nil {
			t.Fatalf("%v, %v", has, err)
		}
		c.overwrite(t, s, 5, 6, 2)
		var sw *swap
		if place != "active" {
			sw, err = s.swapHead()
			s.must(t, err)
		}
		if place == "file" {
			s.must(t, s.writeHead(sw))
		}
		moved := s.forgetUnlessMoved([]model.SeriesNumber{model.SeriesNumber(ref)}, st)
		if want := place != "active"; (len(moved) > 0) != want {
			t.Errorf("%s: moved %v", place, moved)
		}
		s.release(st)
		if n := len(c.remaining(t, s, 0, 10)); n != 1 {
			t.Errorf("%s: %d samples, want 1", place, n)
		}
		s.pending = sw
		if place == "file" {
			s.pending = nil
		}
		s.merging.Unlock()
		s.must(t, s.Close())
	}
}

// TestCancelledDelete: a delete that is cancelled while it looks for empty series
// ends at once, and the series are forgotten nevertheless.
func TestCancelledDelete(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), quietConfig("fsync"))
	defer s.Close()
	all := newCrashSeries(3 * emptySlice)
	for _, c := range all {
		c.overwrite(t, s, 0, 1, 1)
	}
	s.merging.Lock() // merges forget series too
	defer s.merging.Unlock()
	s.must(t, s.checkpoint())
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	ids, logged, err := s.logDeletion(context.Background(), store.Deletion{Metric: "crash", Range: model.AllTime})
	s.must(t, err)
	s.must(t, logged.Wait(context.Background()))
	if err := s.forgetEmpty(ended, ids); err != context.Canceled || s.SeriesCount() != len(all) {
		t.Fatalf("%v, %d series", err, s.SeriesCount())
	}
	s.leaveDoubt(ids)
	s.settleDoubts(context.Background())
	if n := s.SeriesCount(); n != 0 || s.doubts() != 0 {
		t.Errorf("%d series, %d doubts are left", n, s.doubts())
	}
}

// TestDeletesOfARequestAreOne: a request that deletes many series one by one, as Graphite's delSeries
// does, leaves one deletion for the files, and for each of their readers.
func TestDeletesOfARequestAreOne(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), quietConfig("fsync"))
	defer s.Close()
	all := newCrashSeries(20)
	for _, c := range all {
		c.overwrite(t, s, 0, 10, 1)
	}
	s.must(t, s.checkpoint())
	var deletions []store.Deletion
	for _, c := range all[:18] {
		deletions = append(deletions, store.DeletionOf(c.Series, model.AllTime))
	}
	deletions = append(deletions, store.Deletion{Metric: "another", Range: model.AllTime}, store.DeletionOf(all[18].Series, model.TimeRange{StartMS: crashOrigin, EndMS: crashOrigin + 4000}))
	s.must(t, s.Delete(t.Context(), deletions...))
	s.order.Lock()
	defer s.order.Unlock()
	if n := s.order.deletions; n != 2 {
		t.Errorf("%d deletions, want one for each range of time", n)
	}
	if n := s.SeriesCount(); n != 2 {
		t.Errorf("%d series are left, want 2", n)
	}
}

// TestSmallDeletesStayWithinTheHead deletes single samples of a series that has
// half a million in memory.
func TestSmallDeletesStayWithinTheHead(t *testing.T) {
	cfg := quietConfig("fsync")
	s := mustOpen(t, vfs.NewMem(), cfg)
	defer s.Close()
	c := newCrashSeries(1)[0]
	const samples, deletes = 500_000, 150
	for i := int64(0); i < samples; i += 10_000 {
		c.overwrite(t, s, i, i+10_000, i*i)
	}
	before := s.active.Load().Bytes()
	for i := range int64(deletes) {
		s.must(t, erase(s, i*2, i*2+1))
	}
	if grown := s.active.Load().Bytes() - before; grown > deletes*1024 {
		t.Errorf("the head grew by %d bytes", grown)
	}
	if n := s.active.Load().Count(0); n != samples-deletes {
		t.Errorf("%d samples are left", n)
	}
}

// TestFullHeadThatCannotBeWritten: writers of a full head are told why it stays full,
// wait while it may not, and continue when there is room.
func TestFullHeadThatCannotBeWritten(t *testing.T) {
	var failing atomic.Bool
	broken := errors.New("the disk is broken")
	s := mustOpen(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if failing.Load() && op.Kind == errorfs.OpCreate && strings.Contains(op.Path, "/"+datadir.Blocks+"/") {
			return broken
		}
		return nil
	})), quietConfig("fsync"))
	defer s.Close()
	putRandom(t, s, "full", 10, crashOrigin)
	var b store.Batch
	write := func(ctx context.Context, i int64) error {
		b.Reset(s.Epoch())
		ref, err := s.Create(t.Context(), model.Series{Metric: "full", Type: model.TypeLong, Tags: model.MustTags("host", "b")})
		s.must(t, err)
		b.AddLong(ref, crashOrigin+i, i, 0)
		return s.Append(ctx, &b)
	}
	s.must(t, write(t.Context(), 1))
	failing.Store(true)
	if err := s.checkpoint(); !errors.Is(err, broken) {
		t.Fatalf("a checkpoint to a broken disk: %v", err)
	}
	s.must(t, write(t.Context(), 2)) // there is room yet
	s.frozenBytes.Add(s.headMost())
	var unavailable *store.UnavailableError
	if err := write(t.Context(), 3); !errors.As(err, &unavailable) || !errors.Is(err, broken) || !strings.Contains(err.Error(), "head_bytes_max") {
		t.Errorf("writing to a head that is full and stays so: %v", err)
	}
	if err := s.Append(t.Context(), &store.Batch{Epoch: s.Epoch()}); err != nil {
		t.Errorf("a batch without samples, to a full head: %v", err)
	}
	failing.Store(false)
	s.must(t, s.checkpoint())
	s.frozenBytes.Add(s.headMost())
	ended, cancel := context.WithTimeout(t.Context(), time.Second/2)
	defer cancel()
	if err := write(ended, 4); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "head_bytes_max") {
		t.Errorf("writing to a full head: %v", err)
	}
	s.frozenBytes.Add(-s.headMost())
	s.must(t, write(t.Context(), 5))
}

// TestForgottenSeriesLeave: once a checkpoint has removed a series, nothing that files have of it is
// kept.
func TestForgottenSeriesLeave(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), quietConfig("fsync"))
	defer s.Close()
	c := newCrashSeries(1)[0]
	c.overwrite(t, s, 0, 10, 1)
	s.must(t, s.checkpoint())
	ref, _ := s.Lookup(c.AppendKey(nil))
	id := model.SeriesNumber(ref)
	s.must(t, s.Delete(t.Context(), store.Deletion{Metric: c.Metric, Range: model.AllTime}))
	if s.series.Kind(id) != 0 || s.kindInFiles(id) != model.Long {
		t.Errorf("after the delete: kind %v, in files %v", s.series.Kind(id), s.kindInFiles(id))
	}
	s.must(t, s.checkpoint())
	if kind := s.kindInFiles(id); kind != 0 {
		t.Errorf("after a checkpoint: kind %v in files", kind)
	}
}

// TestDeletesWaitForRoom: a delete may write samples again in memory, so it waits
// while the head is full.
func TestDeletesWaitForRoom(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), quietConfig("fsync"))
	defer s.Close()
	newCrashSeries(1)[0].overwrite(t, s, 0, 10, 1)
	s.frozenBytes.Add(s.headMost())
	ended, cancel := context.WithTimeout(context.Background(), time.Second/2)
	defer cancel()
	err := s.Delete(ended, store.Deletion{Metric: "crash", Range: model.AllTime})
	if err == nil || !strings.Contains(err.Error(), "head_bytes_max") {
		t.Errorf("a delete with a full head: %v", err)
	}
	s.frozenBytes.Add(-s.headMost())
	s.must(t, erase(s, 0, 10))
}
