package timeline

import (
	"context"
	"errors"
	"time"

	"varve/internal/store"
	"varve/internal/work"
)

// fullRound is how many rounds of looking after layouts there are for one of everything, which
// reads the history of each timeline.
const fullRound = 10

// firstFull is the first such round: ten minutes after a start, in which the clock of a machine that
// has just begun can be set, before it decides which events are past their retention.
const firstFull = 2 * fullRound

// keepUp runs Upkeep at intervals, and looks after layouts in between.
func (e *Engine) keepUp(ctx context.Context) {
	t := time.NewTicker(e.options.Upkeep)
	defer t.Stop()
	for round := 1; ; round++ {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if e.options.Lease != nil && !e.options.Lease() {
			continue
		}
		look := e.adaptLines
		if round%fullRound == 0 && round >= firstFull {
			look = e.Upkeep
		}
		if err := work.Do("look after timelines", func() error { return look(ctx) }); err != nil && ctx.Err() == nil {
			e.log.Warn("upkeep of timelines failed; the next round will retry", "error", err)
		}
	}
}

// Upkeep does a round of what is done at intervals: it removes events past their retention,
// the marks of buckets that they leave, and the remains of deleted timelines, and adapts layouts.
// If it fails for one timeline, it continues with the others.
func (e *Engine) Upkeep(ctx context.Context) error {
	var errs []error
	after := ""
	for {
		names, err := e.shelf.Names(ctx, "", after, NamesMax)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		for _, name := range names {
			if err := e.lookAfter(ctx, name); err != nil {
				e.metrics.upkeepFailed.Inc()
				errs = append(errs[:min(len(errs), 10)], err) // some are enough for the log
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		if len(names) < NamesMax {
			return errors.Join(errs...)
		}
		after = names[len(names)-1]
	}
}

// adaptLines adapts the layouts of the timelines that this process writes to.
func (e *Engine) adaptLines(ctx context.Context) error {
	e.lines.Lock()
	var names []string
	for name, l := range e.lines.named {
		if l.appended.Load() > 0 {
			names = append(names, name)
		}
	}
	e.lines.Unlock()
	var errs []error
	for _, name := range names {
		l := e.use(name)
		err := e.adapt(ctx, l)
		e.release(l)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			e.metrics.upkeepFailed.Inc()
			errs = append(errs[:min(len(errs), 10)], err)
		}
	}
	return errors.Join(errs...)
}

func (e *Engine) lookAfter(ctx context.Context, name string) error {
	l := e.use(name)
	defer e.release(l)
	k, err := e.layout(ctx, l, MinTime)
	if err != nil || k.Version == 0 {
		return err
	}
	if !k.Live() {
		return e.bury(ctx, l)
	}
	return errors.Join(e.expire(ctx, l, k), e.adapt(ctx, l))
}

// bury removes what is left of a deleted timeline once no process relies on it, or makes it
// live again if another process has put events into it since.
func (e *Engine) bury(ctx context.Context, l *line) error {
	l.work.Lock()
	defer l.work.Unlock()
	k, err := e.refresh(ctx, l)
	unused := e.now().Add(-unmarkAfter * e.markLife())
	if err != nil || k.Version == 0 || k.Live() || k.Deleted > unused.UnixMicro() {
		return err
	}
	switch _, err := e.first(ctx, l.name, Ascending); {
	case err == nil:
		_, err = e.change(ctx, l, false, func(h History) (History, error) {
			h.Deleted = 0
			return h, nil
		})
		return ignoreConflict(err)
	case !errors.Is(err, ErrNotFound):
		return err
	}
	err = e.overBuckets(ctx, l, k, All(), func(context.Context, Part) error { return nil }, func(starts []int64) error {
		return e.shelf.Unmark(ctx, l.name, starts, unused)
	})
	if err != nil {
		return err
	}
	left, err := e.shelf.Marks(ctx, l.name, MinTime-maxSize, MaxTime+1, Ascending, 1)
	if err != nil || len(left) > 0 {
		return err
	}
	return e.purge(ctx, l, k)
}

// ignoreConflict: another process has done it.
func ignoreConflict(err error) error {
	if errors.Is(err, ErrConflict) {
		return nil
	}
	return err
}

// expire removes the buckets whose events are all past the retention.
func (e *Engine) expire(ctx context.Context, l *line, k known) error {
	oldest := e.oldest(&k.History)
	if k.Retention == 0 {
		return nil
	}
	end, _ := k.Bucket(oldest) // the buckets before this one
	first, err := e.shelf.Marks(ctx, l.name, MinTime-maxSize, end, Ascending, 1)
	if err != nil || len(first) == 0 {
		return err
	}
	r := Range{At(first[0]), At(end)}
	if k.apart() { // this may take long; appends go on meanwhile
		if err := e.eraseApart(ctx, l, k, r, e.stamp(), false); err != nil {
			return err
		}
	}
	l.work.Lock()
	defer l.work.Unlock()
	now := e.now()
	if err := e.erase(ctx, l, k, r, e.stamp(), true); err != nil {
		return err
	}
	return e.overBuckets(ctx, l, k, r, func(context.Context, Part) error { return nil }, func(starts []int64) error {
		e.metrics.expired.Add(float64(len(starts)))
		return e.shelf.Unmark(ctx, l.name, starts, now.Add(-unmarkAfter*e.markLife()))
	})
}

// adapt proposes a layout that suits the rate of a timeline that this process writes to.
func (e *Engine) adapt(ctx context.Context, l *line) error {
	n := l.appended.Load()
	l.mu.Lock()
	idle := n-l.looked < evidence
	l.mu.Unlock()
	if idle || l.own || !e.config.Adapt {
		return nil
	}
	l.mu.Lock()
	l.looked = n
	l.mu.Unlock()
	_, rate, bytes, err := e.measure(ctx, l.name, measured)
	if err != nil || rate == 0 {
		return err
	}
	k, err := e.layout(ctx, l, MinTime)
	if err != nil {
		return err
	}
	last := k.Layouts[len(k.Layouts)-1]
	if last.From > e.now().UnixMicro() {
		return nil // another change is on its way
	}
	size, factor, better := adapted(last, rate, bytes)
	if !better {
		return nil
	}
	h, err := e.Propose(ctx, l.name, Proposal{Version: k.Version, Size: size, Factor: factor})
	if _, ok := errors.AsType[*store.InputError](err); ok {
		return nil // buckets of the present size, which someone chose, and of this one do not begin together soon
	}
	if err != nil {
		return ignoreConflict(err)
	}
	next := h.Layouts[len(h.Layouts)-1]
	e.log.Info("the layout of a timeline will follow its rate", "timeline", l.name, "events per second", rate, "bucket", duration(next.Size), "partitions", next.Factor,
		"from", time.UnixMicro(next.From).UTC())
	return nil
}

// A rate is measured on up to measured events with up to measuredBytes, and one more.
const (
	measured      = 1000
	measuredBytes = 1 << 20
)
