package embedded

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/blockfile"
	"varve/internal/model"
	"varve/internal/retention"
	"varve/internal/store"
	"varve/internal/store/storetest"
)

const lateHour = int64(3_600_000) // ms

// newLateTest returns a store that holds late samples back for a day, as a server does, and has
// been running for an hour.
func newLateTest(t *testing.T) *foldTest {
	f := newFoldTest(t, "10s:1h,60s:6h,10m:60d")
	f.hold = 24 * time.Hour
	f.nowMS.Store(f.nowMS.Load() / foldWindow * foldWindow)
	f.reopen()
	f.pass(lateHour)
	return f
}

func (f *foldTest) reopen() { f.reopenAfter(0) }

// reopenAfter reopens the store once it has been closed for a while. The clock must not
// move before: the merger would do what is due then.
func (f *foldTest) reopenAfter(ms int64) {
	f.Helper()
	f.must(f.T, f.Store.Close())
	f.nowMS.Add(ms)
	f.open(f.fs)
}

// pass lets time pass, and the merger do what is due then.
func (f *foldTest) pass(ms int64) {
	f.Helper()
	f.nowMS.Add(ms)
	f.must(f.T, f.maintain(f.Context()))
}

// parts returns the number of buckets, and that of samples beside them.
func (f *foldTest) parts() (buckets, samples int) {
	f.Helper()
	all := f.whole("thin.double " + string(model.TypeDouble))
	return len(all.buckets), len(all.times)
}

// late returns times of late samples, six a bucket of a minute.
func (f *foldTest) late(n int64) (times []int64) {
	from := f.nowMS.Load()/foldWindow*foldWindow - 3*24*lateHour
	for i := range n {
		times = append(times, from+i*10_000)
	}
	return times
}

// TestLateSamplesSentAgain: an import that was cut off in the middle of buckets sends a part of what
// it has sent again. However checkpoints, restarts and time lie in between, it counts once.
func TestLateSamplesSentAgain(t *testing.T) {
	between := map[string]func(f *foldTest){
		"at once":           func(*foldTest) {},
		"after an hour":     func(f *foldTest) { f.pass(lateHour) },
		"after 23 hours":    func(f *foldTest) { f.pass(23 * lateHour) },
		"after a restart":   func(f *foldTest) { f.reopen(); f.pass(lateHour) },
		"after a merge":     func(f *foldTest) { f.mergeAll(); f.pass(lateHour); f.reopen(); f.pass(lateHour) },
		"after a week down": func(f *foldTest) { f.reopenAfter(7 * 24 * lateHour); f.pass(9 * 60_000) },
	}
	for name, wait := range between {
		t.Run(name, func(t *testing.T) {
			f := newLateTest(t)
			times := f.late(60)
			f.write("thin.double", model.TypeDouble, times[:20]...)
			f.must(t, f.checkpoint())
			f.write("thin.double", model.TypeDouble, times[20:33]...)
			f.must(t, f.checkpoint())
			f.pass(0)
			wait(f)
			f.write("thin.double", model.TypeDouble, times[20:40]...) // again, and more
			f.must(t, f.checkpoint())
			f.pass(0)
			f.write("thin.double", model.TypeDouble, times[40:]...)
			f.must(t, f.checkpoint())
			f.pass(0)
			f.check("sent again")
			if err := checkFiles(f.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})); err != nil {
				t.Error(err)
			}
			f.pass(25 * lateHour)
			f.check("folded")
			if buckets, samples := f.parts(); buckets == 0 || samples != 0 {
				t.Errorf("a day later there are %d buckets and %d samples", buckets, samples)
			}
		})
	}
}

// TestSamplesSentAgainWithoutRules: an import into the data directory of a server may not know the
// server's rules. If it is continued after the server has run, samples count once.
func TestSamplesSentAgainWithoutRules(t *testing.T) {
	f := newLateTest(t)
	times := f.late(60)
	write := func(times []int64) {
		t.Helper()
		f.must(t, f.Store.Close())
		s, err := Open(f.fs, "data", quietConfig("fsync"), Options{RulesUnknown: true, Now: func() time.Time { return time.UnixMilli(f.nowMS.Load()) }})
		f.must(t, err)
		f.Store = s
		f.write("thin.double", model.TypeDouble, times...)
		f.must(t, f.checkpoint())
		f.reopen()
		f.pass(2 * lateHour)
	}
	write(times[:33])
	write(times[20:])
	f.check("sent again")
	f.pass(25 * lateHour)
	f.check("folded")
	if buckets, samples := f.parts(); buckets == 0 || samples != 0 {
		t.Errorf("a day later there are %d buckets and %d samples", buckets, samples)
	}
}

