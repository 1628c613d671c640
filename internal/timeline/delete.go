package timeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"varve/internal/clip"
	"varve/internal/store"
	"varve/internal/work"
)

// Delete removes events of a timeline. They are invisible when it returns. It is no error if
// the timeline does not exist or has no such events.
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
	if err := e.changeable(ctx); err != nil {
		return err
	}
	l := e.use(timeline)
	defer e.release(l)
	r, id := within(d.From, d.Until), d.ID
	if r.Empty() {
		return nil
	}
	if id != "" && r.From.Time+1 == r.To.Time { // one time and an id: a position
		p := Position{r.From.Time, id}
		r, id = Range{p, p.Next()}, ""
	}
	begun, err := e.remove(ctx, l, r, id)
	return notCompleted(timeline, begun, err)
}

// notCompleted adds to the error of a delete that some events may be deleted, if it had begun.
func notCompleted(timeline string, begun bool, err error) error {
	if err == nil || !begun {
		return err
	}
	return fmt.Errorf("the delete from timeline %s was not completed: some events may be deleted; repeat the delete: %w", clip.Text(timeline, 40), err)
}

// remove removes the events of a range, those with an id if there is one. It has begun once some
// events may be deleted: buckets are deleted one after the other, and events that wait in spools
// are deleted once the delete is noted, even if writing the note seemed to fail.
func (e *Engine) remove(ctx context.Context, l *line, r Range, id string) (begun bool, err error) {
	now := e.stamp()
	if begun, err = e.noteDeletion(ctx, l, Deleted{r, id, now}); err != nil {
		return begun, err
	}
	k, err := e.refresh(ctx, l) // another process may store data separately by a new layout
	if err != nil || k.Version == 0 {
		return begun, err
	}
	if id == "" {
		return true, e.erase(ctx, l, k, r, now, false)
	}
	found, err := e.findID(ctx, l, r, id)
	if err != nil {
		return begun, err
	}
	for some := range slices.Chunk(found, eraseAtOnce) {
		if err := e.eraseEvents(ctx, l, k, some); err != nil {
			return true, err
		}
	}
	return true, nil
}

// noteDeletion records a delete, before the search for what to delete, see DeletionLog. It reports
// whether others may have seen the record.
func (e *Engine) noteDeletion(ctx context.Context, l *line, d Deleted) (noted bool, err error) {
	if e.deletes == nil {
		return false, nil
	}
	if err := l.noteOne(e.now()); err != nil {
		return false, err
	}
	e.metrics.noted.Inc()
	return true, e.deletes.NoteDeletion(ctx, l.name, d)
}

