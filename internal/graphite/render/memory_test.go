package render

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"varve/internal/graphite/function"
	"varve/internal/graphite/graphitetest"
	"varve/internal/graphite/target"
	"varve/internal/graphite/timespec"
)

// A memory is a Source over the recorded data set: each series has one step,
// and a window like Whisper's, without the point at its beginning.
type memory struct {
	steps  map[string]int64
	points map[string]map[int64]float64
	tags   map[string]function.Tags
	events []event
}

type event struct {
	When int64    `json:"when"`
	Tags []string `json:"tags"`
}

func openMemory(tb testing.TB) *memory {
	tb.Helper()
	m := &memory{steps: map[string]int64{}, points: map[string]map[int64]float64{}, tags: map[string]function.Tags{}}
	type rule struct {
		pattern *regexp.Regexp
		step    int64
	}
	var rules []rule
	graphitetest.Lines(tb, "storage-schemas.conf", func(line string) {
		if pattern, ok := strings.CutPrefix(line, "pattern = "); ok {
			rules = append(rules, rule{pattern: regexp.MustCompile(pattern)})
		}
		if retentions, ok := strings.CutPrefix(line, "retentions = "); ok {
			step, _, _ := strings.Cut(retentions, ":")
			seconds, err := timespec.ParseOffset(strings.Replace(step, "5m", "300s", 1))
			if err != nil {
				tb.Fatal(err)
			}
			rules[len(rules)-1].step = seconds
		}
	})
	load := func(line string) {
		fields := strings.Fields(line)
		tags, err := function.ParseTags(fields[0])
		if err != nil {
			tb.Fatal(err)
		}
		name := canonical(tags)
		value, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			tb.Fatal(err)
		}
		at, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			tb.Fatal(err)
		}
		if m.points[name] == nil {
			i := slices.IndexFunc(rules, func(r rule) bool { return r.pattern.MatchString(name) })
			m.points[name], m.tags[name], m.steps[name] = map[int64]float64{}, tags, rules[i].step
		}
		m.points[name][at-at%m.steps[name]] = value
	}
	graphitetest.Lines(tb, "data.txt.gz", load)
	graphitetest.Lines(tb, "data-archives.txt.gz", load)
	graphitetest.Lines(tb, "data-events.jsonl", func(line string) {
		var raw struct {
			When int64 `json:"when"`
			Tags any   `json:"tags"`
		}
		if err := json.Unmarshal([]byte(line), &raw); err != nil {
			tb.Fatal(err)
		}
		e := event{When: raw.When}
		switch tags := raw.Tags.(type) {
		case string:
			e.Tags = strings.Fields(tags)
		case []any:
			for _, t := range tags {
				e.Tags = append(e.Tags, fmt.Sprint(t))
			}
		}
		m.events = append(m.events, e)
	})
	return m
}

// canonical returns the name of a series with its tags in order.
func canonical(tags function.Tags) string {
	var pairs []string
	for tag, value := range tags {
		if tag != "name" {
			pairs = append(pairs, ";"+tag+"="+value)
		}
	}
	slices.Sort(pairs)
	return tags["name"] + strings.Join(pairs, "")
}

func (m *memory) Fetch(ctx context.Context, queries []function.Query, within function.Range) ([][]function.Fetched, error) {
	out := make([][]function.Fetched, len(queries))
	for i, q := range queries {
		names, err := m.find(q)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if f, ok := m.read(name, within); ok {
				out[i] = append(out[i], f)
			}
		}
	}
	return out, ctx.Err()
}

func (m *memory) find(q function.Query) (names []string, err error) {
	if q.ByTag {
		return m.findByTag(q.Expressions)
	}
	glob, err := target.ParseGlob(q.Text)
	if err != nil {
		return nil, err
	}
	for name := range m.points {
		tagged := strings.Contains(name, ";")
		if tagged && name == q.Text || !tagged && glob.Match(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

var tagExpression = regexp.MustCompile(`^([^;!=]+)(!?=~?)([^;]*)$`)

func (m *memory) findByTag(expressions []string) (names []string, err error) {
	fits := func(function.Tags) bool { return true }
	for _, e := range expressions {
		parts := tagExpression.FindStringSubmatch(e)
		if parts == nil {
			return nil, &function.ParamError{Reason: "Invalid tagspec " + e}
		}
		matches := func(v string) bool { return v == parts[3] }
		if strings.HasSuffix(parts[2], "~") {
			re, err := regexp.Compile("^(?:" + parts[3] + ")")
			if err != nil {
				return nil, &function.ParamError{Reason: err.Error()}
			}
			matches = re.MatchString
		}
		others, negate := fits, strings.HasPrefix(parts[2], "!")
		fits = func(t function.Tags) bool { return others(t) && matches(t[parts[1]]) != negate }
	}
	for name, tags := range m.tags {
		if fits(tags) {
			names = append(names, name)
		}
	}
	return names, nil
}

func (m *memory) read(name string, within function.Range) (function.Fetched, bool) {
	from, until := within.From, min(within.Until, within.Now)
	if from > within.Now {
		return function.Fetched{}, false
	}
	step := m.steps[name]
	start := from - from%step + step
	end := until - until%step + step
	if start == end {
		end += step
	}
	values := make([]float64, max((end-start)/step, 0))
	for i := range values {
		v, ok := m.points[name][start+int64(i)*step]
		if !ok {
			v = math.NaN()
		}
		values[i] = v
	}
	return function.Fetched{Name: name, Start: start, Step: step, Values: values}, true
}

func (m *memory) Yield() error { return nil }

func (m *memory) Events(_ context.Context, tags []string, from, until int64) (times []int64, _ error) {
	for _, e := range m.events {
		missing := slices.ContainsFunc(tags, func(t string) bool { return !slices.Contains(e.Tags, t) })
		if !missing && e.When >= from && e.When <= until {
			times = append(times, e.When)
		}
	}
	return times, nil
}

// A free budget counts and has no limit.
type free struct{}

func (free) Reserve(int64) error { return nil }
