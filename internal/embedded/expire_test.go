package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"varve/internal/diskfs/crashfs"
	"varve/internal/embedded/expiry"
	"varve/internal/embedded/offline"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/storetest"
)

// expiryStore is a store whose clock the test moves, and that never merges.
type expiryStore struct {
	*Store
	t   *testing.T
	now *storetest.Clock
	fs  *crashfs.FS
}

func newExpiryStore(t *testing.T) *expiryStore {
	e := &expiryStore{t: t, now: storetest.NewClock(time.UnixMilli(crashOrigin)), fs: crashfs.New()}
	e.open(e.fs)
	return e
}

func (e *expiryStore) open(fs *crashfs.FS) {
	e.t.Helper()
	cfg := quietConfig("fsync")
	cfg.MaintenanceInterval = time.Hour
	s, err := Open(fs, "data", cfg, Options{Now: e.now.Now, held: true}) // merges forget series too
	if err != nil {
		e.t.Fatal(err)
	}
	e.Store, e.fs = s, fs
	e.t.Cleanup(func() {
		if s.log.Closed() {
			return
		}
		s.merging.Unlock()
		if err := s.Close(); err != nil {
			e.t.Error(err)
		}
	})
}

// reopen closes the store, or ends it without closing it, and opens it again.
func (e *expiryStore) reopen(kill bool) {
	e.t.Helper()
	fs := e.fs
	if kill {
		fs = fs.CrashClone(vfs.CrashCloneCfg{})
	} else {
		e.merging.Unlock()
		e.must(e.t, e.Close())
	}
	e.open(fs)
}

// put appends a sample of the present moment, offset by ms, to a series.
func (e *expiryStore) put(host string, offset time.Duration, ttl uint32) {
	e.t.Helper()
	e.must(e.t, e.append(host, e.now.Now().Add(offset).UnixMilli(), ttl))
}

func (e *expiryStore) append(host string, ms int64, ttl uint32) error {
	ctx := context.Background()
	var b store.Batch
	for {
		b.Reset(e.Epoch())
		ref, err := e.Create(ctx, model.Series{Metric: "expiry", Type: model.TypeLong, Tags: model.MustTags("host", host)})
		if err != nil {
			return err
		}
		b.AddLong(ref, ms, 1, ttl)
		if err := e.Append(ctx, &b); !errors.Is(err, store.ErrStale) {
			return err
		}
	}
}

// listed returns the values of the tag, and compares them with the series that are
// selected.
func (e *expiryStore) listed() string {
	e.t.Helper()
	ctx := context.Background()
	v, err := e.View(ctx)
	e.must(e.t, err)
	defer v.Close()
	values, _, err := v.Names(ctx, store.NamesQuery{Kind: store.TagValues, Metric: "expiry", Tag: "host"})
	e.must(e.t, err)
	series, err := storetest.Select(ctx, v, store.Selection{Metric: "expiry", Range: model.AllTime})
	e.must(e.t, err)
	var selected []string
	for _, s := range series {
		host, _ := s.Tags.Get("host")
		selected = append(selected, host)
	}
	slices.Sort(selected)
	if !slices.Equal(values, selected) {
		e.t.Errorf("listed %q, selected %q", values, selected)
	}
	return strings.Join(values, " ")
}

func (e *expiryStore) expect(want string) {
	e.t.Helper()
	e.must(e.t, e.expireSeries(context.Background()))
	if got := e.listed(); got != want {
		e.t.Errorf("after %v: %q are listed, want %q", e.now.Now().Sub(time.UnixMilli(crashOrigin)), got, want)
	}
}

