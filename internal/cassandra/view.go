package cassandra

import (
	"context"
	"sync"
	"sync/atomic"

	"varve/internal/cassandra/kairosrows"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/spool"
	"varve/internal/store"
)

// View implements store.Viewer.
func (s *Store) View(ctx context.Context) (store.View, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	pending := s.spool.View() // before anything is read: see the package comment
	l, err := s.layout()
	if err != nil {
		pending.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.metrics.views.Inc()
	return &view{store: s, pending: pending, look: l.reader.Look(), spec: l.ks.Spec, ctx: ctx, cancel: cancel}, nil
}

// A view is one consistent look at spool and keyspace.
type view struct {
	store   *Store
	pending *spool.View
	look    *kairosrows.Look
	spec    rowtime.Spec
	ctx     context.Context // of work that is done ahead
	cancel  context.CancelFunc
	closed  atomic.Bool

	mu       sync.RWMutex
	selected []selected
	ahead    readAhead
}

// selected is a series that the view handed out: its Ref is its place.
type selected struct {
	series  model.Series
	rows    []kairosrows.Row
	pending []uint32 // ids in the spool, at most one
	last    store.Ref
}

func (v *view) Close() error {
	if !v.closed.CompareAndSwap(false, true) {
		return store.ErrClosed
	}
	v.cancel()
	v.ahead.close()
	v.pending.Close()
	v.store.metrics.views.Dec()
	return nil
}

func (v *view) check(ctx context.Context) error {
	if v.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// Select implements store.View.
func (v *view) Select(ctx context.Context, sel store.Selection) ([]store.Series, error) {
	if err := v.check(ctx); err != nil {
		return nil, err
	}
	rows, err := v.look.Lookup(ctx, sel)
	if err != nil {
		return nil, err
	}
	ids, err := v.pending.Select(sel.Metric, sel.Matchers, sel.Range)
	if err != nil {
		return nil, err
	}
	found := make([]selected, 0, len(rows)+len(ids))
	place := make(map[string]int, len(ids))
	for _, id := range ids {
		series, ok := v.pending.SeriesOf(id)
		if !ok {
			continue
		}
		place[string(series.AppendKey(nil))] = len(found)
		found = append(found, selected{series: series, pending: []uint32{id}})
	}
	var key []byte
	for _, r := range rows {
		key = r.Series.AppendKey(key[:0])
		if i, ok := place[string(key)]; ok {
			found[i].rows = r.Rows
			continue
		}
		found = append(found, selected{series: r.Series, rows: r.Rows})
	}
	if n := int64(len(found)); sel.Limit > 0 && n > int64(sel.Limit) {
		return nil, &store.LimitError{Limit: sel.LimitKey, Max: int64(sel.Limit), Need: n, What: "select series of " + sel.Metric}
	}
	if err := model.SortFunc(ctx, found, func(a, b selected) int { return a.series.Compare(b.series) }); err != nil {
		return nil, err
	}
	return v.handOut(found), nil
}

// handOut numbers what was selected.
func (v *view) handOut(found []selected) []store.Series {
	v.mu.Lock()
	defer v.mu.Unlock()
	first := len(v.selected)
	out := make([]store.Series, len(found))
	for i := range found {
		found[i].last = store.Ref(first + len(found) - 1)
		out[i] = store.Series{Ref: store.Ref(first + i), Series: found[i].series}
	}
	v.selected = append(v.selected, found...)
	return out
}

func (v *view) at(r store.Ref) selected {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.selected[r]
}

// Names implements store.View.
func (v *view) Names(ctx context.Context, q store.NamesQuery) ([]string, bool, error) {
	if err := v.check(ctx); err != nil {
		return nil, false, err
	}
	stored, more, err := v.look.Names(ctx, q)
	if err != nil {
		return nil, false, err
	}
	held, heldMore, err := v.pending.Names(q)
	if err != nil {
		return nil, false, err
	}
	names, cut := mergeNames(stored, held, q.Limit)
	return names, more || heldMore || cut, nil
}

// mergeNames merges two sorted lists and cuts the result at limit.
func mergeNames(a, b []string, limit int) (names []string, cut bool) {
	if len(b) == 0 {
		return a, false
	}
	for len(a) > 0 || len(b) > 0 {
		if limit > 0 && len(names) == limit {
			return names, true
		}
		switch {
		case len(b) == 0 || len(a) > 0 && model.CompareNames(a[0], b[0]) < 0:
			names, a = append(names, a[0]), a[1:]
		case len(a) == 0 || model.CompareNames(b[0], a[0]) < 0:
			names, b = append(names, b[0]), b[1:]
		default:
			names, a, b = append(names, a[0]), a[1:], b[1:]
		}
	}
	return names, false
}
