package embedded

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/model"
	"varve/internal/quantile"
	"varve/internal/retention"
	"varve/internal/store"
	"varve/internal/store/storetest"
	"varve/internal/units"
)

// foldWindow is a multiple of every step in the tests, in ms: what came late may be in
// buckets of several steps, and together they have each sample once.
const foldWindow = 7_200_000

// A foldTest is a store whose samples are downsampled, and a record of what was written to it.
type foldTest struct {
	*testing.T
	*Store
	fs       *crashfs.FS
	nowMS    atomic.Int64
	shelf    *retention.Shelf
	jumped   int64                        // ms that the clock is ahead
	samples  map[string]map[int64]float64 // by series and time
	oldest   map[string]int64             // older samples may be gone
	sketches sketchMode
	hold     time.Duration // Config.LateHold
	minFree  units.Bytes   // Config.MinFreeBytes
}

// A sketchMode says whether policies of a test ask for sketches.
type sketchMode int

const (
	withoutSketches sketchMode = iota
	withSketches
	withChanges // at times
)

func book(t *testing.T, stages string, sketches ...bool) *retention.Book {
	var p retention.PolicyConfig
	p.SetDefaults()
	p.Name, p.Path, p.Stages, p.Sketch = "thin", "^thin", stages, slices.Contains(sketches, true)
	rules, err := retention.Config{Policies: []retention.PolicyConfig{p}}.Rules()
	if err != nil {
		t.Fatal(err)
	}
	return &retention.Book{Rules: rules}
}

// newSketchTest is newFoldTest with policies that ask for sketches.
func newSketchTest(t *testing.T, stages string, mode sketchMode) *foldTest {
	f := newFoldTest(t, stages)
	f.sketches = mode
	f.shelf.Put(book(t, stages, mode != withoutSketches))
	return f
}

