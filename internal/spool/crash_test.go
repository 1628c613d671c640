package spool

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/model"
	"varve/internal/store"
)

var (
	crashRounds = flag.Int("spool.crashes", 8, "rounds of simulated power cuts")
	crashSeed   = flag.Uint64("spool.seed", 0, "seed of the first round, 0 = by the clock")
)

// crashSeries writes value n at time n, n = 0, 1, 2, ..., so that whatever is
// found after a crash tells whether it was written.
type crashSeries struct {
	model.Series
	ttls   bool // samples differ in their time-to-live, which takes 20 times the memory
	issued atomic.Int64
	acked  atomic.Int64
}

func (c *crashSeries) ttl(n int64) uint32 {
	if c.ttls {
		return uint32(n % 2)
	}
	return 0
}

func newCrashSeries(n int) []*crashSeries {
	all := make([]*crashSeries, n)
	for i := range all {
		all[i] = &crashSeries{Series: testSeries("crash", i)}
	}
	return all
}

// writeOnce appends the next n samples.
func (c *crashSeries) writeOnce(ctx context.Context, s *Spool, n int64) error {
	for {
		var b store.Batch
		b.Reset(s.Epoch())
		ref, err := s.Create(ctx, c.Series)
		if err != nil {
			return err
		}
		first := c.acked.Load()
		for i := first; i < first+n; i++ {
			b.AddLong(ref, i, i, c.ttl(i))
		}
		c.issued.Store(max(c.issued.Load(), first+n))
		switch err := s.Append(ctx, &b); {
		case errors.Is(err, store.ErrStale):
			continue
		case err != nil:
			return err
		}
		c.acked.Store(first + n)
		return nil
	}
}

// check compares spool and remote store together with what was promised, and
// returns how many samples there are.
func (c *crashSeries) check(t testing.TB, s *Spool, r *remote) (int64, error) {
	v := s.View()
	defer v.Close()
	all := content{}
	key := string(c.AppendKey(nil))
	for ms, value := range r.content()[key] {
		all.set(key, ms, value)
	}
	ids, err := idsOf(v.Select(context.Background(), c.Metric, []model.Matcher{{Tag: "n", Values: []string{mustGet(c.Tags)}}}, model.AllTime, nil))
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		for run, err := range v.Runs(id, model.AllTime, false, nil) {
			if err != nil {
				return 0, err
			}
			if err := eachSample(run, func(ms int64, value string, _ int64) { all.set(key, ms, value) }); err != nil {
				return 0, err
			}
		}
	}
	n := int64(len(all[key]))
	for ms, value := range all[key] {
		if ms < 0 || ms >= n || value != fmt.Sprintf("%d/%d", ms, c.ttl(ms)) {
			return 0, fmt.Errorf("%v: found %s at %d of %d", c.Series, value, ms, n)
		}
	}
	if n < c.acked.Load() || n > c.issued.Load() {
		return 0, fmt.Errorf("%v: acknowledged %d, issued %d, found %d", c.Series, c.acked.Load(), c.issued.Load(), n)
	}
	return n, nil
}

func mustGet(t model.Tags) string { v, _ := t.Get("n"); return v }

// TestPowerCuts cuts the power again and again while writers, sink, flushes and
// spilling are at work: what was not synced is lost, torn or written in another
// order.
func TestPowerCuts(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 1e9
	}
	for round := range *crashRounds {
		if err := powerCutRound(t, seed+uint64(round), 5); err != nil {
			t.Fatalf("repeat with -spool.seed=%d -spool.crashes=1: %v", seed+uint64(round), err)
		}
	}
	t.Logf("%d heads were moved to files", powerCutSpills)
}

func powerCutRound(t *testing.T, seed uint64, cuts int) error {
	rng := rand.New(rand.NewPCG(seed, 1))
	fs := crashfs.New()
	cfg := tinyConfig()
	cfg.GenerationSamples = []int64{20, 500, 20_000}[rng.IntN(3)]
	all := newCrashSeries(3)
	all[0].ttls = true
	far := newRemote()
	var calls atomic.Int64
	far.fail = func() error {
		if calls.Add(1)/8%2 == 1 { // by turns
			return errDown
		}
		return nil
	}
	for cut := range cuts {
		sink := &lease{remote: far}
		s, err := Open(fs, "spool", cfg, quickRetries(Options{Sink: sink}))
		if err != nil {
			return fmt.Errorf("open after cut %d: %w", cut, err)
		}
		for _, c := range all {
			n, err := c.check(t, s, far)
			if err != nil {
				s.Close()
				return fmt.Errorf("after cut %d: %w", cut, err)
			}
			c.acked.Store(n)
			c.issued.Store(n)
		}
		fs = runAndCut(s, fs, sink, all, rng)
	}
	return nil
}

// powerCutSpills counts files, to see that there are some.
var powerCutSpills uint64

