package retention

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"varve/internal/model"
)

// A Book holds all rules of a server.
type Book struct {
	Rules        []Rule
	Aggregations []Aggregation
	Enforced     bool // samples are downsampled and removed as the rules say
}

// For returns the rules that apply to a tenant.
func (b *Book) For(tenant string) *Book {
	return &Book{Enforced: b.Enforced, Aggregations: b.Aggregations, Rules: slices.DeleteFunc(slices.Clone(b.Rules), func(r Rule) bool {
		return len(r.Tenants) > 0 && !slices.Contains(r.Tenants, tenant)
	})}
}

// A Series is what rules match: a series with its metric, tags and path.
type Series struct {
	Metric string
	Tags   model.Tags
	Path   string // see PathOf
}

// SeriesOf returns the series of a metric with tags.
func SeriesOf(metric string, tags model.Tags) Series {
	return Series{metric, tags, PathOf(metric, tags)}
}

// ParsePath returns the series of a path, name;tag=value;tag=value. A path of another
// form is the name of a metric.
func ParsePath(path string) Series {
	parts := strings.Split(path, ";")
	var tags []model.Tag
	for _, part := range parts[1:] {
		name, value, _ := strings.Cut(part, "=")
		if name == "" || value == "" {
			return Series{Metric: path, Path: path}
		}
		tags = append(tags, model.Tag{Name: name, Value: value})
	}
	set, err := model.NewTags(tags...)
	if err != nil {
		return Series{Metric: path, Path: path}
	}
	return SeriesOf(parts[0], set)
}

// PathOf is the path of a series: its metric and its tags, in Graphite's order.
func PathOf(metric string, tags model.Tags) string {
	var texts []string
	for tag, value := range tags.All() {
		texts = append(texts, ";"+tag+"="+value)
	}
	slices.Sort(texts)
	return metric + strings.Join(texts, "")
}

// A Policy is what the rules say about one series.
type Policy struct {
	Rule        *Rule // nil: samples are kept for ever, as they were sent
	Aggregation *Aggregation
	Enforced    bool // see [Book]
}

// Sketches reports whether buckets store percentiles of their samples: if the rule says
// so, or if the value of a bucket is a percentile.
func (p Policy) Sketches() bool {
	return p.Rule != nil && (p.Rule.sketch || p.percentile())
}

// percentile reports whether the value of a bucket is a percentile.
func (p Policy) percentile() bool {
	if p.Aggregation == nil {
		return false
	}
	_, ok := p.Aggregation.Method.Percentile()
	return ok
}

// Expected is the number of samples of a full bucket, if samples have the step of the
// first stage; 1 without a rule.
func (p Policy) Expected(stepMS int64) float64 {
	if p.Rule == nil {
		return 1
	}
	return max(1, float64(stepMS)/float64(p.Rule.Stages[0].Step*1000))
}

// Of returns the policy of a series: the first rule that matches it, and the first
// aggregation whose pattern is found in its path, unless the rule has an aggregation of
// its own.
func (b *Book) Of(s Series) Policy {
	p := Policy{Enforced: b.Enforced}
	rule := b.rule(s)
	if rule != nil && len(rule.Stages) > 0 {
		p.Rule = rule
	}
	if p.Aggregation = rule.aggregation(); p.Aggregation == nil {
		p.Aggregation = b.aggregation(s)
	}
	return p
}

// rule returns the first rule that matches a series, nil if none does.
func (b *Book) rule(s Series) *Rule {
	for i := range b.Rules {
		if b.Rules[i].match(s) {
			return &b.Rules[i]
		}
	}
	return nil
}

func (b *Book) aggregation(s Series) *Aggregation {
	for i := range b.Aggregations {
		if b.Aggregations[i].pattern.MatchString(s.Path) {
			return &b.Aggregations[i]
		}
	}
	return &DefaultAggregation
}

// maxChanges bounds the result of Changes.
const maxChanges = 20

// Changes lists at most maxChanges differences from an older book, for a log
// line.
func (b *Book) Changes(old *Book) []string {
	var changes []string
	changes = appendChanges(changes, old.Rules, b.Rules, func(r Rule) string { return r.Source() + " [" + r.Name + "]" },
		func(r Rule) string { return r.stagesText() }, func(r Rule) string { return r.stagesText() + " if " + r.Why() })
	method := func(a Aggregation) string { return fmt.Sprintf("%s, xFilesFactor %g", a.Method, a.XFilesFactor) }
	changes = appendChanges(changes, old.Aggregations, b.Aggregations, func(a Aggregation) string { return "storage-aggregation.conf [" + a.Name + "]" },
		method, method)
	if n := len(changes); n > maxChanges {
		changes = append(changes[:maxChanges], fmt.Sprintf("and %d more", n-maxChanges))
	}
	return changes
}

// appendChanges appends the differences between a list of rules and an older one. says describes a
// rule; full describes it in more detail, and is used for a changed rule whose says text is the
// same as before.
func appendChanges[R any](to []string, old, now []R, name, says, full func(R) string) []string {
	was := map[string]R{}
	var stayed, stay []string // names of the rules that both lists have, in the order of each list
	for _, r := range old {
		was[name(r)] = r
	}
	is := map[string]bool{}
	for _, r := range now {
		key := name(r)
		before, there := was[key]
		is[key] = true
		switch {
		case !there:
			to = append(to, key+" added: "+says(r))
			continue
		case says(before) != says(r):
			to = append(to, key+" changed: "+says(before)+" is now "+says(r))
		case full(before) != full(r):
			to = append(to, key+" changed: "+full(before)+" is now "+full(r))
		case !reflect.DeepEqual(before, r):
			to = append(to, key+" changed")
		}
		stay = append(stay, key)
	}
	for _, r := range old {
		if key := name(r); is[key] {
			stayed = append(stayed, key)
		} else {
			to = append(to, key+" removed")
		}
	}
	if !slices.Equal(stayed, stay) {
		to = append(to, "the order of rules changed")
	}
	return to
}
