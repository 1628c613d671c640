package timeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"varve/internal/store"
	"varve/internal/work"
)

// Tail follows a timeline: the subscription returns events that are acknowledged after the
// cursor. The caller must close it. The timeline need not exist yet.
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
	if !e.tails.TryEnter(q.Sender, 1) {
		most := int64(e.config.TailsMax)
		return nil, &store.LimitError{Limit: "timeline.tails_max", Max: most, Wait: time.Second,
			What: fmt.Sprintf("readers that follow timelines; %d do, and of one address at most %d may", e.tails.InUse(), most-most/tailsShare)}
	}
	s := &Subscription{e: e, line: e.use(q.Timeline), query: q, after: after, end: "closed"}
	// Without a cursor, following begins with this call, not with the first Next.
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
	after []byte // of the last arrival that was returned or filtered out
	end   string // for the metric; "" once it is closed
}

// tailEvents and tailBytes limit what Next returns at once; a single event may exceed tailBytes.
// tailsAtOnce limits how many readers look for arrivals at the same time: an event that
// thousands of readers wait for must leave time for other work.
const (
	tailEvents = 256
	tailBytes  = 64 << 10

	tailsAtOnce = 16

	// 1/tailsShare of timeline.tails_max is reserved for senders that have no more tails than
	// that.
	tailsShare = 8

	tailPoll = 200 * time.Millisecond // how often a reader looks for events of other processes
)

// Next waits for arrivals and returns at least one. It reads none in advance, so a slow caller
// costs no memory. It continues where it was as long as the log of arrivals reaches back to
// there; if not, the error is ErrBehind. Not safe for concurrent use.
func (s *Subscription) Next(ctx context.Context) ([]TailEvent, error) {
	for {
		arrived := s.line.arrived.Next() // before ask, so that nothing is missed
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
	if !s.e.whole {
		t := time.NewTimer(tailPoll)
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

// ask returns the next arrivals that are of the type that is followed.
func (s *Subscription) ask(ctx context.Context) (some []TailEvent, more bool, err error) {
	release, err := work.Take(ctx, s.e.asking)
	if err != nil {
		return nil, false, err
	}
	defer release()
	a, err := s.e.shelf.Arrivals(ctx, s.line.name, s.after, Limit{Entries: tailEvents, Bytes: tailBytes})
	if errors.Is(err, ErrBehind) {
		s.end = "behind"
	}
	if err != nil {
		return nil, false, err
	}
	a = a.within(tailBytes)
	var found []Found
	var after [][]byte
	for i := range a.Entries {
		if e := &a.Entries[i]; s.query.Type == "" || e.Type == s.query.Type {
			found, after = append(found, Found{Timeline: s.line.name, Event: e.Event, pointer: e.Pointer}), append(after, a.After[i])
		}
	}
	deleted, err := s.e.fetch(ctx, found)
	if err != nil {
		return nil, false, err
	}
	for i, f := range found {
		if !deleted[i] {
			some = append(some, TailEvent{f.Event, f.Missing, tailCursor(after[i])})
		}
	}
	s.after = a.Next
	return some, a.More, nil
}

// within returns the first arrivals, up to the one that reaches the given number of bytes.
// Unlike the limit of Shelf.Arrivals, it counts data that is stored separately.
func (a Arrivals) within(bytes int64) Arrivals {
	for i := range a.Entries {
		e := &a.Entries[i]
		if bytes -= e.Bytes() + int64(e.Size); bytes <= 0 && i+1 < len(a.Entries) {
			return Arrivals{Entries: a.Entries[:i+1], After: a.After[:i+1], Next: a.After[i], More: true}
		}
	}
	return a
}

// Cursor continues after everything that Next has returned or filtered out. A client that
// resumes with it saves reading the filtered events again.
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
	s.e.tails.Leave(s.query.Sender, 1)
	s.e.release(s.line)
}
