package cassandra

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/cassandra/layout"
	"varve/internal/model"
	"varve/internal/spool"
	"varve/internal/store"
	"varve/internal/work"
)

// View implements store.Viewer.
func (s *Store) View(ctx context.Context) (store.View, error) {
	v, err := s.viewOf(ctx, slices.Concat([]*cluster{s.written}, s.read))
	if err != nil {
		return nil, err
	}
	for _, l := range s.lent {
		if err := v.borrow(ctx, l); err != nil {
			return nil, errors.Join(err, v.Close())
		}
	}
	return v, nil
}

// viewOf opens a view of the spool and of some clusters, the written one first.
func (s *Store) viewOf(ctx context.Context, own []*cluster) (*view, error) {
	if err := s.life.Check(ctx); err != nil {
		return nil, err
	}
	pending := s.spool.View() // before the keyspaces are read: see the package comment
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.views.Inc()
	v := &view{store: s, pending: pending, ctx: ctx, cancel: cancel, own: len(own)}
	for _, c := range own {
		v.keyspaces = append(v.keyspaces, newKeyspace(c))
	}
	if ks := s.written.keyspace(); ks != nil && ks.Deleter().Cuts() {
		v.cuts = ks.Deleter()
	}
	return v, nil
}

func newKeyspace(c *cluster) *keyspace {
	k := &keyspace{cluster: c}
	if ks, err := c.open(); err == nil {
		k.look = ks.Look()
	}
	return k
}

var (
	_ store.PartialView = (*view)(nil)
	_ store.CurrentView = (*view)(nil)
)

// A view is a consistent view of spool and keyspaces.
type view struct {
	store     *Store
	pending   *spool.View
	cuts      layout.Repeater // places the samples of pending; nil if they are stored at their own times
	keyspaces []*keyspace     // the written one first
	own       int             // how many of these are the store's own; the others are lent, and have names of metrics of other stores
	lent      []*view         // of the stores that lend a keyspace
	ctx       context.Context // for read-ahead
	cancel    context.CancelFunc
	life      store.Lifetime
	current   bool                  // see ReadCurrent
	partial   atomic.Bool           // an unavailable keyspace does not fail the answer
	missing   atomic.Pointer[error] // why a keyspace was left out
	holder    atomic.Value          // Hold of the request, a func(bytes int64) error; none if nobody counts its memory

	mu       sync.RWMutex
	selected []*selection // in the order of their first refs
	ahead    readAhead
}

// A keyspace is a keyspace as a view sees it.
type keyspace struct {
	cluster *cluster
	look    layout.Look // nil if the keyspace was not open when the view was opened
}

// lookAt returns the look, or an error if the keyspace is not open.
func (k *keyspace) lookAt() (layout.Look, error) {
	if k.look != nil {
		return k.look, nil
	}
	if _, err := k.cluster.open(); err != nil {
		return nil, err
	}
	return nil, &store.UnavailableError{Reason: "the keyspace of cluster " + k.cluster.name + " was opened a moment ago; try again"}
}

// A selection is the result of one call of Select. The Ref of a series is the Ref of the first
// series plus the position of the series. A selection is kept until the view is closed, so it
// has only a few bytes per series in addition to what the layouts keep.
type selection struct {
	first store.Ref
	found []layout.Found // by keyspace; nil if a keyspace has nothing

	// Positions of the series, in rows of len(found)+1: the position in each of found, then the
	// number in the spool. Each is incremented by one; 0 means absent. nil if only one keyspace
	// has series: then positions are those of that keyspace.
	at   []uint32
	only int
}

// len is the number of series.
func (s *selection) len() int {
	if s.at == nil {
		return s.found[s.only].Len()
	}
	return len(s.at) / (len(s.found) + 1)
}

func (s *selection) last() store.Ref { return s.first + store.Ref(s.len()) - 1 }

