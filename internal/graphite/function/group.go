package function

import (
	"slices"
	"strings"

	"varve/internal/graphite/pytext"
)

func init() {
	const group = "Combine"
	define(group, "groupByNode(seriesList, nodeNum:nodeOrTag, [callback:aggOrSeriesFunc=\"average\"])", "Combines series that have the same node or tag.", groupByNode)
	define(group, "groupByNodes(seriesList, callback:aggOrSeriesFunc, [nodes:nodeOrTag...])", "Combines series that have the same nodes or tags.", groupByNodes)
	define(group, "groupByTags(seriesList, callback:aggOrSeriesFunc, tags:tag...)", "Combines series that have the same tags, and names them by those.", groupByTags)
	define(group, "applyByNode(seriesList, nodeNum:node, templateFunction:string, [newName:string])", "Evaluates a target for each beginning of a path up to a node, which stands for % in it.", applyByNode)
	define(group, "mapSeries(seriesList, mapNodes:nodeOrTag...)", "Makes a list of series for each combination of nodes, for reduceSeries.", mapSeries, "map")
	define(group, "reduceSeries(seriesLists:seriesLists, reduceFunction:string, reduceNode:node, reduceMatchers:string...)", "Calls a function for each list of series with those whose node is one of the matchers, in their order.", reduceSeries, "reduce")
}

// A seriesGroup is the series that have a key in common.
type seriesGroup struct {
	key  string
	list []*Series
}

// newGroups returns the groups in the order in which their keys occur.
func newGroups(list []*Series, key func(*Series) (string, error)) ([]seriesGroup, error) {
	var out []seriesGroup
	place := map[string]int{}
	for _, s := range list {
		k, err := key(s)
		if err != nil {
			return nil, err
		}
		i, ok := place[k]
		if !ok {
			i = len(out)
			place[k] = i
			out = append(out, seriesGroup{key: k})
		}
		out[i].list = append(out[i].list, s)
	}
	return out, nil
}

// groupBy groups series by nodes and tags.
func (c *call) groupBy(list []*Series, nodes []any) ([]seriesGroup, error) {
	return newGroups(list, func(s *Series) (string, error) { return c.key(s, nodes) })
}

// combineGroups makes one series of each group by a function or aggregation,
// and names it by the group's key.
func (c *call) combineGroups(groups []seriesGroup, callback string) ([]*Series, error) {
	out := make([]*Series, 0, len(groups))
	for _, g := range groups {
		var s *Series
		if _, ok := Lookup(callback); ok {
			list, err := c.apply(callback, g.list)
			if err != nil {
				return nil, err
			}
			if len(list) == 0 {
				return nil, badParam("%.64s makes no series of a group", callback)
			}
			s = list[0]
		} else {
			var err error
			if s, err = c.combine(callback, c.xFilesFactor, g.list); err != nil {
				return nil, err
			}
		}
		s.Name = g.key
		out = append(out, s)
	}
	return out, nil
}

func groupByNode(c *call) (any, error) {
	list, callback := c.list(0), c.str(2, "average")
	groups, err := c.groupBy(list, []any{c.args[1]})
	if err != nil {
		return nil, err
	}
	return c.combineGroups(groups, callback)
}

func groupByNodes(c *call) (any, error) {
	list, callback := c.list(0), c.str(1, "")
	groups, err := c.groupBy(list, c.rest)
	if err != nil {
		return nil, err
	}
	return c.combineGroups(groups, callback)
}

