package rollup

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/diskfs/crashfs"
	"varve/internal/downsample"
	"varve/internal/head"
	"varve/internal/ingest"
	"varve/internal/kairos"
	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/safefile"
	"varve/internal/spool"
	"varve/internal/store"
	"varve/internal/store/reference"
	"varve/internal/units"
)

// A far is the remote store of spools: key-values, and the times of the points that it
// has accepted.
type far struct {
	values *reference.Store
	mu     sync.Mutex
	times  map[int64]bool

	// refused are points for which a full disk had no space: they may have reached the
	// remote store from memory, but are in no log. Their sender sends them again.
	refused map[int64]bool
}

func newFar() *far {
	return &far{values: reference.New(nil), times: map[int64]bool{}, refused: map[int64]bool{}}
}

// A spooled is a process that writes through a spool. Once it is dead, it changes nothing
// in the remote store.
type spooled struct {
	*testing.T
	spool     *spool.Spool
	far       *far
	dead      bool // guarded by far.mu
	away      atomic.Bool
	pipeline  *ingest.Pipeline
	scheduler *Scheduler
}

func openSpooled(t *testing.T, fs vfs.FS, cfg spool.Config, to *far) *spooled {
	t.Helper()
	s, err := spool.Open(fs, "data/spool", cfg, spool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := &spooled{T: t, spool: s, far: to}
	front := &spooledStore{faulty{to.values, p.reach}, s}
	registry := prometheus.NewRegistry()
	engine := agg.New(query.New(front, query.DefaultConfig(), registry, time.Now), nil)
	p.pipeline = ingest.New(front, ingest.DefaultConfig(), ingest.Options{Registerer: registry})
	p.scheduler = New(Options{
		Store: front, Engine: engine, Pipeline: p.pipeline, Config: DefaultConfig(), Registerer: registry, Host: "here",
		Parser: kairos.New(front, engine, kairos.DefaultConfig(), "test", time.Now),
		Node:   "a", NotesFS: fs, NotesDir: "data/rollups",
	})
	s.Start(p)
	return p
}

// reach returns an error while the remote store is unavailable.
func (p *spooled) reach() error {
	p.far.mu.Lock()
	defer p.far.mu.Unlock()
	if p.dead || p.away.Load() {
		return errAway
	}
	return nil
}

// Write implements spool.Sink.
func (p *spooled) Write(_ context.Context, g *spool.Generation) error {
	p.far.mu.Lock()
	defer p.far.mu.Unlock()
	if p.dead {
		return errAway
	}
	for id := range g.Series() {
		var run head.Run
		if _, err := g.Snapshot(id, model.AllTime, &run); err != nil {
			return err
		}
		times, err := timesOf(&run)
		if err != nil {
			return err
		}
		for _, ms := range times {
			p.far.times[ms] = true
		}
	}
	return nil
}

func timesOf(run *head.Run) ([]int64, error) {
	var all model.Columns
	for _, f := range run.Fragments {
		if err := run.Decode(f, &all); err != nil {
			return nil, err
		}
	}
	return append(all.Times, run.Open.Times...), nil
}

// A spooledStore is a spool, and the key-values of the remote store.
type spooledStore struct {
	faulty
	spool *spool.Spool
}

var _ downsample.Journal = (*spooledStore)(nil)

func (s *spooledStore) Epoch() uint64                       { return s.spool.Epoch() }
func (s *spooledStore) Lookup(key []byte) (store.Ref, bool) { return s.spool.Lookup(key) }
func (s *spooledStore) SeriesCount() int                    { return s.spool.SeriesCount() }
func (s *spooledStore) SeriesBytes() int64                  { return s.spool.SeriesBytes() }
func (s *spooledStore) Unnoted() *downsample.Hours          { return s.spool.Notes().Unnoted() }
func (s *spooledStore) AddUnnoted(h *downsample.Hours)      { s.spool.Notes().AddUnnoted(h) }
func (s *spooledStore) Settle(ctx context.Context) error    { return s.spool.Notes().Settle(ctx) }
func (s *spooledStore) Create(ctx context.Context, of model.Series) (store.Ref, error) {
	return s.spool.Create(ctx, of)
}
func (s *spooledStore) Append(ctx context.Context, b *store.Batch) error {
	return s.spool.Append(ctx, b)
}
func (s *spooledStore) BeforeTrim(f func(context.Context, store.KeyValues) error) {
	s.spool.Notes().BeforeTrim(func(ctx context.Context) error { return f(ctx, s) })
}

// kill ends a process as a power cut does, and returns the content of the disk.
func (p *spooled) kill(fs *crashfs.FS, rng *rand.Rand) *crashfs.FS {
	p.far.mu.Lock()
	p.dead = true
	after := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
	p.far.mu.Unlock()
	return after
}

// task stores a task, as another node did before.
func (to *far) task(t *testing.T) {
	t.Helper()
	if err := to.values.Set(t.Context(), service, configKey, "t", taskJSON("t", hour, minute, "")); err != nil {
		t.Fatal(err)
	}
}

// send stores one point.
func (p *spooled) send(w *ingest.Writer, ms int64) error {
	return (&journaled{T: p.T}).send(w, ms)
}

// wantNoted checks that the bucket of each point in the remote store or the spool is
// noted.
func (p *spooled) wantNoted() (points int) {
	p.Helper()
	t, _ := (&harness{T: p.T, scheduler: p.scheduler}).scheduled("t")
	view := p.spool.View()
	defer view.Close()
	noted := p.scheduler.late.Take("t", t.rollups[0].sources[0].key)
	ids, err := view.Select(p.Context(), "src", nil, model.AllTime, nil)
	if err != nil {
		p.Fatal(err)
	}
	var all []int64
	for it := ids.Iterator(); it.HasNext(); {
		for run, err := range view.Runs(model.SeriesNumber(it.Next()), model.AllTime, false, nil) {
			if err != nil {
				p.Fatal(err)
			}
			times, err := timesOf(run)
			if err != nil {
				p.Fatal(err)
			}
			all = append(all, times...)
		}
	}
	p.far.mu.Lock()
	for ms := range p.far.times {
		all = append(all, ms)
	}
	p.far.mu.Unlock()
	for _, ms := range all {
		if !p.far.refused[ms] && !slices.ContainsFunc(noted, func(one downsample.Span) bool { return one.FromMS <= ms && ms < one.UntilMS }) {
			p.Errorf("the point of %s is stored, and its bucket is not noted", time.UnixMilli(ms).UTC())
		}
	}
	return len(all)
}

// spooledConfig makes the spool release the log often.
func spooledConfig() spool.Config {
	cfg := spool.DefaultConfig()
	cfg.Linger, cfg.MinFreeBytes, cfg.GenerationSamples = time.Millisecond, 0, 20
	cfg.Log.SegmentBytes = 8 * units.KiB
	return cfg
}

func emptyData(t *testing.T) *crashfs.FS {
	t.Helper()
	fs := crashfs.New()
	if err := errors.Join(fs.MkdirAll("data", 0o755), safefile.SyncDir(fs, "")); err != nil {
		t.Fatal(err)
	}
	return fs
}

// Whenever the power is cut, or the process ends, the buckets of all late points that
// are then in the spool or in the remote store are noted, including points that arrived
// before the tasks were known, and when the disk became full.
func TestPowerCutsOfASpoolLoseNoLatePoint(t *testing.T) {
	seed := rand.Uint64()
	points := 0
	for round := range *powerCuts {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		fs, to := emptyData(t), newFar()
		to.task(t)
		next := int64(0)
		for range 4 {
			var full atomic.Bool
			p := openSpooled(t, fullWhen(fs, &full), spooledConfig(), to)
			p.away.Store(rng.IntN(3) == 0) // and its tasks are not known
			p.scheduler.Load(t.Context())
			w := p.pipeline.NewWriter(p.pipeline.Protocol("test"), "", 0)
			ended, fills := make(chan struct{}), rng.IntN(300)
			comesBack := rng.IntN(2) == 0
			go func() {
				defer close(ended)
				for i := range 400 {
					if i == fills && fills%2 == 0 {
						full.Store(true)
					}
					if i == 300 && comesBack {
						p.away.Store(false)
						p.scheduler.Load(t.Context())
					}
					next++
					ms := next * 2 * int64(time.Hour/time.Millisecond)
					if p.send(w, ms) != nil { // the disk is full
						to.refused[ms] = true
						return
					}
				}
			}()
			if rng.IntN(3) > 0 {
				time.Sleep(time.Duration(rng.IntN(40)) * time.Millisecond) // somewhere in the middle
			} else {
				<-ended
				time.Sleep(time.Duration(rng.IntN(4)) * time.Millisecond) // something more is drained
			}
			after, orderly := fs, rng.IntN(4) == 0
			if !orderly {
				after = p.kill(fs, rng)
			}
			<-ended
			if err := p.spool.Close(); err != nil && !full.Load() {
				t.Error(err)
			}
			if orderly {
				after = p.kill(fs, rng)
			}
			fs = after
		}
		p := openSpooled(t, fs, spooledConfig(), to)
		p.scheduler.Load(t.Context())
		points += p.wantNoted()
		if err := p.spool.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Fatalf("seed %d, round %d", seed, round)
		}
	}
	t.Logf("%d points in %d rounds", points, *powerCuts)
	if points < 100 {
		t.Errorf("only %d points were found", points)
	}
}

