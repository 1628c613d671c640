package graphite

import (
	"errors"
	"slices"
	"strings"

	"varve/internal/graphite/target"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// A tree finds paths among the names of metrics.
type tree struct {
	session *query.Session
	leaf    func(path string) error // for each leaf that is found; nil: branches are wanted, too
	list    []*entry                // nearly in order
	found   map[string]*entry       // those in list
	plain   map[string]bool         // the first metrics below branches: whether they have a series without tags
	first   int                     // nodes of the glob from its first ** on
	been    map[visit]bool          // what descend has searched with further **
}

// A visit is a search of descend: a prefix, and the number of nodes of the glob to match below
// it.
type visit struct {
	prefix string
	nodes  int
}

// visitBytes is the memory of a visit without its prefix.
const visitBytes = 64

// An entry is a matching path: of a metric (leaf), of metrics below it (branch), or both.
type entry struct {
	path         string
	leaf, branch bool
}

// name returns the last node of the path.
func (e *entry) name() string { return lastNode(e.path) }

func lastNode(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// find returns what matches a glob, in order of paths. It calls leaf, unless that is nil, for each leaf
// as soon as it is found.
func find(s *query.Session, glob target.Glob, leaf func(path string) error) ([]*entry, error) {
	t := &tree{session: s, leaf: leaf, found: map[string]*entry{}, plain: map[string]bool{}, been: map[visit]bool{},
		first: len(glob.Nodes) - slices.IndexFunc(glob.Nodes, target.Node.AnyDepth)}
	if err := t.descend("", glob.Nodes); err != nil {
		return nil, err
	}
	return t.list, query.SortFunc(s, t.list, func(a, b *entry) int { return strings.Compare(a.path, b.path) })
}

// descend adds the paths that begin with a prefix and then match nodes. The prefix is
// empty or ends in a dot.
func (t *tree) descend(prefix string, nodes []target.Node) error {
	if nodes[0].AnyDepth() && len(nodes) < t.first { // there are very many ways to divide a path among several **
		here := visit{prefix, len(nodes)}
		if t.been[here] {
			return nil
		}
		if err := t.session.Reserve(visitBytes + int64(len(prefix))); err != nil {
			return err
		}
		t.been[here] = true
	}
	node, rest := nodes[0], nodes[1:]
	if literals := node.Literals(); literals != nil {
		for _, name := range literals {
			if len(literals) > 1 && len(rest) > 0 {
				// Without this check, the alternatives of all nodes would multiply even where
				// nothing exists.
				if there, _, err := t.names(store.NamesQuery{Prefix: prefix + name + ".", Limit: 1}); err != nil {
					return err
				} else if len(there) == 0 {
					continue
				}
			}
			if err := t.step(prefix, name, rest); err != nil {
				return err
			}
		}
		return nil
	}
	return t.level(prefix+node.Prefix(), func(path string, branch bool) error {
		name := path[len(prefix):]
		if !node.Any() {
			if err := t.session.Tick(store.MatchWork(name)); err != nil {
				return err
			}
		}
		if !node.Match(name) {
			return nil
		}
		if branch && node.AnyDepth() {
			if err := t.descend(path+".", nodes); err != nil {
				return err
			}
		}
		switch {
		case len(rest) == 0:
			return t.add(path, branch)
		case branch:
			return t.descend(path+".", rest)
		}
		return nil
	})
}

// step descends to a node with a known name, or adds it if it is the last one.
func (t *tree) step(prefix, name string, rest []target.Node) error {
	path := prefix + name
	if len(rest) > 0 {
		return t.descend(path+".", rest)
	}
	names, _, err := t.names(store.NamesQuery{Prefix: path, Limit: 1})
	if err != nil {
		return err
	}
	if len(names) > 0 && names[0] == path {
		if err := t.add(path, false); err != nil {
			return err
		}
	}
	if names, _, err = t.names(store.NamesQuery{Prefix: path + ".", Limit: 1}); err != nil || len(names) == 0 {
		return err
	}
	return t.add(path, true)
}

// level calls f for each path with a prefix, up to the next dot.
func (t *tree) level(prefix string, f func(path string, branch bool) error) error {
	return eachName(t.session, store.NamesQuery{Prefix: prefix, Delimiter: '.'}, func(name string) error {
		if name == prefix && strings.HasSuffix(name, ".") {
			return nil // a metric whose name ends in a dot is not a path in Graphite, and has no node here
		}
		return f(strings.CutSuffix(name, "."))
	})
}

// namesPage is the number of names that are read at once.
const namesPage = 10_000

// eachName calls f for all names of metrics that q selects. It reads them page by page.
func eachName(s *query.Session, q store.NamesQuery, f func(name string) error) error {
	q.Kind, q.Limit = store.MetricNames, namesPage
	for more := true; more; {
		var names []string
		var err error
		if names, more, err = s.NamesPage(q); err != nil {
			return err
		}
		for _, name := range names {
			if err := f(name); err != nil {
				return err
			}
			q.After = name
		}
	}
	return nil
}

func (t *tree) names(q store.NamesQuery) ([]string, bool, error) {
	q.Kind = store.MetricNames
	return t.session.NamesPage(q)
}

// entryBytes is the memory of an entry without its path.
const entryBytes = 128

// add adds a path, unless all series there have tags.
func (t *tree) add(path string, branch bool) error {
	if branch && t.leaf != nil {
		return nil
	}
	e := t.found[path]
	if e != nil && (branch && e.branch || !branch && e.leaf) {
		return nil // already found by another division of the path
	}
	var ok bool
	var err error
	if branch {
		ok, err = t.hasPlain(path + ".")
	} else {
		ok, err = isPlain(t.session, path) // not cached: e itself is kept
	}
	if err != nil || !ok {
		return err
	}
	if e == nil {
		if err := t.session.Reserve(entryBytes + int64(len(path))); err != nil {
			return err
		}
		e = &entry{path: path}
		t.list, t.found[path] = append(t.list, e), e
	}
	e.leaf, e.branch = e.leaf || !branch, e.branch || branch
	if t.leaf == nil {
		return nil
	}
	return t.leaf(path)
}

// plainLooks limits the metrics below a branch that are checked for a series without tags.
const plainLooks = 100

// hasPlain reports whether one of the first metrics with a prefix has a series without
// tags.
func (t *tree) hasPlain(prefix string) (bool, error) {
	names, _, err := t.names(store.NamesQuery{Prefix: prefix, Limit: plainLooks})
	for i := 0; err == nil && i < len(names); i++ {
		var ok bool
		if ok, err = t.isPlain(names[i]); ok {
			return true, nil
		}
	}
	return false, err
}

// isPlain reports whether a metric has a series without tags. A metric with more series
// than query.max_series counts as one without.
func (t *tree) isPlain(metric string) (bool, error) {
	if known, ok := t.plain[metric]; ok {
		return known, nil
	}
	plain, err := isPlain(t.session, metric)
	if err == nil {
		err = t.session.Reserve(entryBytes + int64(len(metric)))
	}
	t.plain[metric] = plain
	return plain, err
}

// isPlain is tree.isPlain without its cache.
func isPlain(s *query.Session, metric string) (bool, error) {
	plain, err := s.Any(store.Selection{Metric: metric, Range: model.AllTime}, withoutTags)
	if limit := (*store.LimitError)(nil); err != nil && errors.As(err, &limit) && limit.Limit == "query.max_series" {
		return false, nil
	}
	return plain, err
}

func withoutTags(s model.Series) bool { return s.Tags == (model.Tags{}) }
