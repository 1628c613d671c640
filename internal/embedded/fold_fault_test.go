package embedded

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/embedded/datadir"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/storetest"
)

func (f *foldTest) addText(metric string, times ...int64) {
	f.Helper()
	var b store.Batch
	b.Reset(f.Epoch())
	ref, err := f.Create(f.Context(), model.Series{Metric: metric, Type: model.TypeString})
	f.must(f.T, err)
	for _, ms := range times {
		b.AddBytes(ref, ms, []byte("a text"), 0)
	}
	f.must(f.T, f.Append(f.Context(), &b))
}

// TestFoldLeavesTextsAlone: texts cannot be folded, so they are no reason to rewrite a file.
func TestFoldLeavesTextsAlone(t *testing.T) {
	f := newFoldTest(t, "10s:1h,60s:365d")
	now := f.nowMS.Load()
	f.addText("thin.text", now-7_200_000, now-7_100_000)
	f.must(t, f.checkpoint())
	f.must(t, f.maintain(t.Context()))
	first := f.nextFile.Load()
	for range 20 {
		f.nowMS.Add(11 * 60_000)
		f.must(t, f.maintain(t.Context()))
	}
	if n := f.nextFile.Load() - first; n > 1 {
		t.Errorf("20 maintenances wrote the same text file %d times", n)
	}
}

func corruptBuckets(t *testing.T, f *foldTest) {
	t.Helper()
	st := f.acquire()
	path := ""
	for _, o := range st.files {
		if o.StepMS != 0 {
			path = o.Path
		}
	}
	f.release(st)
	if path == "" {
		t.Fatal("no buckets")
	}
	f.must(t, f.Store.Close())
	h, err := f.fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	f.must(t, err)
	_, err = h.WriteAt([]byte("damagedamagedamagedamage"), 100)
	f.must(t, err)
	f.must(t, h.Close())
	f.open(f.fs)
}

// TestFoldBesideDamage: a damaged file of buckets is reported and left alone, and all other
// work continues.
func TestFoldBesideDamage(t *testing.T) {
	f := newFoldTest(t, "10s:1h,60s:6h,10m:2d")
	now := model.Floor(f.nowMS.Load(), 86_400_000) + 12*3_600_000
	f.nowMS.Store(now)
	for i := range int64(400) {
		f.write("thin.long", model.TypeLong, now-3_600_000-i*30_000)
	}
	f.must(t, f.checkpoint())
	f.foldAll()
	corruptBuckets(t, f)
	// a query meets the damage
	v, err := f.View(t.Context())
	f.must(t, err)
	list, err := storetest.Select(t.Context(), v, store.Selection{Metric: "thin.long", Range: model.AllTime})
	f.must(t, err)
	c := v.Read(t.Context(), list[0], store.ReadOptions{Range: model.AllTime})
	for {
		b, err := c.Next()
		if err != nil {
			break
		}
		if b == nil {
			t.Fatal("a query has met no damage")
		}
	}
	c.Close()
	v.Close()
	if f.Damaged() == nil {
		t.Error("a query has met damage in a bucket file, and Damaged() is nil")
	}
	f.nowMS.Add(24 * 3_600_000)
	for range 3 {
		if err := f.maintain(t.Context()); err != nil {
			t.Error("maintain ends with:", err)
		}
	}
	f.must(t, f.Compact(t.Context()))
	if f.Damaged() == nil {
		t.Error("maintenance has met damage in a bucket file, and Damaged() is nil")
	}
}

func openDisk(t *testing.T, f *foldTest, min int64) *fullDisk {
	t.Helper()
	f.must(t, f.Store.Close())
	disk := &fullDisk{FS: f.fs, full: &atomic.Bool{}}
	disk.free.Store(1 << 40)
	cfg := quietConfig("fsync")
	cfg.MinFreeBytes = 1 << 20
	cfg.MergeFiles = 2
	cfg.LateHold = f.hold
	s, err := Open(disk, "data", cfg, Options{Book: f.shelf, Now: func() time.Time { return time.UnixMilli(f.nowMS.Load()) }})
	f.must(t, err)
	f.Store = s
	return disk
}