func newFoldTest(t *testing.T, stages string) *foldTest {
	f := &foldTest{T: t, fs: crashfs.New(), samples: map[string]map[int64]float64{}, oldest: map[string]int64{}}
	f.nowMS.Store(1_700_000_000_000)
	f.shelf = retention.NewShelf(book(t, stages))
	f.open(f.fs)
	t.Cleanup(func() {
		if err := f.Store.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *foldTest) open(fs vfs.FS) {
	f.Helper()
	cfg := quietConfig("fsync")
	cfg.LateHold, cfg.MinFreeBytes = f.hold, f.minFree
	s, err := Open(fs, "data", cfg, Options{Book: f.shelf, Now: func() time.Time { return time.UnixMilli(f.nowMS.Load()) }})
	if err != nil {
		f.Fatal(err)
	}
	f.Store = s
}

// write stores samples of a series, each of which is counted once as long as none was
// there before.
func (f *foldTest) write(metric string, kind model.Type, times ...int64) {
	f.Helper()
	key := metric + " " + string(kind)
	if f.samples[key] == nil {
		f.samples[key] = map[int64]float64{}
	}
	var b store.Batch
	b.Reset(f.Epoch())
	ref, err := f.Create(f.Context(), model.Series{Metric: metric, Type: kind})
	f.must(f.T, err)
	for _, ms := range times {
		v := ms/1000%977 - 400
		f.samples[key][ms] = float64(v)
		if kind == model.TypeLong {
			b.AddLong(ref, ms, v, 0)
		} else {
			b.AddDouble(ref, ms, float64(v), 0)
		}
	}
	f.must(f.T, f.Append(f.Context(), &b))
}

// foldAll folds each file once, regardless of its age.
func (f *foldTest) foldAll() {
	f.Helper()
	f.merging.Lock()
	defer f.merging.Unlock()
	f.noteRules(f.book(), f.nowMS.Load()) // as the merger does when it chooses files
	f.must(f.T, f.dropDead())
	done := map[uint64]bool{}
	for {
		st := f.acquire()
		i := slices.IndexFunc(st.files, func(o *openFile) bool { return !done[o.Number] && o.Number <= f.nextFile.Load() })
		if i < 0 {
			f.release(st)
			break
		}
		one := st.files[i]
		f.release(st)
		before := f.nextFile.Load()
		f.must(f.T, f.fold(f.Context(), []*openFile{one}))
		done[one.Number] = true
		for n := before + 1; n <= f.nextFile.Load(); n++ {
			done[n] = true
		}
	}
}

func (f *foldTest) policyNamed(key string) retention.Policy {
	metric, _, _ := strings.Cut(key, " ")
	return f.shelf.Book().Of(retention.ParsePath(metric))
}

// found is what a store has of a series: samples, and buckets.
type found struct {
	times   []int64
	values  []float64
	buckets []store.Bucket
}

func (f *foldTest) find(key string, options ...store.ReadOptions) (all found) {
	f.Helper()
	v, err := f.View(f.Context())
	f.must(f.T, err)
	defer v.Close()
	for _, o := range options {
		f.findIn(v, key, o, &all)
	}
	return all
}

func (f *foldTest) findIn(v store.View, key string, o store.ReadOptions, all *found) {
	f.Helper()
	metric, kind, _ := strings.Cut(key, " ")
	list, err := storetest.Select(f.Context(), v, store.Selection{Metric: metric, Range: model.AllTime})
	f.must(f.T, err)
	for _, s := range list {
		if string(s.Type) != kind {
			continue
		}
		c := v.Read(f.Context(), s, o)
		defer c.Close()
		for {
			b, err := c.Next()
			f.must(f.T, err)
			if b == nil {
				break
			}
			all.times = append(all.times, b.Times...)
			for i := range b.Times {
				all.values = append(all.values, model.Float(s.Type.Kind(), b.Values[i]))
			}
			for i := 0; b.Buckets != nil && i < b.Buckets.Len(); i++ {
				all.buckets = append(all.buckets, b.Buckets.At(i))
			}
		}
	}
}

// whole are samples and buckets of one instant.
func (f *foldTest) whole(key string) found {
	f.Helper()
	return f.find(key, store.ReadOptions{Range: model.AllTime, Buckets: store.WithoutBuckets}, store.ReadOptions{Range: model.AllTime, Buckets: store.BucketsOnly, Needs: model.AllStats, Sketches: true})
}

// check compares, window by window, samples and buckets together with what was written.
func (f *foldTest) check(when string) {
	f.Helper()
	for key, samples := range f.samples {
		if p := f.policyNamed(key); p.Rule != nil {
			f.oldest[key] = max(f.oldest[key], p.Rule.Stages.OldestMS(f.nowMS.Load()))
		}
		all := f.whole(key)
		got, want := map[int64]model.Aggregate{}, map[int64]model.Aggregate{}
		add := func(to map[int64]model.Aggregate, ms int64, a model.Aggregate) {
			at := model.Floor(ms, foldWindow)
			if at <= f.oldest[key] {
				return
			}
			sum := to[at]
			sum.Merge(a)
			to[at] = sum
		}
		for i, ms := range all.times {
			add(got, ms, f.one(ms, all.values[i]))
		}
		for _, b := range all.buckets {
			if b.StepMS == 0 || b.StartMS%b.StepMS != 0 || b.LastMS < b.StartMS || b.LastMS >= b.StartMS+b.StepMS {
				f.Fatalf("%s: %s has a bucket %+v", when, key, b)
			}
			add(got, b.StartMS, b.Aggregate)
		}
		for ms, v := range samples {
			add(want, ms, f.one(ms, v))
		}
		for at, w := range want {
			if f.sketches == withChanges && got[at].Sketch == "" {
				w.Sketch = "" // of a part that was made without
			}
			if got[at] != w {
				f.Fatalf("%s: %s from %d on: %+v, want %+v", when, key, at, got[at], w)
			}
		}
		if len(got) != len(want) {
			f.Fatalf("%s: %s has samples in %d windows, want %d", when, key, len(got), len(want))
		}
	}
}

// one is the bucket of one sample, as the policy of the test has it.
func (f *foldTest) one(ms int64, v float64) (a model.Aggregate) {
	a.Add(ms, v)
	if f.sketches != withoutSketches {
		a.Sketch = quantile.Of(v)
	}
	return a
}

// checkSteps reports data that is finer than its policy has it.
func (f *foldTest) checkSteps(when string) {
	f.Helper()
	for key := range f.samples {
		p := f.policyNamed(key)
		if p.Rule == nil {
			continue
		}
		plan := p.Rule.Stages.Plan(f.nowMS.Load())
		all := f.whole(key)
		for _, ms := range all.times {
			if i := plan.At(ms); i < 0 || plan.Target(i, 0) != 0 {
				f.Fatalf("%s: %s has a sample at %d, which plan %v makes a bucket", when, key, ms, plan)
			}
		}
		for _, b := range all.buckets {
			if i := plan.At(b.StartMS); i < 0 || plan.Target(i, b.StepMS) != b.StepMS {
				f.Fatalf("%s: %s has a bucket of %d ms at %d, which plan %v makes coarser", when, key, b.StepMS, b.StartMS, plan)
			}
		}
	}
}

// TestFoldsLoseNothing writes samples in order and late, deletes, folds, merges,
// changes the policy and the clock, restarts and cuts the power, and compares what is there with
// what was written.
func TestFoldsLoseNothing(t *testing.T) {
	policies := []string{"10s:1h,60s:6h,10m:2d", "10s:30m,20m:4d", "60s:2h,30m:1d,2h:5d", "20s:1h,100s:12h,400s:3d"}
	runs := uint64(12)
	if testing.Short() {
		runs = 3
	}
	for seed := range runs {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			f := newSketchTest(t, policies[random.IntN(2)], sketchMode(seed%3))
			f.hold = time.Duration(seed%2) * 24 * time.Hour // from the first restart on
			keys := []struct {
				metric string
				kind   model.Type
			}{{"thin.long", model.TypeLong}, {"thin.double", model.TypeDouble}, {"thin.long", model.TypeDouble}, {"whole", model.TypeLong}}
			for step := range 120 {
				k := keys[random.IntN(len(keys))]
				key := k.metric + " " + string(k.kind)
				now := f.nowMS.Load()
				switch n := random.IntN(22); {
				case n == 20: // the clock is put back
					f.nowMS.Add(-int64(random.IntN(3_600_000)))
				case n == 21: // the clock jumps a day ahead, for some steps
					f.nowMS.Add(86_400_000)
					f.jumped += 86_400_000
				case f.jumped > 0 && random.IntN(4) == 0:
					f.nowMS.Add(-f.jumped)
					f.jumped = 0
				case n < 8: // in order
					var times []int64
					for ms := now; ms < now+int64(random.IntN(3_000_000)); ms += 140_000 {
						times = append(times, ms/70_000*70_000)
					}
					f.writeNew(k.metric, k.kind, times)
					f.nowMS.Add(int64(random.IntN(3_600_000)))
				case n < 11: // late
					var times []int64
					for range random.IntN(20) {
						times = append(times, now-int64(random.IntN(150*3_600_000)))
					}
					f.writeNew(k.metric, k.kind, times)
				case n < 13:
					f.must(t, f.checkpoint())
				case n < 15:
					f.foldAll()
				case n < 16:
					just := f.justOpened(f.nowMS.Load())
					if err := f.Compact(t.Context()); !just || !errors.As(err, new(*store.UnavailableError)) {
						f.must(t, err)
					}
				case n < 17:
					f.must(t, f.maintain(t.Context()))
				case n < 18:
					f.erase(key, random)
				case n < 19:
					f.restart(random)
				default:
					sketches := f.sketches == withSketches || f.sketches == withChanges && random.IntN(3) > 0
					f.shelf.Put(book(t, policies[random.IntN(len(policies))], sketches))
				}
				f.check(fmt.Sprint("step ", step))
			}
			f.must(t, f.checkpoint())
			f.foldAll()
			f.must(t, f.checkpoint()) // nothing is in memory, so that all can be folded
			f.foldAll()
			f.check("at the end")
			f.checkSteps("at the end")
			if err := checkFiles(f.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: random})); err != nil {
				t.Error(err)
			}
		})
	}
}

