package embedded

import (
	"context"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/model"
	"varve/internal/store"
)

// View implements store.Viewer.
func (s *Store) View(ctx context.Context) (store.View, error) {
	if err := s.log.CheckOpen(ctx); err != nil {
		return nil, err
	}
	s.metrics.views.Add(1)
	return &view{store: s, state: s.acquire(), nowMS: s.now().UnixMilli()}, nil
}

type view struct {
	store *Store
	state *state
	nowMS int64 // samples that have expired by this time are not visible
	life  store.Lifetime
}

func (v *view) Close() error {
	if err := v.life.End(); err != nil {
		return err
	}
	v.store.metrics.views.Add(-1)
	v.store.release(v.state)
	return nil
}

// within removes from ids the series that have no sample near r.
func (st *state) within(ids *roaring.Bitmap, r model.TimeRange) {
	if r == model.AllTime || ids.IsEmpty() {
		return
	}
	switch n := ids.GetCardinality(); {
	case n == 1: // the usual case
		if !st.mayHave(model.SeriesNumber(ids.Minimum()), r) {
			ids.Clear()
		}
		return
	case n <= fewSeries:
		for _, id := range ids.ToArray() {
			if !st.mayHave(model.SeriesNumber(id), r) {
				ids.Remove(id)
			}
		}
		return
	}
	near := roaring.New()
	for _, f := range st.files {
		if f.Range().Overlaps(r) {
			near.Or(roaring.And(ids, f.Series))
		}
	}
	rest := roaring.AndNot(ids, near)
	for it := rest.Iterator(); it.HasNext(); {
		if id := it.Next(); st.inHeads(model.SeriesNumber(id), r) {
			near.Add(id)
		}
	}
	ids.And(near)
}

// fewSeries is the largest number of series that within looks up one by one, which allocates less
// than sets do.
const fewSeries = 16

// mayHave reports whether a series has a sample near r.
func (st *state) mayHave(id model.SeriesNumber, r model.TimeRange) bool {
	return st.hasFile(id, r) || st.inHeads(id, r)
}

// inHeads reports whether a series has a sample near r in memory.
func (st *state) inHeads(id model.SeriesNumber, r model.TimeRange) bool {
	span, ok := st.active.Span(id)
	if ok && span.Overlaps(r) {
		return true
	}
	if st.frozen == nil {
		return false
	}
	span, ok = st.frozen.Span(id)
	return ok && span.Overlaps(r)
}

// Names implements store.View.
func (v *view) Names(ctx context.Context, q store.NamesQuery) ([]string, bool, error) {
	if err := v.life.Check(ctx); err != nil {
		return nil, false, err
	}
	return v.store.index.Names(ctx, q)
}

// Read implements store.View.
func (v *view) Read(ctx context.Context, s store.Series, o store.ReadOptions) store.Cursor {
	if err := v.life.Check(ctx); err != nil {
		return &failed{err}
	}
	return v.store.read(ctx, v.state, v.nowMS, model.SeriesNumber(s.Ref), s.Type.Kind(), o)
}

// failed is a cursor that could not be opened.
type failed struct{ err error }

func (f *failed) Next() (*store.Block, error) { return nil, f.err }
func (f *failed) Close()                      {}
