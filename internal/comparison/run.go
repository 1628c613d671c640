package comparison

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"varve/internal/clip"
	"varve/internal/work"
)

// Options set what is compared.
type Options struct {
	A, B           string // addresses, such as http://127.0.0.1:8080
	StartMS, EndMS int64  // inclusive, not before 1970
	Queries        int
	Seed           uint64
	Metrics        *regexp.Regexp // nil: all except those that KairosDB and carbon write about themselves

	Graphite  bool    // ask over Graphite's API instead of KairosDB's
	Tolerance float64 // of Graphite's values, relative to the largest of a series

	Timeout time.Duration // of a request
	Limit   time.Duration // of the whole comparison
	Settle  time.Duration // before a difference is checked again

	// Progress, if not nil, is called with the progress of a part. total is 0 if unknown.
	Progress func(part string, done, total int)
}

// ownMetrics is the prefix of the metrics that KairosDB writes about itself all the time.
const ownMetrics = "kairosdb."

// looks is the number of checks after which a difference is reported.
const looks = 3

// maxMissing is the number of metrics listed by one side only whose points are compared.
const maxMissing = 1000

// errTime ends a comparison that takes too long.
var errTime = errors.New("the time limit is reached")

type comparison struct {
	Options
	a, b   *side
	random *rand.Rand
	report *Report
}

// Run compares two servers. After an error, the report covers what was compared before it. A
// *SideError is the fault of a server. Any other error, except that of ctx, is about the options.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.StartMS < 0 || o.EndMS < o.StartMS {
		return nil, fmt.Errorf("compare from %d to %d: want a start in 1970 or later, and an end after it", o.StartMS, o.EndMS)
	}
	a, err := newSide("a", o.A, o.Timeout)
	if err != nil {
		return nil, err
	}
	defer a.close()
	b, err := newSide("b", o.B, o.Timeout)
	if err != nil {
		return nil, err
	}
	defer b.close()
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	c := &comparison{
		Options: o, a: a, b: b, random: rand.New(rand.NewPCG(o.Seed, 0)),
		report: &Report{StartMS: o.StartMS, EndMS: o.EndMS, Seed: o.Seed, asks: o.Queries > 0},
	}
	c.report.A.URL, c.report.B.URL = a.url.Redacted(), b.url.Redacted()
	if o.Graphite {
		c.report.paths = true
		for _, s := range []*side{a, b} {
			s.speaks, s.probe = "Graphite", "/metrics/find?format=treejson&query=carbon"
		}
	}
	err = c.run(ctx)
	c.report.broken = err != nil
	return c.report, err
}

func (c *comparison) run(ctx context.Context) error {
	outer := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, c.Limit, errTime)
	defer cancel()
	all := c.all
	if c.Graphite {
		all = c.allGraphite
	}
	err := all(ctx)
	if outer.Err() == nil && errors.Is(context.Cause(ctx), errTime) && err != nil {
		c.report.cut("the time limit (--for) was reached")
		return nil
	}
	return err
}

func (c *comparison) all(ctx context.Context) error {
	if err := c.versions(ctx, (*side).version); err != nil {
		return err
	}
	names, err := c.compareNames(ctx)
	if err != nil {
		return err
	}
	metrics, err := c.compareAllTags(ctx, names)
	if err != nil || len(metrics) == 0 {
		return err
	}
	m := &maker{Rand: c.random, metrics: metrics, start: c.StartMS, end: c.EndMS}
	return settle(ctx, c, queries(c, m.draw), func(q query, last bool) (bool, error) {
		return c.ask(&q, func() (*Difference, int64, error) { return c.compareOnce(ctx, q) }, last)
	})
}

// versions asks both for their versions, for the report.
func (c *comparison) versions(ctx context.Context, of func(*side, context.Context) (string, error)) error {
	return c.both(func(i int, s *side) (err error) {
		seen := []*Seen{&c.report.A, &c.report.B}[i]
		seen.Version, err = of(s, ctx)
		return err
	})
}

