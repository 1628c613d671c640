package retention

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"varve/internal/ini"
	"varve/internal/model"
)

// A Method aggregates the samples of a bucket into one value. The names are carbon's.
// Besides the constants there are percentiles, such as p95 and p99.9, see
// [Method.Percentile].
type Method string

const (
	Average     Method = "average"
	Sum         Method = "sum"
	Last        Method = "last"
	Max         Method = "max"
	Min         Method = "min"
	Count       Method = "count"    // Varve's own: how many samples there were
	AverageZero Method = "avg_zero" // missing samples count as 0
	AbsoluteMax Method = "absmax"   // the value that is farthest from 0
	AbsoluteMin Method = "absmin"
)

var methods = []Method{Average, Sum, Last, Max, Min, Count, AverageZero, AbsoluteMax, AbsoluteMin}

// methodNames lists the methods for a message.
func methodNames() string {
	names := make([]string, len(methods))
	for i, m := range methods {
		names[i] = string(m)
	}
	return strings.Join(names, ", ")
}

// ParseMethod returns the method with a name. "avg" is another name of Average, and
// "median" of p50.
func ParseMethod(name string) (Method, error) {
	switch name {
	case "avg":
		return Average, nil
	case "median":
		return "p50", nil
	}
	if slices.Contains(methods, Method(name)) {
		return Method(name), nil
	}
	if p, ok := Method(name).Percentile(); ok {
		return Method("p" + strconv.FormatFloat(p, 'f', -1, 64)), nil
	}
	return "", fmt.Errorf("unknown aggregation method %.40q; use %s, or a percentile such as p95 or p99.9", name, methodNames())
}

// Percentile returns the number of a percentile, above 0 and at most 100.
func (m Method) Percentile() (percent float64, ok bool) {
	text, ok := strings.CutPrefix(string(m), "p")
	if !ok || len(text) > 10 || strings.Trim(text, "0123456789.") != "" {
		return 0, false
	}
	percent, err := strconv.ParseFloat(text, 64)
	return percent, err == nil && percent > 0 && percent <= 100
}

// A Rule gives stages to the series that it matches.
type Rule struct {
	Name    string   // name of its section or policy
	Pattern string   // regular expression found in the paths of its series; "": any path
	Stages  Stages   // none: every sample is kept as it was sent
	Tenants []string // tenants that it applies to; none: all
	pattern *regexp.Regexp

	policy bool // the rule is a policy, not from storage-schemas.conf, which sets none of these:
	metric *wildcard
	tags   []tagCondition
	own    *Aggregation // nil: that of storage-aggregation.conf
	sketch bool         // buckets store percentiles, whatever the method
}

// Source is where the rule is written.
func (r *Rule) Source() string {
	if r.policy {
		return "retention.policies"
	}
	return "storage-schemas.conf"
}

func (r Rule) String() string {
	return fmt.Sprintf("[%s] of %s: %s: %s", r.Name, r.Source(), r.Why(), r.stagesText())
}

// Why describes the conditions of the rule.
func (r *Rule) Why() string {
	var all []string
	if r.metric != nil {
		all = append(all, "the metric is "+r.metric.text)
	}
	for _, t := range r.tags {
		all = append(all, "the tag "+t.name+" is "+t.value.text)
	}
	if r.Pattern != "" {
		all = append(all, "the path has "+r.Pattern)
	}
	if len(all) == 0 {
		return "every series"
	}
	return strings.Join(all, ", ")
}

// stagesText describes what the rule keeps.
func (r *Rule) stagesText() string {
	switch {
	case len(r.Stages) == 0:
		return forever
	case r.sketch:
		return r.Stages.String() + " with sketches"
	}
	return r.Stages.String()
}

// aggregation returns the rule's own aggregation, nil if it has none.
func (r *Rule) aggregation() *Aggregation {
	if r == nil {
		return nil
	}
	return r.own
}

func (r *Rule) match(s Series) bool {
	return r.metric.match(s.Metric) && (r.pattern == nil || r.pattern.MatchString(s.Path)) && !slices.ContainsFunc(r.tags, func(t tagCondition) bool {
		value, there := s.Tags.Get(t.name)
		return !there || !t.value.match(value)
	})
}