// TestExpiredSeriesAreForgotten: series whose samples have all expired are not
// listed any more, without a merge, wherever their samples are.
func TestExpiredSeriesAreForgotten(t *testing.T) {
	steps := map[string]func(e *expiryStore){
		"head":             func(*expiryStore) {},
		"file":             func(e *expiryStore) { e.must(e.t, e.checkpoint()) },
		"head, restarted":  func(e *expiryStore) { e.reopen(true) },
		"file, restarted":  func(e *expiryStore) { e.reopen(false) },
		"file, then crash": func(e *expiryStore) { e.must(e.t, e.checkpoint()); e.reopen(true) },
	}
	for name, move := range steps {
		t.Run(name, func(t *testing.T) {
			e := newExpiryStore(t)
			e.put("for-ever", 0, 0)
			e.put("minute", 0, 60)
			e.put("two-minutes", 0, 120)
			e.put("mixed", -time.Second, 0) // one sample never expires
			e.put("mixed", 0, 60)
			e.put("longer", -time.Second, 120) // the older sample expires last
			e.put("longer", 0, 60)
			e.put("minute again", -time.Second, 60)
			e.put("minute again", 0, 60)
			move(e)
			e.put("goes-on", 0, 60)
			e.expect("for-ever goes-on longer minute minute again mixed two-minutes")
			e.now.Advance(59 * time.Second)
			e.put("goes-on", 0, 60)
			e.expect("for-ever goes-on longer minute minute again mixed two-minutes")
			e.now.Advance(time.Second)
			e.expect("for-ever goes-on longer mixed two-minutes")
			if n := e.SeriesCount(); n != 5 {
				t.Errorf("%d series are known, want 5", n)
			}
			e.put("minute", 0, 60) // comes again
			e.expect("for-ever goes-on longer minute mixed two-minutes")
			e.reopen(true)
			e.expect("for-ever goes-on longer minute mixed two-minutes")
			if n := e.SeriesCount(); n != 6 {
				t.Errorf("%d series are known after a crash, want 6", n)
			}
			e.now.Advance(2 * time.Minute)
			e.expect("for-ever mixed")
			e.reopen(false)
			e.expect("for-ever mixed")
			e.sound()
		})
	}
}

// sound verifies that Check finds nothing.
func (e *expiryStore) sound() { e.soundBut(0) }

// soundBut is sound where samples of series that were removed are left.
func (e *expiryStore) soundBut(leftover int64) {
	e.t.Helper()
	r, err := e.Check(context.Background(), offline.CheckOptions{})
	e.must(e.t, err)
	if !r.Clean() || r.Leftover != leftover || len(r.Notes) > 0 != (leftover > 0) {
		e.t.Errorf("check: %+v", *r)
	}
}

// TestExpiredSeriesOfManyFiles: a series goes when the last of its samples in any
// file has expired, and a file is read for that only if it may be the last.
func TestExpiredSeriesOfManyFiles(t *testing.T) {
	e := newExpiryStore(t)
	const files = 5
	for range files {
		e.put("goes-on", 0, 60)
		e.put("stays", 0, 60)
		e.must(t, e.checkpoint())
		e.now.Advance(20 * time.Second)
	}
	e.expect("goes-on stays")
	if n := counted64(t, e.metrics.expiryScans); n != 0 {
		t.Errorf("%v scans of files whose series are in later files", n)
	}
	e.put("stays", 0, 0)
	e.must(t, e.checkpoint())
	e.now.Advance(39 * time.Second) // the last file of goes-on was written 59 s ago
	e.expect("goes-on stays")
	e.now.Advance(time.Second)
	e.expect("stays")
	if n := counted64(t, e.metrics.expiryScans); n != files {
		t.Errorf("%v scans of %d files", n, files)
	}
	e.now.Advance(time.Hour)
	e.expect("stays")
	if n := counted64(t, e.metrics.expiryScans); n != files {
		t.Errorf("%v scans of %d files, some again", n, files)
	}
	e.must(t, e.Delete(context.Background(), store.Deletion{Metric: "expiry", Range: model.TimeRange{StartMS: e.now.Now().Add(-90 * time.Minute).UnixMilli(), EndMS: math.MaxInt64}}))
	e.expect("")
	e.sound()
}

func counted64(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.Counter.GetValue()
}

