package kairos

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

// A room is a part of a store that looks like a store of its own, initially empty: all
// names of metrics and services get a prefix. It is cheaper than emptying the tables of
// a keyspace.
type room struct {
	store.Store // the whole
	prefix      string
}

// Close leaves the whole open.
func (r *room) Close() error { return nil }

func (r *room) in(metric string) string {
	if metric == "" {
		return "" // refused as such
	}
	return r.prefix + metric
}

func (r *room) out(metric string) string { return strings.TrimPrefix(metric, r.prefix) }

// Lookup leaves it to Create.
func (r *room) Lookup([]byte) (store.Ref, bool) { return 0, false }

func (r *room) Create(ctx context.Context, s model.Series) (store.Ref, error) {
	s.Metric = r.in(s.Metric)
	return r.Store.Create(ctx, s)
}

func (r *room) Delete(ctx context.Context, deletions ...store.Deletion) error {
	inside := slices.Clone(deletions)
	for i := range inside {
		inside[i].Metric = r.in(inside[i].Metric)
	}
	return r.Store.Delete(ctx, inside...)
}

func (r *room) View(ctx context.Context) (store.View, error) {
	v, err := r.Store.View(ctx)
	if err != nil {
		return nil, err
	}
	return roomView{v, r}, nil
}

func (r *room) Get(ctx context.Context, service, serviceKey, key string) (store.Value, error) {
	return r.Store.Get(ctx, r.in(service), serviceKey, key)
}

func (r *room) Set(ctx context.Context, service, serviceKey, key, value string) error {
	return r.Store.Set(ctx, r.in(service), serviceKey, key, value)
}

func (r *room) Unset(ctx context.Context, service, serviceKey, key string) error {
	return r.Store.Unset(ctx, r.in(service), serviceKey, key)
}

func (r *room) ServiceKeys(ctx context.Context, service string) iter.Seq2[string, error] {
	return r.Store.ServiceKeys(ctx, r.in(service))
}

func (r *room) Keys(ctx context.Context, service, serviceKey, prefix string) iter.Seq2[string, error] {
	return r.Store.Keys(ctx, r.in(service), serviceKey, prefix)
}

func (r *room) Modified(ctx context.Context, service, serviceKey string) (time.Time, error) {
	return r.Store.Modified(ctx, r.in(service), serviceKey)
}

type roomView struct {
	store.View
	room *room
}

func (v roomView) Select(ctx context.Context, sel store.Selection) iter.Seq2[store.Series, error] {
	sel.Metric = v.room.in(sel.Metric)
	return func(yield func(store.Series, error) bool) {
		for s, err := range v.View.Select(ctx, sel) {
			if err == nil {
				s.Metric = v.room.out(s.Metric)
			}
			if !yield(s, err) {
				return
			}
		}
	}
}

func (v roomView) Read(ctx context.Context, s store.Series, o store.ReadOptions) store.Cursor {
	s.Metric = v.room.in(s.Metric)
	return v.View.Read(ctx, s, o)
}

// Names of tags of all metrics are those of the whole.
func (v roomView) Names(ctx context.Context, q store.NamesQuery) (names []string, more bool, err error) {
	if q.Kind != store.MetricNames {
		q.Metric = v.room.in(q.Metric)
		return v.View.Names(ctx, q)
	}
	limit, pattern := q.Limit, q.Pattern
	q.Prefix, q.After = v.room.prefix+q.Prefix, v.room.in(q.After)
	q.Limit, q.Pattern = 0, nil
	all, _, err := v.View.Names(ctx, q)
	for _, name := range all {
		name = v.room.out(name)
		switch {
		case pattern != nil && !pattern.MatchString(name):
		case limit > 0 && len(names) == limit:
			return names, true, err
		default:
			names = append(names, name)
		}
	}
	return names, false, err
}
