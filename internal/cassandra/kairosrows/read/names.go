package read

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/work"
)

var readMetricNames = &cql.Statement{Name: "read_metric_names",
	Text: "SELECT column1 FROM string_index WHERE key = ? AND column1 >= ?"}

// Names lists metric names, tag names or tag values in the order of model.CompareNames, each
// once; more says that q.Limit truncated the list. Tag names and values come from row keys, so
// they may outlive expired samples.
func (l *Look) Names(ctx context.Context, q store.NamesQuery) (names []string, more bool, err error) {
	if err := q.Check(); err != nil {
		return nil, false, err
	}
	l.trace[countLookups].Add(1)
	l.holdBy(q.Hold)
	if q.Kind == store.MetricNames {
		names, err = l.metricNames(ctx, q)
	} else {
		names, err = l.tagTexts(ctx, q)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, false, fmt.Errorf("list names: %w", err)
	}
	slices.SortFunc(names, model.CompareNames)
	if q.Limit > 0 && len(names) > q.Limit {
		return names[:q.Limit:q.Limit], true, nil
	}
	return names, false, nil
}

// wanted reports whether q selects a name. Matching a name may take milliseconds, so wanted
// returns false once ctx has ended.
func wanted(ctx context.Context, q store.NamesQuery, name string) bool {
	return strings.HasPrefix(name, q.Prefix) && (q.After == "" || model.CompareNames(name, q.After) > 0) &&
		(q.Pattern == nil || ctx.Err() == nil && q.Pattern.MatchString(name))
}

// leapAfter is how many names below an entry are read before the next entry is looked up by a
// separate statement.
const leapAfter = 500

// metricNames lists names, or one level of their tree, until there is one entry more than wanted.
// string_index is ordered by bytes. That is the order of model.CompareNames except for characters
// whose UTF-8 begins with 0xee or more: if there is one, the list is read to its end.
func (l *Look) metricNames(ctx context.Context, q store.NamesQuery) (names []string, err error) {
	if !l.reader.ks.Tables.StringIndex {
		return nil, nil
	}
	inOrder := !hasHighBytes(q.After)
	from, leap := q.Prefix, true
	if beyond, ok := q.Beyond(q.After); inOrder && ok {
		from = max(from, beyond)
	} else if inOrder {
		from = max(from, q.After)
	}
	for leap && err == nil {
		names, from, leap, err = l.readNames(ctx, q, names, from, &inOrder)
	}
	return names, err
}

// readNames reads entries starting at a name, until there are enough, or until leapAfter names
// below one entry were read: then leap is true, and next is the name from which to continue.
func (l *Look) readNames(ctx context.Context, q store.NamesQuery, names []string, from string, inOrder *bool) (_ []string, next string, leap bool, err error) {
	rows := l.query(ctx, readMetricNames, []byte(schema.MetricNames), l.reader.ks.Tables.NameColumn(from))
	defer rows.Close()
	var column cql.Raw
	last, below := "", 0
	for rows.Scan(&column) {
		name := string(column)
		if !strings.HasPrefix(name, q.Prefix) {
			break
		}
		entry := q.Entry(name)
		if entry == last {
			if below++; below == leapAfter {
				next, _ = q.Beyond(entry)
				return names, next, true, rows.Close()
			}
			continue
		}
		last, below = entry, 0
		if !wanted(ctx, q, entry) {
			continue
		}
		if q.Limit == 0 {
			if err := l.hold(int64(len(entry)) + textOverhead); err != nil {
				return nil, "", false, err
			}
		}
		*inOrder = *inOrder && !hasHighBytes(entry)
		names = append(names, entry)
		l.trace[countIndexRows].Add(1)
		if q.Limit > 0 && len(names) > q.Limit && *inOrder {
			break
		}
	}
	return names, "", false, rows.Close()
}

func hasHighBytes(s string) bool {
	for i := range len(s) {
		if s[i] >= 0xee {
			return true
		}
	}
	return false
}

// textOverhead is about the memory of a text in a set or a list, in addition to its bytes.
const textOverhead = 64

// textsOf says which tag names or values are listed, whatever the page.
type textsOf struct {
	kind                store.NameKind
	metric, tag, prefix string
	pattern             *model.Pattern
}

