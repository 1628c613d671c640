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

// A Method makes one value of the samples in a bucket. The names are carbon's. Beside the
// constants there are percentiles, such as p95 and p99.9, see [Method.Percentile].
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

// methodNames lists them for a message.
func methodNames() string {
	names := make([]string, len(methods))
	for i, m := range methods {
		names[i] = string(m)
	}
	return strings.Join(names, ", ")
}

// ParseMethod returns the method of a name. "avg" is another name of Average, and "median"
// one of p50.
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

// Percentile returns the number of a percentile, which is above 0 and at most 100.
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
	Name    string   // of its section or policy
	Pattern string   // found in the paths of its series; "": any
	Stages  Stages   // none: every sample is kept as it was sent
	Tenants []string // that it is for; none: all
	pattern *regexp.Regexp
	policy  *conditions // nil: it is of storage-schemas.conf
	sketch  bool        // percentiles of buckets are kept, whatever the method
}

// Source is where the rule is written.
func (r *Rule) Source() string {
	if r.policy != nil {
		return "retention.policies"
	}
	return "storage-schemas.conf"
}

func (r Rule) String() string {
	return fmt.Sprintf("[%s] of %s: %s: %s", r.Name, r.Source(), r.Why(), r.stagesText())
}

// Why says what the rule matches.
func (r *Rule) Why() string {
	var all []string
	if r.policy != nil {
		all = r.policy.texts()
	}
	if r.Pattern != "" {
		all = append(all, "the path has "+r.Pattern)
	}
	if len(all) == 0 {
		return "every series"
	}
	return strings.Join(all, ", ")
}

// stagesText is what the rule keeps, for people.
func (r *Rule) stagesText() string {
	switch {
	case len(r.Stages) == 0:
		return forever
	case r.sketch:
		return r.Stages.String() + " with sketches"
	}
	return r.Stages.String()
}

// aggregation returns what the rule itself says of buckets, nil if it says nothing.
func (r *Rule) aggregation() *Aggregation {
	if r == nil || r.policy == nil {
		return nil
	}
	return r.policy.own
}

// match reports whether the rule matches a series.
func (r *Rule) match(s Series) bool {
	return (r.policy == nil || r.policy.match(s)) && (r.pattern == nil || r.pattern.MatchString(s.Path))
}

// An Aggregation says how a bucket becomes one value.
type Aggregation struct {
	Name         string // of its section
	Pattern      string
	Method       Method
	XFilesFactor float64 // the part of the samples of a bucket that must be there, 0 to 1
	pattern      *regexp.Regexp
}

// DefaultAggregation is what carbon does where no section matches.
var DefaultAggregation = Aggregation{Method: Average, XFilesFactor: 0.5}

// maxRules bounds the sections of a file.
const maxRules = 10_000

// ParseSchemas reads a storage-schemas.conf. Keys that it does not know are ignored,
// since the forks of carbon have more of them. A section without a pattern or
// retentions, or with stages that do not fit together, is left out and told in
// warnings, as carbon does; what cannot be read at all is an error.
func ParseSchemas(text string) (rules []Rule, warnings []string, err error) {
	err = eachSection(text, func(s ini.Section) error {
		pattern, retentions := s.Values["pattern"], s.Values["retentions"]
		if pattern == "" || retentions == "" {
			warnings = append(warnings, fmt.Sprintf("%v is skipped: it has no pattern or no retentions", s))
			return nil
		}
		stages, err := ParseStages(retentions)
		if _, ok := errors.AsType[*MisfitError](err); ok {
			warnings = append(warnings, fmt.Sprintf("%v is left out: %v", s, err))
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

// ParseAggregations reads a storage-aggregation.conf. A section without a pattern is
// left out and told in warnings.
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

// eachSection calls f for each section of a file. An error says which one failed.
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

// compile compiles a pattern that is found anywhere in a path. Python's patterns may
// look ahead, look behind and refer back, which Go's cannot: they take linear time.
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

// compileSmall is compile of a pattern that must not become large when it is compiled.
func compileSmall(pattern string) (*regexp.Regexp, error) {
	if _, err := model.NewPattern(pattern); err != nil && !errors.As(err, new(*syntax.Error)) {
		return nil, err
	}
	return compile(pattern)
}
