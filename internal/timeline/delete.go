package timeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"varve/internal/store"
	"varve/internal/work"
)

// Delete removes events of a timeline. They are invisible when it returns. A timeline that
// is not there, or has no such events, is no error.
func (e *Engine) Delete(ctx context.Context, timeline string, d Deletion) error {
	if err := CheckName(timeline); err != nil {
		return err
	}
	if d == (Deletion{}) {
		return badf("the request does not say which events to delete: give from, until or id; to delete all events, delete the timeline")
	}
	if d.ID != "" {
		if err := checkText("the id", d.ID, 1, IDBytesMax); err != nil {
			return err
		}
	}
	l := e.use(timeline)
	defer e.release(l)
	l.work.Lock()
	defer l.work.Unlock()
	r, id := within(d.From, d.Until), d.ID
	if r.Empty() {
		return nil
	}
	if id != "" && r.From.Time+1 == r.To.Time { // time and id are a position
		p := Position{r.From.Time, id}
		r, id = Range{p, p.Next()}, ""
	}
	now := e.stamp()
	if err := e.noteDeletion(ctx, l, Deleted{r, id, now}); err != nil {
		return err
	}
	k, err := e.refresh(ctx, l) // another process may keep data apart by a new layout
	if err != nil || k.Version == 0 {
		return err
	}
	if id == "" {
		return e.erase(ctx, l, k, r, now)
	}
	return e.eraseID(ctx, l, k, r, id)
}

// noteDeletion comes before the look for what to delete, see DeletionLog.
func (e *Engine) noteDeletion(ctx context.Context, l *line, d Deleted) error {
	if e.deletes == nil {
		return nil
	}
	return e.deletes.NoteDeletion(ctx, l.name, d)
}

