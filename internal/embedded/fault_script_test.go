package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/storetest"
)

// faultScript uses every operation of a store a little, on a file system that
// fails or loses power, and records what the store has promised. It continues
// after a failed step, as clients do.
type faultScript struct {
	fs         vfs.FS
	cfg        Config
	now        atomic.Int64 // milliseconds
	fatal      func(reason string)
	say        func(what string) // starting, started
	ended      atomic.Bool       // the process has ended: no further step
	promises   *promises
	value      int64 // of the last write, each has another
	store      *Store
	notStarted int // how often opening failed
}

// faultConfig makes the store do only what the script asks for: so runs are much
// alike, and call number n is the same one most of the time.
func faultConfig() Config {
	c := tinyConfig()
	c.CheckpointSamples = 1 << 30
	c.CheckpointInterval = time.Hour
	c.MaintenanceInterval = time.Hour
	c.MergeFiles = 100
	c.MinFreeBytes = 0
	return c
}

func newFaultScript(fs vfs.FS, p *promises) *faultScript {
	f := &faultScript{fs: fs, cfg: faultConfig(), promises: p, say: func(string) {}}
	f.now.Store(crashOrigin)
	return f
}

func (f *faultScript) open() error {
	f.say(starting)
	s, err := Open(f.fs, "data", f.cfg, Options{
		Now:   func() time.Time { return time.UnixMilli(f.now.Load()) },
		Fatal: f.fatal,
	})
	if err == nil {
		f.store = s
		f.say(started)
	}
	return err
}

// write writes n samples, a step apart, to each of some series of a metric.
func (f *faultScript) write(metric string, series int, fromMS, stepMS int64, n int, ttl uint32) error {
	for {
		err := f.writeOnce(metric, series, fromMS, stepMS, n, ttl)
		if !errors.Is(err, store.ErrStale) { // series were forgotten just now
			return err
		}
	}
}

func (f *faultScript) writeOnce(metric string, series int, fromMS, stepMS int64, n int, ttl uint32) error {
	times := make([]int64, n)
	for i := range times {
		times[i] = fromMS + int64(i)*stepMS
	}
	return f.writeTimes(metric, series, times, ttl)
}

func (f *faultScript) writeTimes(metric string, series int, times []int64, ttl uint32) error {
	var b store.Batch
	b.Reset(f.store.Epoch())
	values := make(map[place]int64)
	for i := range series {
		tag := fmt.Sprint(i)
		ref, err := f.store.Create(context.Background(), model.Series{Metric: metric, Type: model.TypeLong, Tags: model.MustTags("n", tag)})
		if err != nil {
			return err
		}
		for _, ms := range times {
			f.value++
			b.AddLong(ref, ms, f.value, ttl)
			values[place{metric + " " + tag, ms}] = f.value
		}
	}
	return f.promises.attempt(values, func() error { return f.store.Append(context.Background(), &b) })
}

// erase deletes what a metric has in a range of time.
func (f *faultScript) erase(metric string, r model.TimeRange) error {
	values := make(map[place]int64)
	f.promises.while(func(now *promises) {
		for at := range now.places {
			if strings.HasPrefix(at.series, metric+" ") && r.Contains(at.ms) {
				values[at] = nothing
			}
		}
	})
	return f.promises.attempt(values, func() error {
		return f.store.Delete(context.Background(), store.Deletion{Metric: metric, Range: r})
	})
}

func (f *faultScript) set(key int64) error {
	f.value++
	return f.promises.attempt(map[place]int64{{"", key}: f.value}, func() error {
		return f.store.Set(context.Background(), "fault", "key", fmt.Sprint(key), fmt.Sprint(f.value))
	})
}

func (f *faultScript) unset(key int64) error {
	return f.promises.attempt(map[place]int64{{"", key}: nothing}, func() error {
		return f.store.Unset(context.Background(), "fault", "key", fmt.Sprint(key))
	})
}

const minuteMS = 60_000

// edge is a metric with a long name that has samples at the ends of all times and
// at the borders of partitions.
var edge = "fault." + strings.Repeat("x", 1018)

