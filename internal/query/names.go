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
// samples near a time range. The store decides how coarsely it looks at the range, as
// for Select.
type NamesFilter struct {
	Matchers []model.Matcher
	Range    model.TimeRange
}

// namesPage is how many metrics are looked at between two reads of the list.
const namesPage = 1000

// Names lists names that q asks for and that pass the filter, ascending. more
// reports that q.Limit cut the list. Tag names and values are filtered for one
// metric only.
func (s *Session) Names(q store.NamesQuery, filter NamesFilter) (names []string, more bool, err error) {
	if q.Kind == store.MetricNames {
		names, more, err = s.metricNames(q, filter)
	} else {
		names, more, err = s.tagTexts(q, filter)
	}
	return names, more, s.Cause(err)
}

// NamesPage lists the names that q asks for, without a filter.
func (s *Session) NamesPage(q store.NamesQuery) (names []string, more bool, err error) {
	defer since(&s.trace.index, time.Now())
	if names, more, err = s.page(q); err == nil {
		err = s.Yield()
	}
	return names, more, s.Cause(err)
}

// page asks the store for names.
func (s *Session) page(q store.NamesQuery) (names []string, more bool, err error) {
	wait := s.lookupWait()
	wait.begin()
	defer wait.end()
	q.Tick, q.Hold = s.Tick, s.holds
	return s.view.Names(s.ctx, q)
}

// selectWork is the work of asking a store for the series of a metric, see Session.Tick.
const selectWork = 1 << 9

// metricNames asks for each metric whether it has a series that passes.
func (s *Session) metricNames(q store.NamesQuery, filter NamesFilter) ([]string, bool, error) {
	defer since(&s.trace.index, time.Now())
	limit := q.Limit
	q.Limit = namesPage
	var found []string
	for more := true; more; {
		var page []string
		var err error
		if page, more, err = s.page(q); err != nil {
			return nil, false, err
		}
		for _, name := range page {
			if err := s.Tick(selectWork); err != nil {
				return nil, false, err
			}
			has, err := s.hasSeries(name, filter)
			if err != nil {
				return nil, false, err
			}
			if !has {
				continue
			}
			if limit > 0 && len(found) == limit {
				return found, true, nil
			}
			if err := s.Reserve(int64(len(name)) + 16); err != nil {
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

// hasSeries selects with a limit of one series. An error of this limit also means
// yes; an error of another limit, such as memory, does not.
func (s *Session) hasSeries(metric string, filter NamesFilter) (has bool, err error) {
	const limitKey = "query.max_series"
	for _, err := range s.choose(store.Selection{
		Metric: metric, Matchers: filter.Matchers, Range: filter.Range, AnyOrder: true,
		Limit: 1, LimitKey: limitKey, // a store may look for less then
	}) {
		limit, limited := errors.AsType[*store.LimitError](err)
		if err != nil && (!limited || limit.Limit != limitKey) {
			return false, err
		}
		has = true // also if the error says that there are more
	}
	return has, nil
}

// tagTexts collects the tag names, or values of a tag, of a metric's series.
func (s *Session) tagTexts(q store.NamesQuery, filter NamesFilter) ([]string, bool, error) {
	if q.Metric == "" {
		return nil, false, &store.InputError{Reason: "metric is needed to filter the tags of series by other tags or by time"}
	}
	held := s.Lease()
	tags, err := s.SelectTags(store.Selection{Metric: q.Metric, Matchers: filter.Matchers, Range: filter.Range}, &held)
	if err != nil {
		return nil, false, err
	}
	defer since(&s.trace.index, time.Now()) // not of SelectTags, which counts its own time
	var texts []string
	for _, t := range tags {
		switch {
		case q.Kind == store.TagNames:
			texts = append(texts, t.Name)
		case q.Tag == "" || q.Tag == t.Name:
			texts = append(texts, t.Values...)
		}
	}
	if err := SortFunc(s, texts, model.CompareNames); err != nil {
		return nil, false, err
	}
	texts = slices.DeleteFunc(slices.Compact(texts), func(text string) bool {
		if !strings.HasPrefix(text, q.Prefix) || q.After != "" && model.CompareNames(text, q.After) <= 0 || err != nil {
			return true
		}
		if q.Pattern == nil {
			return false
		}
		if err = s.Tick(store.MatchWork(text)); err == nil {
			err = s.ctx.Err() // matching may take a millisecond
		}
		return err != nil || !q.Pattern.MatchString(text)
	})
	if err != nil {
		return nil, false, err
	}
	if q.Limit > 0 && len(texts) > q.Limit {
		return texts[:q.Limit], true, nil
	}
	return texts, false, nil
}
