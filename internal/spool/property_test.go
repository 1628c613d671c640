package spool

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"varve/internal/diskfs/crashfs"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/storetest"
)

// lease is a remote store as one process sees it: after the process was killed
// it writes nothing more.
type lease struct {
	*remote
	dead atomic.Bool
}

func (l *lease) Write(ctx context.Context, g *Generation) error {
	if l.dead.Load() {
		return errDown
	}
	return l.remote.Write(ctx, g)
}

// erase deletes all that was written with a timestamp up to stampMS, for good.
func (r *remote) erase(stampMS int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tombstone = max(r.tombstone, stampMS)
	for _, cells := range r.cells {
		for ms, c := range cells {
			if c.stampMS <= stampMS {
				delete(cells, ms)
			}
		}
	}
}

// world is a spool, its remote store, and what both together must hold.
type world struct {
	t      *rapid.T
	fs     *crashfs.FS
	cfg    Config
	clock  atomic.Int64 // ms
	latest int64        // before the clock was set back
	sink   *lease
	spool  *Spool
	down   atomic.Bool
	want   content
	writes int
}

var propertyMetrics = []string{"a", "b", "żółw"}

func (w *world) now() time.Time { return time.UnixMilli(w.clock.Add(1)) }

func (w *world) open() {
	s, err := Open(w.fs, "spool", w.cfg, quickRetries(Options{Sink: w.sink, Now: w.now}))
	if err != nil {
		w.t.Fatalf("open: %v", err)
	}
	w.spool = s
}

// back sets the clock back, not so far that stamps would follow it.
func (w *world) back(ms int64) {
	w.latest = max(w.latest, w.clock.Load())
	w.clock.Store(max(w.clock.Load()-ms, w.latest-clockLead.Milliseconds()/2))
}

// series has some of each kind; those of a metric differ in number.
func drawSeries(t *rapid.T) model.Series {
	kinds := []model.Type{model.TypeLong, model.TypeDouble, model.TypeString, model.TypeNull}
	return model.Series{
		Metric: rapid.SampledFrom(propertyMetrics).Draw(t, "metric"),
		Type:   rapid.SampledFrom(kinds).Draw(t, "type"),
		Tags:   model.MustTags("n", fmt.Sprint(rapid.IntRange(0, 40).Draw(t, "n"))),
	}
}

// put appends a few samples of a few series.
func (w *world) put(t *rapid.T) {
	for {
		var b store.Batch
		b.Reset(w.spool.Epoch())
		staged := content{}
		for range rapid.IntRange(1, 4).Draw(t, "series") {
			series := drawSeries(t)
			ref, err := w.spool.Create(context.Background(), series)
			if err != nil {
				t.Fatal(err)
			}
			from := rapid.OneOf(rapid.Int64Range(-5, 300), rapid.Int64Range(-5, 300), rapid.SampledFrom(storetest.AwkwardTimes)).Draw(t, "from")
			to := from + rapid.Int64Range(0, 59).Draw(t, "more")
			if to < from {
				to = math.MaxInt64
			}
			for i := range to - from + 1 {
				ms := from + i
				w.writes++
				ttl := uint32(0)
				if w.writes%7 == 0 {
					ttl = 1 << 20
				}
				staged.set(string(series.AppendKey(nil)), ms, addSample(&b, ref, series.Type.Kind(), ms, w.writes, ttl))
			}
		}
		err := w.spool.Append(context.Background(), &b)
		if errors.Is(err, store.ErrStale) {
			continue
		}
		if err != nil {
			t.Fatalf("append: %v", err)
		}
		for key, cells := range staged {
			for ms, value := range cells {
				w.want.set(key, ms, value)
			}
		}
		return
	}
}

// addSample adds the n-th value to a batch and returns what a remote has of it.
func addSample(b *store.Batch, ref store.Ref, kind model.Kind, ms int64, n int, ttl uint32) string {
	switch {
	case kind.Variable():
		text := fmt.Sprintf("value %d", n)
		b.AddBytes(ref, ms, []byte(text), ttl)
		return fmt.Sprintf("%s/%d", text, ttl)
	case kind.Fixed():
		b.Samples = append(b.Samples, store.Sample{TimeMS: ms, Value: uint64(n), Ref: ref, TTL: ttl})
		return fmt.Sprintf("%d/%d", n, ttl)
	}
	b.AddNull(ref, ms, ttl)
	return fmt.Sprintf("/%d", ttl)
}