// begin leaves a store with files, deletions, key-values and a log to replay.
func (f *faultScript) begin() error {
	return f.run([]func() error{
		func() error { return f.write("fault.a", 3, crashOrigin, 10*minuteMS, 20, 0) },
		func() error { return f.write("fault.ttl", 2, crashOrigin, 1000, 5, 600) },
		func() error { return f.writeTimes(edge, 1, storetest.AwkwardTimes, 0) },
		func() error { return f.set(1) },
		f.checkpoint,
		func() error { return f.erase(edge, model.TimeRange{StartMS: math.MaxInt64 - 1, EndMS: math.MaxInt64}) },
		func() error { return f.write("fault.a", 2, crashOrigin+30*minuteMS, 10*minuteMS, 5, 0) },
		func() error { return f.write("fault.gone", 2, crashOrigin, 1000, 5, 0) },
		func() error {
			return f.erase("fault.a", model.TimeRange{StartMS: crashOrigin, EndMS: crashOrigin + 20*minuteMS})
		},
		func() error { return f.write("fault.b", 1, crashOrigin, 500, 30, 0) },
	})
}

// rest opens the store, does what a store does, and closes it, twice.
func (f *faultScript) rest() error {
	return f.run([]func() error{
		f.look,
		func() error { return f.write("fault.b", 2, crashOrigin+60_000, 500, 30, 0) },
		f.checkpoint,
		f.look,
		func() error { return f.erase("fault.gone", model.AllTime) },
		func() error { return f.set(2) },
		func() error { return f.write("fault.a", 4, crashOrigin+20*minuteMS, 10*minuteMS, 9, 0) },
		func() error { return f.store.maintain(context.Background()) },
		func() error { // one of them may be in the log, and the other not
			return f.erase("fault.a", model.TimeRange{StartMS: crashOrigin, EndMS: crashOrigin + 30*minuteMS})
		},
		func() error { return f.erase(edge, model.TimeRange{StartMS: math.MinInt64, EndMS: -1}) },
		func() error { return f.store.maintain(context.Background()) },
		func() error { return f.unset(1) },
		f.checkpoint,
		func() error {
			f.promises.expire("fault.ttl", func() { f.now.Add(60 * minuteMS) })
			return f.store.maintain(context.Background())
		},
		func() error {
			return f.erase("fault.b", model.TimeRange{StartMS: crashOrigin + 5_000, EndMS: crashOrigin + 62_000})
		},
		f.compact,
		f.look,
		func() error { return f.write("fault.gone", 1, crashOrigin+minuteMS, 1000, 3, 0) },
		f.close,
		f.look,
		func() error { return f.write("fault.c", 1, crashOrigin, 1000, 3, 0) },
		func() error { return f.set(1) },
		f.close,
	})
}

// run takes the steps. It opens the store when none is open; a step for which
// that fails is left out. The error is the first *untrueError, else the first
// error.
func (f *faultScript) run(steps []func() error) error {
	var first error
	untrue := (*untrueError)(nil)
	for i, step := range steps {
		if f.ended.Load() {
			break
		}
		if f.store == nil {
			if err := f.open(); err != nil {
				f.notStarted++
				first = cmp.Or(first, fmt.Errorf("open for step %d: %w", i, err))
				continue
			}
		}
		err := step()
		if errors.As(err, &untrue) {
			return fmt.Errorf("step %d: %w", i, err)
		}
		if err != nil && first == nil {
			first = fmt.Errorf("step %d: %w", i, err)
		}
		if f.store != nil {
			f.store.lookAtSpace()
		}
	}
	return first
}

// look reads everything. After an error it looks again: a call that failed once
// is no damage.
func (f *faultScript) look() error {
	err := f.promises.check(f.store)
	if err != nil {
		err = errors.Join(f.promises.check(f.store), err)
	}
	return err
}

func (f *faultScript) close() error {
	s := f.store
	f.store = nil
	return f.syncs(s.Close())
}

func (f *faultScript) checkpoint() error { return f.syncs(f.store.checkpoint()) }

func (f *faultScript) compact() error { return f.syncs(f.store.Compact(context.Background())) }

// syncs passes on the error of something that syncs all there is.
func (f *faultScript) syncs(err error) error {
	if err == nil {
		f.promises.synced()
	}
	return err
}
