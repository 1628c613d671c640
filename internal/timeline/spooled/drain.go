package spooled

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"varve/internal/clip"
	"varve/internal/notify"
	"varve/internal/store"
	"varve/internal/timeline"
	"varve/internal/units"
	"varve/internal/wal"
	"varve/internal/work"
	"varve/internal/writelog"
)

const (
	linger       = 100 * time.Millisecond // how long events are collected before they are drained
	spaceEvery   = time.Second            // how often the free space is checked
	pauseFirst   = 250 * time.Millisecond // after a failed drain; doubled up to pauseMost
	pauseMost    = 15 * time.Second
	drainPlaces  = 1000          // most events put at once, each counted once per timeline, unless a record has more; if a call fails, all its events are put again
	drainBytes   = 4 * units.MiB // most data of these events
	refusedShown = 10            // most refused events that a drain logs

	vainMost  = 4              // calls that put nothing, after which a pass ends
	beyondMax = 64 * units.MiB // how much of the log a pass reads beyond events that cannot be put, in search of events that can be
)

// run drains the log whenever it has events, until ctx ends.
func (s *Spool) run(ctx context.Context) {
	space := time.NewTicker(spaceEvery)
	defer space.Stop()
	due, planned, pause := time.NewTimer(0), true, pauseFirst // first drain what an earlier process left
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-space.C:
			s.log.LookAtSpace(func() error { return s.reopen(ctx) })
		case <-s.poke:
			if !planned {
				due.Reset(linger)
			}
			planned = true
		case <-due.C:
			planned = false
			err := work.Do("drain the spool of timelines", func() error { return s.drain(ctx) })
			if err == nil || ctx.Err() != nil {
				s.failing.Store(nil)
				pause = pauseFirst
				continue
			}
			s.failed.Inc()
			f := &failure{err, time.Now()}
			if before := s.failing.Load(); before != nil {
				f.since = before.since
			}
			s.failing.Store(f)
			s.progress.Notify()
			s.logger.Warn("the spool of timelines could not be drained; will retry", "error", err, "events", s.waiting.Load(), "in", pause)
			due.Reset(pause)
			planned, pause = true, min(2*pause, pauseMost)
		}
	}
}

// reopen begins a new log after one that failed for lack of space, and writes the target, which
// drainFailed has removed.
func (s *Spool) reopen(ctx context.Context) error {
	if err := s.log.Reopen(ctx, s.cleared, nothingElse); err != nil {
		return err
	}
	return s.aim()
}

// nothingElse adds no records to a new log. Callers that wait for a record of the failed log
// get an error.
func nothingElse(wal.Segment) (last writelog.Entry, err error) { return last, nil }

// drain puts the events that are in the log now into the timelines, and removes their segments.
func (s *Spool) drain(ctx context.Context) error {
	s.log.Order.Lock()
	upTo, events, bytes := s.appended.Load(), s.waiting.Load(), s.bytes.Load()
	now := time.Now().UnixMicro()
	segment, err := s.log.Current().Rotate()
	last := s.log.Last()
	s.log.Order.Unlock()
	if err == nil {
		err = last.Wait(ctx)
	}
	var late error // why events were logged again at the end of the log
	switch {
	case err == nil:
		late, err = s.putBefore(ctx, segment)
		if err == nil {
			s.skip = 0 // even if Release fails and leaves segments: they are drained again
			err = s.log.Current().Release(segment)
		}
	case wal.NoSpace(err):
		err = s.drainFailed(ctx)
	default:
		err = fmt.Errorf("begin a segment of the log: %w", err)
	}
	if err != nil {
		return err
	}
	s.bytes.Add(-bytes)
	s.waiting.Add(-events)
	s.full.Store(false)
	if late != nil {
		return late
	}
	s.since.Store(now)
	s.drained.Store(upTo)
	s.progress.Notify()
	return nil
}

// drainFailed puts all events of a log that failed for lack of space, and removes its segments: that
// may be the only way to make room. Such a log accepts no more records, and only the goroutine of
// the drain replaces it. After a crash in the middle, the remaining segments are drained again.
func (s *Spool) drainFailed(ctx context.Context) error {
	s.log.Close() // its error is the reason for this call
	if _, err := s.putBefore(ctx, math.MaxUint64); err != nil {
		return err
	}
	s.skip = 0
	var err error
	if s.cleared, err = s.log.Clear(); err != nil {
		return fmt.Errorf("remove the drained segments of a log that failed: %w", err)
	}
	return s.removeTarget() // a target without a log would mean that the log is missing
}

// putBefore puts the events of all segments before segment. late is why some of them were logged
// again instead.
func (s *Spool) putBefore(ctx context.Context, segment wal.Segment) (late, err error) {
	segments, err := wal.Segments(s.fs, s.dir)
	if err != nil || len(segments) == 0 || segments[0] >= segment {
		return nil, err
	}
	p := &putting{Spool: s, ctx: ctx}
	o := wal.ReplayOptions{From: segments[0], To: segment - 1}
	if err = p.pass(o); errors.Is(err, errOthersPass) {
		p = &putting{Spool: s, ctx: ctx, aside: p.aside, cause: p.cause, passing: true, shown: p.shown}
		err = p.pass(o)
	}
	return p.late, err
}

