package wsp

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"varve/internal/graphite/whisper"
	"varve/internal/units"
)

// Limits of what a proposal remembers of paths.
const (
	maxGroups       = 64      // bits in a value of grouping.nodes
	maxNodes        = 100_000 // for each trait
	maxAlternatives = 50      // in a pattern
)

// A Proposal derives a storage-schemas.conf and a storage-aggregation.conf from Whisper
// files, so that each path gets the settings of its file. It groups paths by equal
// settings and looks for beginnings or ends of names that only one group has.
type Proposal struct{ schemas, aggregations grouping }

// Add adds the settings of a file.
func (p *Proposal) Add(path string, h *whisper.Header) {
	p.schemas.add(path, "retentions = "+h.Stages().String())
	p.aggregations.add(path, "xFilesFactor = "+strconv.FormatFloat(h.XFilesFactor, 'g', -1, 64)+"\naggregationMethod = "+string(h.Method))
}

// WriteText writes both files, one after the other.
func (p *Proposal) WriteText(w io.Writer) error {
	_, err := fmt.Fprintf(w, "# storage-schemas.conf\n%s\n# storage-aggregation.conf\n%s", p.schemas.text(), p.aggregations.text())
	return err
}

// A trait is a part of a path that may distinguish groups.
type trait struct {
	of             func(nodes []string) string
	before, behind string // what surrounds the alternatives in a pattern
}

var traits = []trait{
	{func(nodes []string) string { return nodes[0] }, `^(?:`, `)(?:[.;]|$)`},
	{func(nodes []string) string { return nodes[len(nodes)-1] }, `(?:^|\.)(?:`, `)(?:;|$)`},
	{func(nodes []string) string { return strings.Join(nodes[:min(2, len(nodes))], ".") }, `^(?:`, `)(?:[.;]|$)`},
}

// A group is all paths with the same settings.
type group struct {
	settings string
	paths    int64
	example  string
}

// A grouping is all groups, and the values that traits have in them.
type grouping struct {
	groups []group
	more   int64                // paths whose group is beyond maxGroups
	nodes  [3]map[string]uint64 // for each trait, by value: the groups that have it, as bits
	full   [3]bool              // nodes lacks values, beyond maxNodes
}

func (g *grouping) add(path, settings string) {
	i := slices.IndexFunc(g.groups, func(o group) bool { return o.settings == settings })
	if i < 0 && len(g.groups) == maxGroups {
		g.more++
		return
	}
	if i < 0 {
		i = len(g.groups)
		g.groups = append(g.groups, group{settings: settings, example: path})
	}
	g.groups[i].paths++
	name, _, _ := strings.Cut(path, ";")
	parts := strings.Split(name, ".")
	for k, t := range traits {
		if g.nodes[k] == nil {
			g.nodes[k] = map[string]uint64{}
		}
		node := t.of(parts)
		if _, known := g.nodes[k][node]; !known && len(g.nodes[k]) == maxNodes {
			g.full[k] = true
			continue
		}
		g.nodes[k][node] |= 1 << i
	}
}

// text returns a section for each group. The largest group comes last, with a pattern
// that matches every path.
func (g *grouping) text() string {
	order := make([]int, len(g.groups))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(g.groups[a].paths, g.groups[b].paths) })
	var b strings.Builder
	if g.more > 0 {
		fmt.Fprintf(&b, "# %d paths have other settings than the first %d kinds, and are ignored here.\n", g.more, maxGroups)
	}
	for n, i := range order {
		one := g.groups[i]
		pattern, name := ".*", "default"
		if n < len(order)-1 {
			pattern, name = g.pattern(i), "rule"+strconv.Itoa(n+1)
		}
		if pattern == "" {
			fmt.Fprintf(&b, "# %s, such as %s, cannot be distinguished from others by the beginnings or ends of names:\n# %s\n\n",
				units.Count(one.paths, "path"), one.example, strings.ReplaceAll(one.settings, "\n", "\n# "))
			continue
		}
		fmt.Fprintf(&b, "# %s, such as %s\n[%s]\npattern = %s\n%s\n\n", units.Count(one.paths, "path"), one.example, name, strings.ReplaceAll(pattern, "%", "%%"), one.settings)
	}
	return b.String()
}

// pattern returns the pattern with the fewest alternatives that matches the paths of a
// group and no others, "" if there is none.
func (g *grouping) pattern(i int) string {
	best := ""
	fewest := maxAlternatives + 1
	for k, t := range traits {
		own, pure := g.own(k, i)
		if !pure || len(own) >= fewest {
			continue
		}
		fewest = len(own)
		best = t.before + strings.Join(own, "|") + t.behind
	}
	return best
}

// own returns the values that the k-th trait has in a group, quoted for a pattern. pure
// is false if another group has one of them, or if they are too many.
func (g *grouping) own(k, i int) (own []string, pure bool) {
	if g.full[k] {
		return nil, false
	}
	for node, groups := range g.nodes[k] {
		switch {
		case groups&(1<<i) == 0:
		case groups != 1<<i || len(own) == maxAlternatives:
			return nil, false
		default:
			own = append(own, regexp.QuoteMeta(node))
		}
	}
	slices.Sort(own)
	return own, true
}
