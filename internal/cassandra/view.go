package cassandra

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sort"
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
	selected []selection // in the order of their first refs
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

// A selection is what one call of Select has found. A series' Ref is that of the first
// one and its place.
type selection struct {
	first  store.Ref
	series []selected
}

// last is the Ref of the last series.
func (s *selection) last() store.Ref { return s.first + store.Ref(len(s.series)) - 1 }

// selected is a series that the view has found.
type selected struct {
	series  model.Series
	stored  []stored // in the order of keyspaces
	pending []uint32 // ids in the spool, at most one
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

// Select implements store.View. All series are found before the first is yielded: the
// rows of one lie in as many partitions as there are row times, and a cursor needs them
// all. They are held until the view is closed, since refs stand for them.
func (v *view) Select(ctx context.Context, sel store.Selection) iter.Seq2[store.Series, error] {
	return func(yield func(store.Series, error) bool) {
		found, err := v.find(ctx, sel)
		for i := range found.series {
			if err = v.checkAt(ctx, i); err != nil {
				break
			}
			if !yield(store.Series{Ref: found.first + store.Ref(i), Series: found.series[i].series}, nil) {
				return
			}
		}
		if err != nil {
			yield(store.Series{}, err)
		}
	}
}

// checkAt is check before the i-th series is yielded.
func (v *view) checkAt(ctx context.Context, i int) error {
	if v.closed.Load() {
		return store.ErrClosed
	}
	if i%store.SelectAhead == 0 {
		return ctx.Err()
	}
	return nil
}

// find finds what is selected, and gives it refs.
func (v *view) find(ctx context.Context, sel store.Selection) (selection, error) {
	if err := v.check(ctx); err != nil {
		return selection{}, err
	}
	rows := make([][]layout.Found, len(v.keyspaces))
	err := v.eachKeyspace(ctx, sel.Range, func(ctx context.Context, i int, look layout.Look) (err error) {
		rows[i], err = look.Select(ctx, sel)
		return err
	})
	if err != nil {
		return selection{}, err
	}
	ids, err := v.pending.Select(ctx, sel.Metric, sel.Matchers, sel.Range)
	if err != nil {
		return selection{}, err
	}
	found := v.gathered(ids, rows)
	if err := sel.LimitCheck(int64(len(found))); err != nil {
		return selection{}, err
	}
	if err := model.SortFunc(ctx, found, func(a, b selected) int { return a.series.Compare(b.series) }); err != nil {
		return selection{}, err
	}
	return v.number(found), nil
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

// number gives refs to what was found.
func (v *view) number(found []selected) selection {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := selection{series: found}
	if n := len(v.selected); n > 0 {
		s.first = v.selected[n-1].last() + 1
	}
	if len(found) > 0 {
		v.selected = append(v.selected, s)
	}
	return s
}

// at returns the series of a ref, and the last ref of its selection.
func (v *view) at(r store.Ref) (series selected, last store.Ref) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	i := sort.Search(len(v.selected), func(i int) bool { return v.selected[i].last() >= r })
	s := &v.selected[i]
	return s.series[r-s.first], s.last()
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