// TestRulesThatChange: for an hour after a change of the rules everything stays in files, so that a
// mistake can be undone, unless somebody asks for a compaction.
func TestRulesThatChange(t *testing.T) {
	const long, short = "10s:1h,60s:6h,10m:60d", "10s:1m"
	change := func(f *foldTest, stages string) {
		f.shelf.Put(book(t, stages))
		f.pass(15_000)
	}
	stored := func(f *foldTest, ms int64) int {
		f.pass(ms)
		st := f.acquire()
		defer f.release(st)
		return len(st.files)
	}
	for name, ask := range map[string]func(f *foldTest){
		"undone": func(f *foldTest) {
			change(f, short)
			if all := f.whole("thin.double " + string(model.TypeDouble)); len(all.times)+len(all.buckets) != 0 || stored(f, 59*60_000) == 0 {
				t.Errorf("%d samples and %d buckets are shown, with %d files", len(all.times), len(all.buckets), stored(f, 0))
			}
			change(f, long)
			if all := f.whole("thin.double " + string(model.TypeDouble)); len(all.times)+len(all.buckets) == 0 {
				t.Error("the former rules do not bring back what the others hid")
			}
			if stored(f, 25*lateHour) == 0 {
				t.Error("removed by rules that are no longer in force")
			}
		},
		"meant": func(f *foldTest) {
			change(f, short)
			if n := stored(f, lateHour); n != 0 {
				t.Errorf("an hour later there are %d files", n)
			}
		},
		"compacted": func(f *foldTest) {
			change(f, short)
			f.must(t, f.Compact(f.Context()))
			if n := stored(f, 0); n != 0 {
				t.Errorf("after a compaction there are %d files", n)
			}
		},
		"while files were chosen": func(f *foldTest) {
			f.merging.Lock()
			st := f.acquire()
			files := st.files[:1]
			f.release(st)
			f.shelf.Put(book(t, short))
			f.must(t, f.fold(f.Context(), files))
			f.merging.Unlock()
			if stored(f, 0) == 0 {
				t.Error("removed by rules that came after the files were chosen")
			}
		},
		"undone after a deletion": func(f *foldTest) {
			change(f, short)
			first := f.late(1)[0]
			f.must(t, f.Delete(f.Context(), store.Deletion{Metric: "thin.double", Range: model.TimeRange{StartMS: first, EndMS: first}}))
			change(f, long)
			if all := f.whole("thin.double " + string(model.TypeDouble)); len(all.times)+len(all.buckets) != 59 {
				t.Errorf("after the deletion of one of 60 samples, %d samples and %d buckets are left", len(all.times), len(all.buckets))
			}
		},
		"a restart": func(f *foldTest) {
			change(f, short)
			f.reopen()
			if stored(f, 59*60_000) == 0 {
				t.Error("removed within an hour of a change, because of a restart")
			}
			if n := stored(f, 60_000); n != 0 {
				t.Errorf("an hour after a restart there are %d files", n)
			}
		},
		"the clock is set back": func(f *foldTest) {
			change(f, short)
			f.pass(-4 * lateHour)
			if stored(f, 59*60_000) == 0 {
				t.Error("removed within an hour of a change, because the clock was set back")
			}
			if n := stored(f, 60_000); n != 0 {
				t.Errorf("an hour after the clock was set back there are %d files", n)
			}
		},
		"little room for merges": func(f *foldTest) {
			disk := &fullDisk{FS: f.fs, full: new(atomic.Bool)}
			disk.free.Store(1 << 40)
			f.minFree = 1 << 20
			f.must(t, f.Store.Close())
			f.open(disk)
			f.pass(25 * lateHour)
			steps := func() (steps []int64) {
				st := f.acquire()
				defer f.release(st)
				for _, f := range st.files {
					steps = append(steps, f.StepMS)
				}
				disk.free.Store(uint64(f.cfg.MinFreeBytes) + uint64(2*sizeOf(st.files)))
				return steps
			}
			before := steps()
			f.lookAtSpace()
			change(f, "10s:1h,60s:6h,1h:60d")
			if after := steps(); !slices.Equal(after, before) {
				t.Errorf("there are buckets of %d ms instead of %d ms", after, before)
			}
			if stored(f, lateHour); slices.Equal(steps(), before) {
				t.Errorf("an hour later there are still buckets of %d ms", before)
			}
		},
		"from none": func(f *foldTest) {
			change(f, short)
			f.shelf.Put(&retention.Book{})
			f.pass(2 * lateHour)
			change(f, short)
			if stored(f, 59*60_000) == 0 {
				t.Error("removed at once where there were no rules before")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newLateTest(t)
			f.write("thin.double", model.TypeDouble, f.late(60)...)
			f.must(t, f.checkpoint())
			ask(f)
		})
	}
}

