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
	index int       // of the caller
}

// deletedOf returns which events of a timeline were deleted after they were acknowledged, by
// their index. A delete costs a search among the events, and those that it names.
func (e *Engine) deletedOf(ctx context.Context, name string, all []candidate) (map[int]Deleted, error) {
	if len(all) == 0 {
		return nil, nil
	}
	slices.SortFunc(all, func(a, b candidate) int { return a.Compare(b.Position) })
	oldest, byID := all[0].at, map[string][]int{}
	for i, c := range all {
		byID[c.ID] = append(byID[c.ID], i)
		if c.at.Before(oldest) {
			oldest = c.at
		}
	}
	gone := map[int]Deleted{}
	look := func(c candidate, d Deleted) {
		if d.Range.Contains(c.Position) && c.at.UnixMicro() < d.Before.UnixMicro() {
			gone[c.index] = d
		}
	}
	err := e.deletes.Deletions(ctx, name, oldest, func(d Deleted) error {
		if d.ID != "" {
			for _, i := range byID[d.ID] {
				look(all[i], d)
			}
			return ctx.Err()
		}
		i, _ := slices.BinarySearchFunc(all, d.Range.From, func(c candidate, p Position) int { return c.Compare(p) })
		for ; i < len(all) && all[i].Compare(d.Range.To) < 0; i++ {
			look(all[i], d)
		}
		return ctx.Err()
	})
	return gone, err
}

// allDeleted returns an error if a timeline is not there, and all events for it were deleted
// after they were acknowledged: they do not create it.
func (a *appending) allDeleted(ctx context.Context, t *target, h *History) error {
	if a.accepted == nil || a.e.deletes == nil || h.Version > 0 {
		return nil
	}
	var all []candidate
	for i := range a.accepted {
		if !a.failed[i] && slices.Contains(a.events[i].Timelines, t.name) {
			all = append(all, candidate{a.accepted[i].Position(), a.accepted[i].At, i})
		}
	}
	gone, err := a.e.deletedOf(ctx, t.name, all)
	if err == nil && len(gone) == len(all) {
		err = deletedError(t.name)
	}
	return err
}

func deletedError(name string) error {
	return badf("the event was deleted after timeline %s took it", clip.Text(name, 40))
}

// leaveOutDeleted rejects events that were deleted after they were acknowledged. It is called
// between the marks and the events, see DeletionLog, and again after the events: a delete by
// id leaves no tombstones but where it has found the event, so one that has looked too early
// is found here. What such a delete may have missed is removed.
func (a *appending) leaveOutDeleted(put bool) error {
	if a.accepted == nil || a.e.deletes == nil {
		return nil
	}
	by := map[string][]candidate{}
	for i := range a.placed {
		p := &a.placed[i]
		by[p.Timeline] = append(by[p.Timeline], candidate{p.Position(), a.accepted[a.from[i]].At, i})
	}
	var mu sync.Mutex
	gone := map[int]bool{}
	err := work.Parallel(a.ctx, prefetchMax, len(a.order), "look for deletes", func(ctx context.Context, i int) error {
		t := a.order[i]
		some, err := a.e.deletedOf(ctx, t.name, by[t.name])
		for at, d := range some {
			if err == nil && (put || d.ID != "") { // an earlier try may have put it
				p := a.placed[at].Position()
				err = a.e.erase(ctx, t.line, t.known, Range{p, p.Next()}, d.Before)
			}
			mu.Lock()
			gone[at] = true
			mu.Unlock()
		}
		return err
	})
	if err == nil && len(gone) > 0 {
		a.drop(gone)
	}
	return err
}

// drop takes events out of those that are put.
func (a *appending) drop(gone map[int]bool) {
	var placed []Placed
	var from []int
	for i := range a.placed {
		p := &a.placed[i]
		if !gone[i] {
			placed, from = append(placed, *p), append(from, a.from[i])
			continue
		}
		a.reject(a.from[i], p.Timeline, deletedError(p.Timeline))
		a.lines[p.Timeline].placed--
	}
	a.placed, a.from = placed, from
}
