package graphite

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"varve/internal/graphite/function"
	"varve/internal/graphite/render"
	"varve/internal/graphite/target"
	"varve/internal/graphite/timespec"
	"varve/internal/httpapi"
	"varve/internal/query"
	"varve/internal/store"
)

// maxQuery limits a glob, in bytes.
const maxQuery = 64 << 10

// A finding is a request of /metrics/find.
type finding struct {
	query      string
	format     string
	wildcards  bool // a * is offered if it stands for several nodes
	leavesOnly bool
	variants   bool
	position   int
}

// parseFinding parses the parameters of /metrics/find.
func parseFinding(form url.Values, now time.Time) (f finding, err error) {
	f = finding{query: lastOf(form, "query"), format: "treejson"}
	if form.Has("format") {
		f.format = lastOf(form, "format")
	}
	number := func(name string, without int) (n int) {
		if err != nil || !form.Has(name) {
			return without
		}
		text := lastOf(form, name)
		if n, err = strconv.Atoi(strings.TrimSpace(text)); err != nil {
			err = fmt.Errorf("%s is not a whole number: %.40q", name, text)
		}
		return n
	}
	f.wildcards = number("wildcards", 0) != 0
	f.leavesOnly = number("leavesOnly", 0) != 0
	f.variants = number("automatic_variants", 0) != 0
	number("local", 0) // has no effect
	f.position = number("position", -1)
	if err := cmp.Or(err, checkTimes(form, now)); err != nil {
		return f, err
	}
	switch {
	case f.query == "":
		return f, fmt.Errorf("the parameter query is missing")
	case len(f.query) > maxQuery:
		return f, fmt.Errorf("the query is longer than %d bytes", maxQuery)
	}
	return f, nil
}