// TestManyExpiriesOfAFile lets more series of a file expire, one after another,
// than a scan remembers.
func TestManyExpiriesOfAFile(t *testing.T) {
	e := newExpiryStore(t)
	const series = 2*expiry.Kept + 100
	ctx := context.Background()
	var b store.Batch
	b.Reset(e.Epoch())
	for i := range series {
		ref, err := e.Create(ctx, model.Series{Metric: "expiry", Type: model.TypeLong, Tags: model.MustTags("host", fmt.Sprint(i))})
		e.must(t, err)
		b.AddLong(ref, crashOrigin-int64(i*7%series)*1000, 1, series+60)
	}
	e.must(t, e.Append(ctx, &b))
	e.put("for-ever", 0, 0)
	e.must(t, e.checkpoint())
	e.now.Advance(59 * time.Second)
	for left := series; left > 0; {
		step := min(left, 1000)
		left -= step
		e.now.Advance(time.Duration(step) * time.Second)
		e.must(t, e.expireSeries(ctx))
		if n := e.SeriesCount(); n != left+1+1 && n != left+1 {
			t.Fatalf("%d series are left, want %d", n, left+1)
		}
	}
	e.now.Advance(time.Second)
	e.expect("for-ever")
	if n := counted64(t, e.metrics.expiryScans); n > 4 {
		t.Errorf("%v scans of a file of %d series, want at most 4", n, series)
	}
	e.sound()
}