// writeNew writes those of times that have no other within a minute, the widest slot of
// the policies: whether the last of a slot counts alone depends on when it came.
func (f *foldTest) writeNew(metric string, kind model.Type, times []int64) {
	there := map[int64]bool{} // minutes
	for ms := range f.samples[metric+" "+string(kind)] {
		there[ms/60_000] = true
	}
	var fresh []int64
	for _, ms := range times {
		if m := ms / 60_000; !there[m-1] && !there[m] && !there[m+1] {
			there[m] = true
			fresh = append(fresh, ms)
		}
	}
	if len(fresh) > 0 {
		f.write(metric, kind, fresh...)
	}
}

// erase deletes whole windows of both types of a metric.
func (f *foldTest) erase(key string, random *rand.Rand) {
	metric, _, _ := strings.Cut(key, " ")
	from := model.Floor(f.nowMS.Load()-int64(random.IntN(100*3_600_000)), foldWindow)
	r := model.TimeRange{StartMS: from, EndMS: from + int64(1+random.IntN(4))*foldWindow - 1}
	f.must(f.T, f.Delete(f.Context(), store.Deletion{Metric: metric, Range: r}))
	for key, samples := range f.samples {
		for ms := range samples {
			if strings.HasPrefix(key, metric+" ") && r.Contains(ms) {
				delete(samples, ms)
			}
		}
	}
}

