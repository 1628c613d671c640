package cassandra

import (
	"context"
	"errors"
	"iter"

	"varve/internal/store"
)

// View implements store.Viewer. It opens views of the spools of all keyspaces, and queries the
// keyspaces whose metrics are selected.
func (k *Keyspaces) View(ctx context.Context) (store.View, error) {
	if len(k.stores) == 1 {
		return k.stores[0].View(ctx)
	}
	v := &keyspacesView{of: k}
	for i, s := range k.stores {
		one, err := s.View(ctx)
		if err != nil {
			return nil, errors.Join(k.named(i, err), v.Close())
		}
		v.views = append(v.views, one.(*view))
	}
	return v, nil
}

var (
	_ store.PartialView = (*keyspacesView)(nil)
	_ store.CurrentView = (*keyspacesView)(nil)
	_ store.Tracer      = (*keyspacesView)(nil)
)

type keyspacesView struct {
	of    *Keyspaces
	views []*view // by position of the store
}

// Select implements store.View.
func (v *keyspacesView) Select(ctx context.Context, sel store.Selection) iter.Seq2[store.Series, error] {
	if len(sel.Metrics) > 0 { // they may be in any keyspace
		return store.SelectMetrics(ctx, v, sel)
	}
	i := v.of.of(sel.Metric)
	return func(yield func(store.Series, error) bool) {
		for series, err := range v.views[i].Select(ctx, sel) {
			series.Ref = v.of.outer(i, series.Ref)
			if !yield(series, v.of.named(i, err)) {
				return
			}
		}
	}
}

// Read implements store.View.
func (v *keyspacesView) Read(ctx context.Context, s store.Series, o store.ReadOptions) store.Cursor {
	i, ref := v.of.inner(s.Ref)
	s.Ref = ref
	return v.views[i].Read(ctx, s, o)
}

// Names implements store.View. It fails because of an unavailable keyspace only if the list may
// contain metrics of that keyspace; Graphite looks up each path in such a list.
func (v *keyspacesView) Names(ctx context.Context, q store.NamesQuery) ([]string, bool, error) {
	if q.Metric != "" {
		i := v.of.of(q.Metric)
		names, more, err := v.views[i].Names(ctx, q)
		return names, more, v.of.named(i, err)
	}
	q.Tick = nil // several goroutines read
	prefix := ""
	if q.Kind == store.MetricNames {
		prefix = q.Prefix
	}
	has := v.of.having(prefix)
	lists, mores := make([][]string, len(v.views)), make([]bool, len(v.views))
	err := v.of.all("list names of a keyspace", func(i int) (err error) {
		lists[i], mores[i], err = v.views[i].Names(ctx, q)
		if !has[i] && ctx.Err() == nil && errors.As(err, new(*store.UnavailableError)) {
			return nil // queries would find nothing there anyway
		}
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return mergeLists(lists, mores, q.Limit)
}

// AllowPartial implements store.PartialView.
func (v *keyspacesView) AllowPartial() {
	for _, one := range v.views {
		one.AllowPartial()
	}
}

// ReadCurrent implements store.CurrentView.
func (v *keyspacesView) ReadCurrent() {
	for _, one := range v.views {
		one.ReadCurrent()
	}
}

// Missing implements store.PartialView.
func (v *keyspacesView) Missing() error {
	for i, one := range v.views {
		if err := one.Missing(); err != nil {
			return v.of.named(i, err)
		}
	}
	return nil
}

// Trace implements store.Tracer. Counts of a further keyspace are prefixed with its name.
func (v *keyspacesView) Trace() []store.Count {
	counts := v.views[0].Trace()
	for i, one := range v.views[1:] {
		for _, c := range one.Trace() {
			if c.N != 0 {
				counts = append(counts, store.Count{Name: v.of.names[i+1] + "." + c.Name, N: c.N})
			}
		}
	}
	return counts
}

// Close implements store.View.
func (v *keyspacesView) Close() error {
	var errs []error
	for _, one := range v.views {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}
