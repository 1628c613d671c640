package timeline

import (
	"context"
	"errors"
	"time"

	"varve/internal/store"
)

// Tail follows a timeline: it returns arrivals that are acknowledged after the cursor. The
// caller closes the subscription. A timeline need not be there yet.
func (e *Engine) Tail(ctx context.Context, q TailQuery) (*Subscription, error) {
	if err := errors.Join(CheckName(q.Timeline), checkText("the type", q.Type, 0, TypeBytesMax)); err != nil {
		return nil, err
	}
	var after []byte
	if q.Cursor != "" {
		var err error
		if after, err = parseTailCursor(q.Cursor); err != nil {
			return nil, err
		}
	}
	if n := e.tails.Add(1); n > int64(e.config.TailsMax) {
		e.tails.Add(-1)
		return nil, &store.LimitError{Limit: "timeline.tails_max", Max: int64(e.config.TailsMax), Need: n, What: "readers that follow timelines"}
	}
	s := &Subscription{e: e, line: e.use(q.Timeline), query: q, after: after, end: "closed"}
	// Now is when the reader asks, not when it first waits.
	a, err := e.shelf.Arrivals(ctx, q.Timeline, after, Limit{Entries: 1, Bytes: 1})
	if err == nil && after == nil {
		s.after = a.Next
	}
	if err != nil {
		s.close(err)
		return nil, err
	}
	return s, nil
}

// A Subscription is a reader that follows a timeline.
type Subscription struct {
	e     *Engine
	line  *line
	query TailQuery
	after []byte // of the arrival that was returned, or left out, last
	end   string // for the metric; "" once it is closed
}

// Limits of the events that Next returns at once, and of the readers that look for arrivals
// at once: an event that thousands of readers wait for must leave time for other work. A
// single event may exceed tailBytes.
const (
	tailEvents = 256
	tailBytes  = 64 << 10

	tailsAtOnce = 16
)

// Next waits for arrivals and returns some, at least one. It keeps none in advance: a slow
// caller costs no memory, and continues where it was as long as the log of arrivals
// reaches back to there; then the error is ErrBehind. Not safe for concurrent use.
func (s *Subscription) Next(ctx context.Context) ([]TailEvent, error) {
	for {
		arrived := s.line.arrived.Next() // before asking, so that nothing is missed
		some, more, err := s.ask(ctx)
		if err != nil || len(some) > 0 {
			return some, err
		}
		if more {
			continue
		}
		if err := s.wait(ctx, arrived); err != nil {
			return nil, err
		}
	}
}

func (s *Subscription) wait(ctx context.Context, arrived <-chan struct{}) error {
	var poll <-chan time.Time
	if !s.e.alone() {
		t := time.NewTimer(s.e.options.TailPoll)
		defer t.Stop()
		poll = t.C
	}
	select {
	case <-arrived:
	case <-poll:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// ask returns what has arrived and is of the type that is followed.
func (s *Subscription) ask(ctx context.Context) (some []TailEvent, more bool, err error) {
	select {
	case s.e.asking <- struct{}{}:
		defer func() { <-s.e.asking }()
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	a, err := s.e.shelf.Arrivals(ctx, s.line.name, s.after, Limit{Entries: tailEvents, Bytes: tailBytes})
	if errors.Is(err, ErrBehind) {
		s.end = "behind"
	}
	if err != nil {
		return nil, false, err
	}
	a = a.within(tailBytes)
	var found []Found
	var pointers []Entry
	for i := range a.Entries {
		if e := &a.Entries[i]; s.query.Type == "" || e.Type == s.query.Type {
			found, pointers = append(found, Found{Timeline: s.line.name, Event: e.Event}), append(pointers, Entry{Pointer: e.Pointer})
			some = append(some, TailEvent{Cursor: tailCursor(a.After[i])})
		}
	}
	deleted, err := s.e.fetch(ctx, found, pointers)
	if err != nil {
		return nil, false, err
	}
	for i := range some {
		some[i].Event, some[i].Missing = found[i].Event, found[i].Missing
	}
	s.after = a.Next
	return without(some, deleted), a.More, nil
}

// within returns the first arrivals, whose data is of so many bytes, one at least. Data that is
// kept apart counts, which no limit of Shelf.Arrivals does.
func (a Arrivals) within(bytes int64) Arrivals {
	for i := range a.Entries {
		e := &a.Entries[i]
		if bytes -= e.Bytes() + int64(e.Size); bytes <= 0 && i+1 < len(a.Entries) {
			return Arrivals{Entries: a.Entries[:i+1], After: a.After[:i+1], Next: a.After[i], More: true}
		}
	}
	return a
}

// Cursor continues after everything that Next returned, or looked at and left out. Sent to an
// idle client it saves looking at the same again.
func (s *Subscription) Cursor() string { return tailCursor(s.after) }

// Close ends the subscription.
func (s *Subscription) Close() { s.close(nil) }

func (s *Subscription) close(err error) {
	if s.end == "" {
		return
	}
	if errors.Is(err, ErrBehind) {
		s.end = "behind"
	}
	s.e.metrics.tailed.WithLabelValues(s.end).Inc()
	s.end = ""
	s.e.tails.Add(-1)
	s.e.release(s.line)
}
