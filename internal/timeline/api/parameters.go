package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"varve/internal/clip"
	"varve/internal/store"
	"varve/internal/timeline"
)

// parameters are the parameters of a request. Only one of them may be given several times.
type parameters struct {
	values url.Values
	all    []string // the values of that one
}

// parametersOf reads the query string. An invalid one is an error, since its valid part may ask
// for more than was meant. (The routes refuse unknown parameters.)
func parametersOf(r *http.Request, repeated string) (*parameters, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badf("the query string cannot be read: %v", err)
	}
	for name, list := range values {
		if len(list) > 1 && name != repeated {
			return nil, badf("the parameter %s is given %d times", strconv.Quote(clip.Text(name, clipped)), len(list))
		}
	}
	return &parameters{values: values, all: values[repeated]}, nil
}

// text returns a parameter. It is an error if it is given but empty.
func (p *parameters) text(name string) (text string, given bool, err error) {
	if !p.values.Has(name) {
		return "", false, nil
	}
	if text = p.values.Get(name); text == "" {
		return "", false, badf("the parameter %s is empty; leave it out", name)
	}
	return text, true, nil
}

// limit returns the parameter limit, which must be from 1 to most; 0 if it is not given.
func (p *parameters) limit(most int) (int, error) {
	text, given, err := p.text("limit")
	if err != nil || !given {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, badf("limit is %s, but must be a whole number from 1 to %d", strconv.Quote(clip.Text(text, clipped)), most)
	}
	return n, nil
}

// bound returns a time in microseconds, from the parameter name in milliseconds or from name_us.
// With last, a millisecond includes its last microsecond.
func (p *parameters) bound(name string, last bool) (*int64, error) {
	ms, err1 := p.time(name, usPerMS, last)
	us, err2 := p.time(name+"_us", 1, last)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if ms != nil && us != nil {
		return nil, badf("%s and %s_us are given; give one of them", name, name)
	}
	if ms != nil && last {
		*ms += usPerMS - 1
	}
	if ms != nil {
		return ms, nil
	}
	return us, nil
}

// time returns a time in microseconds. A bound beyond the times of all events is moved to their
// end, unless it excludes them all: moved there, it would select the events at that end. Then it
// is an error.
func (p *parameters) time(name string, unit int64, last bool) (*int64, error) {
	text, given, err := p.text(name)
	if err != nil || !given {
		return nil, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, badf("%s is %s, but must be a whole number of %s since 1970", name, strconv.Quote(clip.Text(text, clipped)), unitName(unit))
	}
	first, end := timeline.MinTime/unit, timeline.MaxTime/unit
	if last && n < first || !last && n > end {
		return nil, badf("%s is %d, but events have times from %d to %d only, in %s since 1970", name, n, first, end, unitName(unit))
	}
	us := max(first, min(n, end)) * unit
	return &us, nil
}

func (p *parameters) bounds() (from, until *int64, err error) {
	from, err1 := p.bound("from", false)
	until, err2 := p.bound("until", true)
	if err := errors.Join(err1, err2); err != nil {
		return nil, nil, err
	}
	if from != nil && until != nil && *until < *from {
		return nil, nil, badf("until is before from")
	}
	return from, until, nil
}

// query returns the query of a page, without its timelines.
func (p *parameters) query() (q timeline.Query, err error) {
	if q.From, q.Until, err = p.bounds(); err != nil {
		return q, err
	}
	if q.Limit, err = p.limit(timeline.PageEventsMax); err != nil {
		return q, err
	}
	order, given, err1 := p.text("order")
	switch {
	case !given || order == "desc":
	case order == "asc":
		q.Order = timeline.Ascending
	default:
		err1 = badf("order is %s, but must be desc or asc", strconv.Quote(clip.Text(order, clipped)))
	}
	var err2, err3 error
	q.Type, _, err2 = p.text("type")
	q.Cursor, _, err3 = p.text("cursor")
	return q, errors.Join(err1, err2, err3)
}

// timelines returns the timelines of a merged read.
func (p *parameters) timelines() ([]string, error) {
	if len(p.all) == 0 {
		return nil, badf("name the timelines: ?timeline=NAME&timeline=NAME")
	}
	if len(p.all) > timeline.FanoutMax {
		return nil, &store.LimitError{Limit: "timelines of a merged read", Max: timeline.FanoutMax, Need: int64(len(p.all)), What: "read events"}
	}
	for i, name := range p.all {
		if err := timeline.CheckName(name); err != nil {
			return nil, err
		}
		if slices.Contains(p.all[:i], name) {
			return nil, badf("the timeline %s is given twice", clip.Text(name, clipped))
		}
	}
	return p.all, nil
}

// notThere adds the name of the timeline to an ErrNotFound.
func notThere(err error, name string) error {
	if errors.Is(err, timeline.ErrNotFound) {
		return fmt.Errorf("timeline %s: %w", strconv.Quote(clip.Text(name, clipped)), err)
	}
	return err
}
