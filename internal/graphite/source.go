package graphite

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"

	"varve/internal/graphite/event"
	"varve/internal/graphite/function"
	"varve/internal/graphite/target"
	"varve/internal/model"
	"varve/internal/principal"
	"varve/internal/query"
	"varve/internal/retention"
	"varve/internal/store"
)

// A source provides the series of a store to functions.
type source struct {
	session *query.Session
	book    *retention.Book
	events  *event.Log
	trace   *trace // nil: not requested

	mu sync.Mutex // held while the session is used, which is not safe for concurrent use
}

// Fetch implements function.Source.
func (s *source) Fetch(_ context.Context, queries []function.Query, within function.Range) ([][]function.Fetched, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease := s.session.Lease()
	defer lease.Release()
	ahead := s.session.Lease()
	defer ahead.Release()
	reads := map[grid][]*read{}
	out := make([][]*read, len(queries))
	for i, q := range queries {
		err := s.selected(q, &lease, func(numbers []query.Number) error {
			for _, n := range numbers {
				series := retention.SeriesOf(n.Metric, n.Tags)
				r := &read{number: n, name: series.Path, policy: s.book.Of(series)}
				g, ok := gridOf(r.policy, within)
				if !ok {
					continue
				}
				// The memory of a series is charged when it is found, including the memory that functions
				// will charge for it: a query over the limit must fail before it has found and read all
				// other series.
				if err := s.session.Reserve(8 * g.n); err != nil {
					return err
				}
				if err := ahead.Take(function.SeriesBytes); err != nil {
					return err
				}
				out[i], reads[g] = append(out[i], r), append(reads[g], r)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for g, list := range reads {
		s.trace.add(g, len(list))
		if err := s.read(&g, list); err != nil {
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
	if p := principal.Of(ctx); p.Prefix != "" { // events belong to no metric
		return nil, &principal.ForbiddenError{Metric: "events", By: p}
	}
	search := event.Search{From: from, Until: until, Tags: tags, Step: func(int64) error { return s.Yield() }}
	err = s.events.Find(ctx, search, func(e event.Event) error {
		times = append(times, e.When)
		return s.session.Reserve(8)
	})
	return times, err
}

// Yield implements function.Source. The goroutines of a request share one turn, so while one
// waits for the next turn, the others wait for it here, too.
func (s *source) Yield() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session.Yield()
}

// A read is a series to be fetched.
type read struct {
	number  query.Number
	name    string
	policy  retention.Policy
	fetched function.Fetched
	at      int64 // the first point that is not computed yet
}

// selected calls f for the series of a query, metric by metric or all at once.
func (s *source) selected(q function.Query, l *query.Lease, f func([]query.Number) error) error {
	var numbers []query.Number
	var err error
	switch {
	case q.ByTag:
		numbers, err = s.byTags(q.Expressions, l)
	case strings.IndexByte(q.Text, ';') >= 0:
		numbers, err = s.byName(q.Text, l)
	default:
		return s.byGlob(q.Text, l, f)
	}
	if err != nil {
		return err
	}
	return f(numbers)
}

// byGlob calls f for the series of each path that matches, as soon as the path is found.
func (s *source) byGlob(text string, l *query.Lease, f func([]query.Number) error) error {
	glob, err := target.ParseGlob(text)
	if err != nil {
		return &function.ParamError{Reason: err.Error()}
	}
	_, err = find(s.session, glob, func(path string) error {
		numbers, err := s.numbers(path, nil, l)
		if err != nil {
			return err
		}
		return f(withTags(numbers, 0))
	})
	return err
}

func (s *source) numbers(metric string, matchers []model.Matcher, l *query.Lease) ([]query.Number, error) {
	return s.session.SelectNumbers(store.Selection{Metric: metric, Matchers: matchers, Range: model.AllTime}, l)
}

// withTags returns the numbers of series with n tags.
func withTags(numbers []query.Number, n int) []query.Number {
	return slices.DeleteFunc(numbers, func(one query.Number) bool { return one.Tags.Len() != n })
}

// maxTags limits the tags of a name in a target.
const maxTags = 100

// byName returns the series of a name with tags.
func (s *source) byName(path string, l *query.Lease) ([]query.Number, error) {
	named, f := listed(path)
	if f != nil {
		return nil, nil // no series has such a name
	}
	numbers, err := s.numbers(named.Metric, model.Matchers(named.Tags.Slice()), l)
	return withTags(numbers, named.Tags.Len()), err
}

var tagExpression = regexp.MustCompile(`^([^;!=]+)(!?=~?)([^;]*)$`)

// byTags returns the series that satisfy all expressions. The tag "name" is the metric.
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
	if len(names) == 0 {
		names = []model.Matcher{store.AnyMetric}
	}
	return s.session.SelectNumbers(store.Selection{Metrics: names, Matchers: matchers, Range: model.AllTime}, l)
}

// tagMatcher returns the matcher of a tag expression. Its regular expression is anchored
// only at the beginning.
func tagMatcher(tag, op, text string) (model.Matcher, error) {
	if strings.HasSuffix(op, "~") {
		text = fromBeginning(text)
	}
	return model.NewMatcher(tag, model.Operator(strings.Replace(op, "!=~", "!~", 1)), text)
}

// fromBeginning converts a regular expression that is anchored only at the beginning to
// one that matches whole texts. It adds no anchor to one that begins with ^: ^a|b finds b
// anywhere.
func fromBeginning(text string) string {
	if strings.HasPrefix(text, "^") {
		return "(?s:.*)(?:" + text + ")(?s:.*)"
	}
	return "(?:" + text + ")(?s:.*)"
}

// A grid is the times of the points of a series, in seconds.
type grid struct {
	start, step int64
	n           int64 // number of points
	finest      int64 // step of the finest stage
	stage       int   // index of the policy's stage with this step
	now         int64 // time of the request
}

// defaultStep is the step of a series that no rule matches, as in carbon.
const defaultStep = 60

// gridOf chooses a stage as Whisper chooses an archive: the finest one that reaches back
// to the beginning of the range. The beginning of the range is exclusive, its end
// inclusive.
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