// TestOutlivedOnAFullDisk: what has outlived its last stage takes no room to remove.
func TestOutlivedOnAFullDisk(t *testing.T) {
	f := newFoldTest(t, "10s:1h")
	disk := openDisk(t, f, 1<<20)
	f.write("thin.long", model.TypeLong, f.nowMS.Load())
	f.must(t, f.checkpoint())
	f.nowMS.Add(10 * 3_600_000)
	disk.free.Store(1000)
	f.must(t, f.maintain(t.Context()))
	if st := f.acquire(); len(st.files) != 0 {
		t.Errorf("%d files that have outlived their policy stay while the disk is full", len(st.files))
	}
}

// sizedDisk has a fixed amount of space in addition to its blocks.
type sizedDisk struct {
	*fullDisk
	capacity atomic.Int64
}

func (d *sizedDisk) used() (n int64) {
	names, _ := d.FS.List("data/blocks")
	for _, name := range names {
		if info, err := d.FS.Stat("data/blocks/" + name); err == nil {
			n += info.Size()
		}
	}
	return n
}

func (d *sizedDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: uint64(max(0, d.capacity.Load()-d.used()))}, nil
}

// TestFoldWithoutRoom: a fold that outgrows the disk does not keep merges from their turn.
func TestFoldWithoutRoom(t *testing.T) {
	f := newFoldTest(t, "1s:1h,2s:60d")
	f.must(t, f.Store.Close())
	disk := &sizedDisk{fullDisk: &fullDisk{FS: f.fs, full: &atomic.Bool{}}}
	disk.capacity.Store(1 << 40)
	cfg := quietConfig("fsync")
	cfg.MinFreeBytes = 64 << 10
	cfg.MergeFiles = 2
	s, err := Open(disk, "data", cfg, Options{Book: f.shelf, Now: func() time.Time { return time.UnixMilli(f.nowMS.Load()) }})
	f.must(t, err)
	f.Store = s
	now := f.nowMS.Load()
	var b store.Batch
	random := rand.New(rand.NewPCG(1, 2))
	for k := range int64(32) {
		b.Reset(f.Epoch())
		ref, err := f.Create(t.Context(), model.Series{Metric: "thin.double", Type: model.TypeDouble})
		f.must(t, err)
		for i := range int64(20_000) {
			b.AddDouble(ref, now-3_700_000-(k*20_000+i)*1000, random.NormFloat64(), 0)
		}
		f.must(t, f.Append(t.Context(), &b))
	}
	f.must(t, f.checkpoint())
	for i := range int64(4) {
		f.write("whole", model.TypeLong, now+i)
		f.must(t, f.checkpoint())
	}
	files := func() (n int) {
		st := f.acquire()
		defer f.release(st)
		return len(st.files)
	}
	in := disk.used()
	disk.capacity.Store(in + in + 48<<10) // free: the input, the reserve of half of min_free_bytes, and some
	for i := range 4 {
		before := f.nextFile.Load()
		err := f.maintain(t.Context())
		t.Log("maintain", i, "error", err, "files written", f.nextFile.Load()-before, "files now", files())
	}
	if n := files(); n > 3 {
		t.Errorf("%d files: no merge has been done", n)
	}
	disk.capacity.Store(1 << 40)
	f.must(t, f.maintain(t.Context()))
	t.Log("bytes before and after the fold:", in, disk.used())
}

