package graphite

import (
	"context"
	"math"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"

	"varve/internal/graphite/event"
	"varve/internal/graphite/function"
	"varve/internal/graphite/target"
	"varve/internal/ingest"
	"varve/internal/ingest/carbon"
	"varve/internal/model"
	"varve/internal/principal"
	"varve/internal/query"
	"varve/internal/retention"
	"varve/internal/store"
)

// A source gives functions the series of a store.
type source struct {
	session *query.Session
	book    *retention.Book
	events  *event.Log
	trace   *trace // nil: none is wanted

	mu sync.Mutex // a session is used by one goroutine
}

// Fetch implements function.Source.
func (s *source) Fetch(_ context.Context, queries []function.Query, within function.Range) ([][]function.Fetched, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease := s.session.Lease()
	defer lease.Release()
	reads := map[grid][]*read{}
	out := make([][]*read, len(queries))
	for i, q := range queries {
		numbers, err := s.selected(q, &lease)
		if err != nil {
			return nil, err
		}
		for _, n := range numbers {
			series := retention.SeriesOf(n.Metric, n.Tags)
			r := &read{number: n, name: series.Path, policy: s.book.Of(series)}
			if g, ok := gridOf(r.policy, within); ok {
				out[i], reads[g] = append(out[i], r), append(reads[g], r)
			}
		}
	}
	for g, list := range reads {
		s.trace.add(g, len(list))
		if err := s.read(g, list); err != nil {
			return nil, err
		}
	}
	fetched := make([][]function.Fetched, len(queries))
	for i, list := range out {
		for _, r := range list {
			fetched[i] = append(fetched[i], r.fetched)
		}
	}
	return fetched, nil
}

// Events implements function.Source.
func (s *source) Events(ctx context.Context, tags []string, from, until int64) (times []int64, err error) {
	if p := principal.Of(ctx); p.Prefix != "" { // events are not of a metric
		return nil, &principal.ForbiddenError{Metric: "events", By: p}
	}
	err = s.events.Find(ctx, event.Search{From: from, Until: until, Tags: tags}, func(e event.Event) error {
		times = append(times, e.When)
		return s.session.Reserve(8)
	})
	return times, err
}

// A read is a series that is fetched.
type read struct {
	number  query.Number
	name    string
	policy  retention.Policy
	buckets []store.Bucket // that the store has made of samples, not used yet
	fetched function.Fetched
}

// selected returns the series of a query.
func (s *source) selected(q function.Query, l *query.Lease) ([]query.Number, error) {
	if q.ByTag {
		return s.byTags(q.Expressions, l)
	}
	if strings.IndexByte(q.Text, ';') >= 0 {
		return s.byName(q.Text, l)
	}
	glob, err := target.ParseGlob(q.Text)
	if err != nil {
		return nil, &function.ParamError{Reason: err.Error()}
	}
	found, err := find(s.session, glob)
	if err != nil {
		return nil, err
	}
	var all []query.Number
	for _, e := range found {
		if !e.leaf {
			continue
		}
		numbers, err := s.numbers(e.path, nil, l)
		if err != nil {
			return nil, err
		}
		all = append(all, withTags(numbers, 0)...)
	}
	return all, nil
}

func (s *source) numbers(metric string, matchers []model.Matcher, l *query.Lease) ([]query.Number, error) {
	return s.session.SelectNumbers(store.Selection{Metric: metric, Matchers: matchers, Range: model.AllTime}, l)
}

// withTags returns those that have so many tags.
func withTags(numbers []query.Number, n int) []query.Number {
	return slices.DeleteFunc(numbers, func(one query.Number) bool { return one.Tags.Len() != n })
}

// maxTags bounds the tags of a name in a target.
const maxTags = 100

// byName returns the series of a name with tags.
func (s *source) byName(path string, l *query.Lease) ([]query.Number, error) {
	var names ingest.Names
	if f := carbon.ParsePath([]byte(path), &names, maxTags); f != nil || len(names.Tags) > maxTags {
		return nil, nil // no series has such a name
	}
	numbers, err := s.numbers(names.Metric, model.Matchers(names.Tags), l)
	return withTags(numbers, len(names.Tags)), err
}

var tagExpression = regexp.MustCompile(`^([^;!=]+)(!?=~?)([^;]*)$`)