// eraseID removes the events of an id, which are looked for.
func (e *Engine) eraseID(ctx context.Context, l *line, k known, r Range, id string) error {
	b := e.newBudget()
	var found []Position // without the data: there may be gigabytes of it
	whole, err := e.scan(ctx, l, r, b, func(some []Entry) error {
		for i := range some {
			if some[i].ID == id {
				found = append(found, some[i].Position())
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !whole && b.rows > 0 && b.buckets > 0 {
		return &store.UnavailableError{Reason: fmt.Sprintf("events were looked through for an id for %v, as long as a request may: try again, or give from and until, best both the time of the event", pageTime)}
	}
	if !whole {
		return &store.LimitError{Limit: "events that are looked through for an id", Max: pageRows, What: "give from and until, best both the time of the event"}
	}
	for _, p := range found {
		if err := e.erase(ctx, l, k, Range{p, p.Next()}, e.stamp()); err != nil {
			return err
		}
	}
	return nil
}

// scan calls look for all entries of a range, some at a time. It keeps none of them. whole is
// false if the budget, which may be nil, ended before.
func (e *Engine) scan(ctx context.Context, l *line, r Range, b *budget, look func([]Entry) error) (whole bool, err error) {
	s, err := e.openStream(ctx, l, r, Ascending, eraseAtOnce, 1)
	if err != nil {
		return false, err
	}
	for {
		step := b
		if step == nil {
			step = e.newBudget()
		}
		some, _, end, err := s.fill(ctx, step)
		if err == nil {
			err = look(some)
		}
		if err != nil || end {
			return err == nil, err
		}
		if err := ctx.Err(); err != nil || b != nil && b.spent() {
			return false, err
		}
	}
}

// eraseAtOnce is how many events are looked at first, and whose data is removed at a time.
const eraseAtOnce = 1000

// erase removes the events of a range. Where data may be kept apart, that goes first, with the
// events that refer to it.
func (e *Engine) erase(ctx context.Context, l *line, k known, r Range, before time.Time) error {
	if slices.ContainsFunc(k.Layouts, func(l Layout) bool { return l.Mode != Materialised }) {
		if err := e.eraseApart(ctx, l, k, r, before); err != nil {
			return err
		}
	}
	return e.eraseRows(ctx, l, k, r, before)
}

func (e *Engine) eraseRows(ctx context.Context, l *line, k known, r Range, before time.Time) error {
	if e.whole != nil {
		return e.whole.DeleteAll(ctx, l.name, r)
	}
	return e.overBuckets(ctx, l, k, r, func(ctx context.Context, p Part) error {
		return e.shelf.Delete(ctx, p, r.Intersect(Range{At(p.Start), At(p.EndExcl)}), before)
	}, nil)
}

// eraseApart removes the events of a range whose data is kept apart: some at a time, first their
// references to data and then the events. If it fails in between, some are left without
// data, and deleting again removes them. A client that goes away is no reason to stop there.
func (e *Engine) eraseApart(ctx context.Context, l *line, k known, r Range, before time.Time) error {
	_, err := e.scan(ctx, l, r, nil, func(all []Entry) error {
		for some := range slices.Chunk(all, eraseAtOnce) {
			if err := ctx.Err(); err != nil {
				return err
			}
			if !slices.ContainsFunc(some, func(s Entry) bool { return s.Pointer != PayloadKey{} }) {
				continue
			}
			ctx := context.WithoutCancel(ctx)
			if err := e.dropPayloads(ctx, l, some, before); err != nil {
				return err
			}
			if err := e.eraseRows(ctx, l, k, Range{some[0].Position(), some[len(some)-1].Position().Next()}, before); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

func (e *Engine) dropPayloads(ctx context.Context, l *line, some []Entry, before time.Time) error {
	return work.Parallel(ctx, payloadsAtOnce, len(some), "delete data of events", func(ctx context.Context, i int) error {
		if some[i].Pointer == (PayloadKey{}) {
			return nil
		}
		return e.shelf.DropPayload(ctx, some[i].Pointer, l.name, before)
	})
}

// overBuckets calls do for all parts of the marked buckets that reach into a range, and done,
// which may be nil, with the starts of some buckets after that. Where another process may have
// put events by a layout that is newer than the one that is known, it reads the layout again.
func (e *Engine) overBuckets(ctx context.Context, l *line, k known, r Range, do func(context.Context, Part) error, done func([]int64) error) error {
	k, err := e.serving(ctx, l, k, r.From.Time)
	if err != nil {
		return err
	}
	from, _ := k.Bucket(r.From.Time)
	toExcl := r.To.Time
	if r.To.ID != "" {
		toExcl++
	}
	for {
		marks, err := e.shelf.Marks(ctx, l.name, from, toExcl, Ascending, marksAtOnce)
		if err != nil {
			return err
		}
		if len(marks) > 0 {
			if k, err = e.serving(ctx, l, k, slices.Max(marks)); err != nil {
				return err
			}
		}
		var parts []Part
		for _, start := range marks {
			at, end := k.Bucket(start)
			for p := range k.At(start).Factor {
				if at == start {
					parts = append(parts, Part{l.name, start, end, p})
				}
			}
		}
		err = work.Parallel(ctx, prefetchMax, len(parts), "go through buckets", func(ctx context.Context, i int) error { return do(ctx, parts[i]) })
		if err == nil && done != nil && len(marks) > 0 {
			err = done(marks)
		}
		if err != nil || len(marks) < marksAtOnce {
			return err
		}
		from = marks[len(marks)-1] + 1
	}
}

// DeleteTimeline removes a timeline. One that is not there is no error.
//
// Where other processes may write, its layout and its marks stay for a while, since those
// processes may rely on them; Upkeep removes them.
func (e *Engine) DeleteTimeline(ctx context.Context, timeline string) error {
	if err := CheckName(timeline); err != nil {
		return err
	}
	l := e.use(timeline)
	defer e.release(l)
	l.work.Lock()
	defer l.work.Unlock()
	now := e.stamp()
	if err := e.noteDeletion(ctx, l, Deleted{All(), "", now}); err != nil {
		return err
	}
	k, err := e.refresh(ctx, l)
	if err != nil || k.Version == 0 {
		return err
	}
	if err := e.erase(ctx, l, k, All(), now); err != nil {
		return err
	}
	if e.alone() {
		return e.purge(ctx, l, k)
	}
	if !k.Live() {
		return nil
	}
	_, err = e.change(ctx, l, true, func(h History) (History, error) {
		h.Deleted = now.UnixMicro()
		return h, nil
	})
	return err
}

// purge removes the history of a timeline. l.work must be held for writing.
func (e *Engine) purge(ctx context.Context, l *line, k known) error {
	err := e.shelf.SetHistory(ctx, l.name, k.Version, History{})
	l.forget()
	if errors.Is(err, ErrConflict) {
		return nil // someone uses it again
	}
	return err
}