// restart goes on after a stop, a kill or a power cut.
func (f *foldTest) restart(random *rand.Rand) {
	f.Helper()
	disk := f.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[random.IntN(3)], RNG: random})
	f.must(f.T, f.Store.Close())
	if random.IntN(3) > 0 {
		f.fs = disk
	}
	f.open(f.fs)
}

// TestFoldsEndAnywhere cuts the power before each call to the file system that a fold
// makes, and folds again.
func TestFoldsEndAnywhere(t *testing.T) {
	f := newSketchTest(t, "10s:1h,60s:6h,10m:2d", withSketches)
	for i := range int64(600) {
		f.write("thin.long", model.TypeLong, f.nowMS.Load()-i*60_000)
		f.write("thin.double", model.TypeDouble, f.nowMS.Load()-i*240_000)
	}
	f.must(t, f.checkpoint())
	f.must(t, f.Store.Close())
	base := f.fs
	cuts := 0
	for _, percent := range []int{0, 60, 100} {
		disk := base.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
		var mu sync.Mutex // Pebble removes files on a goroutine of its own
		armed := false
		var clones []*crashfs.FS
		f.open(errorfs.Wrap(disk, errorfs.InjectorFunc(func(errorfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if armed {
				clones = append(clones, disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(uint64(len(clones)), 2))}))
			}
			return nil
		})))
		arm := func(on bool) {
			mu.Lock()
			defer mu.Unlock()
			armed = on
		}
		arm(true)
		f.foldAll()
		arm(false)
		f.check("folded")
		for i, clone := range clones {
			f.must(t, f.Store.Close())
			f.open(clone)
			f.check(fmt.Sprintf("%d %% of what was not synced kept, cut before call %d", percent, i))
			f.foldAll()
			f.check(fmt.Sprintf("folded after the cut before call %d", i))
			cuts++
		}
		f.must(t, f.Store.Close())
	}
	if cuts < 30 {
		t.Errorf("only %d cuts", cuts)
	}
	f.open(base)
}

// TestFoldedSamples reads a folded series as clients do that know nothing of buckets.
func TestFoldedSamples(t *testing.T) {
	f := newFoldTest(t, "10s:1h,60s:6h,10m:2d")
	now := f.nowMS.Load() / 600_000 * 600_000
	f.nowMS.Store(now)
	var want []int64
	for ms := now - 36*3_600_000; ms <= now; ms += 30_000 {
		f.write("thin.long", model.TypeLong, ms)
		switch step := int64(30_000); {
		case ms < now-6*3_600_000:
			step = 600_000
			fallthrough
		case ms < now-3_600_000:
			step = max(step, 60_000)
			if ms%step == 0 {
				want = append(want, ms)
			}
		default:
			want = append(want, ms)
		}
	}
	f.must(t, f.checkpoint())
	f.foldAll()
	key := "thin.long kairos_long"
	got := f.find(key, store.ReadOptions{Range: model.AllTime})
	if !slices.Equal(got.times, want) {
		t.Fatalf("%d samples, want %d", len(got.times), len(want))
	}
	down := f.find(key, store.ReadOptions{Range: model.AllTime, Descending: true})
	slices.Reverse(down.times)
	slices.Reverse(down.values)
	if !slices.Equal(down.times, want) || !slices.Equal(down.values, got.values) {
		t.Error("descending there is something else")
	}
	for _, limit := range []int{1, 100, 200, 700, len(want) + 5} {
		n := min(limit, len(want))
		if some := f.find(key, store.ReadOptions{Range: model.AllTime, Limit: limit}); !slices.Equal(some.times, want[:n]) {
			t.Errorf("the first %d samples: %d", limit, len(some.times))
		}
		if some := f.find(key, store.ReadOptions{Range: model.AllTime, Limit: limit, Descending: true}); len(some.times) != n || some.times[n-1] != want[len(want)-n] {
			t.Errorf("the last %d samples: %d", limit, len(some.times))
		}
	}
	within := model.TimeRange{StartMS: want[20] + 1, EndMS: want[400]}
	if some := f.find(key, store.ReadOptions{Range: within}); !slices.Equal(some.times, want[21:401]) {
		t.Errorf("in a range: %d samples from %d", len(some.times), some.times[0])
	}
	f.checkSums(key, now)
}