// findID searches a range for the events with an id. It returns positions without the data, of which
// there may be gigabytes.
func (e *Engine) findID(ctx context.Context, l *line, r Range, id string) (found []Position, err error) {
	b := e.newBudget()
	whole, err := e.scan(ctx, l, r, b, func(some []Entry) error {
		for i := range some {
			if some[i].ID == id {
				found = append(found, some[i].Position())
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !whole && b.rows > 0 && b.buckets > 0 {
		return nil, &store.UnavailableError{Reason: fmt.Sprintf("the search for an id took %v, the most that a request may take: try again, or give from and until, ideally both equal to the time of the event", pageTime)}
	}
	if !whole {
		return nil, &store.LimitError{Limit: "events that are searched for an id", Max: pageRows, What: "give from and until, ideally both equal to the time of the event"}
	}
	return found, nil
}

// eraseEvents removes events, at most eraseAtOnce, which are ascending by position.
func (e *Engine) eraseEvents(ctx context.Context, l *line, k known, at []Position) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.work.Lock()
	defer l.work.Unlock()
	before := e.stamp()
	if k.hasPayloads() {
		now, err := e.entries(ctx, l, at) // their data may have been replaced since they were found
		if err != nil {
			return err
		}
		ctx = context.WithoutCancel(ctx) // see erasePayloadBatch
		if err := e.dropPayloads(ctx, l, now, before); err != nil {
			return err
		}
	}
	ranges := make([]Range, len(at))
	for i, p := range at {
		ranges[i] = Range{p, p.Next()}
	}
	return e.eraseRows(ctx, l, k, ranges, before)
}

// entries reads the pointers of the entries at some positions. Where there is no entry it
// returns the zero Entry.
func (e *Engine) entries(ctx context.Context, l *line, at []Position) ([]Entry, error) {
	all := make([]Entry, len(at))
	return all, work.Parallel(ctx, payloadsAtOnce, len(at), "read events", func(ctx context.Context, i int) error {
		entry, _, err := e.entry(ctx, l.name, at[i])
		all[i] = Entry{Pointer: entry.Pointer}
		return err
	})
}

// hasPayloads reports whether any layout may store data separately.
func (h *History) hasPayloads() bool {
	return slices.ContainsFunc(h.Layouts, func(l Layout) bool { return l.Mode != Materialised })
}

// scan calls look with all entries of a range, in batches, and keeps none of them. whole is
// false if the budget was used up first.
func (e *Engine) scan(ctx context.Context, l *line, r Range, b *budget, look func([]Entry) error) (whole bool, err error) {
	s, err := e.openStream(ctx, l, r, Ascending, eraseAtOnce, 1)
	if err != nil {
		return false, err
	}
	for {
		some, _, end, err := s.fill(ctx, b)
		if err == nil {
			err = look(some)
		}
		if err != nil || end {
			return err == nil, err
		}
		if err := ctx.Err(); err != nil || b.spent() {
			return false, err
		}
	}
}

// eraseAtOnce is how many events are read at a time, and removed at a time where their data may
// be stored separately.
const eraseAtOnce = 1000

// erase removes the events of a range. Where data may be stored separately, it first removes the events
// with such data. held says whether the caller holds l.work.
func (e *Engine) erase(ctx context.Context, l *line, k known, r Range, before time.Time, held bool) error {
	if k.hasPayloads() {
		if err := e.erasePayloads(ctx, l, k, r, before, held); err != nil || e.whole {
			return err
		}
	}
	return e.eraseRows(ctx, l, k, []Range{r}, before)
}

// eraseRows removes the rows of events in ranges, which are ascending.
func (e *Engine) eraseRows(ctx context.Context, l *line, k known, ranges []Range, before time.Time) error {
	if e.whole {
		return e.shelf.Delete(ctx, Everything(l.name), ranges, before)
	}
	all := Range{ranges[0].From, ranges[len(ranges)-1].To}
	return e.overMarks(ctx, l, k, all, func(k known, starts []int64) error {
		var parts []Part
		for _, start := range starts {
			if at, _ := k.Bucket(start); at == start {
				parts = append(parts, k.parts(l.name, start)...)
			}
		}
		return work.Parallel(ctx, prefetchMax, len(parts), "go through buckets", func(ctx context.Context, i int) error {
			p := parts[i]
			some := overlaps(ranges, Range{At(p.Start), At(p.EndExcl)})
			if len(some) == 0 {
				return nil
			}
			return e.shelf.Delete(ctx, p, some, before)
		})
	})
}

// overlaps returns the parts of some ranges, which are ascending, that are in another range.
func overlaps(ranges []Range, in Range) (some []Range) {
	first, _ := slices.BinarySearchFunc(ranges, in.From, func(r Range, p Position) int {
		if r.To.Compare(p) <= 0 {
			return -1
		}
		return 1
	})
	for _, r := range ranges[first:] {
		if r = r.Intersect(in); r.Empty() {
			break
		}
		some = append(some, r)
	}
	return some
}

// erasePayloads removes the events of a range whose data is stored separately, and in a Whole all other
// events too. It works in batches; unless the caller holds l.work, appends to the timeline
// continue between them. A client that goes away stops it only between batches.
func (e *Engine) erasePayloads(ctx context.Context, l *line, k known, r Range, before time.Time, held bool) error {
	for {
		next, end, err := e.erasePayloadBatch(ctx, l, k, r, before, held)
		if err != nil || end {
			return err
		}
		r.From = next
	}
}

// erasePayloadBatch removes one batch: the references to data first, then the events. If it fails
// in between, some events are left without data, and repeating the delete removes them. An append
// in between would leave data that nothing refers to, so l.work is held.
func (e *Engine) erasePayloadBatch(ctx context.Context, l *line, k known, r Range, before time.Time, held bool) (next Position, end bool, err error) {
	if !held {
		l.work.Lock()
		defer l.work.Unlock()
	}
	some, next, end, err := e.some(ctx, l, r)
	if err != nil {
		return next, end, err
	}
	pointing := slices.ContainsFunc(some, func(s Entry) bool { return s.Pointer != PayloadKey{} })
	if !e.whole && !pointing {
		return next, end, nil
	}
	ctx = context.WithoutCancel(ctx)
	if err := e.dropPayloads(ctx, l, some, before); err != nil {
		return next, end, err
	}
	if !end {
		r.To = next
	}
	return next, end, e.eraseRows(ctx, l, k, []Range{r}, before)
}

// some returns the first entries of a range, about eraseAtOnce of them and at least one if there
// is one, and where the next ones begin.
func (e *Engine) some(ctx context.Context, l *line, r Range) (some []Entry, next Position, end bool, err error) {
	s, err := e.openStream(ctx, l, r, Ascending, eraseAtOnce, 1)
	for err == nil && len(some) == 0 && !end {
		if err = ctx.Err(); err == nil {
			some, next, end, err = s.fill(ctx, e.newBudget())
		}
	}
	return some, next, end, err
}

// dropPayloads removes the references of entries to data that is stored separately.
func (e *Engine) dropPayloads(ctx context.Context, l *line, some []Entry, before time.Time) error {
	var keys []PayloadKey
	for i := range some {
		if some[i].Pointer != (PayloadKey{}) {
			keys = append(keys, some[i].Pointer)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return e.shelf.DropPayloads(ctx, keys, l.name, before)
}

// overMarks calls do with the starts of the marked buckets that overlap a range, in batches, and with
// a history that is valid for them. Where another process may have put events by a newer layout than
// k, it reads the layout again.
func (e *Engine) overMarks(ctx context.Context, l *line, k known, r Range, do func(k known, starts []int64) error) error {
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
		if len(marks) == 0 {
			return nil
		}
		if k, err = e.serving(ctx, l, k, slices.Max(marks)); err != nil {
			return err
		}
		if err := do(k, marks); err != nil || len(marks) < marksAtOnce {
			return err
		}
		from = marks[len(marks)-1] + 1
	}
}

// DeleteTimeline removes a timeline. It is no error if it does not exist.
//
// Where other processes may write, the layout and the marks stay for a while, since those
// processes may rely on them; Upkeep removes them. The retention does not stay.
func (e *Engine) DeleteTimeline(ctx context.Context, timeline string) error {
	if err := CheckName(timeline); err != nil {
		return err
	}
	if err := e.changeable(ctx); err != nil {
		return err
	}
	l := e.use(timeline)
	defer e.release(l)
	begun, err := e.removeAll(ctx, l)
	return notCompleted(timeline, begun, err)
}

// removeAll removes all events of a timeline, and the timeline. begun is that of remove.
func (e *Engine) removeAll(ctx context.Context, l *line) (begun bool, err error) {
	now := e.stamp()
	if begun, err = e.noteDeletion(ctx, l, Deleted{All(), "", now}); err != nil {
		return begun, err
	}
	k, err := e.refresh(ctx, l)
	if err != nil || k.Version == 0 {
		return begun, err
	}
	return true, e.eraseAll(ctx, l, k, now)
}

func (e *Engine) eraseAll(ctx context.Context, l *line, k known, now time.Time) error {
	if k.hasPayloads() { // this may take long; appends continue meanwhile
		if err := e.erasePayloads(ctx, l, k, All(), now, false); err != nil {
			return err
		}
	}
	l.work.Lock()
	defer l.work.Unlock()
	now = e.stamp()
	if err := e.erase(ctx, l, k, All(), now, true); err != nil {
		return err
	}
	if e.whole {
		return e.purge(ctx, l, k)
	}
	if !k.Live() {
		return nil
	}
	_, err := e.change(ctx, l, true, func(h History) (History, error) {
		h.Deleted, h.Retention = now.UnixMicro(), 0 // a timeline that is created again is a new one
		return h, nil
	})
	return err
}

// purge removes the history of a timeline. l.work must be held for writing.
func (e *Engine) purge(ctx context.Context, l *line, k known) error {
	err := e.shelf.SetHistory(ctx, l.name, k.Version, History{})
	l.forget()
	if errors.Is(err, ErrConflict) {
		return nil // another process uses it again
	}
	return err
}
