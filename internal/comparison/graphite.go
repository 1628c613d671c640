package comparison

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"varve/internal/clip"
)

// Limits of the walk through the trees of paths.
const (
	maxPaths    = 20_000  // candidates for queries
	maxBranches = 100_000 // branches that wait to be listed
	maxDepth    = 64
)

// ownPaths are prefixes of paths that are not compared by default: those that Graphite's
// programs write about themselves all the time, and the tree of series with tags.
var ownPaths = []string{"carbon.", "_tagged."}

// askable matches paths that need no quoting in a target.
var askable = regexp.MustCompile(`^[A-Za-z0-9_.:%#@/+~-]+$`)

// allGraphite compares two servers over Graphite's API.
func (c *comparison) allGraphite(ctx context.Context) error {
	if err := c.versions(ctx, (*side).graphiteVersion); err != nil {
		return err
	}
	paths, err := c.comparePaths(ctx)
	if err != nil || len(paths) == 0 {
		return err
	}
	m := &targetMaker{maker: maker{Rand: c.random, start: c.StartMS / 1000, end: c.EndMS / 1000}, paths: paths}
	return settle(ctx, c, queries(c, m.draw), func(q targetQuery, last bool) (bool, error) {
		return c.ask(&q, func() (*Difference, int64, error) { return c.compareTarget(ctx, q) }, last)
	})
}

// graphiteVersion returns the version, "" if the server does not report it, which is
// optional in Graphite's API.
func (s *side) graphiteVersion(ctx context.Context) (string, error) {
	text, err := s.once(ctx, "/version", nil, maxFault, s.timeout)
	if err == nil {
		return "Graphite " + clip.Text(bytes.Trim(text, "\" \n"), 100), nil
	}
	var nodes []treeNode
	err = s.ask(ctx, s.probe, nil, &nodes, maxFault)
	if _, ok := errors.AsType[*refusal](err); ok {
		err = s.fail(err)
	}
	return "", err
}

// A treeNode is an element of an answer of /metrics/find.
type treeNode struct {
	Text string      `json:"text"`
	Leaf json.Number `json:"leaf"`
}

// A level is the nodes that each side has directly below a path.
type level struct{ leaves, branches [2]map[string]bool }

// comparePaths walks through both trees in random order. It returns paths that both sides
// have, shuffled, and reports paths with points that only one side has.
func (c *comparison) comparePaths(ctx context.Context) (paths []string, err error) {
	until := time.Now().Add(c.Limit / 2)
	waiting := []string{""} // branches to list, with a trailing dot
	var only []string
	seen := 0
	for len(waiting) > 0 {
		if time.Now().After(until) {
			c.report.cut(fmt.Sprintf("only the paths of %d branches were compared, and %d more are known: they took half of the time limit (--for)", seen, len(waiting)))
			break
		}
		c.Progress("paths", seen, 0)
		i := c.random.IntN(len(waiting))
		branch := waiting[i]
		waiting[i] = waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		l, err := c.level(ctx, branch)
		if err != nil {
			return nil, err
		}
		seen++
		alone := c.leaves(branch, l, &paths)
		if len(only)+len(alone) > maxMissing {
			c.report.cut(fmt.Sprintf("more than %d paths are listed by one side only; the points of the others were not compared", maxMissing))
			alone = alone[:maxMissing-len(only)]
		}
		only = append(only, alone...)
		waiting = c.branches(branch, l, waiting)
	}
	c.random.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
	return paths, c.missingPaths(ctx, only)
}

// level lists the nodes of both sides below a branch. If a name is both a branch and a
// leaf, /metrics/find lists only the branch, so leaves come from /metrics/expand.
func (c *comparison) level(ctx context.Context, branch string) (l level, err error) {
	query := "query=" + url.QueryEscape(branch+"*")
	err = c.both(func(k int, s *side) error {
		l.leaves[k], l.branches[k] = map[string]bool{}, map[string]bool{}
		var nodes []treeNode
		var leaves struct{ Results []string }
		err := s.ask(ctx, "/metrics/find?format=treejson&"+query, nil, &nodes, maxNames)
		if err == nil {
			err = s.ask(ctx, "/metrics/expand?leavesOnly=1&"+query, nil, &leaves, maxNames)
		}
		if err != nil {
			return c.sideOf(s, "list the paths below "+clip.Text(branch, 200), err)
		}
		for _, n := range nodes {
			if n.Leaf != "1" {
				l.branches[k][n.Text] = true
			}
		}
		for _, path := range leaves.Results {
			l.leaves[k][strings.TrimPrefix(path, branch)] = true
		}
		return nil
	})
	return l, err
}