// An Aggregation says how a bucket is reduced to one value.
type Aggregation struct {
	Name         string // name of its section
	Pattern      string
	Method       Method
	XFilesFactor float64 // fraction of a bucket's samples that must exist, 0 to 1
	pattern      *regexp.Regexp
}

// DefaultAggregation is carbon's aggregation if no section matches.
var DefaultAggregation = Aggregation{Method: Average, XFilesFactor: 0.5}

// maxRules bounds the sections of a file.
const maxRules = 10_000

// MaxFile is the size of the largest file of rules that is parsed.
const MaxFile = ini.MaxFile

// ParseSchemas parses a storage-schemas.conf. Unknown keys are ignored, since forks of
// carbon have more of them. As in carbon, a section without a pattern or retentions, or
// with stages that do not fit together, is skipped with a warning; a section that
// cannot be parsed is an error.
func ParseSchemas(text string) (rules []Rule, warnings []string, err error) {
	err = eachSection(text, func(s ini.Section) error {
		pattern, retentions := s.Values["pattern"], s.Values["retentions"]
		if pattern == "" || retentions == "" {
			warnings = append(warnings, fmt.Sprintf("%v is skipped: it has no pattern or no retentions", s))
			return nil
		}
		stages, err := ParseStages(retentions)
		if _, ok := errors.AsType[*MisfitError](err); ok {
			warnings = append(warnings, fmt.Sprintf("%v is skipped: %v", s, err))
			return nil
		}
		if err != nil {
			return err
		}
		rule := Rule{Name: s.Name, Pattern: pattern, Stages: stages}
		rule.pattern, err = compile(pattern)
		rules = append(rules, rule)
		return err
	})
	return rules, warnings, err
}

// ParseAggregations parses a storage-aggregation.conf. A section without a pattern is
// skipped with a warning.
func ParseAggregations(text string) (all []Aggregation, warnings []string, err error) {
	err = eachSection(text, func(s ini.Section) (err error) {
		a := DefaultAggregation
		a.Name, a.Pattern = s.Name, s.Values["pattern"]
		if a.Pattern == "" {
			warnings = append(warnings, fmt.Sprintf("%v is skipped: it has no pattern", s))
			return nil
		}
		if text := s.Values["xfilesfactor"]; text != "" {
			a.XFilesFactor, err = strconv.ParseFloat(text, 64)
			if err != nil || !(a.XFilesFactor >= 0 && a.XFilesFactor <= 1) {
				return fmt.Errorf("xFilesFactor %.40q is not a number from 0 to 1", text)
			}
		}
		if text := s.Values["aggregationmethod"]; text != "" {
			if a.Method, err = ParseMethod(text); err != nil {
				return err
			}
		}
		a.pattern, err = compile(a.Pattern)
		all = append(all, a)
		return err
	})
	return all, warnings, err
}

// eachSection calls f for each section of a file. An error names the section that
// failed.
func eachSection(text string, f func(ini.Section) error) error {
	sections, err := ini.Parse(text)
	if err != nil {
		return err
	}
	if len(sections) > maxRules {
		return fmt.Errorf("the file has %d sections; want at most %d", len(sections), maxRules)
	}
	for _, s := range sections {
		if err := f(s); err != nil {
			return fmt.Errorf("%v: %w", s, err)
		}
	}
	return nil
}

// compile compiles a pattern that may be found anywhere in a path. Python's patterns
// support lookahead, lookbehind and backreferences. Go's do not: they match in linear
// time.
func compile(pattern string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(pattern)
	if err == nil {
		return re, nil
	}
	bad := (*syntax.Error)(nil)
	if errors.As(err, &bad) && (bad.Code == syntax.ErrInvalidPerlOp || bad.Code == syntax.ErrInvalidEscape) {
		return nil, fmt.Errorf("pattern %.200q uses %s, which is not supported: look-ahead, look-behind and references to groups have to be written in another way, for example as an earlier section", pattern, bad.Expr)
	}
	return nil, fmt.Errorf("pattern %.200q: %w", pattern, err)
}

// compileSmall is compile with a bound on the size of the compiled pattern.
func compileSmall(pattern string) (*regexp.Regexp, error) {
	if _, err := model.NewPattern(pattern); err != nil && !errors.As(err, new(*syntax.Error)) {
		return nil, err
	}
	return compile(pattern)
}