// mergeAll merges all files of samples.
func (f *foldTest) mergeAll() {
	f.Helper()
	f.merging.Lock()
	defer f.merging.Unlock()
	st := f.acquire()
	defer f.release(st)
	f.must(f.T, f.merge(f.Context(), st.files))
}

// TestSamplesInTimeAreNotHeldBack: those that arrive within the first stage are folded when it ends.
func TestSamplesInTimeAreNotHeldBack(t *testing.T) {
	f := newLateTest(t)
	for range 6 {
		now := f.nowMS.Load()
		f.write("thin.double", model.TypeDouble, now-20_000, now-10_000)
		f.pass(lateHour / 12)
	}
	f.must(t, f.checkpoint())
	f.pass(2 * lateHour)
	if buckets, samples := f.parts(); buckets == 0 || samples != 0 {
		t.Errorf("two hours later there are %d buckets and %d samples", buckets, samples)
	}
}

// TestSamplesThatWereInTimeForTheHead: a sample is late if it is old enough for a coarser stage when it
// arrives, even if it was not when its head began: a while before, or hours before if the disk was full.
func TestSamplesThatWereInTimeForTheHead(t *testing.T) {
	for name, idle := range map[string]int64{"ten minutes": lateHour / 6, "ten hours": 10 * lateHour} {
		t.Run(name, func(t *testing.T) {
			f := newLateTest(t)
			f.must(t, f.checkpoint())
			f.pass(idle)
			from := (f.nowMS.Load()-lateHour)/60_000*60_000 - lateHour/12
			var times []int64
			for i := range int64(30) {
				times = append(times, from+i*10_000)
			}
			f.write("thin.double", model.TypeDouble, times...)
			f.must(t, f.checkpoint())
			f.pass(lateHour)
			f.write("thin.double", model.TypeDouble, times[3:20]...) // again
			f.must(t, f.checkpoint())
			f.pass(lateHour)
			f.check("sent again")
			f.pass(25 * lateHour)
			f.check("folded")
			if buckets, samples := f.parts(); buckets == 0 || samples != 0 {
				t.Errorf("a day later there are %d buckets and %d samples", buckets, samples)
			}
		})
	}
}

// TestLateSamplesThatGoOn hold the fold back for two days, not forever, and those after it again.
func TestLateSamplesThatGoOn(t *testing.T) {
	f := newLateTest(t)
	times := f.late(500)
	var folds []string
	had := 0
	for hour := range 110 {
		f.write("thin.double", model.TypeDouble, times[hour], times[499-hour])
		f.must(t, f.checkpoint())
		f.pass(lateHour)
		f.check(fmt.Sprint("hour ", hour))
		_, samples := f.parts()
		if samples < had {
			folds = append(folds, fmt.Sprint(hour))
		}
		had = samples
	}
	if got := fmt.Sprint(folds); got != "[47 95]" {
		t.Errorf("folds in the hours %s, want one each two days", got)
	}
}

// TestLateSamplesOnASmallDisk are held back only as long as the disk has room for their fold.
func TestLateSamplesOnASmallDisk(t *testing.T) {
	for _, free := range []uint64{1 << 30, 1 << 20} {
		f := newLateTest(t)
		disk := openDisk(t, f, 1<<30)
		f.pass(lateHour)
		f.write("thin.double", model.TypeDouble, f.late(60)...)
		f.must(t, f.checkpoint())
		held := f.heldBytes.Load()
		f.pass(0)
		if buckets, _ := f.parts(); buckets != 0 {
			t.Fatalf("with 1 GiB free there are %d buckets (%d bytes held)", buckets, held)
		}
		if f.heldBytes.Load() == 0 {
			t.Error("what is held back is not counted")
		}
		disk.free.Store(free)
		f.pass(lateHour)
		if buckets, _ := f.parts(); (buckets != 0) != (free < 1<<30) {
			t.Errorf("with %d bytes free there are %d buckets", free, buckets)
		}
	}
}

