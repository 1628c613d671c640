package query

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

// A Request says who sent a query, and how its work is observed.
type Request struct {
	Text   string // as the client wrote it, for the list of running queries
	Client string // where it came from, likewise
	Metric string // that is worked on first, likewise
	Trace  bool   // measure all of Stats

	// Partial lets the store answer without parts that are unavailable: see
	// Session.Missing.
	Partial bool

	// Current has the store read what is stored now: see store.CurrentView.
	Current bool
}

// A Session is one running request: it has a slot among the running queries, a
// context, a budget, and a View. The samples that it reads count against its limits. A
// Session is used by one goroutine, except for the methods that say otherwise.
type Session struct {
	engine  *Engine
	config  *Config // when it began
	id      uint64
	request Request
	start   time.Time
	begun   time.Time // for the duration, by the real clock
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timeout *time.Timer // cancels
	view    store.View
	remote  bool       // the view reads from other machines
	lookup  *storeWait // of lookups of series and names, nil before the first
	budget  budget
	holds   func(bytes int64) error // Hold of its selections and reads
	series  atomic.Int64
	samples atomic.Int64
	worked  int // since the last check of the context
	trace   trace
	closed  bool
	active  *activeEntry  // in the engine's ActiveFile, nil if there is none
	turn    time.Time     // when the query last got its slot
	used    time.Duration // how long it had a slot before, at most longTime
	slice   atomic.Int64  // when it last let other goroutines run, in ns from begun on
	outside bool          // it has no slot now
	again   bool          // it has had its first turn
	settled bool          // it has had a third turn, or has sent some of its answer

	at struct { // what is worked on, for the list of running queries
		sync.Mutex
		index  int
		metric string
	}
}

// Begin waits for a free slot and opens the store. The Session must be closed.
func (e *Engine) Begin(ctx context.Context, q Request) (*Session, error) {
	asked := time.Now()
	if err := e.enter(ctx, q.Client); err != nil {
		e.metrics.queries.WithLabelValues(outcome(err)).Inc()
		return nil, err
	}
	waited := time.Since(asked)
	s := e.newSession(ctx, q)
	s.trace.wait.Store(int64(waited))
	open := e.store.View
	if q.Current {
		open = func(ctx context.Context) (store.View, error) { return store.OpenCurrent(ctx, e.store) }
	}
	view, err := open(s.ctx)
	if err != nil {
		err = s.Cause(err)
		s.Close(err)
		return nil, err
	}
	s.view = view
	_, s.remote = store.As[store.CurrentView](view)
	if part, ok := store.As[store.PartialView](view); ok && q.Partial {
		part.AllowPartial()
	}
	return s, nil
}