// runAndCut lets writers work for a moment and returns the file system as the
// power cut leaves it.
func runAndCut(s *Spool, fs *crashfs.FS, sink *lease, all []*crashSeries, rng *rand.Rand) *crashfs.FS {
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	for i, c := range all {
		own := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
		work.Go(func() {
			for c.writeOnce(ctx, s, 1+own.Int64N(30)) == nil {
			}
		})
	}
	work.Go(func() {
		for ctx.Err() == nil {
			s.Flush(ctx)
		}
	})
	time.Sleep(time.Duration(rng.IntN(25)) * time.Millisecond)
	sink.mu.Lock() // the sink dies with the process
	sink.dead.Store(true)
	// What is acknowledged before the cut must survive it; what is issued until
	// the writers stop may.
	acked := make([]int64, len(all))
	for i, c := range all {
		acked[i] = c.acked.Load()
	}
	crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rand.New(rand.NewPCG(rng.Uint64(), 7))})
	sink.mu.Unlock()
	stop()
	work.Wait()
	s.Close()
	powerCutSpills += s.nextFile
	for i, c := range all {
		c.acked.Store(acked[i])
	}
	return crashed
}

// TestErrorAtEachCall makes the first, second, third ... write operation fail,
// and all after it, until a run passes clean. Whatever was acknowledged is found
// when the spool is opened again on a sound disk.
func TestErrorAtEachCall(t *testing.T) {
	const runs = 600
	for n := range int64(runs) {
		clean, err := errorRun(t, n)
		if err != nil {
			t.Fatalf("operation %d fails: %v", n, err)
		}
		if clean {
			t.Logf("passed clean at operation %d", n)
			return
		}
	}
	t.Errorf("no run of %d passed clean", runs)
}

// errorRun writes, drains and spills on a disk that fails from the n-th write
// operation on.
func errorRun(t *testing.T, n int64) (clean bool, err error) {
	mem := vfs.NewMem()
	var count atomic.Int64
	var armed atomic.Bool
	faulty := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if armed.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && count.Add(1) > n {
			return errorfs.ErrInjected
		}
		return nil
	}))
	cfg := tinyConfig()
	cfg.Linger = time.Hour
	cfg.GenerationSamples = 1 << 20
	sink := newRemote()
	down := true
	sink.fail = func() error {
		if down {
			return errDown
		}
		return nil
	}
	s, err := Open(faulty, "spool", cfg, quickRetries(Options{Sink: sink}))
	if err != nil {
		return false, err
	}
	armed.Store(true)
	c := newCrashSeries(1)[0]
	c.ttls = true
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	for i := 0; i < 12 && c.writeOnce(ctx, s, 400) == nil; i++ {
	}
	sink.mu.Lock()
	down = false
	sink.mu.Unlock()
	if _, err := s.Flush(ctx); err == nil {
		c.writeOnce(ctx, s, 5)
	}
	s.Close()
	clean = count.Load() <= n
	sound, err := Open(mem, "spool", cfg, quickRetries(Options{}))
	if err != nil {
		return false, fmt.Errorf("open on a sound disk: %w", err)
	}
	defer sound.Close()
	_, err = c.check(t, sound, sink)
	return clean, err
}

// TestErrorAtEachCallOfOpen makes the first, second, third ... operation of Open
// fail, and those after it pass. Open says so, and leaves everything as it was.
func TestErrorAtEachCallOfOpen(t *testing.T) {
	cfg := tinyConfig()
	cfg.Linger = time.Hour
	cfg.GenerationSamples = 300
	for what, sink := range map[string]*remote{"samples wait": nil, "all is drained": newRemote()} {
		disk := crashfs.New()
		o := Options{}
		if sink != nil {
			o.Sink = sink
		} else {
			sink = newRemote()
		}
		s := mustOpen(t, disk, cfg, o)
		c := newCrashSeries(1)[0]
		c.ttls = true // so that some is moved to files
		for range 5 {
			if err := c.writeOnce(context.Background(), s, 400); err != nil {
				t.Fatal(err)
			}
		}
		if o.Sink != nil {
			if _, err := s.Flush(within(t)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		n := 0
		for errorInOpen(t, disk, cfg, n, c, sink) {
			n++
		}
		t.Logf("%s: passed clean at operation %d", what, n)
	}
}

// errorInOpen opens a copy of what is on a disk while the n-th operation fails,
// and again while none does. It reports whether there are so many operations.
func errorInOpen(t *testing.T, disk *crashfs.FS, cfg Config, n int, c *crashSeries, sink *remote) bool {
	t.Helper()
	disk = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}) // all
	var count atomic.Int64
	var failed atomic.Pointer[errorfs.Op]
	faulty := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if count.Add(1) == int64(n)+1 {
			failed.Store(&op)
			return errorfs.ErrInjected
		}
		return nil
	}))
	s, err := Open(faulty, "spool", cfg, quickRetries(Options{}))
	op := failed.Load()
	// Open succeeds even if space cannot be reserved.
	if harmless := op == nil || op.Kind == errorfs.OpFilePreallocate; harmless != (err == nil) {
		t.Errorf("operation %d, %v, fails, and Open says: %v", n, op, err)
	}
	if err == nil {
		s.Close()
	}
	s = mustOpen(t, disk, cfg, Options{})
	defer s.Close()
	if _, err := c.check(t, s, sink); err != nil {
		t.Errorf("after operation %d, %v, failed: %v", n, op, err)
	}
	return op != nil
}
