// Package authz restricts senders to their metrics. It wraps the store, which all front ends and
// languages use. So if a sender is limited to a prefix, its queries, lists and deletes are checked
// here, whatever the protocol. Its writes are checked in package ingest, because writers remember
// series across senders.
//
// A sender without a limit, and the server itself, get the store as it is.
package authz

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"varve/internal/model"
	"varve/internal/principal"
	"varve/internal/store"
)

// A Store restricts senders to their metrics.
type Store struct{ store.Store }

// Around returns a Store that restricts senders of s to their metrics.
func Around(s store.Store) store.Store { return &Store{s} }

// Unwrap lets [store.As] find the optional abilities of the store.
func (s *Store) Unwrap() any { return s.Store }

// Create makes a series that the sender may use.
func (s *Store) Create(ctx context.Context, series model.Series) (store.Ref, error) {
	if err := principal.Of(ctx).Check(series.Metric); err != nil {
		return 0, err
	}
	return s.Store.Create(ctx, series)
}

// Delete deletes if the sender may use all of the metrics.
func (s *Store) Delete(ctx context.Context, deletions ...store.Deletion) error {
	p := principal.Of(ctx)
	for _, d := range deletions {
		if err := p.Check(d.Metric); err != nil {
			return err
		}
	}
	return s.Store.Delete(ctx, deletions...)
}

// View opens a view of the metrics that the sender may use.
func (s *Store) View(ctx context.Context) (store.View, error) {
	v, err := s.Store.View(ctx)
	if p := principal.Of(ctx); err == nil && p.Prefix != "" {
		return &view{v, p}, nil
	}
	return v, err
}

// A view shows a sender its metrics.
type view struct {
	store.View
	by principal.Principal
}

func (v *view) Unwrap() any { return v.View }

func (v *view) Select(ctx context.Context, sel store.Selection) iter.Seq2[store.Series, error] {
	if len(sel.Metrics) > 0 {
		return store.SelectMetrics(ctx, v, sel) // v.Names lists only the metrics of the sender
	}
	if err := v.by.Check(sel.Metric); err != nil {
		return store.SelectNone(err)
	}
	return v.View.Select(ctx, sel)
}

func (v *view) Names(ctx context.Context, q store.NamesQuery) ([]string, bool, error) {
	if err := q.Check(); err != nil {
		return nil, false, err
	}
	switch {
	case q.Kind == store.MetricNames:
		return v.metrics(ctx, q)
	case q.Metric == "":
		return v.tagsOfAll(ctx, q)
	case !v.by.Reaches(q.Metric):
		return nil, false, nil
	}
	return v.View.Names(ctx, q)
}

// metrics lists names of metrics, or one level of their tree.
func (v *view) metrics(ctx context.Context, q store.NamesQuery) ([]string, bool, error) {
	own := v.by.Prefix
	rest, within := strings.CutPrefix(own, q.Prefix)
	switch {
	case strings.HasPrefix(q.Prefix, own):
		return v.View.Names(ctx, q)
	case !within:
		return nil, false, nil
	case q.Delimiter != 0 && strings.IndexByte(rest, q.Delimiter) >= 0: // all metrics of the sender are below one entry
		names, _, err := v.View.Names(ctx, store.NamesQuery{Kind: store.MetricNames, Prefix: own, Limit: 1})
		if err != nil || len(names) == 0 {
			return nil, false, err
		}
		if entry := q.Entry(own); q.After == "" || model.CompareNames(entry, q.After) > 0 {
			return []string{entry}, false, nil
		}
		return nil, false, nil
	}
	q.Prefix = own // this does not change the entries up to the next delimiter
	return v.View.Names(ctx, q)
}

// Bounds of the search for the tags of all metrics of a sender.
const (
	maxMetrics  = 10_000
	maxTexts    = 100_000
	metricsPage = 1000
)

// tagsOfAll lists tag names or values of all metrics of the sender. The store can list
// those of one metric or those of all senders, but not those of one sender.
func (v *view) tagsOfAll(ctx context.Context, q store.NamesQuery) ([]string, bool, error) {
	found, more := map[string]struct{}{}, false
	list := store.NamesQuery{Kind: store.MetricNames, Prefix: v.by.Prefix, Limit: metricsPage}
	for seen := 0; seen < maxMetrics; {
		metrics, further, err := v.View.Names(ctx, list)
		if err != nil {
			return nil, false, err
		}
		for _, m := range metrics {
			q.Metric = m
			texts, cut, err := v.View.Names(ctx, q)
			if err != nil {
				return nil, false, err
			}
			more = more || cut
			for _, t := range texts {
				found[t] = struct{}{}
			}
			if len(found) > maxTexts {
				return nil, false, v.tooMany()
			}
		}
		if !further || len(metrics) == 0 {
			return firstOf(found, q.Limit, more)
		}
		seen += len(metrics)
		list.After = metrics[len(metrics)-1]
	}
	return nil, false, v.tooMany()
}

func (v *view) tooMany() error {
	return &store.InputError{Reason: fmt.Sprintf("there are more than %d metrics that begin with %q, or more than %d names; ask for the tags of one metric", maxMetrics, v.by.Prefix, maxTexts)}
}

// firstOf returns the first names of a set, in order.
func firstOf(found map[string]struct{}, limit int, more bool) ([]string, bool, error) {
	names := slices.SortedFunc(maps.Keys(found), model.CompareNames)
	if limit > 0 && len(names) > limit {
		return names[:limit], true, nil
	}
	return names, more, nil
}
