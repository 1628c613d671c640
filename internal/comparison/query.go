package comparison

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// A query selects one metric, in the form of KairosDB's API.
type query struct {
	Start   int64    `json:"start_absolute"`
	End     int64    `json:"end_absolute"`
	Zone    string   `json:"time_zone"`
	Metrics []metric `json:"metrics"`
}

type metric struct {
	Name        string              `json:"name"`
	Tags        map[string][]string `json:"tags,omitempty"`
	GroupBy     []groupBy           `json:"group_by,omitempty"`
	Aggregators []aggregator        `json:"aggregators,omitempty"`
}

type groupBy struct {
	Name string   `json:"name"`
	Tags []string `json:"tags"`
}

type aggregator struct {
	Name     string    `json:"name"`
	Sampling *sampling `json:"sampling,omitempty"`
}

type sampling struct {
	Value int64  `json:"value"`
	Unit  string `json:"unit"`
}

// A known is a metric that queries may select.
type known struct {
	name string
	tags map[string][]string // some values of each tag
}

// Limits of the metrics that queries may select.
const (
	maxKnown  = 500
	maxValues = 50 // of each tag
)

// A maker draws queries.
type maker struct {
	*rand.Rand
	metrics    []known
	start, end int64
}

// The results of anyOrder do not depend on the order of points with the same time. Those
// of inOrder do, so they are used only on single series.
var (
	anyOrder = []string{"sum", "avg", "min", "max", "count"}
	inOrder  = []string{"first", "last", "diff"}
)

// rangeUnits are units of sampling, with their length in ms.
var rangeUnits = []struct {
	name string
	ms   int64
}{{"seconds", 1e3}, {"minutes", 60e3}, {"hours", 3600e3}, {"days", 86400e3}}

// maxBuckets is the largest number of buckets of a query.
const maxBuckets = 2000

func (m *maker) draw() query {
	of := m.metrics[m.IntN(len(m.metrics))]
	q := query{Zone: "UTC"}
	q.Start, q.End = m.span()
	asked := metric{Name: of.name, Tags: m.filter(of)}
	names := slices.Sorted(maps.Keys(of.tags))
	single := m.IntN(4) == 0
	if grouped := m.some(names); single || len(grouped) > 0 {
		if single {
			grouped = names
		}
		if len(grouped) > 0 {
			asked.GroupBy = []groupBy{{"tag", grouped}}
		}
	}
	asked.Aggregators = m.aggregators(q, single)
	q.Metrics = []metric{asked}
	return q
}

// span draws a time range. Its length is roughly log-uniform, so that short ranges are as
// frequent as long ones.
func (m *maker) span() (start, end int64) {
	whole := m.end - m.start
	if m.IntN(5) == 0 {
		return m.start, m.end
	}
	length := max(whole>>m.IntN(16), 1)
	start = m.start + m.Int64N(max(whole-length, 1))
	return start, min(start+length, m.end)
}

func (m *maker) filter(of known) map[string][]string {
	if len(of.tags) == 0 || m.IntN(5) < 2 {
		return nil
	}
	names := slices.Sorted(maps.Keys(of.tags))
	name := names[m.IntN(len(names))]
	values := slices.Clone(of.tags[name])
	m.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
	return map[string][]string{name: values[:min(len(values), 1+m.IntN(3))]}
}

func (m *maker) some(names []string) (kept []string) {
	if m.IntN(2) == 0 {
		return nil
	}
	for _, n := range names {
		if m.IntN(2) == 0 {
			kept = append(kept, n)
		}
	}
	return kept
}

func (m *maker) aggregators(q query, single bool) []aggregator {
	if m.IntN(3) == 0 {
		return nil
	}
	names := anyOrder
	if single {
		names = slices.Concat(anyOrder, inOrder)
	}
	a := aggregator{Name: names[m.IntN(len(names))]}
	if a.Name == "diff" {
		return []aggregator{a}
	}
	var fitting []sampling
	for _, u := range rangeUnits {
		for _, n := range []int64{1, 5, 6, 12, 30} {
			if (q.End-q.Start)/(u.ms*n) <= maxBuckets {
				fitting = append(fitting, sampling{n, u.name})
			}
		}
	}
	a.Sampling = &sampling{Value: (q.End-q.Start)/86400e3 + 1, Unit: "days"} // one bucket, or two
	if len(fitting) > 0 {
		a.Sampling = &fitting[m.IntN(len(fitting))]
	}
	return []aggregator{a}
}

// raw reports whether values are returned as they are stored.
func (q *query) raw() bool { return len(q.Metrics[0].Aggregators) == 0 }

// narrow shortens the time range to its first eighth. It returns false if it is too short
// for that.
func (q *query) narrow() bool {
	length := (q.End - q.Start) / 8
	if length < 1 {
		return false
	}
	q.End = q.Start + length
	return true
}
