package retention

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"varve/internal/model"
)

// Config says whether rules are enforced, and has Varve's own rules.
type Config struct {
	Enforce  bool           `yaml:"enforce" doc:"Downsamples and removes samples by the rules of retention.policies and graphite.storage_schemas, for all series and protocols. Samples older than the first stage are replaced by buckets of the next one, and data older than the last stage is removed. If false, the rules only set the step at which Graphite's API reads, and every sample is kept. Only with store: embedded."`
	Policies []PolicyConfig `yaml:"policies" doc:"Rules for series. The first rule that matches a series applies. These rules come before those of graphite.storage_schemas. A reload reads them again. docs/retention.md explains them."`
}

// A PolicyConfig is one of Varve's own rules. A series must meet all of its conditions.
type PolicyConfig struct {
	Name         string   `yaml:"name" doc:"Name in reports and log lines."`
	Metric       string   `yaml:"metric" doc:"Metrics that the rule applies to: a whole name, in which * matches any text and ? one character. Empty: every metric."`
	Tags         []string `yaml:"tags" doc:"Tags that a series must have, each as name=value with * and ? in the value, such as [host=web-*, dc=fra]. A series may have more."`
	Path         string   `yaml:"path" doc:"Regular expression that must match somewhere in the path of a series. The path is name;tag=value;tag=value, with the tags in order. Empty: every path."`
	Tenants      []string `yaml:"tenants" doc:"Tenants that the rule applies to. Empty: all."`
	Stages       string   `yaml:"stages" doc:"Resolutions and how long each is kept, such as 10s:6h,60s:30d,1h:5y. The word forever keeps every sample as it was sent."`
	Aggregation  string   `yaml:"aggregation" doc:"Value of a bucket: average, sum, min, max, last, count, avg_zero, absmax, absmin, or a percentile such as p95 or p99.9. Empty: average if x_files_factor is set, else as in graphite.storage_aggregation."`
	Sketch       bool     `yaml:"sketch" doc:"Stores a sketch of the samples with each bucket, from which percentiles are computed with a relative error of at most 1 %. If aggregation is a percentile, sketches are stored anyway."`
	XFilesFactor float64  `yaml:"x_files_factor" doc:"Fraction of a bucket's samples that must exist for Graphite's API to show the bucket, from 0 to 1. -1: 0.5 if aggregation is set, else as in graphite.storage_aggregation."`
}

// SetDefaults makes c a policy without conditions.
func (c *PolicyConfig) SetDefaults() { *c = PolicyConfig{XFilesFactor: -1} }

const (
	forever = "forever" // in place of stages: keep every sample

	maxPolicies = 1000
	maxText     = 1000 // bytes of a name or a condition
	maxTags     = 20   // conditions on tags
)

// Validate reports all errors in c.
func (c Config) Validate() error {
	_, err := c.Rules()
	return err
}

// Rules returns the policies as rules, in their order.
func (c Config) Rules() ([]Rule, error) {
	if len(c.Policies) > maxPolicies {
		return nil, fmt.Errorf("retention.policies: there are %d; want at most %d", len(c.Policies), maxPolicies)
	}
	var errs []error
	var rules []Rule
	seen := map[string]int{}
	for i, p := range c.Policies {
		key := fmt.Sprintf("retention.policies[%d]", i)
		if first, again := seen[p.Name]; again && p.Name != "" {
			errs = append(errs, fmt.Errorf("%s.name: %.100q is already the name of retention.policies[%d]", key, p.Name, first))
		}
		seen[p.Name] = i
		rule, err := p.rule(key)
		rules, errs = append(rules, rule), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return rules, nil
}

// rule returns the policy as a rule. Errors begin with key.
func (c PolicyConfig) rule(key string) (Rule, error) {
	var errs []error
	fail := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s.%s: %w", key, field, fmt.Errorf(format, args...)))
	}
	if c.Name == "" || len(c.Name) > maxText {
		fail("name", "give a name of at most %d bytes", maxText)
	}
	r := Rule{Name: c.Name, Pattern: c.Path, Tenants: c.Tenants, policy: true, sketch: c.Sketch}
	var err error
	if r.metric, err = newWildcard(c.Metric); err != nil {
		fail("metric", "%w", err)
	}
	if r.tags, err = tagConditions(c.Tags); err != nil {
		fail("tags", "%w", err)
	}
	if len(c.Path) > maxText {
		fail("path", "%d bytes; want at most %d", len(c.Path), maxText)
	} else if c.Path != "" {
		if r.pattern, err = compileSmall(c.Path); err != nil {
			fail("path", "%w", err)
		}
	}
	switch c.Stages {
	case forever:
	case "":
		fail("stages", `empty; write them as in 10s:6h,60s:30d,1h:5y, or "forever" to keep every sample`)
	default:
		if r.Stages, err = ParseStages(c.Stages); err != nil {
			fail("stages", "%w", err)
		}
	}
	if r.own, err = c.aggregation(); err != nil {
		errs = append(errs, fmt.Errorf("%s.%w", key, err))
	}
	return r, errors.Join(errs...)
}

// aggregation returns the policy's own aggregation, nil if it has none.
func (c PolicyConfig) aggregation() (own *Aggregation, err error) {
	if c.Aggregation == "" && c.XFilesFactor == -1 {
		return nil, nil
	}
	own = &Aggregation{Method: DefaultAggregation.Method, XFilesFactor: DefaultAggregation.XFilesFactor}
	if c.Aggregation != "" {
		if own.Method, err = ParseMethod(c.Aggregation); err != nil {
			return nil, fmt.Errorf("aggregation: %w", err)
		}
	}
	if c.XFilesFactor != -1 {
		own.XFilesFactor = c.XFilesFactor
	}
	if !(own.XFilesFactor >= 0 && own.XFilesFactor <= 1) {
		return nil, fmt.Errorf("x_files_factor: %g: want a number from 0 to 1, or -1", c.XFilesFactor)
	}
	return own, nil
}

type tagCondition struct {
	name  string
	value *wildcard
}

func tagConditions(texts []string) (all []tagCondition, err error) {
	if len(texts) > maxTags {
		return nil, fmt.Errorf("there are %d; want at most %d", len(texts), maxTags)
	}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" || value == "" {
			return nil, fmt.Errorf("%.100q is not of the form name=value, such as host=web-*", text)
		}
		if slices.ContainsFunc(all, func(c tagCondition) bool { return c.name == name }) {
			return nil, fmt.Errorf("tag %.100q is given twice", name)
		}
		pattern, err := newWildcard(value)
		if err != nil {
			return nil, err
		}
		all = append(all, tagCondition{name, pattern})
	}
	return all, nil
}

// A wildcard is a text in which * matches any text and ? one character. nil matches
// everything.
type wildcard struct {
	text    string
	pattern *model.Pattern // nil: the text itself
}

func newWildcard(text string) (*wildcard, error) {
	switch {
	case len(text) > maxText:
		return nil, fmt.Errorf("%.60q... has %d bytes; want at most %d", text, len(text), maxText)
	case text == "":
		return nil, nil
	case !strings.ContainsAny(text, "*?"):
		return &wildcard{text: text}, nil
	}
	expression := strings.NewReplacer(`\*`, "(?s:.*)", `\?`, "(?s:.)").Replace(regexp.QuoteMeta(text))
	pattern, err := model.NewPattern(expression)
	return &wildcard{text, pattern}, err
}

func (w *wildcard) match(text string) bool {
	switch {
	case w == nil:
		return true
	case w.pattern == nil:
		return text == w.text
	}
	return w.pattern.MatchString(text)
}
