package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/congestion"
	"varve/internal/machine"
	"varve/internal/principal"
	"varve/internal/store"
)

// A ComputeError says that a step of a query cannot process the points that it got.
type ComputeError struct{ Reason string }

func (e *ComputeError) Error() string { return e.Reason }

// ErrCancelled is the error of a query that Engine.Cancel ended.
var ErrCancelled = errors.New("query was cancelled by the operator")

// An Engine runs queries over one store. It is safe for use by many
// goroutines and owns none: all work ends with the call that caused it.
type Engine struct {
	store   store.Viewer
	active  *ActiveFile            // may be nil
	config  atomic.Pointer[Config] // see SetLimits
	workers int
	now     func() time.Time
	metrics *metrics
	pool    *pool // memory of all queries
	texts   *texts
	slots   slots
	deletes *deletes
	slow    SlowLog
	queued  atomic.Int64
	lent    atomic.Int64 // slots of queries that wait for memory or the store
	paused  atomic.Int64 // goroutines with slots that wait for memory
	lastID  atomic.Uint64

	mu      sync.Mutex
	running map[uint64]*Session
	begun   atomic.Int64 // len(running), without the lock
}

// New returns an Engine. config must be valid; now is the clock for relative
// times and for ages.
func New(s store.Viewer, config Config, r prometheus.Registerer, now func() time.Time) *Engine {
	e := &Engine{
		store: s, now: now,
		workers: min(config.Workers, runtime.GOMAXPROCS(0)),
		metrics: newMetrics(r),
		slots:   slots{free: config.MaxConcurrent},
		running: map[uint64]*Session{},
	}
	e.slots.fresh.refused, e.slots.begun.refused = e.metrics.shed.WithLabelValues("begin"), e.metrics.shed.WithLabelValues("turn")
	e.config.Store(&config)
	e.pool = &pool{max: machine.Share(int64(config.TotalMemory)), metrics: e.metrics, held: map[uint64]int64{}, senders: map[netip.Prefix]int64{}, outgoing: map[*outgoing]struct{}{}, idle: e.idle, queued: e.slotWanted}
	e.pool.maxWait.Store(int64(config.MaxWait))
	e.metrics.memoryMax.Set(float64(e.pool.max))
	e.texts, e.deletes = newTexts(e.pool), newDeletes(e.metrics)
	e.slow.count = e.metrics.slow
	e.slow.threshold.Store(int64(config.Slow))
	return e
}

// idle reports whether no query computes: all that have slots wait for memory.
func (e *Engine) idle() bool {
	e.slots.mu.Lock()
	defer e.slots.mu.Unlock()
	return int64(e.slots.taken+e.slots.spare) <= e.paused.Load()
}

// slotWanted reports whether a query waits for a slot.
func (e *Engine) slotWanted() bool {
	e.slots.mu.Lock()
	defer e.slots.mu.Unlock()
	return len(e.slots.fresh.waiters)+len(e.slots.begun.waiters) > 0
}

// crowded reports whether a query that begins now may have to wait for a slot.
func (e *Engine) crowded() bool { return e.begun.Load() >= int64(e.config.Load().MaxConcurrent) }

// Share lets the queries of several engines share the processors. It is called before the
// first query.
func (e *Engine) Share(t *Turns) { e.slots.all = t }

// SetLimits changes how many queries run at once, which are slow, and the limits of queries
// that begin later. TotalMemory and Workers stay as they are. config must be valid.
func (e *Engine) SetLimits(config Config) {
	had := e.config.Load()
	config.TotalMemory, config.Workers = had.TotalMemory, had.Workers
	e.config.Store(&config)
	e.pool.maxWait.Store(int64(config.MaxWait))
	e.slow.threshold.Store(int64(config.Slow))
	e.slots.grow(config.MaxConcurrent - had.MaxConcurrent)
}

// A Running describes a query that has not ended.
type Running struct {
	ID      uint64
	Text    string
	Client  string
	Start   time.Time
	Index   int    // of the metric that the query computes now
	Metric  string // its name, "" if the request has none
	Series  int64
	Samples int64
}

// Running lists the queries that run now, oldest first.
func (e *Engine) Running() []Running {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := make([]Running, 0, len(e.running))
	for id, s := range e.running {
		q := Running{
			ID: id, Text: s.request.Text, Client: s.request.Client, Start: s.start,
			Series: s.series.Load(), Samples: s.samples.Load(),
		}
		s.at.Lock()
		q.Index, q.Metric = s.at.index, s.at.metric
		s.at.Unlock()
		list = append(list, q)
	}
	slices.SortFunc(list, func(a, b Running) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Queued is the number of queries that wait for a slot, including those that have
// begun.
func (e *Engine) Queued() int { return int(e.queued.Load()) }

// Cancel ends a running query with ErrCancelled and reports whether the query
// was running.
func (e *Engine) Cancel(id uint64) bool {
	e.mu.Lock()
	s := e.running[id]
	e.mu.Unlock()
	if s == nil {
		return false
	}
	s.cancel(ErrCancelled)
	return true
}

// enter takes a slot, at once or after a wait in the queue.
func (e *Engine) enter(ctx context.Context, client string) error {
	if e.slots.try() {
		return nil
	}
	config := e.config.Load()
	return e.slots.queue(ctx, queue{
		config: config, most: int64(config.MaxQueued), sender: principal.NetworkOf(client), waiting: &e.queued, gauge: e.metrics.queued,
		full: store.LimitError{Limit: "waiting queries", What: "queries that wait for a slot; ask for less at once"},
		late: store.LimitError{Limit: "query.max_concurrent", Max: int64(config.MaxConcurrent), What: "no slot became free within query.max_wait of " + config.MaxWait.String()},
		what: "a query waits for a slot", wayOut: "fewer dashboards at once",
	})
}

// congested is the error of a request that is refused early.
func (c *Config) congested(what, wayOut string) error {
	p := congestion.Patience(c.MaxWait)
	return &store.LimitError{
		Busy: true, Limit: "query.max_wait", Max: c.MaxWait.Milliseconds(), Wait: p.Enough(), What: fmt.Sprintf(
			"milliseconds that %s; for %s no request was served within %s, so requests that wait for longer than %s are refused: try again later, or %s",
			what, p.While(), p.Soon(), p.Enough(), wayOut),
	}
}

// outcomeOK is the outcome of most queries.
const outcomeOK = "ok"

// outcome classifies how a query ended, for metrics.
func outcome(err error) string {
	if err == nil {
		return outcomeOK
	}
	limit, limited := errors.AsType[*store.LimitError](err)
	switch {
	case store.IsBusy(err):
		return "busy"
	case limited && limit.Limit == "query.timeout":
		return "timeout"
	case limited:
		return "limit"
	case errors.As(err, new(*store.InputError)), errors.As(err, new(*ComputeError)), errors.As(err, new(*principal.ForbiddenError)):
		return "input"
	case errors.Is(err, ErrCancelled), errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return "failed"
}
