package query

import (
	"context"
	"sync/atomic"
	"time"

	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
	"varve/internal/work"
)

// A Run is a query under way. It is used by one goroutine; its counters may be
// read by others.
type Run struct {
	engine   *Engine
	config   *Config // when it began
	id       uint64
	request  Request
	start    time.Time
	begun    time.Time // for the duration, by the real clock
	ctx      context.Context
	cancel   context.CancelCauseFunc
	timeout  *time.Timer // cancels
	view     store.View
	budget   budget
	tags     lease        // of Tags and Names
	current  atomic.Int32 // metric of the request that is worked on
	series   atomic.Int64
	samples  atomic.Int64
	produced atomic.Int64 // points that came out of steps that add points of their own
	saved    atomic.Int64 // points that save_as wrote
	worked   int          // since the last look at the context
	trace    trace
	closed   bool
	slot     int       // in the engine's ActiveFile
	turn     time.Time // when the query got its place, the last time
	outside  bool      // it has no place now
}

// Close ends the query. err says how it went, nil for well. Closing twice is
// allowed.
func (r *Run) Close(err error) {
	if r.closed {
		return
	}
	r.closed = true
	r.timeout.Stop()
	r.cancel(nil)
	if r.view != nil {
		r.view.Close()
	}
	r.budget.close()
	e := r.engine
	e.mu.Lock()
	delete(e.running, r.id)
	e.mu.Unlock()
	if e.active != nil {
		e.active.end(r.slot)
	}
	if !r.outside {
		e.places.leave()
	}
	e.metrics.running.Dec()
	e.metrics.queries.WithLabelValues(outcome(err)).Inc()
	e.metrics.seconds.Observe(time.Since(r.begun).Seconds())
	e.metrics.samples.Add(float64(r.samples.Load()))
	e.metrics.series.Add(float64(r.series.Load()))
}

// Context ends when the query is cancelled, times out, or is closed.
func (r *Run) Context() context.Context { return r.ctx }

// cause replaces an error that only says that the context ended by why it did.
func (r *Run) cause(err error) error {
	if err != nil && r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	return err
}

// lookEvery is how much work is done between two looks at the context: some
// milliseconds.
const lookEvery = 1 << 14

// look adds an amount of work, such as the number of steps that a point goes
// through. Where enough has come together, it looks at the context and lets other
// queries have their turn. It counts for all streams of a run, since one of them may
// have a single point. The goroutine of the run calls it, and holds nothing then that
// a query needs to begin.
func (r *Run) look(work int) error {
	if r.worked += work; r.worked < lookEvery {
		return nil
	}
	r.worked = 0
	if err := r.ctx.Err(); err != nil {
		return r.cause(err)
	}
	return r.cause(r.Yield())
}

// sortWork is the work of comparing two series or groups, see Run.look.
const sortWork = 8

// sortFunc sorts as model.SortFunc does, and lets other queries have their turn
// meanwhile. The goroutine of the run calls it.
func sortFunc[E any](r *Run, s []E, compare func(a, b E) int) error {
	return model.SortFunc(r.ctx, s, func(a, b E) int {
		_ = r.look(sortWork) // model.SortFunc notices the end of the context too
		return compare(a, b)
	})
}

// addSamples counts samples against query.max_samples.
func (r *Run) addSamples(n int64) error {
	if total := r.samples.Add(n); total > r.config.MaxSamples {
		return &store.LimitError{
			Limit: "query.max_samples", Max: r.config.MaxSamples, Need: total,
			What: "read the samples of a query; narrow the time range or the tags",
		}
	}
	return nil
}

// mayProduce refuses n points of steps that add points of their own, if a query may
// not read as many.
func (r *Run) mayProduce(n int64) error {
	if n > r.config.MaxSamples {
		return &store.LimitError{
			Limit: "query.max_samples", Max: r.config.MaxSamples, Need: n,
			What: "mark empty buckets with gaps; sample more coarsely or narrow the time range",
		}
	}
	return nil
}

// addSaved counts points that save_as writes. A query may have many such steps, and
// each writes all points.
func (r *Run) addSaved(n int) error {
	if total := r.saved.Add(int64(n)); total > r.config.MaxSamples {
		return &store.LimitError{
			Limit: "query.max_samples", Max: r.config.MaxSamples, Need: total,
			What: "save points with save_as; narrow the time range, sample more coarsely or save fewer times",
		}
	}
	return nil
}