// TestCompactFoldsLateSamples: a compaction that an operator requests folds late samples at once.
func TestCompactFoldsLateSamples(t *testing.T) {
	f := newLateTest(t)
	f.write("thin.double", model.TypeDouble, f.late(60)...)
	f.must(t, f.Compact(t.Context()))
	if buckets, samples := f.parts(); buckets == 0 || samples != 0 {
		t.Errorf("there are %d buckets and %d samples", buckets, samples)
	}
}

// TestHoldAfterTheClockJumps: a clock that was put back does not hold folds back for longer.
func TestHoldAfterTheClockJumps(t *testing.T) {
	const hold = 1000
	for _, c := range []struct {
		now, since int64
		want       bool
	}{{5000, 5000, true}, {5999, 5000, true}, {6000, 5000, false}, {4001, 5000, true}, {4000, 5000, false}, {5000, 0, false}} {
		if got := within(c.now, c.since, hold); got != c.want {
			t.Errorf("at %d, since %d: %t", c.now, c.since, got)
		}
	}
}

// TestLateOfBoth: of the samples of two files, the first and the last.
func TestLateOfBoth(t *testing.T) {
	a, b, none := blockfile.Late{FirstMS: 1, LastMS: 5}, blockfile.Late{FirstMS: 3, LastMS: 9}, blockfile.Late{}
	for _, got := range []blockfile.Late{a.Union(b), b.Union(a)} {
		if got != (blockfile.Late{FirstMS: 1, LastMS: 9}) {
			t.Errorf("%+v", got)
		}
	}
	if a.Union(none) != a || none.Union(a) != a || none.Union(none) != none {
		t.Error("a file without late samples changes the times")
	}
}

// newLifetimeTest returns a late test whose series "other" has no retention rule and "thin" has one.
// Samples of both are in a file, and a sample of another series, "log", only in the log. A
// few samples never expire.
func newLifetimeTest(t *testing.T) *foldTest {
	f := newLateTest(t)
	put := func(metric string, ttl uint32, ago ...int64) {
		var b store.Batch
		b.Reset(f.Epoch())
		ref, err := f.Create(t.Context(), model.Series{Metric: metric, Type: model.TypeLong})
		f.must(t, err)
		for _, ms := range ago {
			b.AddLong(ref, f.nowMS.Load()-ms, 1, ttl)
		}
		f.must(t, f.Append(t.Context(), &b))
	}
	const day = 24 * 3600
	put("other.alone", day, 1000, 2000, 3000)
	f.must(t, f.checkpoint())
	put("other.beside", day, 1000, 2000, 3000)
	put("other.forever", 0, 1000)
	f.must(t, f.checkpoint())
	put("thin", 0, 1000, 2000, 3000)
	f.must(t, f.checkpoint())
	put("log.alone", day, 1000)
	put("other.forever", day, 2000)
	return f
}

// listed returns the names and the number of visible samples of all metrics.
func (f *foldTest) listed() string {
	f.Helper()
	v, err := f.View(f.Context())
	f.must(f.T, err)
	defer v.Close()
	names, _, err := v.Names(f.Context(), store.NamesQuery{Kind: store.MetricNames})
	f.must(f.T, err)
	var out []string
	for _, name := range names {
		n := 0
		all, err := storetest.Select(f.Context(), v, store.Selection{Metric: name, Range: model.AllTime})
		f.must(f.T, err)
		for _, s := range all {
			c := v.Read(f.Context(), s, store.ReadOptions{Range: model.AllTime})
			for b, err := c.Next(); b != nil; b, err = c.Next() {
				f.must(f.T, err)
				n += b.Len()
			}
			c.Close()
		}
		out = append(out, fmt.Sprintf("%s %d", name, n))
	}
	return strings.Join(out, ", ")
}

// removeExpired does all that removes samples that have expired.
func (f *foldTest) removeExpired() {
	f.Helper()
	f.must(f.T, f.expireSeries(f.Context()))
	f.must(f.T, f.checkpoint())
	f.mergeAll()
	f.must(f.T, f.maintain(f.Context()))
	f.must(f.T, f.expireSeries(f.Context()))
}

const lifetimes = "log.alone 1, other.alone 3, other.beside 3, other.forever 2, thin 3"

