package timeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"varve/internal/notify"
	"varve/internal/store"
	"varve/internal/work"
)

const (
	linesMax = 1 << 16 // timelines that an engine remembers, unless more are in use
	marksMax = 1 << 10 // marks that it remembers per timeline
)

// A line is the state of one timeline in an engine.
type line struct {
	name string
	own  bool // see Options.Own
	uses int  // Engine.lines guards it

	// Appends hold work for reading, deletes for writing.
	work sync.RWMutex

	arrived  *notify.Notifier // announced after each append
	appended atomic.Uint64    // events
	turn     atomic.Uint64    // of round-robin placement

	loading  chan struct{} // holds a token while the history is being read
	changing chan struct{} // holds a token while the history is being changed; acquired after work

	mu      sync.Mutex // guards what follows; no I/O under it
	history History
	read    time.Time           // when the read of history began; zero: never read
	marked  map[int64]time.Time // when each bucket was last marked, by start
	ends    map[Direction]int64 // the first bucket in each direction, as last known
	budget  *rate.Limiter       // nil until the first events
	noted   notes
	looked  uint64 // value of appended when adapt last measured the rate
}

// use returns the state of a timeline. The caller must release it.
func (e *Engine) use(name string) *line {
	e.lines.Lock()
	defer e.lines.Unlock()
	l := e.lines.named[name]
	if l == nil {
		e.dropLines()
		l = &line{name: name, own: e.IsOwn(name), arrived: notify.New(), loading: make(chan struct{}, 1), changing: make(chan struct{}, 1), marked: map[int64]time.Time{}, ends: map[Direction]int64{}}
		l.turn.Store(e.ids.count.Load())
		e.lines.named[name] = l
	}
	l.uses++
	return l
}

// dropLines forgets some timelines that are not in use if there are too many. e.lines
// must be held.
func (e *Engine) dropLines() {
	if len(e.lines.named) < linesMax {
		return
	}
	looked := 0
	for name, l := range e.lines.named {
		if l.uses == 0 {
			delete(e.lines.named, name)
		}
		if looked++; looked == 1000 {
			return
		}
	}
}

func (e *Engine) release(l *line) {
	e.lines.Lock()
	l.uses--
	e.lines.Unlock()
}

// The fence. A change of layout is written at least the lead time before it takes effect.
// A process reads the history again when its copy is older than poll, and touches only
// buckets that begin up to the horizon of that copy: a change that it has not seen takes
// effect later.
func (e *Engine) poll() time.Duration { return e.config.LeadTime / 4 }
func (e *Engine) skew() time.Duration { return e.config.LeadTime / 8 }

func (e *Engine) horizon(read time.Time) int64 {
	return read.Add(e.config.LeadTime - e.skew()).UnixMicro()
}

// serves reports whether a history that was read at read is valid for buckets that begin up
// to upTo. The history of one of Options.Own never changes, so it always is.
func (e *Engine) serves(l *line, read time.Time, upTo int64) bool {
	return l.own || upTo <= e.horizon(read)
}

// A known is a history and the time at which its read began.
type known struct {
	History
	read time.Time
}

func (l *line) known() known {
	l.mu.Lock()
	defer l.mu.Unlock()
	return known{l.history, l.read}
}

// layout returns the history of a timeline. It is valid for buckets that begin up to upTo,
// unless upTo is beyond the horizon of a history that is read now.
func (e *Engine) layout(ctx context.Context, l *line, upTo int64) (known, error) {
	k := l.known()
	if age := work.Elapsed(k.read, e.now()); age >= 0 && age <= e.poll() && e.serves(l, k.read, upTo) && k.Version > 0 {
		return k, nil
	}
	fresh, err := e.refresh(ctx, l)
	if err == nil {
		return fresh, nil
	}
	// While the storage is unavailable, the known history is used for up to the lead time.
	if age := work.Elapsed(k.read, e.now()); k.Version > 0 && age >= 0 && age <= e.config.LeadTime && e.serves(l, k.read, upTo) && ctx.Err() == nil {
		return k, nil
	}
	return known{}, err
}

// serving returns k if it is valid for buckets that begin up to upTo, else the current history.
// If the timeline was removed meanwhile it returns k, which says where the remains are.
func (e *Engine) serving(ctx context.Context, l *line, k known, upTo int64) (known, error) {
	if e.serves(l, k.read, upTo) {
		return k, nil
	}
	fresh, err := e.refresh(ctx, l)
	if err != nil || fresh.Version == 0 {
		return k, err
	}
	return fresh, nil
}

// refresh reads the history. Concurrent callers share one read.
func (e *Engine) refresh(ctx context.Context, l *line) (known, error) {
	asked := e.now()
	release, err := work.Take(ctx, l.loading)
	if err != nil {
		return known{}, err
	}
	defer release()
	if k := l.known(); !k.read.IsZero() && k.read.After(asked) {
		return k, nil
	}
	return e.load(ctx, l)
}

