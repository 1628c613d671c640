package embedded

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
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
	"varve/internal/store/storetest"
)

var (
	crashRounds = flag.Int("embedded.crashes", 16, "rounds of simulated power cuts")
	crashSeed   = flag.Uint64("embedded.seed", 0, "seed of the first round, 0 = by the clock")
)

const crashOrigin = 1_700_000_000_000

// crashSeries writes value n at time crashOrigin + n*1000, n = 0, 1, 2, ..., so
// that each sample found after a crash shows whether it was written.
type crashSeries struct {
	model.Series
	issued  atomic.Int64 // samples handed to Append
	acked   atomic.Int64 // samples for which Append returned nil
	deleted int64        // samples before this one were deleted, acknowledged
	asked   int64        // samples before this one were asked to be deleted
	synced  int64        // acked, as of the last start or sync
	kept    int64        // deleted, as of the last start or sync
	lossy   bool         // a power cut loses samples that were acknowledged and not synced yet
}

// restarted notes what a series has after a start, which no later start takes
// back, whatever the durability.
func (c *crashSeries) restarted(s *Store) error {
	first, next, err := c.found(s)
	if err != nil {
		return err
	}
	c.issued.Store(next)
	c.acked.Store(next)
	c.deleted = first
	c.synced, c.kept = next, first
	return nil
}

// eraseAgain deletes another part of what a series has after a start, merges or
// not, and expects that all of that part is hidden and the rest is not.
func (c *crashSeries) eraseAgain(s *Store, rng *rand.Rand) error {
	first, next, err := c.found(s)
	if err != nil || first >= next {
		return err
	}
	c.asked = max(c.asked, first+1+rng.Int64N(next-first))
	if err := c.erase(context.Background(), s, crashOrigin); err != nil {
		return fmt.Errorf("delete after a start: %w", err)
	}
	c.deleted = c.asked
	for _, when := range []string{"", " and a merge"} {
		if when != "" {
			if rng.IntN(8) > 0 {
				break
			}
			if err := s.Compact(context.Background()); err != nil {
				return fmt.Errorf("merge after a start and a delete: %w", err)
			}
		}
		from, to, err := c.found(s)
		if err != nil {
			return fmt.Errorf("after a start, a delete up to %d%s: %w", c.asked, when, err)
		}
		if to != max(next, c.asked) || from != min(c.asked, to) {
			return fmt.Errorf("%v: after a start, a delete up to %d%s: samples from %d to %d are left of those from %d to %d", c.Series, c.asked, when, from, to, first, next)
		}
	}
	return nil
}

// erase deletes the samples from a time on to the one that was asked for.
func (c *crashSeries) erase(ctx context.Context, s *Store, fromMS int64) error {
	return s.Delete(ctx, store.Deletion{
		Metric: c.Metric, Range: model.TimeRange{StartMS: fromMS, EndMS: crashOrigin + c.asked*1000 - 1},
		Matchers: []model.Matcher{{Tag: "n", Values: []string{mustGet(c.Tags, "n")}}},
	})
}

// eraseSome deletes all that is acknowledged, or a part of it, which leaves a file
// to be merged.
func (c *crashSeries) eraseSome(ctx context.Context, s *Store, rng *rand.Rand) {
	left := c.acked.Load() - c.asked
	if left > 0 && rng.IntN(3) > 0 {
		left = rng.Int64N(left)
	}
	c.asked += max(left, 0)
	if err := c.erase(ctx, s, []int64{crashOrigin, 0, math.MinInt64}[rng.IntN(3)]); err == nil {
		c.deleted = c.asked
	}
}

// syncLog makes all acknowledged samples durable.
func syncLog(ctx context.Context, s *Store, series []*crashSeries) {
	acked := make([]int64, len(series))
	for i, c := range series {
		acked[i] = c.acked.Load()
	}
	log := s.log.Current()
	if _, err := log.Rotate(); err != nil || log.Wait(ctx, log.Last()) != nil {
		return
	}
	for i, c := range series {
		c.synced, c.kept = acked[i], c.deleted
	}
}