// byTags returns the series that satisfy all expressions. Those of the tag "name" are
// about the metric.
func (s *source) byTags(expressions []string, l *query.Lease) ([]query.Number, error) {
	var names, matchers []model.Matcher
	selective := false
	for _, text := range expressions {
		parts := tagExpression.FindStringSubmatch(text)
		if parts == nil {
			return nil, &function.ParamError{Reason: "Invalid tagspec " + text}
		}
		m, err := tagMatcher(parts[1], parts[2], parts[3])
		if err != nil {
			return nil, &function.ParamError{Reason: "Invalid tagspec " + text + ": " + err.Error()}
		}
		selective = selective || !m.Absent
		if m.Tag == "name" {
			names = append(names, m)
		} else {
			matchers = append(matchers, m)
		}
	}
	if !selective {
		return nil, &function.ParamError{Reason: "At least one tagspec must not match the empty string"}
	}
	var all []query.Number
	err := s.eachMetric(names, func(metric string) error {
		numbers, err := s.numbers(metric, matchers, l)
		all = append(all, numbers...)
		return err
	})
	return all, err
}

// tagMatcher returns a matcher whose pattern is anchored at its beginning only.
func tagMatcher(tag, op, text string) (model.Matcher, error) {
	if strings.HasSuffix(op, "~") {
		text = fromBeginning(text)
	}
	return model.NewMatcher(tag, model.Operator(strings.Replace(op, "!=~", "!~", 1)), text)
}

// fromBeginning makes an expression that is anchored at its beginning only one that
// matches a whole text. One that begins with ^ is not anchored further: ^a|b finds b
// anywhere.
func fromBeginning(text string) string {
	if strings.HasPrefix(text, "^") {
		return "(?s:.*)(?:" + text + ")(?s:.*)"
	}
	return "(?:" + text + ")(?s:.*)"
}

// metricsPage is how many names of metrics are read at once.
const metricsPage = 1000

// eachMetric calls f for all metrics whose names satisfy matchers.
func (s *source) eachMetric(matchers []model.Matcher, f func(metric string) error) error {
	for _, m := range matchers {
		if m.Plain() && len(m.Values) == 1 {
			if !matchesName(matchers, m.Values[0]) {
				return nil
			}
			return f(m.Values[0])
		}
	}
	return eachName(s.session, metricsPage, func(metric string) error {
		if !matchesName(matchers, metric) {
			return nil
		}
		return f(metric)
	})
}

// eachName calls f for the names of all metrics, which are read page by page.
func eachName(s *query.Session, page int, f func(metric string) error) error {
	q := store.NamesQuery{Kind: store.MetricNames, Limit: page}
	for more := true; more; {
		var names []string
		var err error
		if names, more, err = s.NamesPage(q); err != nil {
			return err
		}
		for _, metric := range names {
			if err := f(metric); err != nil {
				return err
			}
		}
		if len(names) > 0 {
			q.After = names[len(names)-1]
		}
	}
	return nil
}

func matchesName(matchers []model.Matcher, metric string) bool {
	return !slices.ContainsFunc(matchers, func(m model.Matcher) bool { return !m.MatchesValue(metric) })
}

// A grid is where the points of a series lie, in seconds.
type grid struct {
	start, step int64
	n           int64
	finest      int64 // step of the samples that points are made of
	stage       int   // of the policy
	now         int64 // of the request
}

// defaultStep is the step of a series that no rule matches, as carbon's.
const defaultStep = 60

// gridOf chooses a stage as Whisper chooses an archive: the finest that reaches back
// to the beginning of the range. A point at the beginning is left out, one at the end
// is taken.
func gridOf(p retention.Policy, within function.Range) (g grid, ok bool) {
	from, until := within.From, min(within.Until, within.Now)
	if from > within.Now {
		return g, false
	}
	g.step, g.finest, g.now = defaultStep, defaultStep, within.Now
	if p.Rule != nil {
		stages := p.Rule.Stages
		oldest := within.Now - stages[len(stages)-1].Keep
		if until < oldest {
			return g, false
		}
		from = max(from, oldest)
		g.stage = slices.IndexFunc(stages, func(s retention.Stage) bool { return s.Keep >= within.Now-from })
		if g.stage < 0 {
			g.stage = len(stages) - 1
		}
		g.step, g.finest = stages[g.stage].Step, stages[0].Step
	}
	g.start = model.Floor(from, g.step) + g.step
	end := model.Floor(until, g.step) + g.step
	if end == g.start {
		end += g.step
	}
	g.n = (end - g.start) / g.step
	return g, g.n > 0
}

