package embedded

import (
	"context"
	"iter"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/model"
	"varve/internal/store"
)

// Select implements store.View. During the iteration it holds the set of ids, which takes
// a bit to some bytes for each; names are looked up one by one. The series of an id does
// not change meanwhile, since the view holds a state: see reuseIDs.
func (v *view) Select(ctx context.Context, sel store.Selection) iter.Seq2[store.Series, error] {
	if len(sel.Metrics) > 0 {
		return store.SelectMetrics(ctx, v, sel)
	}
	return func(yield func(store.Series, error) bool) {
		if err := v.yieldSelected(ctx, sel, yield); err != nil {
			yield(store.Series{}, err)
		}
	}
}

// yieldSelected returns nil if the caller has stopped.
func (v *view) yieldSelected(ctx context.Context, sel store.Selection, yield func(store.Series, error) bool) error {
	ids, err := v.selected(ctx, sel)
	if err != nil {
		return err
	}
	switch n := ids.GetCardinality(); {
	case n == 0:
		return nil
	case n == 1: // the usual case
		v.yieldOne(model.SeriesNumber(ids.Minimum()), yield)
		return nil
	case sel.AnyOrder:
		return v.yieldByID(ctx, ids, yield)
	}
	return v.yieldInOrder(ctx, ids, sel.Metric, yield)
}

// selected returns the ids of a selection, not more than its limit.
func (v *view) selected(ctx context.Context, sel store.Selection) (*roaring.Bitmap, error) {
	if err := v.life.Check(ctx); err != nil {
		return nil, err
	}
	ids, err := v.store.index.Select(ctx, sel.Metric, sel.Matchers, sel.Tick)
	if err != nil {
		return nil, err
	}
	v.state.within(ids, sel.Range)
	return ids, sel.LimitCheck(int64(ids.GetCardinality()))
}

// yieldByID yields the series as files have them.
func (v *view) yieldByID(ctx context.Context, ids *roaring.Bitmap, yield func(store.Series, error) bool) error {
	it := ids.Iterator()
	for n := 0; it.HasNext(); n++ {
		if err := v.life.CheckAt(ctx, n); err != nil {
			return err
		}
		if !v.yieldOne(model.SeriesNumber(it.Next()), yield) {
			return nil
		}
	}
	return nil
}

// yieldOne yields the series of an id, unless it was forgotten meanwhile.
func (v *view) yieldOne(id model.SeriesNumber, yield func(store.Series, error) bool) bool {
	series, ok := v.store.series.Series(id)
	return !ok || yield(store.Series{Ref: store.Ref(id), Series: series}, nil)
}

// A sorted holds what is needed of a series while the series of a metric are
// sorted: 24 bytes, where a store.Series takes 56.
type sorted struct {
	tags model.Tags
	id   model.SeriesNumber
	kind model.Kind
}

// yieldInOrder yields series of one metric in the order of model.Series.Compare.
func (v *view) yieldInOrder(ctx context.Context, ids *roaring.Bitmap, metric string, yield func(store.Series, error) bool) error {
	all := make([]sorted, 0, ids.GetCardinality())
	for it := ids.Iterator(); it.HasNext(); {
		if err := v.life.CheckAt(ctx, len(all)); err != nil {
			return err
		}
		id := model.SeriesNumber(it.Next())
		if s, ok := v.store.series.Series(id); ok { // otherwise the series was forgotten meanwhile
			all = append(all, sorted{s.Tags, id, s.Type.Kind()})
		}
	}
	if err := model.SortFunc(ctx, all, v.compare); err != nil {
		return err
	}
	for n := range all {
		if err := v.life.CheckAt(ctx, n); err != nil {
			return err
		}
		s := &all[n]
		series := model.Series{Metric: metric, Tags: s.tags, Type: v.typeOf(s)}
		if series.Type != "" && !yield(store.Series{Ref: store.Ref(s.id), Series: series}, nil) {
			return nil
		}
	}
	return nil
}

func (v *view) compare(a, b sorted) int {
	if c := a.tags.Compare(b.tags); c != 0 {
		return c
	}
	return strings.Compare(string(v.typeOf(&a)), string(v.typeOf(&b)))
}

// typeOf looks up the name of a custom type. It is empty if the series was forgotten
// meanwhile.
func (v *view) typeOf(s *sorted) model.Type {
	if t := model.TypeOf(s.kind); t != "" {
		return t
	}
	series, _ := v.store.series.Series(s.id)
	return series.Type
}