// queries draws Options.Queries queries.
func queries[T any](c *comparison, draw func() T) iter.Seq[T] {
	return func(yield func(T) bool) {
		for i := range c.Queries {
			c.Progress("queries", i, c.Queries)
			if !yield(draw()) {
				return
			}
			c.report.Queries++
		}
	}
}

// settle calls look for each item, and again for the items that differ, after one pause for
// all of them. At the last call for an item, last is true and look reports the difference.
func settle[T any](ctx context.Context, c *comparison, items iter.Seq[T], look func(item T, last bool) (differs bool, err error)) error {
	for n := 1; n <= looks; n++ {
		var again []T
		for item := range items {
			differs, err := look(item, n == looks || len(again) == maxAgain)
			if err != nil {
				c.report.unsettled(len(again))
				return err
			}
			switch {
			case differs && n < looks && len(again) < maxAgain:
				again = append(again, item)
			case !differs && n > 1:
				c.report.Settled++
			}
		}
		if len(again) == 0 {
			return nil
		}
		if err := work.Pause(ctx, c.Settle); err != nil {
			c.report.unsettled(len(again))
			return err
		}
		items = slices.Values(again)
	}
	return nil
}

// maxAgain is the number of differences that are kept for a later check. Further ones are
// reported at once.
const maxAgain = 10_000

// both calls f for both servers concurrently; i is 0 for a and 1 for b.
func (c *comparison) both(f func(i int, s *side) error) error {
	var errs [2]error
	var done sync.WaitGroup
	for i, s := range []*side{c.a, c.b} {
		done.Go(func() { errs[i] = f(i, s) })
	}
	done.Wait()
	return cmp.Or(errs[0], errs[1])
}

