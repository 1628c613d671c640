package timeline

import (
	"context"
	"math"
	"slices"
	"time"

	"varve/internal/clip"
)

// An Accepted is an event that Accept has let through, and when that was.
type Accepted struct {
	Addressed
	At time.Time
}

// Accept checks events that are acknowledged before they are stored, and gives ids to those
// that lack one. It asks no storage. It returns the sound ones, which AppendAccepted stores,
// and a Result as Append would.
func (e *Engine) Accept(ctx context.Context, events []Addressed) ([]Accepted, Result, error) {
	a := &appending{e: e, ctx: ctx, events: events, lines: map[string]*target{}, failed: make([]bool, len(events))}
	if err := a.check(); err != nil {
		return nil, Result{}, err
	}
	a.identify()
	now := e.now()
	for _, t := range a.order {
		t.err = t.take(t.count, e.config.RateMax, now)
		e.release(t.line)
	}
	at := e.stamp()
	var sound []Accepted
	last := map[spot]int{} // index in sound
	for i := range events {
		if a.failed[i] {
			continue
		}
		if err := a.acceptable(&events[i], now); err != nil {
			a.reject(i, "", err)
			continue
		}
		event := events[i]
		event.ID = a.result.IDs[i]
		if !a.own[i] && len(events) > 1 {
			replace(sound, last, &event)
		}
		sound = append(sound, Accepted{event, at})
	}
	a.count()
	return slices.DeleteFunc(sound, func(s Accepted) bool { return len(s.Timelines) == 0 }), a.result, nil
}

// replace takes the events that another one of the call replaces out of its timelines: what is
// accepted at one time is put with one write timestamp, so it would not be known which is last.
func replace(sound []Accepted, last map[spot]int, event *Addressed) {
	for _, name := range event.Timelines {
		at := spot{name, event.Position()}
		if i, again := last[at]; again {
			s := &sound[i]
			s.Timelines = slices.DeleteFunc(slices.Clone(s.Timelines), func(other string) bool { return other == name })
		}
		last[at] = len(sound)
	}
}

// acceptable says why an event cannot be stored later. Its time is bounded as where it is
// placed, so that it is not too far ahead then.
func (a *appending) acceptable(event *Addressed, now time.Time) error {
	for _, name := range event.Timelines {
		if err := a.lines[name].err; err != nil {
			return err
		}
	}
	if event.Time > a.e.horizon(now) {
		return a.e.tooFarAhead(event.Time)
	}
	return nil
}

// AppendAccepted stores events that were acknowledged, as Append does: by the layout that is
// valid now, under the time at which each was accepted, so that a delete since then holds.
// To repeat it is harmless. The limits that Accept has checked do not count again, nor does
// the number of timelines: who may create some so is the caller's matter. Rejections that are
// a *store.InputError are final: the event is past its retention, it was deleted since, or the
// clock was set back and the event's time is now too far in the future.
func (e *Engine) AppendAccepted(ctx context.Context, accepted []Accepted) (Result, error) {
	a := &appending{e: e, ctx: ctx, lines: map[string]*target{}, failed: make([]bool, len(accepted)), accepted: accepted}
	for i := range accepted {
		a.events = append(a.events, accepted[i].Addressed)
	}
	return e.append(a)
}

// payloadMax is how large data may be. Events that were accepted remain so if the setting is
// lowered.
func (a *appending) payloadMax() int64 {
	if a.accepted != nil {
		return math.MaxInt64
	}
	return int64(a.e.config.PayloadBytesMax)
}

// at is when an event is put.
func (a *appending) at(i int, now time.Time) time.Time {
	if a.accepted == nil {
		return now
	}
	return a.accepted[i].At
}

// outlived notes when a timeline was deleted, and reports whether all events of this call were
// accepted before that: then it stays deleted.
func (a *appending) outlived(t *target, deleted int64) bool {
	t.deleted = deleted
	if a.accepted == nil || deleted == 0 {
		return false
	}
	for i := range a.accepted {
		if a.deletedSince(i, t) == nil {
			return false
		}
	}
	return true
}

// deletedSince says that an event was accepted before its timeline was deleted.
func (a *appending) deletedSince(i int, t *target) error {
	if a.accepted == nil || t.deleted == 0 || a.accepted[i].At.UnixMicro() > t.deleted {
		return nil
	}
	return badf("timeline %s was deleted after it took the event", clip.Text(t.name, 40))
}