func newCrashSeries(n int) []*crashSeries {
	all := make([]*crashSeries, n)
	for i := range all {
		all[i] = &crashSeries{Series: model.Series{
			Metric: "crash", Type: model.TypeLong, Tags: model.MustTags("n", fmt.Sprint(i)),
		}}
	}
	return all
}

// write appends up to so many batches to its series, until the store stops taking
// them.
func (c *crashSeries) write(ctx context.Context, s *Store, batches int, rng *rand.Rand) {
	var b store.Batch
	for ; batches > 0 && ctx.Err() == nil; batches-- {
		b.Reset(s.Epoch())
		ref, err := s.Create(ctx, c.Series)
		if err != nil {
			return
		}
		first := c.issued.Load()
		n := first + 1 + rng.Int64N(30)
		for i := first; i < n; i++ {
			b.AddLong(ref, crashOrigin+i*1000, i, 0)
		}
		c.issued.Store(n)
		switch err := s.Append(ctx, &b); {
		case errors.Is(err, store.ErrStale):
			c.issued.Store(first)
		case err != nil:
			return
		default:
			c.acked.Store(n)
		}
	}
}

// check compares the samples of a reopened store with the promises.
func (c *crashSeries) check(s *Store) error {
	v, err := s.View(context.Background())
	if err != nil {
		return err
	}
	defer v.Close()
	found, err := storetest.Select(context.Background(), v, store.Selection{
		Metric: c.Metric, Range: model.AllTime, Matchers: []model.Matcher{{Tag: "n", Values: []string{mustGet(c.Tags, "n")}}},
	})
	if err != nil {
		return err
	}
	next := c.asked
	if len(found) > 0 {
		if _, next, err = c.checkSamples(v, found[0]); err != nil {
			return err
		}
	}
	if next < c.acked.Load() {
		return fmt.Errorf("%v: acknowledged up to %d, found up to %d", c.Series, c.acked.Load(), next)
	}
	return nil
}

func mustGet(t model.Tags, name string) string { v, _ := t.Get(name); return v }

// checkSamples expects every sample from asked on, none before deleted, and
// returns where they begin and end. A deletion that was lost after a merge had
// applied it to some files leaves gaps before asked.
func (c *crashSeries) checkSamples(v store.View, series store.Series) (first, next int64, err error) {
	cursor := v.Read(context.Background(), series, store.ReadOptions{Range: model.AllTime})
	defer cursor.Close()
	first, next = c.asked, -1
	for {
		b, err := cursor.Next()
		if err != nil {
			return 0, 0, err
		}
		if b == nil {
			return first, max(next, c.asked), nil
		}
		for i, ms := range b.Times {
			n := int64(b.Values[i])
			switch {
			case ms != crashOrigin+n*1000 || n < 0 || n >= c.issued.Load():
				return 0, 0, fmt.Errorf("%v: found %d at %d, which was never written", c.Series, n, ms)
			case n < c.deleted:
				return 0, 0, fmt.Errorf("%v: %d was deleted and is back", c.Series, n)
			case next >= 0 && n != next && !(c.lossy && n <= c.asked), next < 0 && n > c.asked:
				return 0, 0, fmt.Errorf("%v: after %d comes %d", c.Series, next-1, n)
			}
			if next < 0 {
				first = n
			}
			next = n + 1
		}
	}
}

// TestPowerCuts cuts the power again and again while writers, deletes,
// checkpoints and merges are at work: what was not synced is lost, torn or
// written in another order. Every other round acknowledges before it syncs: there
// a cut may lose what was acknowledged since the last start or sync, the last part
// of it first. After each start another delete works.
func TestPowerCuts(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 1e9
	}
	for round := range *crashRounds {
		if err := powerCutRound(seed+uint64(round), 6); err != nil {
			t.Fatalf("repeat with -embedded.seed=%d -embedded.crashes=1: %v", seed+uint64(round), err)
		}
	}
}

