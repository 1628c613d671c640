package read

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/model"
)

// A partition of row_keys for which the inverted index is incomplete need not be read
// completely: Cassandra's order of row keys makes it possible to skip most of those that do not
// match.
//
//	data_type, then tags: name and value of the first tag, of the second, ...
//	a set of tags comes before all longer sets with the same beginning
//
// Names are sorted within a set. So if city is the first tag, all sets with city=x are
// adjacent; if it is the second, they are adjacent for each value of the first. A scan reads a
// page of row keys. At the first one that does not match, it computes the least row key that
// may match, and if that is not in the page, reads the page that begins there. Like a complete
// read, it sees the present contents of row_keys, including rows of KairosDB.
//
// Releases that store a map in the order in which it was bound have a different order, so their
// partitions are not scanned: see rowkey.KeepsMapsInOrder.
//
// If the tag in question comes after one with many values, little can be skipped, and pages
// become longer. If the scan does not end soon, it is abandoned, and the whole partition is
// read.
const (
	// scanPage is the size of the first page in row keys. After a page with a skip, the next
	// page is shorter, down to minScanPage, otherwise longer.
	scanPage     = 64
	minScanPage  = 16
	maxScanPage  = 5000
	scanPageStep = 4

	// scanPages and scanPassed are how many pages with mostly non-matching row keys, and how
	// many non-matching row keys, a scan may read before it is abandoned.
	scanPages  = 60
	scanPassed = 20_000

	// scanGivenUp is how long it is remembered that scans of a metric by some tags are useless.
	scanGivenUp = 10 * time.Minute

	// maxGivenUp bounds how many useless kinds of scans are remembered.
	maxGivenUp = 1000
)

var seekRowKeys = &cql.Statement{Name: "seek_row_keys",
	Text: "SELECT data_type, tags FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND (data_type, tags) >= (?, ?) LIMIT ?"}

// A literal is a matcher by values, sorted as the server sorts them: by bytes.
type literal struct {
	name   string
	values []string
}

// sortedLiterals returns the literal matchers sorted by name, one per name; possible is false
// if two with the same name contradict each other.
func sortedLiterals(matchers []model.Matcher) (literals []literal, possible bool) {
	for _, m := range matchers {
		values := rowkey.Distinct(m.Values)
		if i := slices.IndexFunc(literals, func(l literal) bool { return l.name == m.Tag }); i >= 0 {
			both := slices.DeleteFunc(slices.Clone(values), func(v string) bool { return !slices.Contains(literals[i].values, v) })
			if literals[i].values = both; len(both) == 0 {
				return nil, false
			}
			continue
		}
		literals = append(literals, literal{m.Tag, values})
	}
	slices.SortFunc(literals, func(a, b literal) int { return strings.Compare(a.name, b.name) })
	return literals, true
}

// A leap says which set of tags may match next.
type leap int

const (
	onward  leap = iota // this set does not match; the next one may
	matches             // this set matches
	leapTo              // no set before a given one matches
	leapEnd             // no later set matches
)

// leapFrom reports whether a set of tags matches all literals and, if not, the least set that
// may.
func leapFrom(tags []model.Tag, literals []literal) (leap, []model.Tag) {
	met := 0 // number of literals matched so far
	for i, tag := range tags {
		if met == len(literals) {
			break
		}
		l := literals[met]
		switch c := strings.Compare(tag.Name, l.name); {
		case c > 0: // this set, and all later ones with the same beginning, lack the tag
			return leapOver(tags[:i], literals)
		case c == 0:
			at, found := slices.BinarySearch(l.values, tag.Value)
			if !found && at == len(l.values) {
				return leapOver(tags[:i], literals)
			}
			if !found {
				return leapTo, append(slices.Clone(tags[:i]), model.Tag{Name: l.name, Value: l.values[at]})
			}
			met++
		}
	}
	if met == len(literals) {
		return matches, nil
	}
	return onward, nil // a set with more tags than this one may match
}

// leapOver returns the least set that may match after all sets that begin with the given tags.
func leapOver(tags []model.Tag, literals []literal) (leap, []model.Tag) {
	for i := len(tags) - 1; i >= 0; i-- {
		name, value := tags[i].Name, tags[i].Value
		at := slices.IndexFunc(literals, func(l literal) bool { return l.name == name })
		if at < 0 {
			return leapTo, append(slices.Clone(tags[:i]), model.Tag{Name: name, Value: value + "\x00"})
		}
		if next, _ := slices.BinarySearch(literals[at].values, value+"\x00"); next < len(literals[at].values) {
			return leapTo, append(slices.Clone(tags[:i]), model.Tag{Name: name, Value: literals[at].values[next]})
		}
	}
	return leapEnd, nil
}

