package write

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"varve/internal/model"
)

// TagRules say which metrics have rows in tag_indexed_row_keys, KairosDB's own inverted index,
// and for which of their tags. Varve does not read that table: the rows are for KairosDB nodes,
// which read only that table for the metrics in their setting
// tag_indexed_row_key_lookup_metrics. So the rules should select the same metrics.
//
// A rule is one line of words:
//
//	include name=load tags=host,dc    this metric, these tags
//	include prefix=web.               metrics with this prefix, all tags
//	include regex=[a-f].*\.count      metrics that match as a whole
//	include all                       every metric
//	exclude name=web.noise            wins over every include
//
// If several includes match, their tags are combined. In regex, write a space as \x20.
type TagRules struct {
	include, exclude []tagRule
}

type tagRule struct {
	name, prefix string
	pattern      *model.Pattern
	all          bool
	tags         []string // nil: all
}

// ParseTagRules parses rules. Its error reports every invalid rule.
func ParseTagRules(lines []string) (*TagRules, error) {
	rules := &TagRules{}
	var errs []error
	for _, line := range lines {
		rule, include, err := parseTagRule(line)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("tag_index: rule %q: %w", line, err))
		case include:
			rules.include = append(rules.include, rule)
		default:
			rules.exclude = append(rules.exclude, rule)
		}
	}
	return rules, errors.Join(errs...)
}

func parseTagRule(line string) (rule tagRule, include bool, err error) {
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "include" && words[0] != "exclude" {
		return rule, false, errors.New("want \"include\" or \"exclude\", then all, name=, prefix= or regex=")
	}
	include = words[0] == "include"
	key, value, given := strings.Cut(words[1], "=")
	switch {
	case words[1] == "all":
		rule.all = true
	case !given || value == "":
		return rule, include, fmt.Errorf("%q: want all, name=, prefix= or regex=", words[1])
	case key == "name":
		rule.name = value
	case key == "prefix":
		rule.prefix = value
	case key == "regex":
		if rule.pattern, err = model.NewPattern(value); err != nil {
			return rule, include, err
		}
	default:
		return rule, include, fmt.Errorf("%q: want all, name=, prefix= or regex=", words[1])
	}
	for _, word := range words[2:] {
		list, ok := strings.CutPrefix(word, "tags=")
		if !ok || !include {
			return rule, include, fmt.Errorf("%q: want nothing more, or tags= after include", word)
		}
		if list != "" && list != "*" {
			rule.tags = strings.Split(list, ",")
		}
	}
	return rule, include, nil
}

func (r *tagRule) matches(metric string) bool {
	switch {
	case r.all:
		return true
	case r.name != "":
		return r.name == metric
	case r.prefix != "":
		return strings.HasPrefix(metric, r.prefix)
	}
	return r.pattern.MatchString(metric)
}

// indexed returns which tags of a metric are in tag_indexed_row_keys, or that all are. If it
// returns neither, the metric is not in that table.
func (r *TagRules) indexed(metric string) (tags []string, all bool) {
	if r == nil || len(r.include) == 0 {
		return nil, false
	}
	for i := range r.exclude {
		if r.exclude[i].matches(metric) {
			return nil, false
		}
	}
	for i := range r.include {
		rule := &r.include[i]
		if !rule.matches(metric) {
			continue
		}
		if rule.tags == nil {
			return nil, true
		}
		tags = append(tags, rule.tags...)
	}
	return tags, false
}

// A tagIndexRow describes the rows of a row key in tag_indexed_row_keys: one row for each pair,
// all with the same hash.
type tagIndexRow struct {
	pairs []string // name=value, without any escape
	hash  int32
}

// row returns the rows of a series in tag_indexed_row_keys. Without pairs there are none.
func (r *TagRules) row(metric string, tags model.Tags) tagIndexRow {
	names, all := r.indexed(metric)
	if !all && len(names) == 0 {
		return tagIndexRow{}
	}
	return newTagIndexRow(tags, func(name string) bool { return all || slices.Contains(names, name) })
}

func newTagIndexRow(tags model.Tags, indexed func(name string) bool) tagIndexRow {
	var row tagIndexRow
	var hashed []byte
	for name, value := range tags.All() {
		if indexed(name) {
			row.pairs = append(row.pairs, name+"="+value)
			hashed = append(append(hashed, name...), value...)
		}
	}
	row.hash = int32(murmur3(hashed))
	return row
}

// murmur3 is MurmurHash3 for x86, 32 bits, with seed 0.
func murmur3(data []byte) uint32 {
	const c1, c2 = 0xcc9e2d51, 0x1b873593
	var h uint32
	n := uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24
		h ^= bits.RotateLeft32(k*c1, 15) * c2
		h = bits.RotateLeft32(h, 13)*5 + 0xe6546b64
	}
	var k uint32
	for i := len(data) - 1; i >= 0; i-- {
		k = k<<8 | uint32(data[i])
	}
	h ^= bits.RotateLeft32(k*c1, 15) * c2
	h ^= n
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}
