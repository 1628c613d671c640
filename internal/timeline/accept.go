package timeline

import (
	"context"
	"slices"
	"time"

	"varve/internal/clip"
	"varve/internal/store"
)

// An Accepted is an event that Accept has found valid, and the time of
// acceptance.
type Accepted struct {
	Addressed
	At time.Time
}

// Accept checks events that are acknowledged before they are stored, and gives ids to those
// that lack one. It does not use the shelf. It returns the valid events, for AppendAccepted,
// and a Result like that of Append.
func (e *Engine) Accept(ctx context.Context, events []Addressed) ([]Accepted, Result, error) {
	a := e.newAppending(ctx, events)
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
	for i := range a.events {
		event := &a.events[i]
		if event.failed {
			continue
		}
		if err := a.acceptable(&event.Addressed, now); err != nil {
			a.reject(i, "", err)
			continue
		}
		if !event.fresh && len(events) > 1 {
			replace(sound, last, &event.Addressed)
		}
		sound = append(sound, Accepted{event.Addressed, at})
	}
	return slices.DeleteFunc(sound, func(s Accepted) bool { return len(s.Timelines) == 0 }), a.result(), nil
}

// replace removes from sound, in each timeline of event, an earlier event at the same position.
// All events of a call have the same write timestamp, so the store could not tell which one
// came last.
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

// acceptable returns why an event cannot be stored later. It bounds the time of the
// event at least as strictly as placeIn, so that placeIn will not find the event too far
// ahead.
func (a *appending) acceptable(event *Addressed, now time.Time) error {
	for _, name := range event.Timelines {
		if err := a.lines[name].err; err != nil {
			return err
		}
	}
	if event.Time > a.e.horizon(now) {
		if a.e.options.Changeable != nil && !a.e.clock.set.Load() {
			return &store.UnavailableError{Reason: "the event is far in the future by the clock of this machine, which may not be set yet"}
		}
		return a.e.tooFarAhead(event.Time)
	}
	return nil
}

// AppendAccepted stores accepted events, as Append does: by the current layout, but with the time
// of acceptance as the write timestamp, so that later deletes apply. If the clock was wrong at
// that time, see Right. Repeating a call is harmless. The limits that Accept has checked are not
// checked again, nor is timeline.timelines_max: the caller decides who may create timelines this
// way. Rejections with a *store.InputError are final: the event is past its retention, it was
// deleted since, or the clock was set back and the event's time is now too far in the future.
func (e *Engine) AppendAccepted(ctx context.Context, accepted []Accepted) (Result, error) {
	a := e.newAppending(ctx, nil)
	a.late, a.events = true, make([]arriving, len(accepted))
	for i := range accepted {
		a.events[i].Accepted = accepted[i]
	}
	return a.run()
}

// outlived stores in t when its timeline was deleted, and reports whether all events of this
// call were accepted before that. If so, the timeline stays deleted.
func (a *appending) outlived(t *target, deleted int64) bool {
	t.deleted = deleted
	return !slices.ContainsFunc(a.events, func(e arriving) bool { return a.deletedSince(&e, t) == nil })
}

// deletedSince returns an error if an event was accepted before its timeline was deleted.
func (a *appending) deletedSince(event *arriving, t *target) error {
	if !a.late || t.deleted == 0 || event.At.UnixMicro() > t.deleted {
		return nil
	}
	return badf("timeline %s was deleted after it accepted the event", clip.Text(t.name, 40))
}