// kill ends the process as kill -9 or a power cut would.
func (w *world) kill(t *rapid.T) {
	w.sink.mu.Lock()
	w.sink.dead.Store(true)
	unsynced := rapid.IntRange(0, 100).Draw(t, "unsynced")
	seed := rapid.Uint64().Draw(t, "seed")
	fs := w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rand.New(rand.NewPCG(seed, 1))})
	w.sink.mu.Unlock()
	w.spool.Close()
	w.fs, w.sink = fs, &lease{remote: w.sink.remote}
	w.open()
}

func (w *world) check(t *rapid.T) {
	v := w.spool.View()
	defer v.Close()
	got := w.sink.content() // after the view was opened, as readers must
	for _, metric := range propertyMetrics {
		ids, err := idsOf(v.Select(context.Background(), metric, nil, model.AllTime, nil))
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			series, _ := v.SeriesOf(id)
			for run, err := range v.Runs(id, model.AllTime, false, nil) {
				if err != nil {
					t.Fatal(err)
				}
				eachSample(run, func(ms int64, value string, _ int64) { got.set(string(series.AppendKey(nil)), ms, value) })
			}
		}
	}
	if err := got.diff(w.want); err != nil {
		t.Fatal(err)
	}
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	if w.sink.wrong != nil {
		t.Fatal(w.sink.wrong)
	}
}

// names compares the names of what is not drained, while the sink is down.
func (w *world) names(t *rapid.T) {
	v := w.spool.View()
	defer v.Close()
	names, _, err := v.Names(context.Background(), store.NamesQuery{Kind: store.MetricNames})
	if err != nil {
		t.Fatal(err)
	}
	for _, metric := range propertyMetrics {
		ids, _ := idsOf(v.Select(context.Background(), metric, nil, model.AllTime, nil))
		if listed := slices.Contains(names, metric); listed != (len(ids) > 0) {
			t.Fatalf("%s is listed: %v, but has %d series", metric, listed, len(ids))
		}
	}
}

// TestModel compares spool and remote store together with a map: through
// outages, half writes, restarts, crashes, deletions, and clocks that go back a
// little.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := tinyConfig()
		cfg.MaxIdleSeries = rapid.SampledFrom([]int{0, 30}).Draw(t, "max_idle_series")
		cfg.GenerationSamples = rapid.SampledFrom([]int64{1, 50, 3000}).Draw(t, "generation_samples")
		w := &world{t: t, fs: crashfs.New(), cfg: cfg, sink: &lease{remote: newRemote()}, want: content{}}
		w.clock.Store(1_000_000)
		var failures atomic.Int64
		w.sink.fail = func() error {
			switch n := failures.Add(1); {
			case w.down.Load() || n%3 == 0:
				return errDown
			case n%3 == 1:
				return &PartialError{Left: 1, Written: n%2 == 0, Err: errDown}
			}
			return nil
		}
		w.open()
		defer func() { w.spool.Close() }()
		t.Repeat(map[string]func(*rapid.T){
			"put":  w.put,
			"put2": w.put,
			"put3": w.put,
			"down": func(*rapid.T) { w.down.Store(true) },
			"up":   func(*rapid.T) { w.down.Store(false) },
			"kill": w.kill,
			"idle": func(*rapid.T) { w.spool.lookAtIdle() },
			"back": func(t *rapid.T) { w.back(rapid.Int64Range(0, 5000).Draw(t, "ms")) },
			"restart": func(t *rapid.T) {
				if err := w.spool.Close(); err != nil {
					t.Fatal(err)
				}
				w.open()
			},
			"flush": func(t *rapid.T) {
				w.down.Store(false)
				if _, err := w.spool.Flush(context.Background()); err != nil {
					t.Fatal(err)
				}
				if err := w.sink.content().diff(w.want); err != nil {
					t.Fatal("after a flush: ", err)
				}
				w.names(t)
			},
			"erase": func(t *rapid.T) {
				w.down.Store(false)
				stamp, err := w.spool.Flush(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				w.sink.erase(stamp)
				w.want = content{}
			},
			"": w.check,
		})
	})
}
