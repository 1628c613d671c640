package query

import (
	"errors"
	"slices"
	"strings"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

// A NamesFilter narrows a list of names to those of series that match and have
// samples near a range of time: a store may look as coarsely as it does for
// Select.
type NamesFilter struct {
	Matchers []model.Matcher
	Range    model.TimeRange
}

// namesPage is how many metrics are looked at between two reads of the list.
const namesPage = 1000

// Names lists names that q asks for and that pass the filter, ascending. more
// reports that q.Limit cut the list. Tag names and values are filtered for one
// metric only.
func (r *Run) Names(q store.NamesQuery, filter NamesFilter) (names []string, more bool, err error) {
	defer since(&r.trace.index, time.Now())
	if q.Kind == store.MetricNames {
		names, more, err = r.metricNames(q, filter)
	} else {
		names, more, err = r.tagTexts(q, filter)
	}
	return names, more, r.cause(err)
}

// NamesPage lists names that q asks for, whatever series they are of.
func (r *Run) NamesPage(q store.NamesQuery) (names []string, more bool, err error) {
	defer since(&r.trace.index, time.Now())
	if names, more, err = r.view.Names(r.ctx, q); err == nil {
		err = r.Yield()
	}
	return names, more, r.cause(err)
}

// selectWork is the work of asking a store for the series of a metric, see Run.look.
const selectWork = 1 << 9

// metricNames asks for each metric whether it has a series that passes.
func (r *Run) metricNames(q store.NamesQuery, filter NamesFilter) ([]string, bool, error) {
	limit := q.Limit
	q.Limit = namesPage
	var found []string
	for more := true; more; {
		var page []string
		var err error
		if page, more, err = r.view.Names(r.ctx, q); err != nil {
			return nil, false, err
		}
		for _, name := range page {
			if err := r.look(selectWork); err != nil {
				return nil, false, err
			}
			has, err := r.hasSeries(name, filter)
			if err != nil {
				return nil, false, err
			}
			if !has {
				continue
			}
			if limit > 0 && len(found) == limit {
				return found, true, nil
			}
			if err := r.budget.take(int64(len(name)) + 16); err != nil {
				return nil, false, err
			}
			found = append(found, name)
		}
		if len(page) > 0 {
			q.After = page[len(page)-1]
		}
	}
	return found, false, nil
}

// hasSeries asks for one series. That there are more is an answer too.
func (r *Run) hasSeries(metric string, filter NamesFilter) (bool, error) {
	series, err := r.view.Select(r.ctx, store.Selection{
		Metric: metric, Matchers: filter.Matchers, Range: filter.Range, Limit: 1, LimitKey: "query.max_series",
	})
	if limit := (*store.LimitError)(nil); errors.As(err, &limit) {
		return true, nil
	}
	return len(series) > 0, err
}

// tagTexts collects the tag names, or values of a tag, of a metric's series.
func (r *Run) tagTexts(q store.NamesQuery, filter NamesFilter) ([]string, bool, error) {
	if q.Metric == "" {
		return nil, false, &store.InputError{Reason: "metric is needed to filter the tags of series by other tags or by time"}
	}
	series, err := r.selectSeries(&MetricQuery{Metric: q.Metric, Matchers: filter.Matchers}, filter.Range, false)
	if err != nil {
		return nil, false, err
	}
	tags, err := r.tagValues(series)
	if err != nil {
		return nil, false, err
	}
	var texts []string
	for _, t := range tags {
		switch {
		case q.Kind == store.TagNames:
			texts = append(texts, t.Name)
		case q.Tag == "" || q.Tag == t.Name:
			texts = append(texts, t.Values...)
		}
	}
	if err := sortFunc(r, texts, model.CompareNames); err != nil {
		return nil, false, err
	}
	texts = slices.DeleteFunc(slices.Compact(texts), func(s string) bool {
		return !strings.HasPrefix(s, q.Prefix) || q.After != "" && model.CompareNames(s, q.After) <= 0 ||
			q.Pattern != nil && (r.ctx.Err() != nil || !q.Pattern.MatchString(s)) // matching may take a millisecond
	})
	if err := r.ctx.Err(); err != nil {
		return nil, false, err
	}
	if q.Limit > 0 && len(texts) > q.Limit {
		return texts[:q.Limit], true, nil
	}
	return texts, false, nil
}