// row returns the positions of the i-th series.
func (s *selection) row(i int) []uint32 {
	width := len(s.found) + 1
	return s.at[i*width : (i+1)*width]
}

// series returns the i-th series.
func (s *selection) series(pending *spool.View, i int) model.Series {
	if s.at == nil {
		return s.found[s.only].Series(i)
	}
	row := s.row(i)
	for k, f := range s.found {
		if row[k] > 0 {
			return f.Series(int(row[k] - 1))
		}
	}
	series, _ := pending.SeriesOf(model.SeriesNumber(row[len(s.found)] - 1))
	return series
}

// selected is a series that the view has found.
type selected struct {
	series  model.Series
	stored  []stored             // in the order of keyspaces
	pending []model.SeriesNumber // ids in the spool, at most one
}

// stored is a series in one keyspace.
type stored struct {
	in    *keyspace
	found layout.Found
	place int
}

// open returns a cursor whose errors name the cluster.
func (st stored) open(ctx context.Context, o store.ReadOptions) store.Cursor {
	c := st.found.Open(ctx, st.place, o)
	if st.in.cluster.expected() {
		return c
	}
	return &explained{c, st.in.cluster}
}

// An explained cursor adds the name of the cluster to errors.
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
	if err := v.life.End(); err != nil {
		return err
	}
	v.cancel()
	v.ahead.close()
	v.pending.Close()
	v.store.views.Dec()
	var errs []error
	for _, one := range v.lent {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// Select implements store.View. It finds all series before it yields the first: it must combine
// the parts of a series from spool and keyspaces, and its rows from the partitions of a
// keyspace, each of which has an order of its own. Yielding a series when it is first seen
// would need the same set of all series seen so far. Instead, the view holds little memory for
// each series until it is closed: see selection and layout.Found. With 300,000 series it holds
// 4 bytes each, or 12 in order, in addition to row keys of 85 bytes each, which are kept in any
// case so that they are read once (TestWideSelect). If more series match than the limit of the
// selection allows, the search ends soon after the limit, so memory grows with the limit and
// not with the number of matches.
func (v *view) Select(ctx context.Context, sel store.Selection) iter.Seq2[store.Series, error] {
	if len(sel.Metrics) > 0 {
		return store.SelectMetrics(ctx, v, sel)
	}
	return func(yield func(store.Series, error) bool) {
		found, err := v.find(ctx, sel)
		if err != nil {
			yield(store.Series{}, err)
			return
		}
		for i := range found.len() {
			if err := v.life.CheckAt(ctx, i); err != nil {
				yield(store.Series{}, err)
				return
			}
			if !yield(store.Series{Ref: found.first + store.Ref(i), Series: found.series(v.pending, i)}, nil) {
				return
			}
		}
	}
}

// find finds the selected series, and assigns refs.
func (v *view) find(ctx context.Context, sel store.Selection) (*selection, error) {
	if err := v.life.Check(ctx); err != nil {
		return nil, err
	}
	if sel.Hold != nil {
		v.holder.Store(sel.Hold)
	}
	s := &selection{found: make([]layout.Found, len(v.keyspaces))}
	if err := v.ask(ctx, sel, s.found); err != nil {
		return nil, err
	}
	ids, err := v.pending.Select(ctx, sel.Metric, sel.Matchers, v.sent(sel.Range), sel.Tick)
	if err != nil {
		return nil, err
	}
	if err := v.gather(s, ids, sel); err != nil {
		return nil, err
	}
	if !sel.AnyOrder {
		if err := v.sort(ctx, s); err != nil {
			return nil, err
		}
	}
	v.number(s)
	return s, nil
}

// ask finds the series of a selection in the keyspaces. It uses several goroutines, which may
// not call Tick themselves: they report their work of comparing with patterns, which takes
// long, to this goroutine.
func (v *view) ask(ctx context.Context, sel store.Selection, founds []layout.Found) error {
	tick := sel.Tick
	do := func(report func(int) error) error {
		sel.Tick = report
		return v.eachKeyspace(ctx, v.keyspaces, sel.Range, func(ctx context.Context, i int, look layout.Look) error {
			found, err := look.Select(ctx, sel)
			if err == nil && found.Len() > 0 {
				founds[i] = found
			}
			return err
		})
	}
	if tick == nil || !slices.ContainsFunc(sel.Matchers, func(m model.Matcher) bool { return len(m.Patterns) > 0 }) {
		return do(nil)
	}
	return work.Attended("find series", tick, do)
}

// eachKeyspace calls f concurrently for those of the keyspaces that may have samples in r.
func (v *view) eachKeyspace(ctx context.Context, some []*keyspace, r model.TimeRange, f func(ctx context.Context, i int, look layout.Look) error) error {
	return work.Parallel(ctx, len(some), len(some), "ask a keyspace", func(ctx context.Context, i int) error {
		k := some[i]
		if !k.cluster.within.Overlaps(r) {
			return nil
		}
		look, err := k.lookAt()
		if err == nil {
			err = k.cluster.explain(f(ctx, i, look))
		}
		if err != nil && v.leaveOut(ctx, err) {
			return nil
		}
		return err
	})
}

// AllowPartial implements store.PartialView.
func (v *view) AllowPartial() {
	v.partial.Store(true)
	for _, one := range v.lent {
		one.AllowPartial()
	}
}

// ReadCurrent implements store.CurrentView.
func (v *view) ReadCurrent() {
	v.current = true
	for _, k := range v.keyspaces {
		if k.look != nil {
			k.look.Current()
		}
	}
}

// Missing implements store.PartialView.
func (v *view) Missing() error {
	if err := v.missing.Load(); err != nil {
		return *err
	}
	for _, one := range v.lent {
		if err := one.Missing(); err != nil {
			return err
		}
	}
	return nil
}

// leaveOut reports whether a failed keyspace is left out of the answer. Samples of the spool,
// which are not in Cassandra yet, are in the answer in any case.
func (v *view) leaveOut(ctx context.Context, err error) bool {
	if !v.partial.Load() || ctx.Err() != nil || !errors.As(err, new(*store.UnavailableError)) {
		return false
	}
	v.missing.CompareAndSwap(nil, &err)
	return true
}

// gather combines the series of the spool and of each keyspace, up to the limit.
func (v *view) gather(s *selection, ids *roaring.Bitmap, sel store.Selection) error {
	last, places := -1, int(ids.GetCardinality()) // the last keyspace that has series, and the number of series if all are different
	several := places > 0
	for k, f := range s.found {
		if f != nil {
			several = several || last >= 0
			last, places = k, places+f.Len()
		}
	}
	if !several && last >= 0 && sel.AnyOrder {
		s.only = last
		return sel.LimitCheck(int64(s.len()))
	}
	if sel.Limit > 0 {
		places = min(places, sel.Limit+1)
	}
	s.at = make([]uint32, 0, places*(len(s.found)+1))
	rows := map[string]int{} // rows by series key
	var key []byte
	for it := ids.Iterator(); it.HasNext(); {
		id := it.Next()
		series, ok := v.pending.SeriesOf(model.SeriesNumber(id))
		if !ok {
			continue
		}
		key = series.AppendKey(key[:0])
		rows[string(key)] = s.add(len(s.found), id)
		if err := sel.LimitCheck(int64(s.len())); err != nil {
			return err
		}
	}
	for k, f := range s.found {
		if f == nil {
			continue
		}
		for place := range f.Len() {
			if err := sel.LimitCheck(int64(s.len())); err != nil {
				return err
			}
			if !several {
				s.add(k, uint32(place))
				continue
			}
			key = f.Series(place).AppendKey(key[:0])
			if i, ok := rows[string(key)]; ok {
				s.row(i)[k] = uint32(place) + 1
			} else if i := s.add(k, uint32(place)); k < last {
				rows[string(key)] = i
			}
		}
	}
	return sel.LimitCheck(int64(s.len()))
}

// add adds a series with its position in one of found or in the spool, and returns its row.
func (s *selection) add(in int, place uint32) int {
	i := s.len()
	s.at = append(s.at, make([]uint32, len(s.found)+1)...)
	s.row(i)[in] = place + 1
	return i
}

// sort orders the series.
func (v *view) sort(ctx context.Context, s *selection) error {
	order := make([]uint32, s.len())
	for i := range order {
		order[i] = uint32(i)
	}
	err := model.SortFunc(ctx, order, func(a, b uint32) int {
		return s.series(v.pending, int(a)).Compare(s.series(v.pending, int(b)))
	})
	if err != nil {
		return err
	}
	sorted := make([]uint32, 0, len(s.at))
	for _, i := range order {
		sorted = append(sorted, s.row(int(i))...)
	}
	s.at = sorted
	return nil
}

// number assigns refs to the found series.
func (v *view) number(s *selection) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.selected); n > 0 {
		s.first = v.selected[n-1].last() + 1
	}
	if s.len() > 0 {
		v.selected = append(v.selected, s)
	}
}