// wanted reports whether a path is compared.
func (c *comparison) wanted(path string) bool {
	if c.Metrics != nil {
		return c.Metrics.MatchString(path)
	}
	return !slices.ContainsFunc(ownPaths, func(p string) bool { return strings.HasPrefix(path, p) })
}

// leaves adds the leaves that both sides have to paths, and returns those that only one
// side has.
func (c *comparison) leaves(branch string, l level, paths *[]string) (alone []string) {
	for _, name := range union(l.leaves) {
		path := branch + name
		switch {
		case !c.wanted(path):
		case !askable.MatchString(path):
			c.report.skip("paths with characters that are special in targets")
		case !l.leaves[0][name] || !l.leaves[1][name]:
			alone = append(alone, path)
		default:
			c.report.Metrics++
			if len(*paths) < maxPaths {
				*paths = append(*paths, path)
			} else if i := c.random.IntN(c.report.Metrics); i < maxPaths {
				(*paths)[i] = path // reservoir sampling: each path has the same chance
			}
		}
	}
	return alone
}

// branches adds the branches to list to waiting.
func (c *comparison) branches(branch string, l level, waiting []string) []string {
	for _, name := range union(l.branches) {
		path := branch + name + "."
		switch {
		case c.Metrics == nil && slices.Contains(ownPaths, path):
		case !askable.MatchString(name):
			c.report.skip("branches with characters that are special in queries")
		case strings.Count(path, ".") > maxDepth:
			c.report.skip(fmt.Sprintf("branches below %d levels", maxDepth))
		case len(waiting) == maxBranches:
			c.report.skip(fmt.Sprintf("branches beyond the %d that may wait", maxBranches))
		default:
			waiting = append(waiting, path)
		}
	}
	return waiting
}

// union returns what either side has, in order.
func union[V any](sides [2]map[string]V) []string {
	all := maps.Clone(sides[0])
	maps.Copy(all, sides[1])
	return slices.Sorted(maps.Keys(all))
}

// missingPaths compares the points of paths that only one side lists.
func (c *comparison) missingPaths(ctx context.Context, only []string) error {
	paths := func(yield func(string) bool) {
		for i, path := range only {
			c.Progress("paths of one side", i, len(only))
			if !yield(path) {
				return
			}
		}
	}
	return settle(ctx, c, paths, func(path string, last bool) (bool, error) {
		q := targetQuery{path, c.StartMS / 1000, c.EndMS / 1000}
		d, _, err := c.compareTarget(ctx, q)
		if refused(err) {
			d, err = &Difference{Text: "the points could not be compared: " + err.Error()}, nil
		}
		switch {
		case err != nil:
			return false, err
		case d == nil:
			c.report.Listed++
			return false, nil
		case last:
			d.Text = fmt.Sprintf("path %q is listed by one side only; %s", clip.Text(path, 200), d.Text)
			c.report.add(q, d)
		}
		return true, nil
	})
}

// A targetQuery is a query of /render. Times are in seconds.
type targetQuery struct {
	Target string `json:"target"`
	From   int64  `json:"from"`
	Until  int64  `json:"until"`
}

func (q *targetQuery) path() string {
	return "/render?" + url.Values{
		"target": {q.Target}, "format": {"json"}, "noCache": {"1"},
		"from": {strconv.FormatInt(q.From, 10)}, "until": {strconv.FormatInt(q.Until, 10)},
	}.Encode()
}

// narrow shortens the time range to its last eighth: recent times are in more archives.
func (q *targetQuery) narrow() bool {
	length := (q.Until - q.From) / 8
	if length < 1 {
		return false
	}
	q.From = q.Until - length
	return true
}

// A targetMaker draws queries about paths.
type targetMaker struct {
	maker
	paths []string
}

// oneSeries and manySeries are functions with % for one path, and for two. Their results
// depend only on the steps of their arguments, so that two servers with equal archives
// agree.
var (
	oneSeries = []string{
		"scale(%,0.5)", "offset(%,10)", "absolute(%)", "derivative(%)", "nonNegativeDerivative(%)", "integral(%)", "keepLastValue(%)",
		"transformNull(%,-1)", "movingAverage(%,5)", "movingMax(%,3)",
		`summarize(%,"1hour","sum")`, `summarize(%,"1day","avg")`, `summarize(%,"10min","max")`, `summarize(%,"1hour","last")`, `hitcount(%,"1hour")`,
	}
	manySeries = []string{"sumSeries(%,%)", "averageSeries(%,%)", "maxSeries(%,%)", "minSeries(%,%)", "diffSeries(%,%)", "rangeOfSeries(%,%)"}
)