// pass puts the events of the given segments that are not put yet.
func (p *putting) pass(o wal.ReplayOptions) error {
	var failed error // error of the storage; the log may be damaged, too
	_, err := wal.Replay(p.fs, p.dir, o, func(_ wal.Segment, typ byte, record []byte) error {
		if p.records++; p.records <= p.skip {
			return nil
		}
		failed = p.add(typ, record)
		return failed
	})
	if failed == nil && err != nil {
		return p.wayOut(err)
	}
	if err == nil {
		err = p.flush()
	}
	if err == nil && !p.passing {
		err = p.cause
	}
	return err
}

// wayOut adds to the error of a damaged log how to continue without it. The operator has to move
// away the damaged file and all files before it, so that the log begins after it. If only the
// damaged file were missing, the log would have a gap, which also counts as damage.
func (s *Spool) wayOut(err error) error {
	if errors.As(err, new(*store.CorruptionError)) {
		return fmt.Errorf("%w; restore the file from a copy; to continue without its events, stop the server and move this file and those with lower numbers out of %s: "+
			"events in them that are not drained yet are lost", err, s.dir)
	}
	return err
}

// A putting is one pass over the log.
//
// If a call puts nothing because the storage is unavailable, usually no event can be put, and all
// stay where they are. But the cause may concern only the timelines of the call: their nodes are
// down, or they need a table or a right that is missing. So the pass sets these timelines aside and
// tries later events of other timelines. If one of those can be put, a second pass (passing) puts the
// events of the other timelines, and logs the events of the timelines aside again, at the end of the
// log.
type putting struct {
	*Spool
	ctx     context.Context
	records int // how many were read
	events  []timeline.Accepted
	places  int // number of events, each counted once per timeline
	bytes   int // their data, counted likewise
	shown   int // refused events that were logged

	aside   map[string]bool // timelines
	cause   error           // error of the first timeline that was set aside
	vain    int             // calls in a row that put nothing
	beyond  int64           // bytes of the log that were read since then
	passing bool
	left    []timeline.Accepted // events of timelines aside, in a pass that is passing

	late error // error of the first event that was logged again
}

func (p *putting) add(typ byte, record []byte) error {
	events, _, err := decodeAs(typ, record)
	if err != nil {
		return err
	}
	if len(p.aside) > 0 {
		if p.beyond += int64(len(record)); p.beyond > int64(beyondMax) && !p.passing {
			return p.cause
		}
	}
	events, left := p.divide(events)
	places, bytes := 0, 0
	for _, some := range [][]timeline.Accepted{events, left} {
		for i := range some {
			n := len(some[i].Timelines)
			places, bytes = places+n, bytes+n*len(some[i].Data)
		}
	}
	if p.places+places > drainPlaces || p.bytes+bytes > int(drainBytes) {
		p.records-- // flush must not count the current record as drained
		if err := p.flush(); err != nil {
			return err
		}
		p.records++
	}
	p.events, p.places, p.bytes = append(p.events, events...), p.places+places, p.bytes+bytes
	p.left = append(p.left, left...)
	return nil
}

// divide returns events without the timelines aside, and those of the timelines aside if the pass
// logs them again.
func (p *putting) divide(all []timeline.Accepted) (events, left []timeline.Accepted) {
	if len(p.aside) == 0 {
		return all, nil
	}
	for _, e := range all {
		var with, without []string
		for _, name := range e.Timelines {
			if p.aside[name] {
				with = append(with, name)
			} else {
				without = append(without, name)
			}
		}
		if len(without) > 0 {
			one := e
			one.Timelines = without
			events = append(events, one)
		}
		if len(with) > 0 && p.passing {
			one := e
			one.Timelines, one.At = with, p.right(e.At)
			left = append(left, one)
		}
	}
	return events, left
}

// noteSetBack records in the log how the clock was set back, if it was far ahead when events were
// accepted. It does so before any of them is put: otherwise a restart would put them again with
// later times, and events that were deleted in between would reappear. If the log takes no records,
// the events are put anyway.
func (p *putting) noteSetBack() error {
	back, err := p.options.Engine.SetBack(p.ctx)
	if err != nil || back == p.noted || p.log.Writable() != nil {
		return err
	}
	record := back.Append(nil)
	size := len(record) + wal.RecordOverhead
	if err := p.log.Reserve(p.ctx, size); err != nil {
		return err
	}
	p.log.Order.Lock()
	last := p.log.AppendRecord(typeSetBack, record)
	p.log.Order.Unlock()
	p.Spool.bytes.Add(int64(size)) // p.bytes counts the collected events instead
	if err := p.log.Wait(p.ctx, last); err != nil {
		return err
	}
	p.noted = back
	notify.Wake(p.poke) // so that its segment is released, too
	return nil
}

