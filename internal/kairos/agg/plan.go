package agg

import (
	"slices"
	"strings"

	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// A groupPlan is a group before its samples are read.
type groupPlan struct {
	groupType string
	values    []string // of the tags of the tag group-by, "" where absent
	key       string   // name1+value1+name2+value2...: KairosDB's sort key
	series    []store.Series
	count     int // of series
}

// planGroups splits series by group type, then by the tags of by (nil for none), in
// KairosDB's order: type, then the joined text of names and values. Groups whose joined
// texts collide stay apart, ordered by value.
//
// The memory of the plan is charged to l, except the lists of series, which the caller
// has already charged.
func planGroups(s *query.Session, series *query.List, by *TagGroupBy, l *query.Lease) ([]*groupPlan, error) {
	groups, of, err := sortOut(s, series, by, l)
	if err != nil {
		return nil, err
	}
	dealt := make([]store.Series, series.Len()) // all groups' series, one after the other
	for _, g := range groups {
		g.series, dealt = dealt[:0:g.count], dealt[g.count:]
	}
	i := 0
	for one := range series.All() {
		g := groups[of[i]]
		g.series = append(g.series, *one)
		i++
	}
	return groups, query.SortFunc(s, groups, (*groupPlan).compare)
}

// sortOut makes the groups, still without their series, and returns the group of each
// series.
func sortOut(s *query.Session, series *query.List, by *TagGroupBy, l *query.Lease) (groups []*groupPlan, of []int32, err error) {
	of = make([]int32, 0, series.Len())
	var index map[string]int32 // nil for a single series, which is a group of its own
	if series.Len() > 1 {
		index = make(map[string]int32)
	}
	var id []byte
	values := make([]string, tagCount(by))
	var distinct []int
	if by != nil {
		distinct = by.Distinct()
	}
	var plans []groupPlan // made together, with their values
	var known []string
	for one := range series.All() {
		if err := s.Tick(query.SortWork + len(values)); err != nil {
			return nil, nil, err
		}
		kind := groupType(one.Type)
		id = append(append(id[:0], kind...), 0)
		for j := range values {
			values[j], _ = one.Tags.Get(by.Tags[j])
			id = append(append(id, values[j]...), 0)
		}
		n, ok := index[string(id)]
		if !ok {
			key := joined(by, distinct, values)
			if err := l.Take(groupBytes + 2*int64(len(id)) + 16*int64(len(values)) + int64(len(key))); err != nil {
				return nil, nil, err
			}
			n = int32(len(groups))
			if index != nil {
				index[string(id)] = n
			}
			if len(plans) == 0 {
				k := min(series.Len()-len(of), 1+plansAtOnce/(1+len(values)))
				plans, known = make([]groupPlan, k), make([]string, k*len(values))
			}
			g := &plans[0]
			*g = groupPlan{groupType: kind, values: known[:len(values):len(values)], key: key}
			copy(g.values, values)
			plans, known = plans[1:], known[len(values):]
			groups = append(groups, g)
		}
		groups[n].count++
		of = append(of, n)
	}
	return groups, of, nil
}

// plansAtOnce is how many groups without tags share an allocation.
const plansAtOnce = 32

// groupBytes is the memory of a planned group.
const groupBytes = 256

func tagCount(by *TagGroupBy) int {
	if by == nil {
		return 0
	}
	return len(by.Tags)
}

// joined is the sort key of groups, as in KairosDB. A repeated tag counts once.
func joined(by *TagGroupBy, distinct []int, values []string) string {
	var b strings.Builder
	for _, i := range distinct {
		b.WriteString(by.Tags[i])
		b.WriteString(values[i])
	}
	return b.String()
}

// sort orders the series of a group. The order decides which of several samples with
// equal times comes first.
func (g *groupPlan) sort(s *query.Session) error {
	return query.SortFunc(s, g.series, func(a, b store.Series) int { return a.Compare(b.Series) })
}

func (g *groupPlan) compare(o *groupPlan) int {
	if c := strings.Compare(g.groupType, o.groupType); c != 0 {
		return c
	}
	if c := model.CompareNames(g.key, o.key); c != 0 {
		return c
	}
	return slices.CompareFunc(g.values, o.values, model.CompareNames)
}