func lastOf(form url.Values, name string) string {
	values := form[name]
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// checkTimes returns an error if a parameter is not a time; -1 is no time. Otherwise the
// times have no effect.
func checkTimes(form url.Values, now time.Time) error {
	zone := zoneOf(form)
	for _, name := range []string{"now", "from", "until"} {
		text := lastOf(form, name)
		if !form.Has(name) || text == "-1" && name != "now" {
			continue
		}
		t, err := timespec.Parse(text, now.In(zone), zone)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if name == "now" {
			now = t
		}
	}
	return nil
}

// zoneOf returns the time zone in the parameter tz, UTC if that names none.
func zoneOf(form url.Values) *time.Location {
	if zone, known := timespec.Zone(lastOf(form, "tz")); known {
		return zone
	}
	return time.UTC
}

// find answers /metrics/find.
func (a *API) find(w http.ResponseWriter, r *http.Request, form url.Values) {
	f, err := parseFinding(form, a.now())
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	show := map[string]func(finding, []*entry) any{
		"treejson": treeJSON, "completer": completer, "nodelist": nodeList, "json": a.plainJSON,
	}[f.format]
	if show == nil && render.NodesType(f.format) == "" {
		refuse(w, http.StatusBadRequest, "Invalid value for 'format' parameter")
		return
	}
	if f.format == "completer" {
		f.query = completed(f)
	}
	w.Header().Set("Pragma", "no-cache")
	w.Header().Set("Cache-Control", "no-cache")
	a.within(w, r, f.query, func(s *query.Session) error {
		found, err := a.findAll(s, f.query, f.leavesOnly)
		if err != nil {
			return err
		}
		f.wildcards = f.wildcards && (len(found) > 1 || len(slices.Collect(nodesOf(found))) > 1)
		if f.format == "treejson" {
			found = ofEachName(found)
			// Each node and its text in the answer repeat the query.
			if err := s.Reserve(2 * int64(len(found)) * int64(len(f.query))); err != nil {
				return err
			}
		}
		if err := query.SortFunc(s, found, compareNames); err != nil {
			return err
		}
		if show == nil {
			return sent(a.writeNodes(httpapi.WithBody(w, s.Writer(w)), f.format, found))
		}
		return answerWithin(s, w, form, show(f, found))
	})
}

// compareNames orders by the last node, and where that is the same by path.
func compareNames(a, b *entry) int {
	return cmp.Or(strings.Compare(a.name(), b.name()), strings.Compare(a.path, b.path))
}

// ofEachName leaves the first branch and the first leaf of each name.
func ofEachName(found []*entry) []*entry {
	seen := map[string]entry{}
	return slices.DeleteFunc(found, func(e *entry) bool {
		before := seen[e.name()]
		seen[e.name()] = entry{leaf: before.leaf || e.leaf, branch: before.branch || e.branch}
		return (before.leaf || !e.leaf) && (before.branch || !e.branch)
	})
}

// nodesOf yields the nodes of entries. A path that is both a branch and a leaf is two nodes.
func nodesOf(found []*entry) iter.Seq[render.Node] {
	return func(yield func(render.Node) bool) {
		for _, e := range found {
			if e.branch && !yield(render.Node{Path: e.path}) || e.leaf && !yield(render.Node{Path: e.path, Leaf: true}) {
				return
			}
		}
	}
}

// writeNodes answers a graphite-web that has this server in its CLUSTER_SERVERS.
func (a *API) writeNodes(w http.ResponseWriter, format string, found []*entry) error {
	w.Header().Set("Content-Type", render.NodesType(format))
	return render.WriteNodes(w, format, slices.AppendSeq(make([]render.Node, 0, len(found)), nodesOf(found)), a.now().Unix())
}

func (a *API) findAll(s *query.Session, glob string, leavesOnly bool) ([]*entry, error) {
	g, err := target.ParseGlob(glob)
	if err != nil {
		return nil, &function.ParamError{Reason: err.Error()}
	}
	found, err := find(s, g, nil)
	if leavesOnly {
		found = slices.DeleteFunc(found, func(e *entry) bool { return !e.leaf })
		for _, e := range found {
			e.branch = false
		}
	}
	return found, err
}

// completed turns the query of a completer into a glob of all paths that begin with the
// query.
func completed(f finding) string {
	text := strings.ReplaceAll(f.query, "..", "*.")
	if !strings.HasSuffix(text, "*") {
		text += "*"
	}
	if !f.variants {
		return text
	}
	nodes := strings.Split(text, ".")
	for i, node := range nodes {
		if strings.Contains(node, ",") && !strings.ContainsAny(node, "{}") {
			nodes[i] = "{" + strings.TrimSuffix(node, "*") + "}" + map[bool]string{true: "*"}[strings.HasSuffix(node, "*")]
		}
	}
	return strings.Join(nodes, ".")
}

// A treeNode is an entry of the format treejson.
type treeNode struct {
	Text          string `json:"text"`
	ID            string `json:"id"`
	AllowChildren int    `json:"allowChildren"`
	Expandable    int    `json:"expandable"`
	Leaf          int    `json:"leaf"`
}

// treeJSON lists branches, then leaves, each name once.
func treeJSON(f finding, found []*entry) any {
	base := f.query[:strings.LastIndexByte(f.query, '.')+1]
	nodes := []treeNode{}
	seen := map[string]bool{}
	if f.wildcards {
		wild := treeNode{Text: "*", ID: base + "*"}
		if slices.ContainsFunc(found, func(e *entry) bool { return e.branch }) {
			wild.AllowChildren, wild.Expandable = 1, 1
		} else {
			wild.Leaf = 1
		}
		nodes = append(nodes, wild)
	}
	for _, branches := range []bool{true, false} {
		for _, e := range found {
			if e.branch != branches || seen[e.name()] {
				continue
			}
			seen[e.name()] = true
			n := treeNode{Text: e.name(), ID: base + e.name()}
			if branches {
				n.AllowChildren, n.Expandable = 1, 1
			} else {
				n.Leaf = 1
			}
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// A completion is an entry of the format completer.
type completion struct {
	IsLeaf string `json:"is_leaf,omitempty"`
	Name   string `json:"name"`
	Path   string `json:"path,omitempty"`
}

// completer lists paths for completion in a user interface.
func completer(f finding, found []*entry) any {
	metrics := []completion{}
	for n := range nodesOf(found) {
		name := lastNode(n.Path)
		if n.Leaf {
			metrics = append(metrics, completion{"1", name, n.Path})
		} else {
			metrics = append(metrics, completion{"0", name, n.Path + "."})
		}
	}
	if f.wildcards {
		metrics = append(metrics, completion{Name: "*"})
	}
	return map[string]any{"metrics": metrics}
}

// nodeList lists the names of one level.
func nodeList(f finding, found []*entry) any {
	names := map[string]bool{}
	for _, e := range found {
		nodes := strings.Split(e.path, ".")
		at := f.position
		if at < 0 {
			at += len(nodes)
		}
		if at >= 0 && at < len(nodes) {
			names[nodes[at]] = true
		}
	}
	return map[string]any{"nodes": append([]string{}, slices.Sorted(maps.Keys(names))...)}
}

// plainJSON lists branches, and leaves with the interval in which they may have points.
func (a *API) plainJSON(_ finding, found []*entry) any {
	list := []map[string]any{}
	slices.SortFunc(found, func(a, b *entry) int { return strings.Compare(a.path, b.path) })
	for n := range nodesOf(found) {
		node := map[string]any{"path": n.Path, "is_leaf": n.Leaf}
		if n.Leaf {
			node["intervals"] = []any{map[string]float64{"start": 0, "end": float64(a.now().Unix())}}
		}
		list = append(list, node)
	}
	return list
}

// expand answers /metrics/expand.
func (a *API) expand(w http.ResponseWriter, r *http.Request, form url.Values) {
	leaves, err := strconv.Atoi("0" + strings.TrimSpace(lastOf(form, "leavesOnly")))
	grouped, groupErr := strconv.Atoi("0" + strings.TrimSpace(lastOf(form, "groupByExpr")))
	if err != nil || groupErr != nil {
		refuse(w, http.StatusBadRequest, "leavesOnly and groupByExpr must be 0 or 1")
		return
	}
	a.within(w, r, strings.Join(form["query"], " "), func(s *query.Session) error {
		byQuery := map[string][]string{}
		all := map[string]bool{}
		for _, glob := range form["query"] {
			if len(glob) > maxQuery {
				return &function.ParamError{Reason: fmt.Sprintf("a query is longer than %d bytes", maxQuery)}
			}
			found, err := a.findAll(s, glob, leaves != 0)
			if err != nil {
				return err
			}
			byQuery[glob] = []string{}
			for _, e := range found {
				byQuery[glob] = append(byQuery[glob], e.path)
				all[e.path] = true
			}
		}
		var results any = append([]string{}, slices.Sorted(maps.Keys(all))...)
		if grouped != 0 {
			results = byQuery
		}
		return answerWithin(s, w, form, map[string]any{"results": results})
	})
}

// index answers /metrics/index.json: all paths.
func (a *API) index(w http.ResponseWriter, r *http.Request, form url.Values) {
	call := form.Get("jsonp")
	if call != "" && !render.ValidCallback(call) {
		refuse(w, http.StatusBadRequest, badCallback)
		return
	}
	a.within(w, r, "index.json", func(s *query.Session) error {
		var paths []string
		err := eachName(s, store.NamesQuery{}, func(metric string) error {
			plain, err := isPlain(s, metric)
			if err != nil || !plain {
				return err
			}
			paths = append(paths, metric)
			return s.Reserve(pathBytes)
		})
		if err != nil {
			return err
		}
		slices.Sort(paths)
		return sent(writePaths(httpapi.WithBody(w, s.Writer(w)), call, paths))
	})
}

// pathBytes is the memory of a path in a growing list. Its text belongs to the store.
const pathBytes = 2 * 16

// writePaths writes paths as a JSON array, path by path, or as a JSONP call if there is
// one.
func writePaths(w http.ResponseWriter, call string, paths []string) error {
	w.Header().Set("Content-Type", contentType(call))
	out := bufio.NewWriterSize(w, 32<<10)
	between, end := "[", "]"
	if call != "" {
		between, end = call+"([", "])"
	}
	for _, path := range paths {
		text, err := json.Marshal(path)
		if err != nil {
			return err
		}
		out.WriteString(between)
		if _, err := out.Write(text); err != nil {
			return err
		}
		between = ", "
	}
	if len(paths) == 0 {
		out.WriteString(between)
	}
	out.WriteString(end)
	return out.Flush()
}