// tagTexts lists tag names or values after q.After. All pages of a request are made from one
// list: making it reads the row keys of a metric, or of all.
func (l *Look) tagTexts(ctx context.Context, q store.NamesQuery) ([]string, error) {
	after, limit := q.After, q.Limit
	q.After, q.Limit = "", 0
	list, err := memo(l, l.texts, textsOf{q.Kind, q.Metric, q.Tag, q.Prefix, q.Pattern}).get(ctx, func() ([]string, error) { return l.allTexts(ctx, q) })
	if err != nil {
		return nil, err
	}
	from := 0
	if after != "" {
		from = sort.Search(len(list), func(i int) bool { return model.CompareNames(list[i], after) > 0 })
	}
	to := len(list)
	if limit > 0 {
		to = min(to, from+limit+1)
	}
	return slices.Clone(list[from:to]), nil
}

// allTexts collects tag names or values from row keys, in the order of model.CompareNames.
func (l *Look) allTexts(ctx context.Context, q store.NamesQuery) ([]string, error) {
	metrics := []string{q.Metric}
	if q.Metric == "" {
		var err error
		if metrics, err = l.metricNames(ctx, store.NamesQuery{Kind: store.MetricNames}); err != nil {
			return nil, err
		}
	}
	t := &texts{ctx: ctx, q: q, hold: l.hold, seen: map[string]bool{}}
	for _, metric := range metrics {
		if err := l.eachKeyOf(ctx, metric, t.add); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil { // some may not have been compared with the pattern
		return nil, err
	}
	names := t.list()
	slices.SortFunc(names, model.CompareNames)
	return names, nil
}

// texts collects the names that were found.
type texts struct {
	ctx  context.Context
	q    store.NamesQuery
	hold func(bytes int64) error

	mu   sync.Mutex
	seen map[string]bool // whether the name is wanted
}

func (t *texts) add(keys []rowkey.Key) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range keys {
		for name, value := range k.Tags.All() {
			var err error
			switch {
			case t.q.Kind == store.TagNames:
				err = t.meet(name)
			case t.q.Tag == "" || t.q.Tag == name:
				err = t.meet(value)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *texts) meet(text string) error {
	if _, known := t.seen[text]; known {
		return nil
	}
	if err := t.hold(int64(len(text)) + textOverhead); err != nil {
		return err
	}
	text = strings.Clone(text) // so that the whole row key is not kept
	t.seen[text] = wanted(t.ctx, t.q, text)
	return nil
}

func (t *texts) list() []string {
	var names []string
	for name, wanted := range t.seen {
		if wanted {
			names = append(names, name)
		}
	}
	return names
}

// eachKeyOf calls f with all row keys of a metric, partition by partition and from several
// goroutines at once. It keeps them in the cache only.
func (l *Look) eachKeyOf(ctx context.Context, metric string, f func([]rowkey.Key) error) error {
	low, high := l.reader.ks.Spec.RowRange(model.AllTime)
	s := rowkey.Span{Metric: metric, LowMS: low, HighMS: high}
	if err := l.eachLegacyKey(ctx, s, wish{}, func(_ Row, keys []rowkey.Key) error { return f(keys) }); err != nil {
		return err
	}
	states, err := memo(l, l.states, s).get(ctx, func() ([]rowkey.RowTime, error) { return l.readStates(ctx, s) })
	if err != nil {
		return err
	}
	defer l.forget(s, states)
	return work.Parallel(ctx, cap(l.slots), len(states), "list the row keys of a row time", func(ctx context.Context, i int) error {
		list, held, err := l.listOf(ctx, l.partition(metric, states[i]))
		if err != nil {
			return err
		}
		if err := f(list.keys); err != nil {
			return err
		}
		return l.hold(-held)
	})
}

// forget drops what the Look has read about the row times of a metric. Without it, a request that goes
// through all metrics would keep the row times of all of them.
func (l *Look) forget(s rowkey.Span, states []rowkey.RowTime) {
	l.mu.Lock()
	kept := l.states[s] != nil
	delete(l.states, s)
	delete(l.legacy, s)
	for _, state := range states {
		delete(l.partitions, rowkey.Partition{Metric: s.Metric, TimeMS: state.TimeMS})
	}
	l.mu.Unlock()
	if kept {
		_ = l.hold(-int64(len(states)) * rowTimeBytes) // giving back does not fail
	}
}

// listOf returns all row keys of a partition, and how many bytes of them nobody else keeps.
func (l *Look) listOf(ctx context.Context, p *partition) (list *keyList, held int64, err error) {
	if p.full.loaded.Load() {
		return p.full.value, 0, nil
	}
	if l.reader.postings.holds(p.key) {
		s, err := l.stampOf(ctx, p.key)
		if err != nil {
			return nil, 0, err
		}
		if list := l.kept(p, tagPair{}, s); list != nil {
			l.answer(byCache)
			return list, 0, nil
		}
	}
	if list, err = l.readWhole(ctx, p); err != nil {
		return nil, 0, err
	}
	return list, list.bytes, nil
}
