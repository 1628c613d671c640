package writelog

import (
	"context"

	"varve/internal/model"
	"varve/internal/store"
)

// Refs is the part of store.Appender that returns references to series.
type Refs struct{ log *Log }

// Refs returns the references of the log's series.
func (l *Log) Refs() Refs { return Refs{l} }

// Epoch implements store.Appender.
func (r Refs) Epoch() uint64 { return r.log.options.Series.Epoch() }

// Lookup implements store.Appender.
func (r Refs) Lookup(key []byte) (store.Ref, bool) {
	id, ok := r.log.options.Series.Lookup(key)
	return store.Ref(id), ok
}

// Create implements store.Appender.
func (r Refs) Create(ctx context.Context, series model.Series) (store.Ref, error) {
	if err := r.log.CheckOpen(ctx); err != nil {
		return 0, err
	}
	return r.log.options.Series.CreateSeries(series)
}

// SeriesCount implements store.Appender.
func (r Refs) SeriesCount() int { return r.log.options.Series.Count() }

// Kinds appends the kind of each sample's series to dst. It returns store.ErrStale if
// Append would return it now.
func (r Refs) Kinds(dst []model.Kind, b *store.Batch) ([]model.Kind, error) {
	series := r.log.options.Series
	kinds, ok := series.Kinds(dst, b.Samples)
	if !ok || series.Epoch() != b.Epoch {
		return dst, store.ErrStale
	}
	return kinds, nil
}