// flush puts the collected events. They are not put again if a later flush fails. They count as
// put only after the storage was confirmed: another cluster may have begun to answer meanwhile.
func (p *putting) flush() error {
	if len(p.left) > 0 {
		if err := p.logAgain(p.left, p.cause); err != nil {
			return err
		}
		p.left = p.left[:0]
	}
	if len(p.events) == 0 {
		if p.passing {
			p.settle()
		}
		return nil
	}
	if err := p.options.Confirm(p.ctx); err != nil {
		return err
	}
	if err := p.noteSetBack(); err != nil {
		return err
	}
	result, err := p.options.Engine.AppendAccepted(p.ctx, p.events)
	if err != nil && p.ctx.Err() == nil && errors.As(err, new(*store.UnavailableError)) {
		return p.nothingPut(err)
	}
	if err == nil {
		err = p.options.Confirm(p.ctx)
	}
	if err != nil {
		return err
	}
	if cause := p.putsNothing(result); cause != nil {
		return p.nothingPut(cause)
	}
	if len(p.aside) > 0 && !p.passing {
		return errOthersPass // the second pass puts these again
	}
	p.vain = 0
	if err := p.again(result); err != nil {
		return err
	}
	for _, r := range result.Rejected {
		if final(r.Err) {
			p.refuse(&p.events[r.Index], r.Timeline, r.Err)
		}
	}
	p.put.Add(float64(result.Accepted))
	p.settle()
	return nil
}

// settle counts all records read so far as drained: their events are put, refused or logged again.
func (p *putting) settle() {
	p.skip = p.records
	p.forget()
}

// forget empties the collection of events.
func (p *putting) forget() { p.events, p.places, p.bytes = p.events[:0], 0, 0 }

// errOthersPass means that some events can be put although those of the timelines aside cannot.
var errOthersPass = errors.New("events of other timelines can be put")

// putsNothing returns why the storage is unavailable for all events of a call, nil if it is not.
func (p *putting) putsNothing(result timeline.Result) (cause error) {
	for _, r := range result.Rejected {
		switch {
		case final(r.Err):
		case result.Accepted > 0 || !errors.As(r.Err, new(*store.UnavailableError)):
			return nil
		default:
			cause = cmp.Or(cause, r.Err)
		}
	}
	return cause
}

// nothingPut sets the timelines of the collected events aside. It returns cause if there is no point
// in reading further.
func (p *putting) nothingPut(cause error) error {
	p.cause = cmp.Or(p.cause, cause)
	if p.vain++; p.vain >= vainMost || p.log.Writable() != nil {
		return p.cause
	}
	if p.aside == nil {
		p.aside = map[string]bool{}
	}
	for i := range p.events {
		for _, name := range p.events[i].Timelines {
			p.aside[name] = true
		}
	}
	if p.passing {
		for i := range p.events {
			p.events[i].At = p.right(p.events[i].At)
		}
		if err := p.logAgain(p.events, cause); err != nil {
			return err
		}
		p.settle()
		return nil
	}
	p.forget()
	return nil
}

// final reports whether a timeline will never accept an event that it rejected with err.
func final(err error) bool { return errors.As(err, new(*store.InputError)) }

// again logs the events that could not be put again, at the end of the log, so that later events
// do not wait for them: a fault of one timeline, node or event delays only the events it affects.
func (p *putting) again(result timeline.Result) error {
	var failed []timeline.Accepted
	var cause error
	for _, r := range result.Rejected {
		if final(r.Err) {
			continue
		}
		cause = cmp.Or(cause, r.Err)
		e := p.events[r.Index]
		e.At = p.right(e.At)
		if r.Timeline != "" {
			e.Timelines = []string{r.Timeline}
		}
		failed = append(failed, e)
	}
	if cause == nil {
		return nil
	}
	return p.logAgain(failed, cause)
}

// logAgain logs events again because of cause, unless the log takes no records.
func (p *putting) logAgain(failed []timeline.Accepted, cause error) error {
	if p.log.Writable() != nil {
		return cause
	}
	slices.SortStableFunc(failed, func(a, b timeline.Accepted) int { return a.At.Compare(b.At) })
	records, size := encode(failed)
	if err := p.logRecords(p.ctx, records, size); err != nil {
		return errors.Join(cause, err)
	}
	p.late = cmp.Or(p.late, cause)
	return nil
}

// right returns the time of acceptance with which an event is logged again: by a correct clock,
// because the record of how the clock was set back may be removed from the log before the event. But
// if AppendAccepted would move the corrected time once more, because a clock that was behind has
// shown that time itself, right returns the original time.
func (p *putting) right(at time.Time) time.Time {
	right := p.options.Engine.Right(at)
	if !p.options.Engine.Right(right).Equal(right) {
		return at
	}
	return right
}

func (p *putting) refuse(e *timeline.Accepted, name string, err error) {
	p.refused.Inc()
	if p.shown++; p.shown > refusedShown {
		return
	}
	p.logger.Warn("a timeline no longer accepts an event of the spool; the event is dropped", "timeline", clip.Text(name, 100), "id", clip.Text(e.ID, 100),
		"time", time.UnixMicro(e.Time).UTC(), "accepted", e.At.UTC(), "error", err)
}
