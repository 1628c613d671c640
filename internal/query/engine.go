package query

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/machine"
	"varve/internal/model"
	"varve/internal/store"
)

// A Request is one query over one or more metrics.
type Request struct {
	Range   model.TimeRange
	Zone    *time.Location // of calendar units; nil is UTC
	Metrics []MetricQuery

	Text   string // as the client wrote it, for the list of running queries
	Client string // where it came from, likewise
	Trace  bool   // measure all of Stats

	// Partial asks for the points that were computed before an error. Each of them
	// is right: none is of a bucket that lacks samples, unless Run.Missing says that
	// a part of the store was away.
	Partial bool
}

// A MetricQuery is the part of a query that concerns one metric.
type MetricQuery struct {
	Metric     string
	Matchers   []model.Matcher
	Descending bool
	Limit      int // points per series and again per group, <= 0 for all
	GroupBy    []GroupBy
	Steps      []Step

	// WithoutTags leaves Group.Tags empty.
	WithoutTags bool
}

// A BusyError says that no place became free for a query. Trying again later
// may help.
type BusyError struct{ Limit *store.LimitError }

func (e *BusyError) Error() string { return e.Limit.Error() }
func (e *BusyError) Unwrap() error { return e.Limit }

// ErrCancelled is the error of a query that Engine.Cancel ended.
var ErrCancelled = errors.New("query was cancelled by the operator")

// An Engine runs queries over one store. It is safe for use by many
// goroutines and owns none: all work ends with the call that caused it.
type Engine struct {
	store   store.Viewer
	saver   Saver                  // nil: save_as fails
	active  *ActiveFile            // may be nil
	config  atomic.Pointer[Config] // see SetLimits
	workers int
	now     func() time.Time
	merging bool // never fold: the other way to compute, for tests
	metrics *metrics
	pool    *pool // memory of all queries
	texts   *texts
	places  places
	deletes *deletes
	queued  atomic.Int64
	lastID  atomic.Uint64

	mu      sync.Mutex
	running map[uint64]*Run
}

// New returns an Engine. config must be valid; now is the clock of relative
// things and of ages.
func New(s store.Viewer, config Config, r prometheus.Registerer, now func() time.Time) *Engine {
	e := &Engine{
		store: s, now: now,
		workers: min(config.Workers, runtime.GOMAXPROCS(0)),
		metrics: newMetrics(r),
		places:  places{free: config.MaxConcurrent},
		running: map[uint64]*Run{},
	}
	e.config.Store(&config)
	e.pool = &pool{max: machine.Share(int64(config.TotalMemory)), metrics: e.metrics}
	e.pool.maxWait.Store(int64(config.MaxWait))
	e.metrics.memoryMax.Set(float64(e.pool.max))
	e.texts, e.deletes = newTexts(e.pool, r), newDeletes(r)
	return e
}

// SetLimits changes what queries that begin from now on may use, and how many run
// at once. TotalMemory and Workers stay as they are. config must be valid.
func (e *Engine) SetLimits(config Config) {
	had := e.config.Load()
	config.TotalMemory, config.Workers = had.TotalMemory, had.Workers
	e.config.Store(&config)
	e.pool.maxWait.Store(int64(config.MaxWait))
	e.places.grow(config.MaxConcurrent - had.MaxConcurrent)
}

// A Running describes a query that has not ended.
type Running struct {
	ID      uint64
	Text    string
	Client  string
	Start   time.Time
	Index   int    // of the metric of the request that is worked on
	Metric  string // its name, "" if the request has none
	Series  int64
	Samples int64
}

