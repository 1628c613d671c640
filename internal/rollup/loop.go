package rollup

import (
	"fmt"
	"slices"
	"strings"

	"varve/internal/clip"
	"varve/internal/kairos/agg"
	"varve/internal/model"
)

// A flow is what one query of a roll-up reads and writes. A task that reads what it
// writes, directly or through other tasks, would count its own results again at every
// run, so such loops are refused when a task is stored.
type flow struct {
	context  string // the query's path in its task, for messages
	from, to string // metrics
	matchers []model.Matcher
	tags     map[string][]string // tags that results may have; no values: any
	anyTags  bool                // results may have further tags
}

// flowsOf returns the flows of one metric of a roll-up: the one into save_as, and those
// into the metrics of save_as aggregators.
func flowsOf(m *agg.MetricQuery, saveAs, context string) []flow {
	f := flow{context: context, from: m.Metric, to: saveAs, matchers: m.Matchers, tags: map[string][]string{savedFrom: {m.Metric}}}
	for _, by := range m.GroupBy {
		if by, ok := by.(*agg.TagGroupBy); ok {
			for _, name := range by.Tags {
				if name != savedFrom {
					f.tags[name] = valuesOf(m.Matchers, name)
				}
			}
		}
	}
	flows := []flow{f}
	for _, metric := range m.SavedTo() {
		f.to, f.anyTags = metric, true
		flows = append(flows, f)
	}
	return flows
}

// valuesOf returns the values that filters allow a tag to have, nil for any.
func valuesOf(matchers []model.Matcher, tag string) []string {
	for _, m := range matchers {
		if m.Tag == tag && m.Plain() && len(m.Patterns) == 0 {
			return m.Values
		}
	}
	return nil
}

// A loopSearch looks for tasks that read their own results. A client that may write tasks
// can make many flows feed many, so a search stops after a number of steps.
type loopSearch struct {
	readers map[string][]*flow // as in an index
	left    int                // comparisons left, of pairs of flows and of their tag values; negative if they did not suffice
}

// loopSteps take some tenths of a second.
const loopSteps = 5_000_000

// patternSteps is how many comparisons of texts a comparison with a pattern counts as.
const patternSteps = 100

// feeds reports whether g may read what f writes.
func (s *loopSearch) feeds(f, g *flow) bool {
	if f.to != g.from {
		return false
	}
	for _, m := range g.matchers {
		values, has := f.tags[m.Tag]
		if s.left -= len(values) * (len(m.Values) + patternSteps*len(m.Patterns)); s.left < 0 {
			return false
		}
		switch {
		case f.anyTags:
		case !has && !m.Absent, values != nil && !slices.ContainsFunc(values, m.MatchesValue):
			return false
		}
	}
	return true
}

// from returns a chain of flows that starts with f, in which each flow feeds the next one
// and the last one feeds f; nil if none was found.
func (s *loopSearch) from(f *flow) []*flow {
	before := map[*flow]*flow{} // for each flow reached from f, the flow that feeds it
	reached := map[string]int{} // how many of the flows that read a metric
	for queue := []*flow{f}; len(queue) > 0; queue = queue[1:] {
		to := queue[0].to
		if reached[to] == len(s.readers[to]) {
			continue
		}
		for _, g := range s.readers[to] {
			if s.left--; s.left < 0 {
				return nil
			}
			if before[g] != nil || !s.feeds(queue[0], g) {
				continue
			}
			before[g] = queue[0]
			reached[to]++
			if g != f {
				queue = append(queue, g)
				continue
			}
			chain := []*flow{f}
			for at := before[f]; at != f; at = before[at] {
				chain = append(chain, at)
			}
			slices.Reverse(chain[1:])
			return chain
		}
	}
	return nil
}

// check refuses a task that reads its own results. It finds none once no steps are left.
func (s *loopSearch) check(t *task) error {
	for _, f := range t.flows() {
		chain := s.from(f)
		if chain == nil {
			continue
		}
		const most = 10
		var path strings.Builder
		for i, g := range chain {
			if i == most {
				path.WriteString(" -> ...")
				break
			}
			path.WriteString(clip.Text(g.from, clippedBytes) + " -> ")
			if i == len(chain)-1 {
				path.WriteString(clip.Text(g.to, clippedBytes))
			}
		}
		return badRequest(fmt.Sprintf("%s would read its own results (%s), and count them again with every run; save under another name, or filter by a tag that the results do not have",
			f.context, path.String()))
	}
	return nil
}

// checkLoops refuses a task in the index that reads its own results, or whose loops cannot be
// found within loopSteps.
func (x *index) checkLoops(t *task) error {
	s := loopSearch{x.readers, loopSteps}
	if err := s.check(t); err != nil {
		return err
	}
	if s.left < 0 {
		return badRequest("the queries of all roll-up tasks read each other's results in too many ways to find out whether this task would read its own; save results under more names, or make fewer queries")
	}
	return nil
}

// flows are the flows of all queries of a task.
func (t *task) flows() (all []*flow) {
	for i := range t.rollups {
		for k := range t.rollups[i].flows {
			all = append(all, &t.rollups[i].flows[k])
		}
	}
	return all
}
