package cassandra

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"varve/internal/cassandra/layout"
	"varve/internal/model"
	"varve/internal/spool"
	"varve/internal/store"
	"varve/internal/work"
)

// View implements store.Viewer.
func (s *Store) View(ctx context.Context) (store.View, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	pending := s.spool.View() // before anything is read: see the package comment
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.metrics.views.Inc()
	v := &view{store: s, pending: pending, ctx: ctx, cancel: cancel}
	for _, c := range append([]*cluster{s.written}, s.read...) {
		k := &keyspace{cluster: c}
		if ks := c.keyspace(); ks != nil {
			k.look = ks.Look()
		}
		v.keyspaces = append(v.keyspaces, k)
	}
	return v, nil
}

var _ store.PartialView = (*view)(nil)

// A view is one consistent look at spool and keyspaces.
type view struct {
	store     *Store
	pending   *spool.View
	keyspaces []*keyspace     // the one that is written to first
	ctx       context.Context // of work that is done ahead
	cancel    context.CancelFunc
	closed    atomic.Bool
	partial   atomic.Bool           // a keyspace that is away does not fail the answer
	missing   atomic.Pointer[error] // why one was left out

	mu       sync.RWMutex
	selected []selected
	ahead    readAhead
}

// A keyspace is one as a view sees it.
type keyspace struct {
	cluster *cluster
	look    layout.Look // nil if it was not open when the view began
}

// lookAt returns the look at an open keyspace.
func (k *keyspace) lookAt() (layout.Look, error) {
	if k.look != nil {
		return k.look, nil
	}
	if _, err := k.cluster.open(); err != nil {
		return nil, err
	}
	return nil, &store.UnavailableError{Reason: "the keyspace of cluster " + k.cluster.name + " was opened a moment ago; try again"}
}

// selected is a series that the view handed out: its Ref is its place.
type selected struct {
	series  model.Series
	stored  []stored // in the order of keyspaces
	pending []uint32 // ids in the spool, at most one
	last    store.Ref
}

// stored is what one keyspace has of a series.
type stored struct {
	in    *keyspace
	found layout.Found
}

// open returns a cursor whose errors say which cluster they are of.
func (st stored) open(ctx context.Context, o store.ReadOptions) store.Cursor {
	c := st.found.Open(ctx, o)
	if st.in.cluster.role == layout.RoleAll {
		return c
	}
	return &explained{c, st.in.cluster}
}

// An explained cursor says in which cluster an error came up.
type explained struct {
	store.Cursor
	cluster *cluster
}

// Next implements store.Cursor.
func (c *explained) Next() (*store.Block, error) {
	b, err := c.Cursor.Next()
	return b, c.cluster.explain(err)
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
	rows := make([][]layout.Found, len(v.keyspaces))
	err := v.eachKeyspace(ctx, sel.Range, func(ctx context.Context, i int, look layout.Look) (err error) {
		rows[i], err = look.Select(ctx, sel)
		return err
	})
	if err != nil {
		return nil, err
	}
	ids, err := v.pending.Select(ctx, sel.Metric, sel.Matchers, sel.Range)
	if err != nil {
		return nil, err
	}
	found := v.gathered(ids, rows)
	if n := int64(len(found)); sel.Limit > 0 && n > int64(sel.Limit) {
		return nil, &store.LimitError{Limit: sel.LimitKey, Max: int64(sel.Limit), Need: n, What: "select series of " + sel.Metric}
	}
	if err := model.SortFunc(ctx, found, func(a, b selected) int { return a.series.Compare(b.series) }); err != nil {
		return nil, err
	}
	return v.handOut(found), nil
}

// eachKeyspace calls f for each keyspace that may have samples of r, for all at once.
func (v *view) eachKeyspace(ctx context.Context, r model.TimeRange, f func(ctx context.Context, i int, look layout.Look) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var tasks sync.WaitGroup
	for i, k := range v.keyspaces {
		if !k.cluster.within.Overlaps(r) {
			continue
		}
		ask := func() {
			err := work.Do("ask a keyspace", func() error {
				look, err := k.lookAt()
				if err == nil {
					err = k.cluster.explain(f(ctx, i, look))
				}
				return err
			})
			if err != nil && !v.leaveOut(ctx, err) {
				cancel(err)
			}
		}
		if len(v.keyspaces) == 1 {
			ask()
		} else {
			tasks.Go(ask)
		}
	}
	tasks.Wait()
	return context.Cause(ctx)
}

// AllowPartial implements store.PartialView.
func (v *view) AllowPartial() { v.partial.Store(true) }

// Missing implements store.PartialView.
func (v *view) Missing() error {
	if err := v.missing.Load(); err != nil {
		return *err
	}
	return nil
}

// leaveOut reports whether a keyspace that failed is left out of the answer. The
// spool, whose samples are not in Cassandra yet, is there in any case.
func (v *view) leaveOut(ctx context.Context, err error) bool {
	var unavailable *store.UnavailableError
	if !v.partial.Load() || ctx.Err() != nil || !errors.As(err, &unavailable) {
		return false
	}
	v.missing.CompareAndSwap(nil, &err)
	return true
}

// gathered puts together what the spool and each keyspace have of each series.
func (v *view) gathered(ids []uint32, rows [][]layout.Found) []selected {
	n := len(ids)
	for _, of := range rows {
		n += len(of)
	}
	found := make([]selected, 0, n)
	at := make(map[string]int, len(ids))
	for _, id := range ids {
		series, ok := v.pending.SeriesOf(id)
		if !ok {
			continue
		}
		at[string(series.AppendKey(nil))] = len(found)
		found = append(found, selected{series: series, pending: []uint32{id}})
	}
	var key []byte
	for k, of := range rows {
		first := len(found)
		parts := make([]stored, len(of))
		for i, r := range of {
			parts[i] = stored{v.keyspaces[k], r}
			series := r.Series()
			key = series.AppendKey(key[:0])
			if at, ok := at[string(key)]; ok {
				found[at].stored = append(found[at].stored, parts[i])
				continue
			}
			found = append(found, selected{series: series, stored: parts[i : i+1 : i+1]})
		}
		if slices.ContainsFunc(rows[k+1:], func(more []layout.Found) bool { return len(more) > 0 }) {
			for i := first; i < len(found); i++ {
				at[string(found[i].series.AppendKey(nil))] = i
			}
		}
	}
	return found
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
	lists := make([][]string, len(v.keyspaces))
	mores := make([]bool, len(v.keyspaces))
	err := v.eachKeyspace(ctx, model.AllTime, func(ctx context.Context, i int, look layout.Look) (err error) {
		lists[i], mores[i], err = look.Names(ctx, q)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	names, more, err := v.pending.Names(ctx, q)
	if err != nil {
		return nil, false, err
	}
	for i, list := range lists {
		var cut bool
		names, cut = mergeNames(list, names, q.Limit)
		more = more || mores[i] || cut
	}
	return names, more, nil
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