func (e *Engine) newSession(ctx context.Context, q Request) *Session {
	s := &Session{engine: e, config: e.config.Load(), request: q, start: e.now(), begun: time.Now(), id: e.lastID.Add(1)}
	s.turn, s.at.metric = s.begun, q.Metric
	s.budget.max, s.budget.key = int64(s.config.MaxMemory), "query.max_memory"
	s.budget.engine, s.budget.session, s.budget.sender = e, s.id, s.sender()
	if most := e.pool.most(); most < s.budget.max {
		s.budget.max, s.budget.key = most, "query.total_memory"
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.timeout = time.AfterFunc(s.config.Timeout, func() { // a second context would cost five allocations
		s.cancel(&store.LimitError{
			Limit: "query.timeout", Max: s.config.Timeout.Milliseconds(), What: "milliseconds that one query may take",
		})
	})
	s.budget.ctx, s.holds = s.ctx, s.hold
	if e.active != nil {
		s.active = e.active.begin(s.start, s.begun, &s.request)
	}
	e.mu.Lock()
	e.running[s.id] = s
	e.mu.Unlock()
	e.begun.Add(1)
	e.metrics.running.Inc()
	return s
}

// Missing says which part of the store was asked but unavailable; nil if there was
// none. The answers of the session then lack the samples of that part, in buckets too.
func (s *Session) Missing() error {
	if part, ok := store.As[store.PartialView](s.view); ok {
		return part.Missing()
	}
	return nil
}

// WorkOn records which metric of the request is computed next, for the list of running
// queries.
func (s *Session) WorkOn(index int, metric string) {
	s.at.Lock()
	s.at.index, s.at.metric = index, metric
	s.at.Unlock()
}

// Close ends the query. err says how it ended, nil for success. Closing twice is allowed.
func (s *Session) Close(err error) {
	if s.closed {
		return
	}
	s.closed = true
	s.timeout.Stop()
	s.cancel(nil)
	if s.view != nil {
		s.view.Close()
	}
	s.budget.close()
	e := s.engine
	e.mu.Lock()
	delete(e.running, s.id)
	e.mu.Unlock()
	if s.active != nil {
		s.active.end()
	}
	if !s.outside {
		e.slots.leave()
	}
	e.begun.Add(-1)
	e.metrics.running.Dec()
	e.metrics.queries.WithLabelValues(outcome(err)).Inc()
	e.metrics.seconds.Observe(time.Since(s.begun).Seconds())
	e.metrics.samples.Add(float64(s.samples.Load()))
	e.metrics.series.Add(float64(s.series.Load()))
}

// Wait runs f, during which the query keeps its slot and waits for something other than a
// processor, such as the store. Queries of other tenants compute meanwhile.
func (s *Session) Wait(f func() error) error {
	if s.outside {
		return f()
	}
	return s.engine.slots.all.without(f)
}

// Context ends when the query is cancelled, times out, or is closed.
func (s *Session) Context() context.Context { return s.ctx }

// Started is when the session got its slot, by the clock of the engine.
func (s *Session) Started() time.Time { return s.start }

// Workers is the most goroutines that Parallel uses.
func (s *Session) Workers() int { return s.engine.workers }

// MaxSamples is the number of samples that the session may read. Points that a language
// generates without reading samples count against it too.
func (s *Session) MaxSamples() int64 { return s.config.MaxSamples }

// Samples is the number of samples that were read so far.
func (s *Session) Samples() int64 { return s.samples.Load() }

// Reread sets the number of samples back to an earlier value, before samples are read a
// second time.
func (s *Session) Reread(before int64) { s.samples.Store(before) }

// Any reports whether at least one matching series is accepted. It stops at the first.
// If more than query.max_series match, the result may be a *store.LimitError although one
// of them would be accepted. The series do not count as selected: a caller that reads one selects it then.
// Only the goroutine of the session may call Any.
func (s *Session) Any(want store.Selection, accept func(model.Series) bool) (accepted bool, err error) {
	defer since(&s.trace.index, time.Now())
	want.AnyOrder = true
	for one, failed := range s.limited(want) {
		if err = failed; err == nil {
			err = s.Tick(1)
		}
		if accepted = err == nil && accept(one.Series); accepted || err != nil {
			break
		}
	}
	if err == nil {
		err = s.Yield()
	}
	return accepted && err == nil, s.Cause(err)
}

// limited selects within the limit of the session.
func (s *Session) limited(want store.Selection) iter.Seq2[store.Series, error] {
	want.Limit, want.LimitKey = s.config.MaxSeries, "query.max_series"
	return s.choose(want)
}

// choose asks the store for series.
func (s *Session) choose(want store.Selection) iter.Seq2[store.Series, error] {
	want.Tick, want.Hold = s.Tick, s.holds
	found := s.view.Select(s.ctx, want)
	if !s.remote {
		return found
	}
	return func(yield func(store.Series, error) bool) {
		wait := s.lookupWait()
		wait.begin()
		defer wait.end()
		for one, err := range found {
			wait.end()
			if !yield(one, err) {
				return
			}
			if s.engine.crowded() { // most series follow at once: setting the timer for each wakes other threads
				wait.begin()
			}
		}
	}
}

// Cause returns why the context ended, if err says only that it has ended;
// otherwise it returns err.
func (s *Session) Cause(err error) error {
	if err != nil && s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	return err
}

// hold is the Hold of selections, names and reads.
func (s *Session) hold(n int64) error {
	if n < 0 {
		s.budget.release(-n)
		return nil
	}
	return s.budget.take(n)
}

// lookEvery is how much work is done between two checks of the context: some
// milliseconds.
const lookEvery = 1 << 14

// Tick adds an amount of work, such as the number of steps that a point goes
// through. Once the sum is large enough, Tick checks the context and gives other
// queries their turn. All streams of a session share the sum, since a stream may
// have a single point. Only the goroutine of the session may call Tick, and it must
// not hold anything that another query needs to begin.
func (s *Session) Tick(work int) error {
	if s.worked += work; s.worked < lookEvery {
		return nil
	}
	s.worked = 0
	return s.Look()
}

// Look checks the context and gives other queries their turn, as Tick does after enough work. A
// store calls it while it computes, not while it waits for other machines: meanwhile the lookup
// lends no slot, because a query that waits for its turn has none.
func (s *Session) Look() error {
	if err := s.ctx.Err(); err != nil {
		return s.Cause(err)
	}
	called := s.lookup.end()
	err := s.Yield()
	if called && err == nil {
		s.lookup.begin()
	}
	return s.Cause(err)
}

// SortWork is the work of comparing two series or groups, see Session.Tick.
const SortWork = 8

// SortFunc sorts as model.SortFunc does, and lets other queries have their turn
// meanwhile. The goroutine of the session calls it.
func SortFunc[E any](s *Session, list []E, compare func(a, b E) int) error {
	return model.SortFunc(s.ctx, list, func(a, b E) int {
		_ = s.Tick(SortWork) // model.SortFunc notices the end of the context too
		return compare(a, b)
	})
}

// addSamples counts samples against query.max_samples.
func (s *Session) addSamples(n int64) error {
	if total := s.samples.Add(n); total > s.config.MaxSamples {
		return &store.LimitError{
			Limit: "query.max_samples", Max: s.config.MaxSamples, Need: total,
			What: "samples that a query reads; narrow the time range or the tags",
		}
	}
	return nil
}
