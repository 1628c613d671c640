package spool

import (
	"context"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/head"
	"varve/internal/index"
	"varve/internal/model"
	"varve/internal/store"
)

// A View is a snapshot of the undrained samples. It holds all generations that existed
// when it was opened, even those that are drained later. So a reader that opens a View
// before it reads the remote store finds each acknowledged sample in at least one of the
// two. All methods but Close may be called by many goroutines at once.
type View struct {
	spool  *Spool
	held   []pending // oldest first, the active one last
	partly bool      // the remote store has some of these samples
	closed atomic.Bool
}

// A pending is a generation that is not drained, with its left at some moment.
type pending struct {
	*Generation
	left *roaring.Bitmap
}

// pendingLocked returns the generations that are not drained, oldest first. s.mu must be held.
func (s *Spool) pendingLocked() []pending {
	all := make([]pending, 0, len(s.undrainedLocked()))
	for _, g := range s.undrainedLocked() {
		all = append(all, pending{g, g.left})
	}
	return all
}

// View opens a view. Close it soon.
func (s *Spool) View() *View {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &View{spool: s, held: s.pendingLocked()}
	for _, p := range v.held {
		p.holders++
		v.partly = v.partly || p.left != nil
	}
	s.metrics.views.Inc()
	return v
}

// pending returns the generations whose samples of a series are read from the spool. It
// leaves out generations whose samples the remote store has, unless an older generation
// that the remote store lacks would hide them.
func (v *View) pending(id model.SeriesNumber) []pending {
	if !v.partly {
		return v.held
	}
	for i, p := range v.held {
		if (p.left == nil || p.left.Contains(uint32(id))) && p.has(id, model.AllTime) {
			return v.held[i:]
		}
	}
	return nil
}

// Close releases the generations. Further calls do nothing.
func (v *View) Close() {
	if !v.closed.CompareAndSwap(false, true) {
		return
	}
	v.spool.metrics.views.Dec()
	for _, p := range v.held {
		v.spool.release(p.Generation)
	}
}

// Select returns the ids of the series that match and have samples here near the range, as a
// set that the caller may change. It returns a *store.InputError for an invalid matcher, and
// the errors of ctx and of tick, which is called as in a [store.Selection].
func (v *View) Select(ctx context.Context, metric string, matchers []model.Matcher, r model.TimeRange, tick func(work int) error) (*roaring.Bitmap, error) {
	ids, err := v.spool.index.Select(ctx, metric, matchers, tick)
	if err != nil {
		return nil, err
	}
	v.keepNear(ids, r)
	return ids, nil
}

// keepNear removes from ids the series without samples near r.
func (v *View) keepNear(ids *roaring.Bitmap, r model.TimeRange) {
	if ids.IsEmpty() {
		return
	}
	near := roaring.New()
	if v.partly {
		for it := ids.Iterator(); it.HasNext(); {
			id := model.SeriesNumber(it.Next())
			if slices.ContainsFunc(v.pending(id), func(p pending) bool { return p.has(id, r) }) {
				near.Add(uint32(id))
			}
		}
		ids.And(near)
		return
	}
	var heads []pending
	for _, p := range v.held {
		switch f := p.place.Load().file; {
		case f == nil:
			heads = append(heads, p)
		case f.Range().Overlaps(r):
			near.Or(roaring.And(ids, f.Series))
		}
	}
	rest := roaring.AndNot(ids, near)
	for it := rest.Iterator(); it.HasNext(); {
		id := model.SeriesNumber(it.Next())
		if slices.ContainsFunc(heads, func(p pending) bool { return p.has(id, r) }) {
			near.Add(uint32(id))
		}
	}
	ids.And(near)
}

// SeriesOf returns the series of an id of this view.
func (v *View) SeriesOf(id model.SeriesNumber) (model.Series, bool) { return v.spool.series.Series(id) }

// Runs yields the samples of a series that the generations hold near the range,
// the oldest generation first. If two runs have a sample of the same time, the later
// run's is valid. A run may exceed the range; callers clip it, and use it until the next one. With
// stamps, runs have the samples' write timestamps, as for Generation.Snapshot. hold is that of the runs, or nil.
func (v *View) Runs(id model.SeriesNumber, r model.TimeRange, stamps bool, hold func(bytes int64) error) iter.Seq2[*head.Run, error] {
	return func(yield func(*head.Run, error) bool) {
		var run head.Run
		defer func() { run.Release() }()
		for _, g := range v.pending(id) {
			if !g.has(id, r) {
				continue
			}
			run.Release()
			run.Stamps, run.Hold = stamps, hold
			if _, err := g.Snapshot(id, r, &run); err != nil {
				yield(nil, err)
				return
			}
			if !yield(&run, nil) {
				return
			}
		}
	}
}

// Names lists names as store.View does, of series with samples here.
func (v *View) Names(ctx context.Context, q store.NamesQuery) (names []string, more bool, err error) {
	if !v.spool.settleIndex() && !v.partly {
		return v.spool.index.Names(ctx, q)
	}
	// Views hold drained samples, which may have been deleted since, or a generation is partly
	// written. Both are rare enough to build an index of what this view holds.
	own, seen := index.New(), roaring.New()
	for _, g := range v.held {
		for id := range g.Series() {
			if series, ok := v.SeriesOf(id); ok && seen.CheckedAdd(uint32(id)) && len(v.pending(id)) > 0 {
				own.Add(id, series)
			}
		}
	}
	return own.Names(ctx, q)
}