// load reads the history and remembers it, unless a newer version has been remembered
// meanwhile. A caller that does not hold the loading token must treat the result as a hint.
func (e *Engine) load(ctx context.Context, l *line) (known, error) {
	read := e.now()
	h, err := e.shelf.History(ctx, l.name)
	if err != nil {
		return known{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if read.Before(l.read) && h.Version < l.history.Version {
		return known{l.history, l.read}, nil
	}
	l.history, l.read = h, read
	return known{h, read}, nil
}

// errUnchanged is returned by an edit that leaves the history as it is.
var errUnchanged = errors.New("the layout of the timeline need not change")

// change replaces the stored history by what edit makes of it, with the next version. If
// retry is set, it tries again after ErrConflict. Changes by this process are serialized:
// if a hundred competed, each round of attempts would let only one through.
func (e *Engine) change(ctx context.Context, l *line, retry bool, edit func(History) (History, error)) (known, error) {
	if err := e.changeable(ctx); err != nil { // layouts begin at times
		return known{}, err
	}
	release, err := work.Take(ctx, l.changing)
	if err != nil {
		return known{}, err
	}
	defer release()
	for try := 0; ; try++ {
		k, err := e.load(ctx, l)
		if err != nil {
			return known{}, err
		}
		h := k.History
		h.Layouts = append([]Layout(nil), h.Layouts...)
		h, err = edit(h)
		if errors.Is(err, errUnchanged) {
			return k, nil
		}
		if err != nil {
			return known{}, err
		}
		h.Version = k.Version + 1
		err = e.set(ctx, l.name, k.History, h)
		if errors.Is(err, ErrConflict) && retry && try < 10 {
			continue
		}
		if err != nil {
			return known{}, err
		}
		e.metrics.layouts.Inc()
		return e.load(ctx, l)
	}
}

// set replaces a history by its next version. A new layout must be visible to others for the
// lead time before it begins. So its write has a deadline: if the process is frozen meanwhile,
// the write fails.
func (e *Engine) set(ctx context.Context, name string, old, h History) error {
	if old.Version == 0 || len(h.Layouts) <= len(old.Layouts) {
		return e.shelf.SetHistory(ctx, name, old.Version, h)
	}
	inTime, cancel := context.WithTimeout(ctx, e.skew()/2)
	defer cancel()
	err := e.shelf.SetHistory(inTime, name, old.Version, h)
	if err != nil && inTime.Err() != nil && ctx.Err() == nil {
		return &store.UnavailableError{Reason: fmt.Sprintf("storing the layout took longer than %v, a sixteenth of timeline.lead_time; propose it again", e.skew()/2), Err: err}
	}
	return err
}

// remembersMark reports whether a bucket was marked so recently that the mark must still
// exist. See Engine.markLife.
func (l *line) remembersMark(start int64, now time.Time, life time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.marked[start]
	age := work.Elapsed(at, now)
	return ok && age >= 0 && age < life
}

func (l *line) rememberMarks(starts []int64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.marked)+len(starts) > marksMax {
		clear(l.marked)
	}
	for _, start := range starts[:min(len(starts), marksMax)] {
		l.marked[start] = now
	}
	if newest, ok := l.ends[Descending]; ok {
		l.ends[Descending] = max(newest, slices.Max(starts))
	}
}

// rememberEnd records the first bucket in a direction. It is a hint that can be out of date at
// any time: readers begin with it and check it against the directory.
func (l *line) rememberEnd(d Direction, start int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends[d] = start
}

func (l *line) rememberedEnd(d Direction) (start int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	start, ok = l.ends[d]
	return start, ok
}

// forget drops everything that is known. l.work must be held for writing.
func (l *line) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.marked)
	clear(l.ends)
	l.history, l.read = History{}, time.Time{}
}

// deletionsMax bounds the deletes of a timeline that a server records in a day. Draining a
// spool reads all that came after its oldest event: 1,000,000 take about 20 s.
const deletionsMax = 1_000_000

// notes counts the deletes that were recorded in a day.
type notes struct {
	day int64 // since 1970
	n   int64
}

// noteOne counts a delete. Beyond deletionsMax it returns an error instead.
func (l *line) noteOne(now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if day := now.Unix() / 86400; day != l.noted.day {
		l.noted = notes{day: day}
	}
	if l.noted.n >= deletionsMax {
		return &store.LimitError{Limit: "deletes of a timeline in a day", Max: deletionsMax, Need: deletionsMax + 1, What: "delete ranges, or the timeline, instead of single events"}
	}
	l.noted.n++
	return nil
}

// burst is the size of a burst, in seconds of Config.RateMax.
const burst = 10

// AtOnce is the most events that a timeline with Config.RateMax accepts in one Append, however
// long the sender has waited; 0 means no limit.
func (c Config) AtOnce() int { return burst * min(c.RateMax, math.MaxInt/burst) }

// take charges n events against a limit of perSecond. If the limit does not allow them now, it
// charges none, and the error says how long to wait.
func (l *line) take(n, perSecond int, now time.Time) error {
	if perSecond == 0 || l.own {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.budget == nil {
		l.budget = rate.NewLimiter(rate.Limit(perSecond), Config{RateMax: perSecond}.AtOnce())
	}
	if l.budget.AllowN(now, n) {
		return nil
	}
	missing := float64(min(n, l.budget.Burst())) - l.budget.TokensAt(now)
	return &store.LimitError{Limit: "timeline.rate_max", Max: int64(perSecond), Wait: time.Duration(missing / float64(perSecond) * float64(time.Second)),
		What: "events per second into timeline " + l.name}
}
