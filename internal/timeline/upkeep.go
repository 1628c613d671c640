package timeline

import (
	"context"
	"errors"
	"time"

	"varve/internal/store"
	"varve/internal/work"
)

// Every fullRound-th round runs Upkeep, which reads the history of each timeline. The others
// only adapt layouts.
const fullRound = 10

// firstFull is the first full round: ten minutes after a start, so that the clock of a machine
// that has just booted can be set before events are judged to be past their retention.
const firstFull = 2 * fullRound

// keepUp runs Upkeep at intervals, and adapts layouts in between.
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
		if e.changeable(ctx) != nil {
			continue // both the retention and the next layout depend on the clock
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

// Upkeep removes events past their retention, the marks of their buckets, and the remains of
// deleted timelines, and it adapts layouts. If it fails for one timeline, it continues with the
// others.
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
				errs = append(errs[:min(len(errs), 10)], err) // enough for the log
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
	read := e.stamp()
	k, err := e.refresh(ctx, l) // another process may have made the retention longer
	if err != nil || k.Version == 0 {
		return err
	}
	if !k.Live() {
		return e.bury(ctx, l)
	}
	return errors.Join(e.expire(ctx, l, k, read.Add(-e.skew())), e.adapt(ctx, l))
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
	err = e.overMarks(ctx, l, k, All(), func(_ known, starts []int64) error {
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

// ignoreConflict drops an ErrConflict: another process changed the history first, and the next
// round looks at it again.
func ignoreConflict(err error) error {
	if errors.Is(err, ErrConflict) {
		return nil
	}
	return err
}

// expire removes the buckets whose events are all past the retention. Events that were put at or after
// before stay until the next time: another process may have accepted them with a longer retention
// than k has, and perhaps in buckets that it has marked only since then.
func (e *Engine) expire(ctx context.Context, l *line, k known, before time.Time) error {
	oldest := e.oldest(&k.History)
	if k.Retention == 0 {
		return nil
	}
	end, _ := k.Bucket(oldest) // the first bucket that stays
	first, err := e.shelf.Marks(ctx, l.name, MinTime-maxSize, end, Ascending, 1)
	if err != nil || len(first) == 0 {
		return err
	}
	r := Range{At(first[0]), At(end)}
	if k.hasPayloads() { // this may take long; appends continue meanwhile
		for rest, end := r, false; !end; {
			if rest.From, end, err = e.expirePayloads(ctx, l, k, rest, before); err != nil {
				return err
			}
		}
	}
	l.work.Lock()
	defer l.work.Unlock()
	if l.known().Retention != k.Retention {
		return nil
	}
	if err := e.erase(ctx, l, k, r, before, true); err != nil {
		return err
	}
	return e.overMarks(ctx, l, k, r, func(_ known, starts []int64) error {
		e.metrics.expired.Add(float64(len(starts)))
		return e.shelf.Unmark(ctx, l.name, starts, before.Add(-unmarkAfter*e.markLife()))
	})
}

// expirePayloads removes one batch as erasePayloadBatch does. Where no other process writes, the shelf
// does not look at before. So once this process has another retention, nothing more is removed: events
// that the former one would not have accepted may be there.
func (e *Engine) expirePayloads(ctx context.Context, l *line, k known, r Range, before time.Time) (next Position, end bool, err error) {
	l.work.Lock()
	defer l.work.Unlock()
	if l.known().Retention != k.Retention {
		return r.From, true, nil
	}
	return e.erasePayloadBatch(ctx, l, k, r, before, true)
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
		return nil // the present size was chosen by someone, and its buckets do not begin together with those of this size soon
	}
	if err != nil {
		return ignoreConflict(err)
	}
	next := h.Layouts[len(h.Layouts)-1]
	e.log.Info("the layout of a timeline will change to suit its rate", "timeline", l.name, "events per second", rate, "bucket", duration(next.Size), "partitions", next.Factor,
		"from", time.UnixMicro(next.From).UTC())
	return nil
}

// A rate is measured over the newest events, up to measured of them. The last of them is the
// one with which their data reaches measuredBytes.
const (
	measured      = 1000
	measuredBytes = 1 << 20
)
