package rollup

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/diskfs/crashfs"
	"varve/internal/embedded"
	"varve/internal/ingest"
	"varve/internal/kairos"
	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/safefile"
	"varve/internal/store"
)

var powerCuts = flag.Int("rollup.cuts", 12, "rounds of simulated power cuts")

// A journaled is a scheduler over the embedded store, as in a server. It runs nothing.
type journaled struct {
	*testing.T
	store     *embedded.Store
	pipeline  *ingest.Pipeline
	scheduler *Scheduler
}

func openJournaled(t *testing.T, fs vfs.FS) *journaled {
	t.Helper()
	c := embedded.DefaultConfig()
	c.MinFreeBytes, c.CheckpointSamples = 0, 50
	s, err := embedded.Open(fs, "data", c, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	engine := agg.New(query.New(s, query.DefaultConfig(), registry, time.Now), nil)
	j := &journaled{T: t, store: s, pipeline: ingest.New(s, ingest.DefaultConfig(), ingest.Options{Registerer: registry})}
	j.scheduler = New(Options{
		Store: s, Engine: engine, Pipeline: j.pipeline, Config: DefaultConfig(), Registerer: registry, Host: "here",
		Parser: kairos.New(s, engine, kairos.DefaultConfig(), "test", time.Now),
	})
	return j
}

func (j *journaled) close() {
	if err := j.store.Close(); err != nil {
		j.Error(err)
	}
}

// task stores a task, as another process did before.
func (j *journaled) task() {
	j.Helper()
	if err := j.store.Set(j.Context(), service, configKey, "t", taskJSON("t", hour, minute, "")); err != nil {
		j.Fatal(err)
	}
}

// send stores one point. An error is due to a power cut, or to the end of the test.
func (j *journaled) send(w *ingest.Writer, ms int64) error {
	_, err := w.Ingest(j.Context(), 1, func() error {
		ref, err := w.ResolveTyped(model.TypeLong, &ingest.Names{Metric: "src", Tags: []model.Tag{{Name: "host", Value: "a"}}})
		if err == nil {
			w.Batch().AddLong(ref, ms, 1, 0)
		}
		return err
	})
	return err
}

// wantNoted checks that the bucket of each stored point is noted.
func (j *journaled) wantNoted() (points int) {
	j.Helper()
	t, _ := (&harness{T: j.T, scheduler: j.scheduler}).scheduled("t")
	noted := j.scheduler.late.Take("t", t.rollups[0].sources[0].key)
	view, err := j.store.View(j.Context())
	if err != nil {
		j.Fatal(err)
	}
	defer view.Close()
	for s, err := range view.Select(j.Context(), store.Selection{Metric: "src", Range: model.AllTime}) {
		if err != nil {
			j.Fatal(err)
		}
		cursor := view.Read(j.Context(), s, store.ReadOptions{Range: model.AllTime})
		for {
			b, err := cursor.Next()
			if err != nil {
				j.Fatal(err)
			}
			if b == nil {
				break
			}
			for _, ms := range b.Times {
				points++
				in := false
				for _, one := range noted {
					in = in || one.FromMS <= ms && ms < one.UntilMS
				}
				if !in {
					j.Errorf("the point of %s is stored, and its bucket is not noted in %v", time.UnixMilli(ms).UTC(), noted)
				}
			}
		}
		cursor.Close()
	}
	return points
}

// Whenever the power is cut, the buckets of all late points that are then in the store
// are noted: including unacknowledged points, after several cuts, and while a process
// uses the store that knows nothing of roll-ups.
func TestPowerCutsLoseNoLatePoint(t *testing.T) {
	seed := rand.Uint64()
	for round := range *powerCuts {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		fs := crashfs.New()
		if err := errors.Join(fs.MkdirAll("data", 0o755), safefile.SyncDir(fs, "")); err != nil {
			t.Fatal(err)
		}
		j := openJournaled(t, fs)
		j.task()
		next, acked := int64(0), 0
		for range 3 {
			j.scheduler.Load(t.Context())
			w := j.pipeline.NewWriter(j.pipeline.Protocol("test"), "", 0)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			from, sent := next, 0
			go func() {
				defer close(ended)
				for ctx.Err() == nil && next < from+400 {
					next++
					if err := j.send(w, next*int64(time.Hour/time.Millisecond)*2); err != nil {
						t.Error(err)
					}
					sent++
				}
			}()
			if cut := rng.IntN(3); cut > 0 {
				time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond) // somewhere in the middle
			} else {
				<-ended
			}
			after := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
			cancel()
			<-ended
			acked += sent
			j.close()
			fs = after
			if rng.IntN(2) == 0 { // a command that knows nothing of roll-ups
				if err := visit(fs); err != nil {
					t.Fatal(err)
				}
				fs = fs.CrashClone(vfs.CrashCloneCfg{})
			}
			j = openJournaled(t, fs)
		}
		j.scheduler.Load(t.Context())
		if points := j.wantNoted(); points == 0 && acked > 100 {
			t.Errorf("no point was found of %d", acked)
		}
		j.close()
		if t.Failed() {
			t.Fatalf("seed %d, round %d", seed, round)
		}
	}
}

// visit opens a store and writes its log to files.
func visit(fs vfs.FS) error {
	c := embedded.DefaultConfig()
	c.MinFreeBytes = 0
	s, err := embedded.Open(fs, "data", c, embedded.Options{})
	if err != nil {
		return err
	}
	return s.Close()
}