// TestLatePointsOfExpiringSeries writes to series while they expire: each
// acknowledged sample is there, whether it came before or after its series was
// forgotten.
func TestLatePointsOfExpiringSeries(t *testing.T) {
	e := newExpiryStore(t)
	const series, rounds = 8, 150
	var wrote [series]atomic.Int64
	done := make(chan struct{})
	var looker sync.WaitGroup
	looker.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			if err := e.expireSeries(context.Background()); err != nil {
				t.Error(err)
			}
			if i%20 == 19 {
				if err := e.checkpoint(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	var writers sync.WaitGroup
	for n := range series {
		writers.Go(func() {
			for round := 0; round < rounds || round < 100*rounds && counted64(t, e.metrics.forgotten) == 0; round++ {
				e.now.Advance(200 * time.Millisecond) // a sample lives for one to five rounds
				ms := e.now.Now().UnixMilli()
				if err := e.append(fmt.Sprint(n), ms, 1); err != nil {
					t.Error(err)
				}
			}
			ms := e.now.Now().UnixMilli()
			if err := e.append(fmt.Sprint(n), ms, 0); err != nil {
				t.Error(err)
			}
			wrote[n].Store(ms)
		})
	}
	writers.Wait()
	close(done)
	looker.Wait()
	if counted64(t, e.metrics.forgotten) == 0 {
		t.Error("no series was ever forgotten")
	}
	e.now.Advance(time.Minute)
	for range 2 {
		e.expect("0 1 2 3 4 5 6 7")
		for n := range series {
			if got := e.times(fmt.Sprint(n)); !slices.Equal(got, []int64{wrote[n].Load()}) {
				t.Errorf("series %d has samples at %v, want %d", n, got, wrote[n].Load())
			}
		}
		e.reopen(true)
	}
}

// times returns when a series has samples.
func (e *expiryStore) times(host string) (times []int64) {
	e.t.Helper()
	ctx := context.Background()
	v, err := e.View(ctx)
	e.must(e.t, err)
	defer v.Close()
	all, err := storetest.Select(ctx, v, store.Selection{Metric: "expiry", Range: model.AllTime, Matchers: []model.Matcher{{Tag: "host", Values: []string{host}}}})
	e.must(e.t, err)
	for _, s := range all {
		c := v.Read(ctx, s, store.ReadOptions{Range: model.AllTime})
		for {
			b, err := c.Next()
			e.must(e.t, err)
			if b == nil {
				break
			}
			times = append(times, b.Times...)
		}
		c.Close()
	}
	return times
}

// TestScansOfExpiriesAreBounded: a large file makes others wait.
func TestScansOfExpiriesAreBounded(t *testing.T) {
	e := newExpiryStore(t)
	e.put("a", 0, 60)
	e.put("for-ever", 0, 0)
	e.must(t, e.checkpoint())
	e.now.Advance(time.Minute)
	e.expiry.allowed = expiry.Allowance{}
	e.expiry.allowed.Take(e.now.Now(), expiry.Burst+10*expiry.Rate)
	e.expect("a for-ever")
	if n := counted64(t, e.metrics.expiryScansPutOff); n != 1 {
		t.Errorf("%v scans put off, want 1", n)
	}
	e.now.Advance(10 * time.Second)
	e.expect("a for-ever")
	e.now.Advance(time.Second)
	e.expect("for-ever")
	e.now.Advance(time.Hour)
	if a := &e.expiry.allowed; !a.Take(e.now.Now(), expiry.Burst-1) || !a.Take(e.now.Now(), 1) || a.Take(e.now.Now(), 1) {
		t.Error("after an hour, something other than a burst is allowed")
	}
}

// TestExpiryInOldAndDamagedFiles: a file of an earlier build, or a damaged one,
// keeps its series, and delays no others.
func TestExpiryInOldAndDamagedFiles(t *testing.T) {
	e := newExpiryStore(t)
	for _, host := range []string{"old", "damaged", "sound"} {
		e.put(host, 0, 60)
		e.put("for-ever", 0, 0)
		e.must(t, e.checkpoint())
	}
	files := e.current.files
	files[0].SeriesExpireMS = 0
	damage(t, e.fs, files[1].Path)
	e.now.Advance(time.Minute)
	e.expect("damaged for-ever old")
	e.expect("damaged for-ever old")
	if n, _ := e.current.damaged(); n != 1 {
		t.Errorf("%d damaged files, want 1", n)
	}
}

// TestLatePointBesideExpiry: a sample that comes after its series was found empty
// keeps the series, wherever the sample moves.
func TestLatePointBesideExpiry(t *testing.T) {
	for _, place := range []string{"active", "frozen", "file"} {
		t.Run(place, func(t *testing.T) {
			e := newExpiryStore(t)
			e.put("a", 0, 60)
			e.must(t, e.checkpoint())
			e.put("a", 0, 60)
			e.now.Advance(time.Minute)
			ctx := context.Background()
			ids, err := e.newlyExpired(ctx)
			e.must(t, err)
			st := e.acquire()
			id := model.SeriesNumber(ids.Minimum())
			if has, err := e.hasSamples(ctx, st, id); has || err != nil {
				t.Fatalf("%v, %v", has, err)
			}
			e.put("a", 0, 60)
			var sw *swap
			if place != "active" {
				sw, err = e.swapHead()
				e.must(t, err)
			}
			if place == "file" {
				e.must(t, e.writeHead(sw))
			}
			moved := e.forgetUnlessMoved([]model.SeriesNumber{id}, st)
			if want := place != "active"; (len(moved) > 0) != want {
				t.Errorf("moved: %v", moved)
			}
			e.release(st)
			e.expect("a")
			if got := e.times("a"); !slices.Equal(got, []int64{e.now.Now().UnixMilli()}) {
				t.Errorf("samples at %v", got)
			}
			if e.pending = sw; place == "file" {
				e.pending = nil
			}
		})
	}
}

// TestExpiredSeriesAfterACrash: a store that is opened for reading, which does not
// look for expired series later, lists none that were forgotten before a crash.
func TestExpiredSeriesAfterACrash(t *testing.T) {
	e := newExpiryStore(t)
	e.put("in-file", 0, 60)
	e.put("for-ever", 0, 0)
	e.must(t, e.checkpoint())
	e.put("in-log", 0, 60)
	e.put("gone", 0, 60)
	e.now.Advance(time.Minute)
	e.expect("for-ever")
	e.put("in-file", 0, 60) // they come again, with new ids
	e.put("in-log", 0, 60)
	e.expect("for-ever in-file in-log")
	r, err := OpenToRead(e.fs.CrashClone(vfs.CrashCloneCfg{}), "data", e.cfg, Options{Now: e.now.Now})
	e.must(t, err)
	defer r.Close()
	if got := (&expiryStore{Store: r, t: t}).listed(); got != "for-ever in-file in-log" {
		t.Errorf("%q are listed after a crash", got)
	}
	if n := r.SeriesCount(); n != 3 {
		t.Errorf("%d series are known after a crash, want 3", n)
	}
}

// TestExpiredSampleHidesUntilItsSeriesIsGone: a series is forgotten in memory
// while an expired sample of it still hides an older one. Neither a merge nor the
// drop of a file removes the expired sample before the catalogue has removed the
// series: after a crash the older sample would be back.
func TestExpiredSampleHidesUntilItsSeriesIsGone(t *testing.T) {
	for _, others := range []bool{true, false} { // else the file has no other series
		for _, committed := range []bool{true, false} {
			t.Run(fmt.Sprintf("others=%v, committed=%v", others, committed), func(t *testing.T) {
				e := newExpiryStore(t)
				ctx, x := context.Background(), e.now.Now().UnixMilli()
				e.must(t, e.append("x", x, 0))
				e.must(t, e.append("x", x+1000, 0))
				e.put("other", 0, 0)
				e.must(t, e.checkpoint())
				e.must(t, e.append("x", x, 5))
				if others {
					e.put("other", time.Second, 0)
				}
				e.must(t, e.checkpoint())
				e.now.Advance(7 * time.Second)
				e.must(t, e.Delete(ctx, store.Deletion{Metric: "expiry", Range: model.TimeRange{StartMS: x + 1, EndMS: x + 100_000},
					Matchers: []model.Matcher{{Tag: "host", Values: []string{"x"}}}}))
				e.expect("other")
				if committed {
					e.must(t, e.checkpoint())
				}
				st := e.acquire()
				newest := slices.MaxFunc(st.files, func(a, b *openFile) int { return cmp.Compare(a.Number, b.Number) })
				e.must(t, e.dropDead())
				now := e.acquire()
				if slices.Contains(now.files, newest) {
					e.must(t, e.merge(ctx, []*openFile{newest}))
				}
				e.release(now)
				e.release(st)
				e.reopen(true)
				e.expect("other")
				if !committed {
					e.sound()
					return
				}
				e.soundBut(2) // the sample that was hidden, and one that is deleted
				e.must(t, e.merge(ctx, slices.Clone(e.current.files)))
				e.sound()
			})
		}
	}
}

// beginCheckpoint leaves a checkpoint under way, as when it is interrupted by a crash.
func (e *expiryStore) beginCheckpoint() {
	e.t.Helper()
	e.checkpointing.Lock()
	defer e.checkpointing.Unlock()
	var err error
	e.pending, err = e.swapHead()
	e.must(e.t, err)
}

// TestSeriesThatComesAgainDuringACheckpoint: a series whose samples are in two heads is
// forgotten and comes again, and the process is killed. Replayed into one head, its
// samples look as if they had not expired: the later ones count with the longest
// time-to-live. All the same there is one series of the name, and the sample that was
// written last stays, whether the series has a new id or one that was given before.
func TestSeriesThatComesAgainDuringACheckpoint(t *testing.T) {
	erase := func(e *expiryStore, host string, end time.Duration) {
		e.must(e.t, e.Delete(context.Background(), store.Deletion{
			Metric:   "expiry",
			Range:    model.TimeRange{StartMS: 0, EndMS: crashOrigin + end.Milliseconds()},
			Matchers: []model.Matcher{{Tag: "host", Values: []string{host}}},
		}))
	}
	for name, forgotten := range map[string]func(e *expiryStore){
		"by a delete": func(e *expiryStore) {
			e.put("a", time.Second, 0)
			e.beginCheckpoint()
			e.put("a", 2*time.Second, 5)
			e.now.Advance(20 * time.Second)
			erase(e, "a", time.Second)
		},
		"by time": func(e *expiryStore) {
			e.put("a", time.Second, 25)
			e.beginCheckpoint()
			e.put("a", 20*time.Second, 1) // of both the later time and the longer life: until 45 s
			e.now.Advance(30 * time.Second)
		},
	} {
		for _, reused := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reused id %t", name, reused), func(t *testing.T) {
				e := newExpiryStore(t)
				if reused {
					e.put("z", 0, 0) // id 0, which is given again
					e.must(t, e.checkpoint())
					e.series.Expect(manyIDs)
					e.put("a", 0, 30) // a higher one
					erase(e, "z", 0)
					e.mergeAll()
					for range 3 {
						e.must(t, e.checkpoint())
					}
				}
				forgotten(e)
				if reused {
					e.now.Advance(time.Minute)
				}
				e.expect("")
				e.put("a", 0, 0)
				last := e.now.Now().UnixMilli()
				for start := range 4 {
					e.reopen(start%2 == 0)
					e.expect("a")
					if got := e.times("a"); !slices.Equal(got, []int64{last}) {
						t.Errorf("start %d: samples at %v, want one at %d", start, got, last)
					}
					if start > 0 {
						e.must(t, e.checkpoint())
					}
				}
				e.sound()
			})
		}
	}
}
