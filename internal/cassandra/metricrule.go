package cassandra

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"varve/internal/model"
)

// A metricRule selects the metrics that at least one of its words matches.
//
//	name=load            this metric
//	prefix=web.          metrics with this prefix
//	regex=[a-f].*\.n     metrics that match as a whole
type metricRule []metricWord

type metricWord struct {
	name, prefix string // prefix of all names that a pattern matches
	pattern      *model.Pattern
}

// parseMetricRule parses words. Its error reports every invalid word.
func parseMetricRule(words []string) (metricRule, error) {
	var rule metricRule
	var errs []error
	for _, text := range words {
		word, err := parseMetricWord(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("metrics: %q: %w", text, err))
			continue
		}
		rule = append(rule, word)
	}
	if len(words) == 0 {
		errs = append(errs, errors.New("metrics: empty; say which metrics are stored there, with name=, prefix= or regex="))
	}
	return rule, errors.Join(errs...)
}

func parseMetricWord(text string) (word metricWord, err error) {
	key, value, _ := strings.Cut(text, "=")
	if value == "" {
		return word, errors.New("want name=, prefix= or regex=, and then a text")
	}
	switch key {
	case "name":
		word.name = value
	case "prefix":
		word.prefix = value
	case "regex":
		if word.pattern, err = model.NewPattern(value); err == nil {
			word.prefix, _ = regexp.MustCompile(value).LiteralPrefix()
		}
	default:
		err = errors.New("want name=, prefix= or regex=")
	}
	return word, err
}

func (w *metricWord) matches(metric string) bool {
	switch {
	case w.pattern != nil:
		return w.pattern.MatchString(metric)
	case w.name != "":
		return w.name == metric
	}
	return strings.HasPrefix(metric, w.prefix)
}

func (r metricRule) matches(metric string) bool {
	return slices.ContainsFunc(r, func(w metricWord) bool { return w.matches(metric) })
}

// mayMatch reports whether the rule may match a metric that begins with prefix.
func (r metricRule) mayMatch(prefix string) bool {
	return slices.ContainsFunc(r, func(w metricWord) bool {
		begin := cmp.Or(w.name, w.prefix)
		return strings.HasPrefix(begin, prefix) || w.name == "" && strings.HasPrefix(prefix, begin)
	})
}

// matchesAll reports whether the rule evidently matches all metrics that begin with prefix.
func (r metricRule) matchesAll(prefix string) bool {
	return slices.ContainsFunc(r, func(w metricWord) bool {
		return w.pattern == nil && w.name == "" && strings.HasPrefix(prefix, w.prefix)
	})
}