// selectSeries returns the series of q, samples of which will be read, or not.
func (r *Run) selectSeries(q *MetricQuery, within model.TimeRange, reads bool) ([]store.Series, error) {
	series, err := r.view.Select(r.ctx, store.Selection{
		Metric: q.Metric, Matchers: q.Matchers, Range: within,
		Limit: r.config.MaxSeries, LimitKey: "query.max_series", AnyOrder: true,
		ReadsAll: reads && !q.Descending && q.Limit <= 0,
	})
	r.series.Add(int64(len(series)))
	if err == nil {
		err = r.Yield()
	}
	return series, r.cause(err)
}

// Metric plans the i-th metric of the request. The Result must be closed before
// the next one is asked for.
func (r *Run) Metric(i int) (*Result, error) {
	defer since(&r.trace.index, time.Now())
	q := &r.request.Metrics[i]
	r.current.Store(int32(i))
	series, err := r.selectSeries(q, r.request.Range, true)
	if err != nil {
		return nil, err
	}
	result, err := newResult(r, q, series)
	return result, r.cause(err)
}

// Tags returns the tags of the series that the i-th metric of the request
// selects. They are looked for in whole rows, as KairosDB does: what a store
// finds by its index must not look narrower in one store than in another.
func (r *Run) Tags(i int) ([]TagValues, error) {
	defer since(&r.trace.index, time.Now())
	r.current.Store(int32(i))
	within := r.request.Range
	within.StartMS = rowtime.Default.Partition(within.StartMS)
	within.EndMS = rowtime.Default.PartitionEnd(rowtime.Default.Partition(within.EndMS))
	series, err := r.selectSeries(&r.request.Metrics[i], within, false)
	if err != nil {
		return nil, err
	}
	tags, err := r.tagValues(series)
	return tags, r.cause(err)
}

// tagValues collects the tags of series. What they take is held until the next call.
func (r *Run) tagValues(series []store.Series) ([]TagValues, error) {
	r.tags.release()
	if err := r.tags.take(int64(len(series)) * seriesBytes); err != nil {
		return nil, err
	}
	return tagValues(r.ctx, series, &r.tags, r.look)
}

// parallel calls f for 0..n-1 from at most `workers` goroutines and returns the
// first error, after all have ended. doing says what f does, for the error that
// a panic becomes.
func parallel(workers, n int, doing string, f func(i int) error) error {
	if workers = min(workers, n); workers <= 1 {
		return work.Do(doing, func() error {
			for i := range n {
				if err := f(i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	var (
		next  atomic.Int64
		fail  atomic.Bool
		group work.Group
	)
	for range workers {
		group.Go(doing, func() error {
			done := false
			defer func() {
				if !done { // f failed or panicked
					fail.Store(true)
				}
			}()
			for !fail.Load() {
				i := int(next.Add(1)) - 1
				if i >= n {
					break
				}
				if err := f(i); err != nil {
					return err
				}
			}
			done = true
			return nil
		})
	}
	return group.Wait()
}

// parallel calls f for 0..n-1 side by side, as often as it takes until each call has
// reported that its work is done. A call of f does at least a part of its work, and
// ends when others are due. Then all goroutines end, and the goroutine of the run lets
// other queries have their turn.
func (r *Run) parallel(n int, doing string, f func(i int) (done bool, err error)) error {
	done := make([]bool, n)
	for {
		var some, undone atomic.Bool
		err := parallel(r.engine.workers, n, doing, func(i int) (err error) {
			switch {
			case done[i]:
				return nil
			case some.Load() && r.due():
				undone.Store(true)
				return nil
			}
			if done[i], err = f(i); !done[i] {
				undone.Store(true)
			}
			some.Store(true)
			return err
		})
		if err != nil || !undone.Load() {
			return err
		}
		if err := r.Yield(); err != nil {
			return err
		}
	}
}

// rangeOptions are the read options of a metric of this run.
func (r *Run) rangeOptions(descending bool, limit int) store.ReadOptions {
	return store.ReadOptions{Range: r.request.Range, Descending: descending, Limit: max(limit, 0)}
}
