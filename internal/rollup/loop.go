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

// feeds reports whether g may read what f writes.
func (f *flow) feeds(g *flow) bool {
	if f.to != g.from {
		return false
	}
	for _, m := range g.matchers {
		values, has := f.tags[m.Tag]
		switch {
		case f.anyTags:
		case !has && !m.Absent, values != nil && !slices.ContainsFunc(values, m.MatchesValue):
			return false
		}
	}
	return true
}

// loopOf returns a chain of flows that starts with f, in which each flow feeds the next
// one and the last one feeds f; nil if there is none. readers are all flows by the
// metric they read.
func loopOf(f *flow, readers map[string][]*flow) []*flow {
	before := map[*flow]*flow{} // for each flow reached from f, the flow that feeds it
	for queue := []*flow{f}; len(queue) > 0; queue = queue[1:] {
		for _, g := range readers[queue[0].to] {
			if before[g] != nil || !queue[0].feeds(g) {
				continue
			}
			before[g] = queue[0]
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

// readersOf groups the flows of tasks by the metric they read.
func readersOf(tasks []*task) map[string][]*flow {
	readers := map[string][]*flow{}
	for _, t := range tasks {
		for _, f := range t.flows() {
			readers[f.from] = append(readers[f.from], f)
		}
	}
	return readers
}

// checkLoops refuses a task that reads its own results. readers has the flows of all
// tasks, this one included.
func checkLoops(t *task, readers map[string][]*flow) error {
	for _, f := range t.flows() {
		chain := loopOf(f, readers)
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

// flows are the flows of all queries of a task.
func (t *task) flows() (all []*flow) {
	for i := range t.rollups {
		for k := range t.rollups[i].flows {
			all = append(all, &t.rollups[i].flows[k])
		}
	}
	return all
}