// minSpan is the shortest time range of a query in seconds.
const minSpan = 300

func (m *targetMaker) draw() targetQuery {
	q := targetQuery{}
	q.From, q.Until = m.span()
	if q.Until-q.From < minSpan {
		q.From = max(q.Until-minSpan, m.start)
	}
	if q.From >= q.Until {
		q.From = q.Until - 1 // an empty range is refused
	}
	path := m.paths[m.IntN(len(m.paths))]
	switch form := m.IntN(10); {
	case form < 5:
		q.Target = path
	case form == 5:
		q.Target = path[:strings.LastIndexByte(path, '.')+1] + "*"
	case form < 8:
		q.Target = m.fill(oneSeries[m.IntN(len(oneSeries))], path)
	default:
		q.Target = m.fill(manySeries[m.IntN(len(manySeries))], path)
	}
	return q
}

// fill replaces each % by a path, the first one by path.
func (m *targetMaker) fill(function, path string) string {
	function = strings.Replace(function, "%", path, 1)
	if before, after, ok := strings.Cut(function, ",%"); ok {
		return before + "," + m.paths[m.IntN(len(m.paths))] + after
	}
	return function
}

// A rendered is a series of an answer to a targetQuery.
type rendered struct {
	Target     string          `json:"target"`
	Datapoints []renderedPoint `json:"datapoints"`
}

// A renderedPoint is [value, seconds].
type renderedPoint struct{ point }

func (p *renderedPoint) UnmarshalJSON(text []byte) error {
	var pair [2]json.RawMessage
	if err := json.Unmarshal(text, &pair); err != nil {
		return err
	}
	seconds, err := strconv.ParseFloat(string(bytes.TrimSpace(pair[1])), 64)
	p.ms, p.value = int64(seconds)*1000, string(bytes.TrimSpace(pair[0]))
	return err
}

// A seriesOf is all series of an answer that have one name.
type seriesOf struct {
	points []point
	stepMS int64 // between the first two times, whether they have points or not; 0 if there is only one
}

// byTarget returns the series of an answer by name, without null values.
func byTarget(answer []rendered) map[string]*seriesOf {
	all := map[string]*seriesOf{}
	for _, r := range answer {
		s := all[r.Target]
		if s == nil {
			s = &seriesOf{}
			all[r.Target] = s
		}
		if len(r.Datapoints) > 1 {
			s.stepMS = r.Datapoints[1].ms - r.Datapoints[0].ms
		}
		for _, p := range r.Datapoints {
			if p.value != "null" {
				s.points = append(s.points, p.point)
			}
		}
	}
	return all
}

// compareTarget sends a query to both servers and compares the answers. Without a
// difference it returns the number of points.
func (c *comparison) compareTarget(ctx context.Context, q targetQuery) (*Difference, int64, error) {
	a, b, ok, err := answers(c, func(s *side, to *[]rendered) error { return s.ask(ctx, q.path(), nil, to, maxAnswer) })
	if !ok {
		return nil, 0, err
	}
	if strings.Contains(q.Target, "*") { // may match paths that are not compared
		for _, answer := range []*[]rendered{&a, &b} {
			*answer = slices.DeleteFunc(*answer, func(r rendered) bool { return !c.wanted(r.Target) })
		}
	}
	d, points := compareRendered([2]map[string]*seriesOf{byTarget(a), byTarget(b)}, c.Tolerance)
	return d, points, nil
}

// compareRendered returns the first series that differs. A series without points counts
// as missing.
func compareRendered(sides [2]map[string]*seriesOf, tolerance float64) (*Difference, int64) {
	return firstOf(union(sides), "series", func(name string) *Difference {
		x, y := cmp.Or(sides[0][name], &seriesOf{}), cmp.Or(sides[1][name], &seriesOf{})
		d := differenceOf(json.RawMessage(brief(name)), x.points, y.points, false, tolerance)
		if d.Differ > 0 && x.stepMS != y.stepMS && x.stepMS*y.stepMS > 0 {
			d.Text = fmt.Sprintf("points differ: a has one every %d s, b every %d s", x.stepMS/1000, y.stepMS/1000)
		}
		return d
	})
}
