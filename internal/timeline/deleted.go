package timeline

import (
	"context"
	"slices"
	"sync"
	"time"

	"varve/internal/clip"
	"varve/internal/work"
)

// A candidate is an event that was acknowledged earlier, and may have been deleted since.
type candidate struct {
	Position
	at    time.Time // when it was acknowledged
	index int       // the caller's
}

// deletedOf returns which events of a timeline were deleted after they were acknowledged, by
// their index. Each delete costs a search among the events, plus a step for each event in its
// range that no earlier delete removed.
func (e *Engine) deletedOf(ctx context.Context, name string, all []candidate) (map[int]Deleted, error) {
	if len(all) == 0 {
		return nil, nil
	}
	c := newCandidates(all)
	err := e.deletes.Deletions(ctx, name, c.oldest, func(d Deleted) error {
		c.remove(d)
		return ctx.Err()
	})
	return c.gone, err
}

// candidates are the candidates of a timeline while deletes are applied to them.
type candidates struct {
	all    []candidate // by position
	next   []int       // for each index, and len(all): itself, or a later one if it was removed
	byID   map[string][]int
	oldest time.Time // when the first one was acknowledged
	gone   map[int]Deleted
}

func newCandidates(all []candidate) *candidates {
	slices.SortFunc(all, func(a, b candidate) int { return a.Compare(b.Position) })
	c := &candidates{all: all, next: make([]int, len(all)+1), byID: map[string][]int{}, oldest: all[0].at, gone: map[int]Deleted{}}
	for i := range c.next {
		c.next[i] = i
	}
	for i := range all {
		c.byID[all[i].ID] = append(c.byID[all[i].ID], i)
		if all[i].at.Before(c.oldest) {
			c.oldest = all[i].at
		}
	}
	return c
}

// from returns the first index from i on that was not removed, len(c.all) if there is none.
func (c *candidates) from(i int) int {
	for c.next[i] != i {
		c.next[i] = c.next[c.next[i]]
		i = c.next[i]
	}
	return i
}

// remove applies a delete.
func (c *candidates) remove(d Deleted) {
	before := d.Before.UnixMicro()
	if d.ID != "" {
		c.byID[d.ID] = slices.DeleteFunc(c.byID[d.ID], func(i int) bool {
			one := &c.all[i]
			if !d.Range.Contains(one.Position) || one.at.UnixMicro() >= before {
				return false
			}
			c.gone[one.index], c.next[i] = d, i+1
			return true
		})
		return
	}
	i, _ := slices.BinarySearchFunc(c.all, d.Range.From, func(c candidate, p Position) int { return c.Compare(p) })
	for i = c.from(i); i < len(c.all) && c.all[i].Compare(d.Range.To) < 0; i = c.from(i + 1) {
		if one := &c.all[i]; one.at.UnixMicro() < before {
			c.gone[one.index], c.next[i] = d, i+1
		}
	}
}

// allDeleted returns an error if a timeline does not exist, and all events for it were deleted
// after they were acknowledged: such events do not create it.
func (a *appending) allDeleted(ctx context.Context, t *target, h *History) error {
	if !a.late || a.e.deletes == nil || h.Version > 0 {
		return nil
	}
	var all []candidate
	for i := range a.events {
		if e := &a.events[i]; !e.failed && slices.Contains(e.Timelines, t.name) {
			all = append(all, candidate{e.Position(), e.At, i})
		}
	}
	gone, err := a.e.deletedOf(ctx, t.name, all)
	if err == nil && len(gone) == len(all) {
		err = deletedError(t.name)
	}
	return err
}

func deletedError(name string) error {
	return badf("the event was deleted after timeline %s accepted it", clip.Text(name, 40))
}

// leaveOutDeleted rejects events that were deleted after they were acknowledged. It is called
// after the buckets are marked, see DeletionLog, and again after the events are put: a delete by
// id writes tombstones only where it has found the event, so it may have searched too early.
// The second call finds such a delete, and removes the events that the delete has missed.
func (a *appending) leaveOutDeleted(put bool) error {
	if !a.late || a.e.deletes == nil {
		return nil
	}
	by := map[string][]candidate{}
	for i := range a.placed {
		p := &a.placed[i]
		by[p.Timeline] = append(by[p.Timeline], candidate{p.Position(), p.Put, i})
	}
	var mu sync.Mutex
	gone := map[int]error{}
	err := work.Parallel(a.ctx, prefetchMax, len(a.order), "look for deletes", func(ctx context.Context, i int) error {
		t := a.order[i]
		some, err := a.e.deletedOf(ctx, t.name, by[t.name])
		for at, d := range some {
			if err == nil && (put || d.ID != "") { // an earlier attempt may have put it
				p := a.placed[at].Position()
				err = a.e.erase(ctx, t.line, t.known, Range{p, p.Next()}, d.Before, true)
			}
			mu.Lock()
			gone[at] = deletedError(t.name)
			mu.Unlock()
		}
		return err
	})
	if err == nil && len(gone) > 0 {
		a.drop(gone)
	}
	return err
}