// Running lists the queries that run now, oldest first.
func (e *Engine) Running() []Running {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := make([]Running, 0, len(e.running))
	for id, r := range e.running {
		q := Running{
			ID: id, Text: r.request.Text, Client: r.request.Client, Start: r.start,
			Index: int(r.current.Load()), Series: r.series.Load(), Samples: r.samples.Load(),
		}
		if q.Index < len(r.request.Metrics) {
			q.Metric = r.request.Metrics[q.Index].Metric
		}
		list = append(list, q)
	}
	slices.SortFunc(list, func(a, b Running) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Queued is the number of queries that wait for a place, including those that have
// begun.
func (e *Engine) Queued() int { return int(e.queued.Load()) }

// Cancel ends a running query with ErrCancelled and reports whether it was
// there.
func (e *Engine) Cancel(id uint64) bool {
	e.mu.Lock()
	r := e.running[id]
	e.mu.Unlock()
	if r == nil {
		return false
	}
	r.cancel(ErrCancelled)
	return true
}

// Start waits for a free place and opens the store. The Run must be closed.
func (e *Engine) Start(ctx context.Context, q Request) (*Run, error) {
	asked := time.Now()
	if err := e.enter(ctx); err != nil {
		e.metrics.queries.WithLabelValues(outcome(err)).Inc()
		return nil, err
	}
	waited := time.Since(asked)
	r := e.newRun(ctx, q)
	r.trace.wait.Store(int64(waited))
	view, err := e.store.View(r.ctx)
	if err != nil {
		err = r.cause(err)
		r.Close(err)
		return nil, err
	}
	r.view = view
	if part, ok := view.(store.PartialView); ok && q.Partial {
		part.AllowPartial()
	}
	return r, nil
}

// Missing says which part of the store could not be reached although it was asked,
// nil if none. What the Run answers without it lacks samples of that part, in
// buckets too.
func (r *Run) Missing() error {
	if part, ok := r.view.(store.PartialView); ok {
		return part.Missing()
	}
	return nil
}

// enter takes a place, at once or after a wait in the queue.
func (e *Engine) enter(ctx context.Context) error {
	if e.places.try() {
		return nil
	}
	config := e.config.Load()
	return e.places.queue(ctx, queue{
		most: int64(config.MaxQueued), wait: config.MaxWait, waiting: &e.queued, gauge: e.metrics.queued,
		full: func(n int64) error {
			return &BusyError{&store.LimitError{
				Limit: "query.max_queued", Max: int64(config.MaxQueued), Need: n, What: "wait for a free place",
			}}
		},
		late: &BusyError{&store.LimitError{
			Limit: "query.max_concurrent", Max: int64(config.MaxConcurrent),
			What: "no place became free within query.max_wait of " + config.MaxWait.String(),
		}},
	})
}

func (e *Engine) newRun(ctx context.Context, q Request) *Run {
	if q.Zone == nil {
		q.Zone = time.UTC
	}
	r := &Run{engine: e, config: e.config.Load(), request: q, start: e.now(), begun: time.Now(), id: e.lastID.Add(1)}
	r.turn = r.begun
	r.budget.max, r.budget.key, r.budget.pool = int64(r.config.MaxMemory), "query.max_memory", e.pool
	if e.pool.max < r.budget.max {
		r.budget.max, r.budget.key = e.pool.max, "query.total_memory"
	}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	r.timeout = time.AfterFunc(r.config.Timeout, func() { // a second context would cost five allocations
		r.cancel(&store.LimitError{
			Limit: "query.timeout", Max: r.config.Timeout.Milliseconds(), What: "milliseconds that one query may take",
		})
	})
	r.budget.ctx, r.tags.budget = r.ctx, &r.budget
	if e.active != nil {
		r.slot = e.active.begin(r.start, &r.request)
	}
	e.mu.Lock()
	e.running[r.id] = r
	e.mu.Unlock()
	e.metrics.running.Inc()
	return r
}

// outcomeOK is the outcome of most queries.
const outcomeOK = "ok"

// outcome classifies how a query ended, for metrics.
func outcome(err error) string {
	if err == nil {
		return outcomeOK
	}
	var busy *BusyError
	var limit *store.LimitError
	var input *store.InputError
	var compute *ComputeError
	switch {
	case errors.As(err, &busy):
		return "busy"
	case errors.As(err, &limit):
		if limit.Limit == "query.timeout" {
			return "timeout"
		}
		return "limit"
	case errors.As(err, &input), errors.As(err, &compute):
		return "input"
	case errors.Is(err, ErrCancelled), errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return "failed"
}
