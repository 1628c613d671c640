package agg

import (
	"time"

	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/rowtime"
	"varve/internal/store"
)

// A Query is one request for the points of one or more metrics.
type Query struct {
	query.Request
	Range   model.TimeRange
	Zone    *time.Location // of calendar units; nil is UTC
	Metrics []MetricQuery
}

// A MetricQuery is the part of a query about one metric.
type MetricQuery struct {
	Metric     string
	Matchers   []model.Matcher
	Descending bool
	Limit      int // points per series and again per group, <= 0 for all
	GroupBy    []GroupBy
	Steps      []Step

	// WithoutTags leaves Group.Tags empty.
	WithoutTags bool
}

// A Run is a running query. One goroutine uses it.
type Run struct {
	*query.Session
	engine   *Engine
	query    Query
	tags     query.Lease // of Tags
	produced int64       // points added by steps such as gaps
	saved    int64       // points that save_as wrote
	trace    runTrace
}

// mayProduce refuses to let steps add n points of their own if a query may not read as
// many.
func (r *Run) mayProduce(n int64) error {
	if most := r.MaxSamples(); n > most {
		return &store.LimitError{
			Limit: "query.max_samples", Max: most, Need: n,
			What: "empty buckets that gaps marks; sample more coarsely or narrow the time range",
		}
	}
	return nil
}

// addSaved counts points that save_as writes. A query may have many such steps, and
// each writes all points.
func (r *Run) addSaved(n int) error {
	r.saved += int64(n)
	if most := r.MaxSamples(); r.saved > most {
		return &store.LimitError{
			Limit: "query.max_samples", Max: most, Need: r.saved,
			What: "points that save_as stores; narrow the time range, sample more coarsely or save fewer times",
		}
	}
	return nil
}

// selection is the selection of q's series.
func (q *MetricQuery) selection(within model.TimeRange) store.Selection {
	return store.Selection{Metric: q.Metric, Matchers: q.Matchers, Range: within, AnyOrder: true}
}

// Metric plans the i-th metric of the request. The Result must be closed before the
// next call.
func (r *Run) Metric(i int) (*Result, error) {
	q := &r.query.Metrics[i]
	r.WorkOn(i, q.Metric)
	result := newResult(r, q)
	if err := result.plan(); err != nil {
		result.Close()
		return nil, r.Cause(err)
	}
	return result, nil
}

// Tags returns the tags of the series that the i-th metric of the request selects. As
// in KairosDB, series are selected by whole rows, since otherwise the result would
// depend on how precise the store's index is.
func (r *Run) Tags(i int) ([]query.TagValues, error) {
	q := &r.query.Metrics[i]
	r.WorkOn(i, q.Metric)
	within := r.query.Range
	within.StartMS = rowtime.Default.Partition(within.StartMS)
	within.EndMS = rowtime.Default.PartitionEnd(rowtime.Default.Partition(within.EndMS))
	r.tags.Release()
	tags, err := r.SelectTags(q.selection(within), &r.tags)
	return tags, r.Cause(err)
}

// rangeOptions are the read options of a metric of this run.
func (r *Run) rangeOptions(descending bool, limit int) store.ReadOptions {
	return store.ReadOptions{Range: r.query.Range, Descending: descending, Limit: max(limit, 0)}
}