// checkSums compares statistics of hours with the samples.
func (f *foldTest) checkSums(key string, now int64) {
	f.Helper()
	const hour = 3_600_000
	v, err := f.View(f.Context())
	f.must(f.T, err)
	defer v.Close()
	list, err := storetest.Select(f.Context(), v, store.Selection{Metric: "thin.long", Range: model.AllTime})
	f.must(f.T, err)
	summary := &store.Summary{Final: func(ms int64) int64 { return model.Floor(ms, hour) + hour - 1 }, Needs: model.StatSum | model.StatMin | model.StatMax | model.StatLast}
	c := v.Read(f.Context(), list[0], store.ReadOptions{Range: model.AllTime, Summarize: summary})
	defer c.Close()
	got, want := map[int64]model.Aggregate{}, map[int64]model.Aggregate{}
	for {
		b, err := c.Next()
		f.must(f.T, err)
		if b == nil {
			break
		}
		for i, ms := range b.Times {
			a := got[model.Floor(ms, hour)]
			a.Add(0, float64(int64(b.Values[i])))
			got[model.Floor(ms, hour)] = a
		}
		for _, s := range b.Stats {
			a := got[model.Floor(s.FirstMS, hour)]
			a.Merge(model.Aggregate{Sum: s.Sum, Count: int64(s.Count), Min: s.Min, Max: s.Max, Last: float64(int64(s.Last))})
			got[model.Floor(s.FirstMS, hour)] = a
		}
	}
	for ms, v := range f.samples[key] {
		a := want[model.Floor(ms, hour)]
		a.Add(ms, v)
		want[model.Floor(ms, hour)] = a
	}
	for at, w := range want {
		w.LastMS = 0
		if got[at] != w {
			f.Errorf("hour from %d on: %+v, want %+v", at, got[at], w)
		}
	}
}

// TestFoldedSketches reads folded samples with what they stand for, and finds sketches in
// the files of series that ask for them alone.
func TestFoldedSketches(t *testing.T) {
	f := newSketchTest(t, "10s:1h,60s:6h,10m:2d", withSketches)
	now := f.nowMS.Load() / 600_000 * 600_000
	f.nowMS.Store(now)
	for ms := now - 36*3_600_000; ms <= now; ms += 30_000 {
		f.write("thin.long", model.TypeLong, ms)
	}
	f.must(t, f.checkpoint())
	f.foldAll()
	f.check("folded")
	v, err := f.View(t.Context())
	f.must(t, err)
	defer v.Close()
	list, err := storetest.Select(t.Context(), v, store.Selection{Metric: "thin.long", Range: model.AllTime})
	f.must(t, err)
	policy := f.policyNamed("thin.long")
	for _, o := range []store.ReadOptions{{}, {Descending: true}, {Limit: 500}, {Limit: 500, Descending: true}} {
		o.Range, o.Sketches = model.AllTime, true
		c := v.Read(t.Context(), list[0], o)
		var whole model.Aggregate
		for {
			b, err := c.Next()
			f.must(t, err)
			if b == nil {
				break
			}
			for i, ms := range b.Times {
				one := f.one(ms, float64(int64(b.Values[i])))
				if b.Aggregates != nil && b.Aggregates[i].Count > 0 {
					one = b.Aggregates[i]
					if want := int64(math.RoundToEven(policy.Aggregation.Method.Of(one, 1))); one.Sketch == "" || one.LastMS < ms || int64(b.Values[i]) != want {
						t.Fatalf("%+v: %d at %d ms stands for %+v", o, int64(b.Values[i]), ms, one)
					}
				} else if int64(b.Values[i]) != ms/1000%977-400 {
					t.Fatalf("%+v: %d at %d ms stands for no bucket", o, int64(b.Values[i]), ms)
				}
				whole.Merge(one)
			}
		}
		c.Close()
		if o.Limit == 0 && whole.Count != 36*120+1 {
			t.Errorf("%+v: %d samples", o, whole.Count)
		}
	}
	plain := f.find("thin.long kairos_long", store.ReadOptions{Range: model.AllTime, Buckets: store.BucketsOnly, Needs: model.AllStats})
	if n := len(plain.buckets); n < 100 || plain.buckets[0].Sketch != "" {
		t.Errorf("%d buckets, with sketches that nobody asked for", n)
	}
	// Runs of buckets, which are handed out as they are, and buckets one by one.
	sketched := f.find("thin.long kairos_long", store.ReadOptions{Range: model.AllTime, Buckets: store.BucketsOnly, Needs: model.AllStats, Sketches: true}).buckets
	down := f.find("thin.long kairos_long", store.ReadOptions{Range: model.AllTime, Buckets: store.BucketsOnly, Needs: model.AllStats, Descending: true}).buckets
	sums := f.find("thin.long kairos_long", store.ReadOptions{Range: model.AllTime, Buckets: store.BucketsOnly, Needs: model.StatSum}).buckets
	slices.Reverse(down)
	for i := range sketched {
		sketched[i].Sketch = ""
	}
	if !slices.Equal(sketched, plain.buckets) || !slices.Equal(down, plain.buckets) || len(sums) != len(down) {
		t.Fatalf("%d buckets with sketches, %d downwards, %d sums, %d by runs", len(sketched), len(down), len(sums), len(plain.buckets))
	}
	for i, b := range plain.buckets {
		want := store.Bucket{StartMS: b.StartMS, StepMS: b.StepMS, Aggregate: model.Aggregate{Sum: b.Sum, Count: b.Count, LastMS: b.LastMS}}
		if sums[i] != want {
			t.Fatalf("the sum of bucket %d: %+v, want %+v", i, sums[i], want)
		}
	}
}