// compareNames compares the names of metrics, and returns the common ones.
func (c *comparison) compareNames(ctx context.Context) (names []string, err error) {
	c.Progress("names", 0, 0)
	only, names, err := c.lists(ctx)
	for look := 1; err == nil && len(only) > 0 && look < looks; look++ {
		if err = work.Pause(ctx, c.Settle); err == nil {
			only, names, err = c.lists(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	c.report.Metrics = len(names)
	if more := len(only) - maxMissing; more > 0 {
		only = only[:maxMissing]
		c.report.cut(fmt.Sprintf("%d further metrics are listed by one side only; their points were not compared", more))
	}
	for _, name := range only {
		if err := c.missing(ctx, metric{Name: name}, fmt.Sprintf("metric %q", clip.Text(name, 200))); err != nil {
			return nil, err
		}
	}
	c.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names, nil
}

// lists returns the metrics that only one side lists, and those that both list.
func (c *comparison) lists(ctx context.Context) (only, names []string, err error) {
	var lists [2]map[string]bool
	err = c.both(func(i int, s *side) (err error) {
		lists[i], err = c.list(ctx, s)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	for _, name := range union(lists) {
		if lists[0][name] && lists[1][name] {
			names = append(names, name)
		} else {
			only = append(only, name)
		}
	}
	return only, names, nil
}

func (c *comparison) list(ctx context.Context, s *side) (map[string]bool, error) {
	var answer struct{ Results []string }
	if err := s.ask(ctx, "/api/v1/metricnames", nil, &answer, maxNames); err != nil {
		return nil, c.sideOf(s, "list the metrics", err)
	}
	names := map[string]bool{}
	for _, name := range answer.Results {
		if c.Metrics == nil && !strings.HasPrefix(name, ownMetrics) || c.Metrics != nil && c.Metrics.MatchString(name) {
			names[name] = true
		}
	}
	return names, nil
}

// refused reports whether a server refused a query, or its answer is too large.
func refused(err error) bool {
	_, ok := errors.AsType[*refusal](err)
	return ok || errors.Is(err, errLarge)
}

// sideOf turns a refusal, or an answer that is too large, into a *SideError.
func (c *comparison) sideOf(s *side, doing string, err error) error {
	if refused(err) {
		return s.fail(fmt.Errorf("%s: %w", doing, err))
	}
	return err
}

// compareAllTags compares the tags of metrics. It returns the metrics for queries, with some
// of their tags.
func (c *comparison) compareAllTags(ctx context.Context, names []string) (metrics []known, err error) {
	until := time.Now().Add(c.Limit / 2)
	timely := func(yield func(string) bool) {
		for i, name := range names {
			if time.Now().After(until) {
				c.report.cut(fmt.Sprintf("only the tags of %d of %d metrics were compared: they took half of the time limit (--for)", i, len(names)))
				return
			}
			c.Progress("tags", i, len(names))
			if !yield(name) {
				return
			}
			c.report.Tags++
		}
	}
	err = settle(ctx, c, timely, func(name string, last bool) (bool, error) {
		tags, differs, err := c.compareTagsOf(ctx, name, last)
		if err == nil && (!differs || last) && len(metrics) < maxKnown {
			metrics = append(metrics, known{name, c.fewOf(tags)})
		}
		return differs, err
	})
	return metrics, err
}

// fewOf keeps some values of each tag.
func (c *comparison) fewOf(tags map[string][]string) map[string][]string {
	few := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		values := tags[name]
		if len(values) > maxValues {
			chosen := make([]string, maxValues)
			for i := range chosen {
				chosen[i] = values[c.random.IntN(len(values))]
			}
			values = chosen
		}
		few[name] = slices.Clone(values)
	}
	return few
}

// compareTagsOf compares the tags of a metric. It returns the tags on side a.
func (c *comparison) compareTagsOf(ctx context.Context, name string, report bool) (tags map[string][]string, differ bool, err error) {
	q := query{Start: c.StartMS, End: c.EndMS, Zone: "UTC", Metrics: []metric{{Name: name}}}
	var answers [2]answer
	err = c.both(func(i int, s *side) error {
		return s.ask(ctx, "/api/v1/datapoints/query/tags", q, &answers[i], maxNames)
	})
	if refused(err) {
		c.report.skip("tags of a metric: " + clip.Text(err.Error(), 100))
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	tags = answers[0].tags()
	onlyA, onlyB := compareTags(tags, answers[1].tags())
	differ = len(onlyA)+len(onlyB) > 0
	if differ && report {
		err = c.missingValues(ctx, name, onlyA, onlyB)
	}
	return tags, differ, err
}

// asked is the number of tag values listed by one side only that one query counts.
const asked = 50

func (c *comparison) missingValues(ctx context.Context, name string, sides ...map[string][]string) error {
	for _, only := range sides {
		for _, tag := range slices.Sorted(maps.Keys(only)) {
			for values := range slices.Chunk(only[tag], asked) {
				what := fmt.Sprintf("tag %s of metric %q: %d values, such as %q", clip.Text(tag, 100), clip.Text(name, 200), len(values), clip.Text(values[0], 100))
				if err := c.missing(ctx, metric{Name: name, Tags: map[string][]string{tag: values}}, what); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// missing compares the number of points of something that only one side lists.
func (c *comparison) missing(ctx context.Context, m metric, what string) error {
	m.Aggregators = []aggregator{{"count", &sampling{(c.EndMS-c.StartMS)/86400e3 + 1, "days"}}}
	q := query{Start: c.StartMS, End: c.EndMS, Zone: "UTC", Metrics: []metric{m}}
	d, _, err := c.compareOnce(ctx, q)
	if refused(err) {
		d, err = &Difference{Text: "the points could not be counted: " + err.Error()}, nil
	}
	if err != nil {
		return err
	}
	if d == nil {
		c.report.Listed++
		return nil
	}
	d.Text = what + " is listed by one side only; " + d.Text
	c.report.add(q, d)
	return nil
}

// A narrowing query can be sent with a shorter time range.
type narrowing interface {
	// narrow shortens the time range. It reports false if it is already the shortest.
	narrow() bool
}

// ask calls compare, which sends q to both servers. If an answer is too large, it shortens the time
// range of q and tries again.
func (c *comparison) ask(q narrowing, compare func() (*Difference, int64, error), report bool) (differ bool, err error) {
	for {
		d, points, err := compare()
		refused := (*refusal)(nil)
		switch {
		case errors.Is(err, errLarge), errors.As(err, &refused) && strings.Contains(refused.text, "limit query."):
			if q.narrow() {
				continue
			}
			c.report.skip("queries whose answer is too large even for a short time range")
			return false, nil
		case errors.As(err, &refused) && strings.Contains(refused.text, "NaN or Infinity"):
			c.report.skip("queries that read NaN or infinities, which KairosDB stores but cannot return")
			return false, nil
		case errors.As(err, &refused):
			d = &Difference{Text: err.Error()}
		case err != nil:
			return false, err
		}
		if d == nil {
			c.report.Points += points
			return false, nil
		}
		if report {
			c.report.add(q, d)
		}
		return true, nil
	}
}

// answers sends a query to both servers. If both refuse it, ok is false and the query counts
// as skipped. If one refuses it, err is that refusal.
func answers[A any](c *comparison, ask func(s *side, to *A) error) (a, b A, ok bool, err error) {
	var refusedBy [2]error
	err = c.both(func(i int, s *side) error {
		err := ask(s, []*A{&a, &b}[i])
		if refused, ok := errors.AsType[*refusal](err); ok {
			refusedBy[i], err = fmt.Errorf("%s answers %w", s.name, refused), nil
		}
		return err
	})
	switch {
	case err != nil:
		return a, b, false, err
	case refusedBy[0] != nil && refusedBy[1] != nil:
		c.report.skip("queries that both servers refuse")
		return a, b, false, nil
	}
	err = errors.Join(refusedBy[0], refusedBy[1])
	return a, b, err == nil, err
}

// compareOnce sends a query to both servers and compares the answers. Without a difference it
// returns the number of points.
func (c *comparison) compareOnce(ctx context.Context, q query) (*Difference, int64, error) {
	a, b, ok, err := answers(c, func(s *side, to *answer) error {
		return s.ask(ctx, "/api/v1/datapoints/query", q, to, maxAnswer)
	})
	if !ok {
		return nil, 0, err
	}
	d, points := compareAnswers(&a, &b, q.raw())
	return d, points, nil
}

// compareAnswers finds the first group that differs.
func compareAnswers(a, b *answer, raw bool) (*Difference, int64) {
	groups := [2]map[string]*result{a.groups(), b.groups()}
	return firstOf(union(groups), "groups", func(id string) *Difference {
		x, y := cmp.Or(groups[0][id], &result{}), cmp.Or(groups[1][id], &result{})
		d := differenceOf(json.RawMessage(id), x.Values, y.Values, raw, rounding)
		if onlyA, onlyB := compareTags(x.Tags, y.Tags); d.Text == "" && len(onlyA)+len(onlyB) > 0 {
			d.Text = fmt.Sprintf("tags differ: only a has %s, only b has %s", brief(onlyA), brief(onlyB))
		}
		return d
	})
}

// differenceOf compares the points of a group. The difference has no text if they are equal.
func differenceOf(group json.RawMessage, a, b []point, raw bool, tolerance float64) *Difference {
	d := &Difference{Group: group, PointsA: len(a), PointsB: len(b)}
	if d.Differ, d.First = compareValues(a, b, raw, tolerance); d.Differ > 0 {
		d.Text = "points differ"
	}
	return d
}

// firstOf returns the first difference that has a text, and the number of points of all groups.
func firstOf(ids []string, groups string, compare func(id string) *Difference) (first *Difference, points int64) {
	more := 0
	for _, id := range ids {
		d := compare(id)
		points += int64(max(d.PointsA, d.PointsB))
		switch {
		case d.Text == "":
		case first == nil:
			first = d
		default:
			more++
		}
	}
	if more > 0 {
		first.Text += fmt.Sprintf(", in %d more %s too", more, groups)
	}
	return first, points
}

func brief(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts always marshal
	}
	return clip.Text(text, 200)
}