func powerCutRound(seed uint64, cuts int) error {
	rng := rand.New(rand.NewPCG(seed, 1))
	fs := crashfs.New()
	series := newCrashSeries(3)
	cfg := tinyConfig()
	if rng.IntN(2) == 0 { // deletions stay in the log until the round asks
		cfg.CheckpointSamples = 1 << 30
	}
	if seed%2 == 1 {
		cfg.Log.Durability = "interval"
		cfg.Log.SyncInterval = []time.Duration{2 * time.Millisecond, time.Minute, time.Minute, time.Minute}[rng.IntN(4)]
		for _, c := range series {
			c.lossy = true
		}
	}
	for cut := range cuts {
		s, err := Open(fs, "data", cfg, Options{})
		if err != nil {
			return fmt.Errorf("open after cut %d: %w", cut, err)
		}
		for _, c := range series {
			err := c.check(s)
			if err == nil {
				err = c.restarted(s)
			}
			if err == nil && rng.IntN(4) > 0 {
				err = c.eraseAgain(s, rng)
			}
			if err != nil {
				s.Close()
				return fmt.Errorf("after cut %d, durability %s: %w", cut, cfg.Log.Durability, err)
			}
		}
		switch rng.IntN(4) {
		case 0:
			s.checkpoint()
		case 1, 2:
			syncLog(context.Background(), s, series)
		}
		fs = runAndCut(s, fs, series, rng)
	}
	return nil
}

// found returns the number of the first sample and that after the last one, where
// writing continues.
func (c *crashSeries) found(s *Store) (first, next int64, err error) {
	v, err := s.View(context.Background())
	if err != nil {
		return 0, 0, err
	}
	defer v.Close()
	ref, ok := s.Lookup(c.AppendKey(nil))
	if !ok {
		return c.asked, c.asked, nil
	}
	return c.checkSamples(v, store.Series{Ref: ref, Series: c.Series})
}

// runAndCut runs writers and a deleter for a moment, and returns the file
// system as a power cut leaves it.
func runAndCut(s *Store, fs *crashfs.FS, series []*crashSeries, rng *rand.Rand) *crashfs.FS {
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	for i, c := range series {
		own := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
		work.Go(func() { c.write(ctx, s, 1<<own.IntN(12), own) })
	}
	ops := []func(){
		func() { series[rng.IntN(len(series))].eraseSome(ctx, s, rng) },
		func() { s.Compact(ctx) },
		func() { s.checkpoint() },
		func() { s.maintain(ctx) },
		func() { syncLog(ctx, s, series) },
	}
	// Each run leaves some of them out: a fault may need several deletes with no
	// checkpoint among them.
	for i := len(ops) - 1; i > 0; i-- {
		if rng.IntN(3) > 0 {
			ops = slices.Delete(ops, i, i+1)
		}
	}
	for range rng.IntN(9) {
		if rng.IntN(2) == 0 {
			time.Sleep(time.Duration(rng.IntN(4)) * time.Millisecond)
		}
		ops[rng.IntN(len(ops))]()
	}
	if rng.IntN(3) > 0 { // a merge applies what the log may not have synced
		ops[0]()
		s.maintain(ctx)
	} else {
		time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
	}
	// What is acknowledged before the cut must survive it; what is issued
	// until the writers stop may.
	acked := make([]int64, len(series))
	for i, c := range series {
		acked[i] = c.acked.Load()
	}
	crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: max(0, rng.IntN(201)-100), RNG: rand.New(rand.NewPCG(rng.Uint64(), 7))})
	stop()
	work.Wait()
	s.Close()
	for i, c := range series {
		if c.lossy {
			c.acked.Store(c.synced)
			c.deleted = c.kept
			continue
		}
		c.acked.Store(acked[i])
	}
	return crashed
}