// fullWhen is a disk without space once full is set.
func fullWhen(fs vfs.FS, full *atomic.Bool) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && (op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFilePreallocate || op.Kind == errorfs.OpCreate) {
			return syscall.ENOSPC
		}
		return nil
	}))
}

// A late point costs one sync, as any other, also if its bucket is new.
func TestSyncsOfLatePoints(t *testing.T) {
	var syncs atomic.Int64
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			syncs.Add(1)
		}
		return nil
	}))
	if err := fs.MkdirAll("data", 0o755); err != nil {
		t.Fatal(err)
	}
	to := newFar()
	to.task(t)
	cfg := spool.DefaultConfig()
	cfg.MinFreeBytes = 0
	p := openSpooled(t, fs, cfg, to)
	p.scheduler.Load(t.Context())
	w := p.pipeline.NewWriter(p.pipeline.Protocol("test"), "", 0)
	const batches = 200
	before := syncs.Load()
	for i := range int64(batches) {
		if err := p.send(w, i*2*int64(time.Hour/time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	if n := syncs.Load() - before; n > batches+10 {
		t.Errorf("%d syncs for %d late batches", n, batches)
	} else {
		t.Logf("%d syncs for %d late batches", n, batches)
	}
	if n := p.wantNoted(); n != batches {
		t.Errorf("%d points are noted", n)
	}
	if err := p.spool.Close(); err != nil {
		t.Fatal(err)
	}
}