// groupByTags names a group by the name of its series if "name" is one of the
// tags or all series share it, else by the callback.
func groupByTags(c *call) (any, error) {
	list, callback := c.list(0), c.str(1, "")
	if len(c.rest) == 0 {
		return nil, badParam("no tags specified")
	}
	var tags []string
	byName := false
	for _, v := range c.rest {
		if t := pytext.Text(v); t == "name" {
			byName = true
		} else {
			tags = append(tags, t)
		}
	}
	name := callback
	if len(list) > 0 && !slices.ContainsFunc(list, func(s *Series) bool { return s.Tags["name"] != list[0].Tags["name"] }) {
		name = list[0].Tags["name"]
	}
	groups, err := newGroups(list, func(s *Series) (string, error) {
		pairs := make([]string, len(tags))
		for i, t := range tags {
			var err error
			if pairs[i], err = c.joined([]string{t, s.Tags[t]}, "="); err != nil {
				return "", err
			}
		}
		slices.Sort(pairs)
		first := name
		if byName {
			first = s.Tags["name"]
		}
		return c.joined(append([]string{first}, pairs...), ";")
	})
	if err != nil {
		return nil, err
	}
	out, err := c.combineGroups(groups, callback)
	if err != nil {
		return nil, err
	}
	for i, s := range out {
		s.PathExpression = groups[i].key
		if s.Tags, err = ParseTags(groups[i].key); err != nil {
			return nil, badParam("a series lacks one of the tags %s", strings.Join(tags, ", "))
		}
	}
	return out, nil
}

func applyByNode(c *call) (any, error) {
	list, node, layout := c.list(0), c.integer(1, 0), c.str(2, "")
	name := ""
	if c.given(3) {
		name = c.str(3, "")
	}
	if c.err != nil {
		return nil, c.err
	}
	var prefixes []string
	for _, s := range list {
		prefixes = append(prefixes, strings.Join(cut(strings.Split(s.Name, "."), 0, node+1), "."))
	}
	slices.Sort(prefixes)
	var out []*Series
	for _, prefix := range slices.Compact(prefixes) {
		text, err := pytext.ReplaceAll(layout, "%", prefix)
		if err != nil {
			return nil, asParam(err)
		}
		shown, err := pytext.ReplaceAll(name, "%", prefix)
		if err != nil {
			return nil, asParam(err)
		}
		if err := c.reserve(int64(len(shown))); err != nil {
			return nil, err
		}
		found, err := c.within(c.from, c.until).evalText(text)
		if err != nil {
			return nil, err
		}
		last := list[len(list)-1]
		for _, s := range found {
			if name != "" {
				s.Name = shown
			}
			s.PathExpression = prefix
			s.Start, s.End = last.Start, last.End
			out = append(out, s)
		}
	}
	return out, nil
}

func mapSeries(c *call) (any, error) {
	list := c.list(0)
	groups, err := c.groupBy(list, c.rest)
	out := make([][]*Series, len(groups))
	for i, g := range groups {
		out[i] = g.list
	}
	return out, err
}

// reduceSeries leaves out groups in which one of the matchers has no series.
func reduceSeries(c *call) (any, error) {
	lists, ok := c.args[0].([][]*Series)
	if empty, none := c.args[0].([]*Series); none && len(empty) == 0 {
		ok = true
	}
	if !ok {
		return nil, badParam("the first argument must be the result of mapSeries")
	}
	function, node := c.str(1, ""), c.integer(2, 0)
	if c.err != nil {
		return nil, c.err
	}
	places := map[string]int{} // of matchers; the first of those that are alike counts
	for i, v := range slices.Backward(c.rest) {
		places[pytext.Text(v)] = i
	}
	var keys []string
	matched := map[string][]*Series{}
	for _, s := range slices.Concat(lists...) {
		nodes := strings.Split(s.Name, ".")
		place := node
		if place < 0 {
			place += int64(len(nodes))
		}
		if place < 0 || place >= int64(len(nodes)) {
			return nil, badParam("the series %.200s has no node %d", s.Name, node)
		}
		i, ok := places[nodes[place]]
		if !ok {
			continue
		}
		key := strings.Join(cut(nodes, 0, node), ".") + ".reduce." + function
		if matched[key] == nil {
			if err := c.reserve(int64(len(key) + 8*len(c.rest))); err != nil {
				return nil, err
			}
			matched[key] = make([]*Series, len(c.rest))
			keys = append(keys, key)
		}
		matched[key][i] = s
	}
	var out []*Series
	for _, key := range keys {
		if slices.Contains(matched[key], nil) {
			continue
		}
		args := make([]any, len(c.rest))
		for i, s := range matched[key] {
			args[i] = []*Series{s}
		}
		made, err := c.apply(function, args...)
		if err != nil {
			return nil, err
		}
		if len(made) == 0 {
			continue
		}
		made[0].Name = key
		out = append(out, made[0])
	}
	return out, nil
}