// TestDeleteDuringAFold: samples that are deleted while a fold reads them are in no bucket.
func TestDeleteDuringAFold(t *testing.T) {
	for _, stage := range []string{"samples", "buckets"} {
		t.Run(stage, func(t *testing.T) {
			f := newFoldTest(t, "10s:1h,60s:6h,1h:2d")
			now := model.Floor(f.nowMS.Load(), 3_600_000)
			hour := now - 3*3_600_000
			f.nowMS.Store(hour) // nothing is old yet
			for i := range int64(360) {
				f.write("thin.long", model.TypeLong, hour+i*10_000)
			}
			f.must(t, f.checkpoint())
			within := model.TimeRange{StartMS: hour + 10_000, EndMS: hour + 49_999} // 4 samples of the first minute
			later := int64(3 * 3_600_000)
			if stage == "buckets" {
				f.nowMS.Add(later)
				f.foldAll()
				later = 6 * 3_600_000
				within = model.TimeRange{StartMS: hour, EndMS: hour + 30*60_000 - 1} // 30 of the 60 buckets
			}
			before := f.counted()
			f.must(t, f.Store.Close())
			f.nowMS.Add(later) // not before: the store may fold by itself
			opened := make(chan struct{})
			var once sync.Once
			f.open(errorfs.Wrap(f.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind == errorfs.OpCreate && strings.Contains(op.Path, "block") {
					<-opened
					once.Do(func() { f.must(t, f.Delete(t.Context(), store.Deletion{Metric: "thin.long", Range: within})) })
				}
				return nil
			})))
			close(opened)
			f.foldAll()
			want := before - 4
			if stage == "buckets" {
				want = 180
			}
			if got := f.counted(); got != want {
				t.Errorf("%d samples are left of %d after a delete that was acknowledged, want %d", got, before, want)
			}
		})
	}
}

// TestFoldAfterTheClockJumps: a pause does not outlast a clock that is put back.
func TestFoldAfterTheClockJumps(t *testing.T) {
	f := newFoldTest(t, "10s:1h,60s:3650d")
	now := f.nowMS.Load()
	f.write("thin.long", model.TypeLong, now-7_200_000, now+86_400_000*366)
	f.write("thin.double", model.TypeDouble, now+86_400_000*366)
	f.must(t, f.checkpoint())
	f.nowMS.Add(86_400_000 * 365)
	f.foldAll() // the rest may not be folded for 10 minutes
	f.nowMS.Store(now)
	f.must(t, f.maintain(t.Context()))
	f.nowMS.Add(86_400_000 * 360)
	st := f.acquire()
	defer f.release(st)
	for _, o := range st.files {
		if o.ages.paused(f.nowMS.Load()) {
			t.Errorf("a file of step %d is not folded until %d", o.StepMS, o.ages.notUntil)
		}
	}
}

// TestFoldBesideEndsOfTime: samples at both ends of time do not keep others of their file from being folded.
func TestFoldBesideEndsOfTime(t *testing.T) {
	for _, oldest := range []int64{0, math.MinInt64} {
		f := newFoldTest(t, "10s:1h,60s:365d")
		now := f.nowMS.Load()
		for i := range int64(100) {
			f.write("thin.long", model.TypeLong, now-i*1000)
		}
		f.write("whole", model.TypeLong, oldest, math.MaxInt64)
		f.must(t, f.checkpoint())
		f.nowMS.Add(10 * 86_400_000)
		f.must(t, f.maintain(t.Context()))
		if all := f.whole("thin.long kairos_long"); len(all.buckets) == 0 {
			t.Errorf("with a sample at %d in the file: after ten days nothing is folded", oldest)
		}
	}
}

// TestCompactFolds: what has become old enough by then.
func TestCompactFolds(t *testing.T) {
	f := newFoldTest(t, "10s:1h,60s:6h")
	now := model.Floor(f.nowMS.Load(), 60_000)
	f.nowMS.Store(now)
	for i := range int64(720) {
		f.write("thin.long", model.TypeLong, now-i*10_000)
	}
	f.must(t, f.Compact(t.Context()))
	f.checkSteps("first")
	f.nowMS.Add(9 * 60_000)
	f.must(t, f.Compact(t.Context()))
	f.checkSteps("nine minutes later")
}

