package rollup

import (
	"slices"

	"varve/internal/clip"
)

// An overlap is two flows that may store results in the same series of one metric: the
// later result of a bucket then replaces the other. KairosDB takes such tasks, and they do
// no harm if the flows never have results in the same bucket, so they are only reported.
type overlap struct {
	f, other written
}

// A written is a flow with its task.
type written struct {
	*flow
	task *task
}

// writersOf returns the flows of tasks by the metric that they write.
func writersOf(tasks []*task) map[string][]written {
	writers := map[string][]written{}
	for _, t := range tasks {
		for _, f := range t.flows() {
			writers[f.to] = append(writers[f.to], written{f, t})
		}
	}
	return writers
}

// A comparison finds overlaps among tasks. Whoever may write tasks may write many flows of many
// values into one metric, so it ends after some steps, without an overlap.
type comparison struct {
	writers map[string][]written
	left    int // steps: pairs of flows, and of values of their tags
}

// comparisonSteps take some tens of milliseconds.
const comparisonSteps = 1_000_000

// overlapOf returns the first of t's flows that overlaps with another one; nil if none does.
// Of two tasks, only the one with the lower id has their overlap.
func (c *comparison) overlapOf(t *task) *overlap {
	for _, f := range t.flows() {
		for _, o := range c.writers[f.to] {
			if c.left <= 0 {
				return nil
			}
			if o.flow != f && o.task.id >= t.id && c.shareSeries(f, o.flow) {
				return &overlap{written{f, t}, o}
			}
		}
	}
	return nil
}

// shareSeries reports whether results of f and g, which write one metric, may be in one series. Results
// have the tags of their group-by, and the metric that was read as a further tag. Filters by
// other tags do not tell results apart.
func (c *comparison) shareSeries(f, g *flow) bool {
	c.left--
	if f.from != g.from || f.anyTags || g.anyTags || len(f.tags) != len(g.tags) {
		return false
	}
	for name, values := range f.tags {
		others, has := g.tags[name]
		if !has || !c.intersect(values, others) {
			return false
		}
	}
	return true
}

// intersect reports whether two sets of values have one in common; nil has all.
func (c *comparison) intersect(a, b []string) bool {
	if a == nil || b == nil {
		return true
	}
	if c.left -= len(a) * len(b); c.left <= 0 {
		return false
	}
	return slices.ContainsFunc(a, func(v string) bool { return slices.Contains(b, v) })
}

// warnOfFlows logs tasks that read their own results, which KairosDB or an earlier version
// has taken, and tasks whose results replace each other. Each is logged once, until it ends.
func (s *Scheduler) warnOfFlows() {
	all := s.beside("")
	readers, c := readersOf(all), &comparison{writersOf(all), comparisonSteps}
	for _, t := range all {
		loop, both := checkLoops(t, readers), c.overlapOf(t)
		s.mu.Lock()
		var loops, overlaps bool // and the log does not say so yet
		if j := s.mu.jobs[t.id]; j != nil {
			loops, overlaps = loop != nil && !j.loops, both != nil && !j.overlaps
			j.loops, j.overlaps = loop != nil, both != nil
		}
		s.mu.Unlock()
		if loops {
			s.log.Warn("stored roll-up task reads its own results; replace it", "id", t.id, "name", t.name, "error", loop)
		}
		if overlaps {
			s.log.Warn("two queries of roll-up tasks may store results in the same series: the later result of a bucket replaces the other; give one of them another save_as",
				"save_as", clip.Text(both.f.to, clippedBytes), "id", t.id, "query", both.f.context, "other_id", both.other.task.id, "other_query", both.other.context)
		}
	}
}