// TestSketchesInFiles: files have sketches if a policy asks for them; they go when the
// buckets are folded without, and stay when they are merged.
func TestSketchesInFiles(t *testing.T) {
	f := newFoldTest(t, "10s:1h,60s:6h,10m:2d")
	now := f.nowMS.Load() / 3_600_000 * 3_600_000
	f.nowMS.Store(now)
	hours := func(back, n int64) (times []int64) {
		for ms := now - back*3_600_000; ms < now-(back-n)*3_600_000; ms += 140_000 {
			times = append(times, ms)
		}
		return times
	}
	sketched := func() (files, withSketch int) {
		st := f.acquire()
		defer f.release(st)
		for _, o := range st.files {
			if o.StepMS == 0 {
				continue
			}
			files++
			if o.Sketches {
				withSketch++
			}
		}
		return files, withSketch
	}
	round := func(sketches bool, wantSketches bool, times []int64) {
		t.Helper()
		f.shelf.Put(book(t, "10s:1h,60s:6h,10m:2d", sketches))
		f.write("thin.long", model.TypeLong, times...)
		f.must(t, f.checkpoint())
		f.foldAll()
		if files, with := sketched(); files == 0 || (with > 0) != wantSketches {
			t.Errorf("%d of %d files of buckets have sketches, want %t", with, files, wantSketches)
		}
		f.check("folded")
	}
	round(false, false, hours(5, 1))
	f.sketches = withChanges
	round(true, true, hours(3, 1))
	late := hours(5, 1)
	for i := range late { // in other minutes of the same ten
		late[i] += 70_000
	}
	round(true, true, late)
	f.shelf.Put(book(t, "10s:1h,60s:6h,10m:2d", false))
	f.must(t, f.Compact(t.Context()))
	if _, with := sketched(); with == 0 {
		t.Error("a merge has removed the sketches")
	}
	f.shelf.Put(book(t, "10s:1h,20m:6h", true))
	f.foldAll()
	f.check("folded with others that have none")
	with := map[bool]int{}
	for _, b := range f.whole("thin.long kairos_long").buckets {
		with[b.Sketch != ""]++
	}
	if with[true] != 3 || with[false] != 3 {
		t.Errorf("%d buckets with a sketch, %d without, want 3 of each", with[true], with[false])
	}
	f.shelf.Put(book(t, "10s:1h,20m:2h,1h:2d", false))
	f.foldAll()
	for _, b := range f.whole("thin.long kairos_long").buckets {
		if b.Sketch != "" {
			t.Errorf("a bucket of %d ms was made with a sketch", b.StepMS)
		}
	}
	f.check("folded without")
	if files, with := sketched(); files == 0 || with != 0 {
		t.Errorf("%d of %d files may have sketches, and none does", with, files)
	}
}

