package store

import (
	"context"
	"errors"
	"iter"
	"slices"

	"varve/internal/model"
)

// AnyMetric is a matcher for Selection.Metrics that every metric satisfies.
var AnyMetric = model.Matcher{Not: true, Absent: true}

// MeansMetric reports whether a selection includes series of a metric.
func (s *Selection) MeansMetric(metric string) bool {
	if len(s.Metrics) == 0 {
		return s.Metric == metric
	}
	return !slices.ContainsFunc(s.Metrics, func(m model.Matcher) bool { return !m.MatchesValue(metric) })
}

// matching is the work of MeansMetric, see Selection.Tick.
func (s *Selection) matching(metric string) (work int) {
	for i := range s.Metrics {
		work += 1 + len(s.Metrics[i].Patterns)*MatchWork(metric)
	}
	return work
}

// MatchWork is the work of matching a pattern with a text, see Selection.Tick. Most patterns take
// less, but a costly one takes a millisecond.
func MatchWork(text string) int { return 256 + len(text) }

// what describes the selection in messages.
func (s *Selection) what() string {
	if len(s.Metrics) > 0 {
		return "select series of several metrics"
	}
	return "select series of " + s.Metric
}

// A MetricSelector is the part of a View that SelectMetrics uses.
type MetricSelector interface {
	Select(ctx context.Context, sel Selection) iter.Seq2[Series, error]
	Names(ctx context.Context, q NamesQuery) (names []string, more bool, err error)
}

// metricsPage is how many metric names SelectMetrics lists at once.
const metricsPage = 1000

// SelectMetrics implements Select for a selection with Metrics, for a View whose Select
// takes only a Metric: it lists the metric names in the order of series, and selects the
// series of each metric.
func SelectMetrics(ctx context.Context, v MetricSelector, sel Selection) iter.Seq2[Series, error] {
	return func(yield func(Series, error) bool) {
		m := metricsWalk{ctx: ctx, view: v, sel: sel, yield: yield}
		if err := m.walk(); err != nil {
			yield(Series{}, err)
		}
	}
}

// A metricsWalk is one iteration of SelectMetrics.
type metricsWalk struct {
	ctx     context.Context
	view    MetricSelector
	sel     Selection
	yield   func(Series, error) bool
	yielded int
	stopped bool // by the caller
}

func (w *metricsWalk) walk() error {
	for i := range w.sel.Metrics {
		if m := &w.sel.Metrics[i]; m.Plain() && len(m.Patterns) == 0 {
			names := slices.SortedFunc(slices.Values(m.Values), model.CompareNames)
			return w.all(slices.Compact(names))
		}
	}
	q := NamesQuery{Kind: MetricNames, Limit: metricsPage, Tick: w.sel.Tick, Hold: w.sel.Hold}
	for i := range w.sel.Metrics {
		if m := &w.sel.Metrics[i]; m.Plain() && len(m.Values) == 0 && len(m.Patterns) == 1 {
			q.Pattern = m.Patterns[0]
		}
	}
	for more := true; more && !w.stopped; {
		var names []string
		var err error
		if names, more, err = w.view.Names(w.ctx, q); err != nil {
			return err
		}
		if err := w.all(names); err != nil {
			return err
		}
		if len(names) > 0 {
			q.After = names[len(names)-1]
		}
	}
	return nil
}

// all yields the series of the metrics that satisfy the selection.
func (w *metricsWalk) all(names []string) error {
	for _, name := range names {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if w.sel.Tick != nil {
			if err := w.sel.Tick(w.sel.matching(name)); err != nil {
				return err
			}
		}
		if !w.sel.MeansMetric(name) {
			continue
		}
		if err := w.one(name); err != nil || w.stopped {
			return err
		}
	}
	return nil
}

// one yields the series of one metric, up to the rest of the limit.
func (w *metricsWalk) one(metric string) error {
	sel := w.sel
	sel.Metric, sel.Metrics = metric, nil
	if sel.Limit > 0 {
		sel.Limit = max(1, sel.Limit-w.yielded) // 0 would mean no bound
	}
	for s, err := range w.view.Select(w.ctx, sel) {
		if err != nil {
			return w.limited(err)
		}
		if err := w.sel.LimitCheck(int64(w.yielded) + 1); err != nil {
			return err
		}
		w.yielded++
		if !w.yield(s, nil) {
			w.stopped = true
			return nil
		}
	}
	return nil
}

// limited turns the error about one metric's share of the limit into one about the
// whole limit.
func (w *metricsWalk) limited(err error) error {
	var limit *LimitError
	if w.sel.Limit <= 0 || !errors.As(err, &limit) || limit.Limit != w.sel.LimitKey {
		return err
	}
	return w.sel.LimitCheck(int64(w.sel.Limit) + 1)
}