// windowSteps bounds the steps of the finest stage that are folded at once.
const windowSteps = 1 << 16

// read fills in what was fetched.
func (s *source) read(g grid, list []*read) error {
	for _, r := range list {
		if err := s.session.Reserve(8 * g.n); err != nil {
			return err
		}
		r.fetched = function.Fetched{Name: r.name, Start: g.start, Step: g.step, Values: make([]float64, g.n)}
	}
	numbers := make([]query.Number, len(list))
	for i, r := range list {
		numbers[i] = r.number
	}
	lease := s.session.Lease()
	defer lease.Release()
	within := model.TimeRange{StartMS: g.start * 1000, EndMS: (g.start+g.n*g.step)*1000 - 1}
	buckets, err := s.session.Buckets(numbers, within, &lease)
	if err != nil {
		return err
	}
	for i, r := range list {
		r.buckets = buckets[i]
	}
	ratio := g.step / g.finest
	window := max(windowSteps/ratio, 1)
	for at := int64(0); at < g.n; at += window {
		n := min(window, g.n-at)
		if err := s.readWindow(g, at, n, numbers, list); err != nil {
			return err
		}
	}
	return nil
}

// readWindow fills in n points from one on.
func (s *source) readWindow(g grid, at, n int64, numbers []query.Number, list []*read) error {
	lease := s.session.Lease()
	defer lease.Release()
	fine := query.Grid{StartMS: (g.start + at*g.step) * 1000, StepMS: g.finest * 1000, N: int(n * (g.step / g.finest))}
	columns, err := s.session.Fold(numbers, fine, model.StatLast, &lease)
	if err != nil {
		return err
	}
	var blank []float64     // for series without samples in the window
	var thinned []thinPoint // of one series
	for i, r := range list {
		points := r.fetched.Values[at : at+n]
		made := r.bucketsUntil(fine.Range().EndMS)
		if columns[i].Count == nil && len(made) == 0 {
			fill(points)
			continue
		}
		values := columns[i].Last
		if columns[i].Count == nil {
			if blank == nil {
				if err := lease.Take(int64(fine.N) * 8); err != nil {
					return err
				}
				blank = make([]float64, fine.N)
			}
			values = blank
			fill(values)
		}
		if more := len(made) - cap(thinned); more > 0 {
			if err := lease.Take(int64(more) * thinPointBytes); err != nil {
				return err
			}
			thinned = make([]thinPoint, 0, len(made))
		}
		for k, count := range columns[i].Count {
			if count == 0 {
				values[k] = math.NaN()
			}
		}
		t := thin{policy: r.policy, stage: g.stage, startMS: fine.StartMS, stepMS: fine.StepMS}
		if _, ok := r.policy.Aggregation.Method.Percentile(); ok {
			t.percentiles(points, values, made, g.now*1000)
			continue
		}
		copy(points, g.archive(values, fine.StartMS/1000, r.policy, t.points(thinned, values, made)))
	}
	return nil
}

// bucketsUntil takes the buckets that begin up to a time off the list.
func (r *read) bucketsUntil(endMS int64) []store.Bucket {
	n := sort.Search(len(r.buckets), func(i int) bool { return r.buckets[i].StartMS > endMS })
	made := r.buckets[:n]
	r.buckets = r.buckets[n:]
	return made
}

func fill(points []float64) {
	for i := range points {
		points[i] = math.NaN()
	}
}

// archive makes the points of the stage of those of the finest from start on, one stage
// after the other. Points of thinned samples take the place of what is there, each in
// its stage. It overwrites values.
func (g *grid) archive(values []float64, start int64, p retention.Policy, thinned []thinPoint) []float64 {
	place(values, thinned, 0)
	for i := 1; i <= g.stage; i++ {
		finer, step := p.Rule.Stages[i-1], p.Rule.Stages[i].Step
		ratio := int(step / finer.Step)
		for k := range len(values) / ratio {
			old := start+int64(k)*step < g.now-finer.Keep
			values[k] = p.Aggregation.Merge(values[k*ratio:(k+1)*ratio], old)
		}
		values = values[:len(values)/ratio]
		place(values, thinned, i)
	}
	return values
}