// TestFoldedSlots counts the last sample of a slot alone, as the finest stage does.
func TestFoldedSlots(t *testing.T) {
	f := newFoldTest(t, "10s:1h,60s:6h")
	at := model.Floor(f.nowMS.Load()-2*3_600_000, 60_000)
	f.write("thin.long", model.TypeLong, at, at+3_000, at+9_999, at+10_000, at+59_000)
	f.must(t, f.checkpoint())
	f.foldAll()
	got := f.find("thin.long kairos_long", store.ReadOptions{Range: model.AllTime, Buckets: store.BucketsOnly, Needs: model.AllStats}).buckets
	var want model.Aggregate
	for _, ms := range []int64{at + 9_999, at + 10_000, at + 59_000} {
		want.Add(ms, f.samples["thin.long kairos_long"][ms])
	}
	if len(got) != 1 || got[0] != (store.Bucket{StartMS: at, StepMS: 60_000, Aggregate: want}) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestFoldedMarkers: markers of staleness are in no bucket, also where one has taken the
// place of a sample, and stay beside the samples that stay.
func TestFoldedMarkers(t *testing.T) {
	f := newFoldTest(t, "10s:1h,60s:6h")
	now := model.Floor(f.nowMS.Load(), 60_000)
	old, late := now-2*3_600_000, now-600_000
	f.write("thin.double", model.TypeDouble, old, old+10_000, old+20_000, late, late+10_000)
	var b store.Batch
	b.Reset(f.Epoch())
	ref, err := f.Create(t.Context(), model.Series{Metric: "thin.double", Type: model.TypeDouble})
	f.must(t, err)
	for _, ms := range []int64{old + 10_000, old + 50_000, late + 10_000, late + 20_000} {
		b.AddDouble(ref, ms, math.Float64frombits(model.StaleMarker), 0)
	}
	f.must(t, f.Append(t.Context(), &b))
	f.must(t, f.checkpoint())
	f.foldAll()
	key := "thin.double kairos_double"
	var want model.Aggregate
	for _, ms := range []int64{old, old + 20_000} {
		want.Add(ms, f.samples[key][ms])
	}
	got := f.find(key, store.ReadOptions{Range: model.AllTime, Buckets: store.BucketsOnly, Needs: model.AllStats})
	if len(got.buckets) != 1 || got.buckets[0] != (store.Bucket{StartMS: old, StepMS: 60_000, Aggregate: want}) {
		t.Errorf("%+v, want %+v", got.buckets, want)
	}
	for stale, want := range map[bool][]int64{false: {late}, true: {late, late + 10_000, late + 20_000}} {
		if got := f.find(key, store.ReadOptions{Range: model.AllTime, Buckets: store.WithoutBuckets, Stale: stale}); !slices.Equal(got.times, want) {
			t.Errorf("markers %v: samples at %v, want %v", stale, got.times, want)
		}
		want = append([]int64{old}, want...)
		if got := f.find(key, store.ReadOptions{Range: model.AllTime, Stale: stale}); !slices.Equal(got.times, want) {
			t.Errorf("markers %v: samples and buckets at %v, want %v", stale, got.times, want)
		}
	}
}

// TestOutlivedSeries: names go with the last bucket; texts and NaN are no reason to fail.
func TestOutlivedSeries(t *testing.T) {
	f := newFoldTest(t, "10s:1h,60s:6h")
	start := f.nowMS.Load()
	f.write("thin.long", model.TypeLong, start)
	var b store.Batch
	b.Reset(f.Epoch())
	text, err := f.Create(t.Context(), model.Series{Metric: "thin.text", Type: model.TypeString})
	f.must(t, err)
	b.AddBytes(text, start, []byte("a"), 0)
	nan, err := f.Create(t.Context(), model.Series{Metric: "thin.nan", Type: model.TypeDouble})
	f.must(t, err)
	b.AddDouble(nan, start, math.NaN(), 0)
	f.must(t, f.Append(context.Background(), &b))
	f.must(t, f.checkpoint())
	names := func() []string {
		v, err := f.View(t.Context())
		f.must(t, err)
		defer v.Close()
		all, _, err := v.Names(t.Context(), store.NamesQuery{Kind: store.MetricNames})
		f.must(t, err)
		return all
	}
	f.nowMS.Store(start + 2*3_600_000)
	f.foldAll()
	if got := names(); !slices.Equal(got, []string{"thin.long", "thin.text"}) {
		t.Errorf("after two hours: %v", got)
	}
	f.nowMS.Store(start + 7*3_600_000)
	if got := f.find("thin.long kairos_long", store.ReadOptions{Range: model.AllTime}); len(got.times) != 0 {
		t.Errorf("what has outlived its policy is read: %v", got)
	}
	f.foldAll()
	if got := names(); len(got) != 0 {
		t.Errorf("after seven hours: %v", got)
	}
	if st := f.acquire(); len(st.files) != 0 {
		t.Errorf("%d files are left", len(st.files))
	}
}

// TestFoldOfSamplesSentAgain: samples that are sent again once they are folded, as by an import that is
// repeated or by a client that has got no answer, count once, also as single samples with another value.
func TestFoldOfSamplesSentAgain(t *testing.T) {
	f := newFoldTest(t, "10s:1h,60s:6h,10m:2d")
	now := f.nowMS.Load() / foldWindow * foldWindow
	var minutes, tens []int64
	for i := range int64(300) {
		minutes = append(minutes, now-4*3_600_000+i*10_000) // six in a bucket
		tens = append(tens, now-40*3_600_000+i*600_000/2)   // two in a bucket
	}
	single := []int64{now - 20*3_600_000, now - 19*3_600_000 + 7_000, now - 2*3_600_000 + 7_000}
	for range 3 {
		f.write("thin.double", model.TypeDouble, minutes...)
		f.write("thin.long", model.TypeLong, tens...)
		f.write("thin.long", model.TypeDouble, single...)
		f.must(t, f.checkpoint())
		f.foldAll()
		f.check("folded")
	}
	key := "thin.long " + string(model.TypeDouble)
	f.correct(key, single...)
	f.must(t, f.checkpoint())
	f.foldAll()
	f.check("corrected")
	f.must(t, f.Compact(t.Context())) // merges files of buckets
	f.check("merged")
}

// TestFoldOfSamplesSentAgainInOtherParts: an import that is repeated counts once, also if checkpoints come at other
// points, in the middle of buckets.
func TestFoldOfSamplesSentAgainInOtherParts(t *testing.T) {
	for _, imports := range [][][]int{
		{{27}, {}},
		{{}, {27}},
		{{27}, {29}},
		{{27}, {25, 28}},
		{{25, 28}, {26}, {27, 29}, {}},
	} {
		for _, mode := range []sketchMode{withoutSketches, withSketches} {
			f := newSketchTest(t, "10s:1h,60s:6h,10m:2d", mode)
			from := f.nowMS.Load()/foldWindow*foldWindow - 4*3_600_000
			var times []int64
			for i := range int64(60) { // six in a bucket
				times = append(times, from+i*10_000)
			}
			for _, cuts := range imports {
				begun := 0
				for _, end := range append(slices.Clone(cuts), len(times)) {
					f.write("thin.double", model.TypeDouble, times[begun:end]...)
					f.must(t, f.checkpoint())
					begun = end
				}
				f.foldAll()
				f.check(fmt.Sprint(imports, " folded"))
			}
			f.must(t, f.Compact(t.Context())) // merges files of buckets
			f.check(fmt.Sprint(imports, " merged"))
		}
	}
}

// TestSampleSentAgainBesideItsBucket: before it is folded again.
func TestSampleSentAgainBesideItsBucket(t *testing.T) {
	f := newFoldTest(t, "10s:1h,60s:6h,10m:2d")
	ms := f.nowMS.Load()/foldWindow*foldWindow - 20*3_600_000
	f.write("thin.long", model.TypeLong, ms)
	f.must(t, f.checkpoint())
	f.foldAll()
	key := "thin.long " + string(model.TypeLong)
	f.correct(key, ms)
	all := f.find(key, store.ReadOptions{Range: model.AllTime})
	if len(all.values) != 1 || all.values[0] != 5000 {
		t.Errorf("%v at %v", all.values, all.times)
	}
}

// TestMergeAroundASampleSentAgain: a merge of files of buckets, one older and one newer than the bucket of a
// sample that was sent again, does not bring back the value that was sent first.
func TestMergeAroundASampleSentAgain(t *testing.T) {
	f := newFoldTest(t, "10s:1h,60s:6h,10m:2d")
	ms := f.nowMS.Load()/foldWindow*foldWindow - 4*3_600_000
	key := "thin.double " + string(model.TypeDouble)
	f.merging.Lock()
	defer f.merging.Unlock()
	folded := func(write func()) *openFile {
		write()
		f.must(t, f.checkpoint())
		_, err := f.foldEverything(t.Context())
		f.must(t, err)
		st := f.acquire()
		defer f.release(st)
		return st.files[len(st.files)-1]
	}
	old := folded(func() { f.write("thin.double", model.TypeDouble, ms) })
	folded(func() { f.correct(key, ms) })
	young := folded(func() { f.write("thin.double", model.TypeDouble, ms+600_000) })
	f.check("folded")
	f.must(t, f.compactGroup(t.Context(), []*openFile{old, young}, map[uint64]bool{old.Number: true, young.Number: true}))
	f.check("merged")
}

// correct stores samples of a series again, with the value 5000.
func (f *foldTest) correct(key string, times ...int64) {
	f.Helper()
	metric, kind, _ := strings.Cut(key, " ")
	var b store.Batch
	b.Reset(f.Epoch())
	ref, err := f.Create(f.Context(), model.Series{Metric: metric, Type: model.Type(kind)})
	f.must(f.T, err)
	for _, ms := range times {
		f.samples[key][ms] = 5000
		if model.Type(kind) == model.TypeLong {
			b.AddLong(ref, ms, 5000, 0)
		} else {
			b.AddDouble(ref, ms, 5000, 0)
		}
	}
	f.must(f.T, f.Append(f.Context(), &b))
}
