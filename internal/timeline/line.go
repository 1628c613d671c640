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

	"varve/internal/gate"
	"varve/internal/store"
)

const (
	linesMax = 1 << 16 // timelines that an engine remembers beyond those in use
	marksMax = 1 << 10 // marks that it remembers of each
)

// A line is what an engine knows of one timeline.
type line struct {
	name string
	own  bool // see Options.Own
	uses int  // Engine.lines guards it

	// work is held for reading by appends and for writing by deletions.
	work sync.RWMutex

	arrived  *gate.Gate    // announced after each append
	appended atomic.Uint64 // events
	turn     atomic.Uint64 // of round-robin placement

	loading  chan struct{} // holds a token while the history is being read
	changing chan struct{} // the same while it is being changed; taken after work

	mu      sync.Mutex // guards what follows; no I/O under it
	history History
	read    time.Time // before history was read; zero: never
	marked  map[int64]time.Time
	ends    map[Direction]int64 // the first bucket in each direction, when it was looked for or marked last
	budget  *rate.Limiter       // nil until the first events
	noted   notes
	looked  uint64 // appended, when the layout was last adapted
}

// use returns what is known of a timeline. Release it.
func (e *Engine) use(name string) *line {
	e.lines.Lock()
	defer e.lines.Unlock()
	l := e.lines.named[name]
	if l == nil {
		e.dropLines()
		l = &line{name: name, own: e.IsOwn(name), arrived: gate.New(), loading: make(chan struct{}, 1), changing: make(chan struct{}, 1), marked: map[int64]time.Time{}, ends: map[Direction]int64{}}
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
// A process reads the history again when it is older than poll, and touches only buckets
// that begin before the horizon of the history that it has: a change that it has not seen
// takes effect later.
func (e *Engine) poll() time.Duration { return e.config.LeadTime / 4 }
func (e *Engine) skew() time.Duration { return e.config.LeadTime / 8 }

func (e *Engine) horizon(read time.Time) int64 {
	return read.Add(e.config.LeadTime - e.skew()).UnixMicro()
}

// serves reports whether a history serves for buckets that begin up to a time. One that
// never changes serves for all.
func (e *Engine) serves(l *line, read time.Time, upTo int64) bool {
	return l.own || upTo <= e.horizon(read)
}

// A known is a history and when it was read.
type known struct {
	History
	read time.Time
}

func (l *line) known() known {
	l.mu.Lock()
	defer l.mu.Unlock()
	return known{l.history, l.read}
}

// layout returns the history of a timeline, which serves for buckets that begin up to a
// time, if any history can.
func (e *Engine) layout(ctx context.Context, l *line, upTo int64) (known, error) {
	k := l.known()
	if age := e.now().Sub(k.read); age >= 0 && age <= e.poll() && e.serves(l, k.read, upTo) && k.Version > 0 {
		return k, nil
	}
	fresh, err := e.refresh(ctx, l)
	if err == nil {
		return fresh, nil
	}
	// The history that is known serves on while the storage is away.
	if age := e.now().Sub(k.read); k.Version > 0 && age >= 0 && age <= e.config.LeadTime && e.serves(l, k.read, upTo) && ctx.Err() == nil {
		return k, nil
	}
	return known{}, err
}

// serving returns k, or the history as it is now if k does not serve for buckets that begin up
// to a time. Of a timeline that was removed meanwhile, k tells where its remains are.
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
	select {
	case l.loading <- struct{}{}:
	case <-ctx.Done():
		return known{}, ctx.Err()
	}
	defer func() { <-l.loading }()
	if k := l.known(); !k.read.IsZero() && k.read.After(asked) {
		return k, nil
	}
	return e.load(ctx, l)
}

// load reads the history. The caller holds the token, or takes what it gets as a hint.
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

// errUnchanged is what an edit returns if the history can stay as it is.
var errUnchanged = errors.New("the layout of the timeline is as it should be")

// change replaces the history. edit gets the stored one and returns the next, whose version
// is set here. After ErrConflict it is tried again if retry says so. Changes of this process come one
// after the other: of a hundred at once, each round of attempts would let one through.
func (e *Engine) change(ctx context.Context, l *line, retry bool, edit func(History) (History, error)) (known, error) {
	select {
	case l.changing <- struct{}{}:
	case <-ctx.Done():
		return known{}, ctx.Err()
	}
	defer func() { <-l.changing }()
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

// set replaces a history by its next version. A layout that is added is to be in the future
// by the lead time when others can see it: a process that was frozen meanwhile comes too
// late.
func (e *Engine) set(ctx context.Context, name string, old, h History) error {
	if old.Version == 0 || len(h.Layouts) <= len(old.Layouts) {
		return e.shelf.SetHistory(ctx, name, old.Version, h)
	}
	inTime, cancel := context.WithTimeout(ctx, e.skew()/2)
	defer cancel()
	err := e.shelf.SetHistory(inTime, name, old.Version, h)
	if err != nil && inTime.Err() != nil && ctx.Err() == nil {
		return &store.UnavailableError{Reason: fmt.Sprintf("the layout took longer than %v to store, a sixteenth of timeline.lead_time; propose it again", e.skew()/2), Err: err}
	}
	return err
}

// remembersMark reports whether a bucket was marked so lately that the mark is sure to be
// there. See Engine.markLife.
func (l *line) remembersMark(start int64, now time.Time, life time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.marked[start]
	return ok && now.Sub(at) < life && !now.Before(at)
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

// rememberEnd notes which bucket is the first one in a direction. It may be another one any
// time: readers begin with it, and compare it with the directory.
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

// forget drops what is known. l.work is held for writing.
func (l *line) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.marked)
	clear(l.ends)
	l.history, l.read = History{}, time.Time{}
}

// deletionsMax bounds the deletes of a timeline that a server notes in a day. The drain of a
// spool reads those that came after its oldest event: 1,000,000 take some 20 s, and 100 MB.
const deletionsMax = 1_000_000

// notes counts the deletes that were noted in a day.
type notes struct {
	day int64 // since 1970
	n   int64
}

// noteOne counts a delete, unless there are too many.
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

// burst is how many seconds' worth of events may come at once.
const burst = 10

// AtOnce is how many events a timeline with Config.RateMax accepts at once, 0 if there is no limit: more
// are never accepted in one Append, however long their sender waits.
func (c Config) AtOnce() int { return burst * min(c.RateMax, math.MaxInt/burst) }

// take takes n of the events that may come, of so many a second. If there are too few, it takes
// none and says when there are enough.
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