// TestErrorAtEachCall makes the first, second, third ... write operation on log
// and block files fail, and all after it, until a run passes clean; then those on
// log files alone, where merges go on. Whatever was acknowledged is found when the
// store is opened again on a sound disk, unless it is acknowledged before it is
// synced; and then another delete works.
func TestErrorAtEachCall(t *testing.T) {
	const runs = 400
	for _, e := range []errorRun{
		{"fsync", "", syscall.EIO}, {"interval", "", syscall.ENOSPC},
		{"fsync", datadir.Log, syscall.EIO}, {"interval", datadir.Log, syscall.EIO},
	} {
		clean := false
		for n := int64(0); n < runs && !clean; n++ {
			var err error
			if clean, err = e.run(n); err != nil {
				t.Fatalf("%+v, operation %d fails: %v", e, n, err)
			}
			if clean {
				t.Logf("%+v passed clean at operation %d", e, n)
			}
		}
		if !clean {
			t.Errorf("%+v: no run of %d passed clean", e, runs)
		}
	}
}

// An errorRun is a run of a script on a disk that fails.
type errorRun struct {
	durability string
	dir        string // where operations fail, "" for all but the catalogue's
	err        error
}

// run writes, checkpoints, deletes and merges on a disk that fails from the n-th
// write operation on.
func (e errorRun) run(n int64) (clean bool, err error) {
	mem := vfs.NewMem()
	var count atomic.Int64
	var armed atomic.Bool
	faulty := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !armed.Load() || op.Kind.ReadOrWrite() != errorfs.OpIsWrite || strings.Contains(op.Path, datadir.Catalogue) || !strings.Contains(op.Path, "/"+e.dir) {
			return nil
		}
		if count.Add(1) > n {
			return e.err
		}
		return nil
	}))
	cfg := tinyConfig()
	cfg.CheckpointSamples = 1 << 30 // only when the run asks
	cfg.MaintenanceInterval = time.Hour
	cfg.Log.Durability = e.durability
	cfg.Log.SyncInterval = time.Minute
	s, err := Open(faulty, "data", cfg, Options{})
	if err != nil {
		return false, err
	}
	armed.Store(true)
	c := newCrashSeries(1)[0]
	c.script(s)
	s.Close()
	clean = count.Load() <= n
	if c.lossy = e.durability == "interval"; c.lossy && !clean {
		c.acked.Store(0)
		c.deleted = 0
	}
	sound, err := Open(mem, "data", cfg, Options{})
	if err != nil {
		return false, fmt.Errorf("open on a sound disk: %w", err)
	}
	defer sound.Close()
	if err := c.check(sound); err != nil {
		return clean, err
	}
	return clean, c.eraseAgain(sound, rand.New(rand.NewPCG(uint64(n), 2)))
}

// script uses every operation a little. It continues after a failure, as
// clients do.
func (c *crashSeries) script(s *Store) {
	ctx := context.Background()
	for round := range 3 {
		for range 3 {
			c.writeOnce(ctx, s, 20)
		}
		s.checkpoint()
		if round == 1 {
			c.eraseUpTo(ctx, s, c.acked.Load()/2)
		}
	}
	for range 2 { // one of the two deletions may stay in the log when the other does not
		c.eraseUpTo(ctx, s, c.asked+c.acked.Load()/8)
	}
	s.maintain(ctx)
	c.writeOnce(ctx, s, 5)
	if s.Compact(ctx) == nil {
		c.writeOnce(ctx, s, 5)
	}
}

// eraseUpTo deletes the samples before the one of a number.
func (c *crashSeries) eraseUpTo(ctx context.Context, s *Store, n int64) {
	c.asked = n
	if c.erase(ctx, s, 0) == nil {
		c.deleted = n
	}
}

func (c *crashSeries) writeOnce(ctx context.Context, s *Store, n int64) {
	ref, err := s.Create(ctx, c.Series)
	if err != nil {
		return
	}
	var b store.Batch
	b.Reset(s.Epoch())
	first := c.acked.Load()
	for i := first; i < first+n; i++ {
		b.AddLong(ref, crashOrigin+i*1000, i, 0)
	}
	c.issued.Store(max(c.issued.Load(), first+n))
	if s.Append(ctx, &b) == nil {
		c.acked.Store(first + n)
	}
}