// TestStartWithAClockAhead: what a clock that is a year ahead takes for expired is removed ten
// minutes after a start, and what has outlived its stages after an hour. If the clock is set meanwhile, all of it is there.
func TestStartWithAClockAhead(t *testing.T) {
	const year = 365 * 24 * lateHour
	f := newLifetimeTest(t)
	if got := f.listed(); got != lifetimes {
		t.Fatalf("at first there are %s", got)
	}
	f.reopenAfter(year)
	f.removeExpired()
	f.nowMS.Add(openedHold.Milliseconds() - 1)
	f.removeExpired()
	if got, want := f.listed(), "log.alone 0, other.alone 0, other.beside 0, other.forever 1, thin 0"; got != want {
		t.Errorf("by a clock that is ahead there are %s, want %s", got, want)
	}
	f.nowMS.Add(-year)
	f.removeExpired()
	if got := f.listed(); got != lifetimes {
		t.Errorf("when the clock is right there are %s, want %s", got, lifetimes)
	}
	f.reopenAfter(year)
	f.nowMS.Add(openedHold.Milliseconds())
	f.removeExpired()
	if got, want := f.listed(), "other.forever 1, thin 0"; got != want {
		t.Errorf("ten minutes after a start there are %s, want %s", got, want)
	}
	f.nowMS.Add((retention.ChangeHold - openedHold).Milliseconds())
	f.removeExpired()
	if got, want := f.listed(), "other.forever 1"; got != want {
		t.Errorf("an hour after a start there are %s, want %s", got, want)
	}
	f.nowMS.Add(-year)
	if got, want := f.listed(), "other.forever 1"; got != want {
		t.Errorf("what was removed has come back: %s, want %s", got, want)
	}
}

// TestCompactOfAStartWithAClockAhead: neither does a compaction by request, which says so. It merges.
func TestCompactOfAStartWithAClockAhead(t *testing.T) {
	const year = 365 * 24 * lateHour
	f := newLifetimeTest(t)
	f.reopenAfter(year)
	f.nowMS.Add(openedHold.Milliseconds() - 1)
	err := f.Compact(t.Context())
	var unavailable *store.UnavailableError
	if !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "retention rules were not applied, all other work was done: for 10m0s after a start") {
		t.Errorf("by a clock that is ahead: %v", err)
	}
	if got, want := store.RetryIn(err), time.Millisecond; got != want {
		t.Errorf("a client is told to compact again in %v, want %v", got, want)
	}
	if files := len(f.current.files); files != 1 {
		t.Errorf("%d files were not merged", files)
	}
	f.nowMS.Add(-year)
	if got := f.listed(); got != lifetimes {
		t.Errorf("when the clock is right there are %s, want %s", got, lifetimes)
	}
	f.must(t, f.Compact(t.Context())) // nothing is old enough
	f.reopenAfter(year)
	f.nowMS.Add(openedHold.Milliseconds())
	f.must(t, f.Compact(t.Context()))
	if got, want := f.listed(), "other.forever 1"; got != want {
		t.Errorf("ten minutes after a start there are %s, want %s", got, want)
	}
}

// TestBucketsOfAStartWithAClockAhead: buckets are neither made coarser nor removed by such a clock.
func TestBucketsOfAStartWithAClockAhead(t *testing.T) {
	f := newLateTest(t)
	f.write("thin.double", model.TypeDouble, f.nowMS.Load()-3000, f.nowMS.Load()-2000)
	f.must(t, f.checkpoint())
	f.pass(2 * lateHour)
	buckets, samples := f.parts()
	if buckets == 0 || samples != 0 {
		t.Fatalf("at first there are %d buckets and %d samples", buckets, samples)
	}
	step := f.current.files[0].StepMS
	for _, ahead := range []int64{10 * lateHour, 365 * 24 * lateHour} {
		f.reopenAfter(ahead)
		f.pass(openedHold.Milliseconds() - 1)
		if files := f.current.files; len(files) != 1 || files[0].StepMS != step {
			t.Errorf("by a clock that is %d hours ahead, %d files", ahead/lateHour, len(files))
		}
		f.nowMS.Add(-ahead)
	}
	f.reopenAfter(365 * 24 * lateHour)
	f.pass(lateHour)
	if files := f.current.files; len(files) != 0 {
		t.Errorf("an hour after a start there are %d files", len(files))
	}
}
