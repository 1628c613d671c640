package rollup

import (
	"slices"

	"varve/internal/clip"
)

// An overlap is two flows that may store results in the same series. If both have a
// result for a bucket, the later one replaces the earlier. KairosDB accepts such tasks,
// and they do no harm as long as the flows never have results in the same bucket, so
// they are only reported.
type overlap struct {
	f, other writer
}

// A writer is a flow with the task it belongs to.
type writer struct {
	*flow
	task *task
}

// writersOf groups the flows of tasks by the metric they write.
func writersOf(tasks []*task) map[string][]writer {
	writers := map[string][]writer{}
	for _, t := range tasks {
		for _, f := range t.flows() {
			writers[f.to] = append(writers[f.to], writer{f, t})
		}
	}
	return writers
}

// A comparison finds overlaps among tasks. A client that may write tasks can write many
// flows with many tag values into one metric, so a comparison stops after a number of
// steps and then reports no overlap.
type comparison struct {
	writers map[string][]writer
	left    int // steps left: pairs of flows, and pairs of their tag values
}

// comparisonSteps take some tens of milliseconds.
const comparisonSteps = 1_000_000

// overlapOf returns the first of t's flows that overlaps with another flow; nil if none
// does. An overlap of two tasks is reported only for the one with the lower id.
func (c *comparison) overlapOf(t *task) *overlap {
	for _, f := range t.flows() {
		for _, o := range c.writers[f.to] {
			if c.left <= 0 {
				return nil
			}
			if o.flow != f && o.task.id >= t.id && c.shareSeries(f, o.flow) {
				return &overlap{writer{f, t}, o}
			}
		}
	}
	return nil
}

// shareSeries reports whether f and g, which write the same metric, may have results in
// the same series. Results are tagged with the group-by tags and with the metric that
// was read. Filters by other tags do not separate them.
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

// intersect reports whether two sets of values have one in common; nil is the set of
// all values.
func (c *comparison) intersect(a, b []string) bool {
	if a == nil || b == nil {
		return true
	}
	if c.left -= len(a) * len(b); c.left <= 0 {
		return false
	}
	return slices.ContainsFunc(a, func(v string) bool { return slices.Contains(b, v) })
}

// warnOfFlows logs tasks that read their own results, which KairosDB or an earlier
// version may have stored, and tasks whose results overwrite each other. Each case is
// logged once, and again if it ends and recurs. The caller must own s.changing.
func (s *Scheduler) warnOfFlows() {
	all := s.beside("")
	l, c := &loopSearch{s.index.readers, loopSteps}, &comparison{writersOf(all), comparisonSteps}
	for _, t := range all {
		loop, both := l.check(t), c.overlapOf(t)
		s.mu.Lock()
		var loops, overlaps bool // not logged yet
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