// A place is a position in the order of row keys, whether or not such a row key exists.
type place struct {
	typ  string
	tags []model.Tag
}

func (p place) compare(q place) int {
	return cmp.Or(strings.Compare(p.typ, q.typ), rowkey.CompareTags(p.tags, q.tags))
}

// next is the place directly after p.
func (p place) next() place {
	last := ""
	if n := len(p.tags); n > 0 {
		last = p.tags[n-1].Name + "\x00"
	}
	return place{p.typ, append(slices.Clone(p.tags), model.Tag{Name: last})}
}

// A skipScan finds the row keys that match literals, in the order of the server.
type skipScan struct {
	literals []literal
	from     place // no row key before it can match
}

// see processes the next row key, and reports whether it matches the literals.
func (s *skipScan) see(k rowkey.Key) bool {
	at := place{string(k.Type), rowkey.ServerOrder(k.Tags)}
	if at.compare(s.from) < 0 {
		return false
	}
	step, tags := leapFrom(at.tags, s.literals)
	switch step {
	case leapTo:
		s.from = place{at.typ, tags}
	case leapEnd:
		s.from = place{typ: at.typ + "\x00"}
	default:
		s.from = at.next()
	}
	return step == matches
}

// scan returns the row keys of a partition that match the literals; ok is false if the scan was
// abandoned. If there are too many, only the harvest has some of them, and the error is
// errMatchesOnly.
func (l *Look) scan(ctx context.Context, p *partition, literals []literal, h *harvest) (list *keyList, ok bool, err error) {
	s := skipScan{literals: literals}
	in := l.newIntake(new(atomic.Int64), h)
	size, passed := scanPage, 0
	for poor := 0; poor < scanPages; {
		tags, err := model.NewTags(s.from.tags...)
		if err != nil {
			return nil, false, err
		}
		page, err := l.seek(ctx, p, s.from.typ, tags, size)
		if err != nil {
			return nil, false, err
		}
		found := 0
		for _, k := range page {
			if !s.see(k) {
				continue
			}
			found++
			if err := in.add(k, cql.TagMap{Tags: k.Tags}.Size()); err != nil {
				list, err = in.end(err)
				return list, true, err
			}
		}
		if passed += len(page) - found; found < len(page)/2 {
			poor++
		}
		switch {
		case len(page) < size:
			list, err = in.end(nil)
			return list, true, err
		case passed > scanPassed:
			return nil, false, in.drop()
		}
		last := page[len(page)-1]
		if end := (place{string(last.Type), rowkey.ServerOrder(last.Tags)}).next(); s.from.compare(end) > 0 {
			size = max(size/scanPageStep, minScanPage)
		} else {
			s.from, size = end, min(size*scanPageStep, maxScanPage)
		}
	}
	return nil, false, in.drop()
}

// seek reads row keys of a partition, starting at a place.
func (l *Look) seek(ctx context.Context, p *partition, typ string, tags model.Tags, limit int) ([]rowkey.Key, error) {
	keys, bytes := make([]rowkey.Key, 0, limit), 0
	rows := l.query(ctx, seekRowKeys, append(p.key.Args(), typ, cql.TagMap{Tags: tags}, limit)...)
	err := rowkey.EachOf(rows, func(k rowkey.Key, tagBytes int) error {
		keys, bytes = append(keys, k), bytes+tagBytes+keyOverhead
		return nil
	})
	l.trace[countIndexRows].Add(int64(len(keys)))
	l.trace[countIndexBytes].Add(int64(bytes))
	return keys, err
}

// A scanKind identifies similar scans: of one metric, by the same tags.
type scanKind struct {
	metric, tags string
}

func kindOf(metric string, literals []literal) scanKind {
	k := scanKind{metric: metric}
	for _, l := range literals {
		k.tags += l.name + "\x00"
	}
	return k
}

// givenUp remembers which scans are useless.
type givenUp struct {
	mu    sync.Mutex
	until map[scanKind]time.Time
}

func (g *givenUp) has(k scanKind, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return now.Before(g.until[k])
}

func (g *givenUp) add(k scanKind, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.until == nil || len(g.until) >= maxGivenUp {
		g.until = map[scanKind]time.Time{}
	}
	g.until[k] = now.Add(scanGivenUp)
}