// at returns the series of a ref, and the last ref of its selection.
func (v *view) at(r store.Ref) (series selected, last store.Ref) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	i := sort.Search(len(v.selected), func(i int) bool { return v.selected[i].last() >= r })
	s := v.selected[i]
	return v.selectedAt(s, int(r-s.first)), s.last()
}

// selectedAt returns the i-th series of a selection.
func (v *view) selectedAt(s *selection, i int) selected {
	series := selected{series: s.series(v.pending, i)}
	if s.at == nil {
		series.stored = []stored{{v.keyspaces[s.only], s.found[s.only], i}}
		return series
	}
	row := s.row(i)
	for k, f := range s.found {
		if row[k] > 0 {
			series.stored = append(series.stored, stored{v.keyspaces[k], f, int(row[k] - 1)})
		}
	}
	if id := row[len(s.found)]; id > 0 {
		series.pending = []model.SeriesNumber{model.SeriesNumber(id - 1)}
	}
	return series
}

// Names implements store.View.
func (v *view) Names(ctx context.Context, q store.NamesQuery) ([]string, bool, error) {
	if err := v.life.Check(ctx); err != nil {
		return nil, false, err
	}
	q.Tick = nil // several goroutines read
	asked := v.keyspaces
	if q.Metric == "" { // the lending stores are queried themselves
		asked = asked[:v.own]
	}
	lists := make([][]string, len(asked))
	mores := make([]bool, len(asked))
	err := v.eachKeyspace(ctx, asked, model.AllTime, func(ctx context.Context, i int, look layout.Look) (err error) {
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
	return mergeLists(append(lists, names), append(mores, more), q.Limit)
}

// mergeLists merges sorted lists and truncates the result to limit; mores say which were truncated
// before.
func mergeLists(lists [][]string, mores []bool, limit int) (names []string, more bool, err error) {
	more = slices.Contains(mores, true)
	for _, list := range lists {
		var cut bool
		names, cut = mergeNames(list, names, limit)
		more = more || cut
	}
	return names, more, nil
}

// mergeNames merges two sorted lists and truncates the result to limit.
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

// Trace implements store.Tracer. Counts of a cluster that is only read are prefixed with
// its name.
func (v *view) Trace() []store.Count {
	var counts []store.Count
	for i, k := range v.keyspaces {
		if k.look == nil {
			continue
		}
		of := k.look.Counts()
		asked := slices.ContainsFunc(of, func(c store.Count) bool { return c.N != 0 })
		if i > 0 && !asked {
			continue
		}
		for _, c := range of {
			if i > 0 {
				c.Name = k.cluster.name + "." + c.Name
			}
			counts = append(counts, c)
		}
	}
	return counts
}