// counted is how many samples of thin.long there are, in buckets or not.
func (f *foldTest) counted() (n int64) {
	all := f.whole("thin.long kairos_long")
	for _, b := range all.buckets {
		n += b.Count
	}
	return n + int64(len(all.times))
}

// TestFoldOfACorrection: a fold that begins with the newer one of two files keeps the value
// that was written last. The older file was put off, since memory had the correction.
func TestFoldOfACorrection(t *testing.T) {
	f := newFoldTest(t, "10s:1h,60s:6h")
	at := model.Floor(f.nowMS.Load()-7_200_000, 60_000)
	key := "thin.double " + string(model.TypeDouble)
	f.merging.Lock() // the checkpoint wakes the merger
	f.put("thin.double", at, 1)
	f.must(t, f.checkpoint())
	f.put("thin.double", at, 2)
	f.merging.Unlock()
	f.must(t, f.maintain(t.Context())) // holds the sample back
	f.must(t, f.checkpoint())
	f.must(t, f.maintain(t.Context()))
	got := f.whole(key)
	if len(got.buckets) != 1 || got.buckets[0].Count != 1 || got.buckets[0].Sum != 2 {
		t.Errorf("%+v, want a bucket of 2", got)
	}
}

// put stores one sample, and replaces an existing one.
func (f *foldTest) put(metric string, ms int64, v float64) {
	f.Helper()
	var b store.Batch
	b.Reset(f.Epoch())
	ref, err := f.Create(f.Context(), model.Series{Metric: metric, Type: model.TypeDouble})
	f.must(f.T, err)
	b.AddDouble(ref, ms, v, 0)
	f.must(f.T, f.Append(f.Context(), &b))
}

// TestErrorAtEachCallOfAFold: a fold whose n-th call to a block file fails loses nothing,
// and is made up for when the disk is well again.
func TestErrorAtEachCallOfAFold(t *testing.T) {
	const most = 1000
	for n := int64(1); n < most; n++ {
		met := false
		t.Run(strconv.FormatInt(n, 10), func(t *testing.T) { met = foldWithError(t, n) })
		if !met {
			if n < 20 {
				t.Errorf("a fold has made %d calls only", n-1)
			}
			return
		}
		if t.Failed() {
			return
		}
	}
	t.Errorf("a fold makes more than %d calls", most)
}

func foldWithError(t *testing.T, n int64) (met bool) {
	f := newFoldTest(t, "10s:1h,60s:6h,10m:2d")
	now := f.nowMS.Load()
	f.nowMS.Store(now - 40_000_000) // nothing is due yet for the merger, which the checkpoint wakes
	for i := range int64(60) {
		f.write("thin.long", model.TypeLong, now-i*30_000, now-7_200_000-i*30_000, now-36_000_000-i*30_000)
		f.write("thin.double", model.TypeDouble, now-7_200_000-i*30_000)
	}
	f.must(t, f.checkpoint())
	f.must(t, f.Store.Close())
	var armed atomic.Bool
	var calls atomic.Int64
	f.open(errorfs.Wrap(f.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if armed.Load() && strings.Contains(op.Path, "/"+datadir.Blocks+"/") && calls.Add(1) == n {
			return errors.New("the disk is on fire")
		}
		return nil
	})))
	f.merging.Lock()
	f.nowMS.Store(now)
	st := f.acquire()
	files := slices.Clone(st.files)
	f.release(st)
	armed.Store(true)
	err := f.fold(t.Context(), files)
	armed.Store(false)
	f.merging.Unlock()
	if met = calls.Load() >= n; !met && err != nil {
		t.Errorf("without an error of the disk: %v", err)
	}
	f.check(fmt.Sprintf("after the fold, which ended with %v", err))
	f.foldAll()
	f.check("after another fold")
	f.checkSteps("after another fold")
	f.must(t, f.Store.Close())
	f.open(f.fs)
	f.check("after a restart")
	return met
}
