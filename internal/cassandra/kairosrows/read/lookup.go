package read

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/work"
)

// SeriesRows is a series and its rows, ascending by time.
type SeriesRows struct {
	Series model.Series
	Rows   []Row
}

// Lookup returns the series that match and have a row that may hold samples of
// the range, each with those rows.
func (l *Look) Lookup(ctx context.Context, sel store.Selection) ([]SeriesRows, error) {
	f, err := l.find(ctx, sel)
	if err != nil || f.Len() == 0 {
		return nil, err
	}
	all := make([]SeriesRows, f.Len())
	for i := range all {
		all[i] = SeriesRows{f.Series(i), f.rowsOf(i)}
	}
	return all, nil
}

// find finds what Lookup and Select return.
func (l *Look) find(ctx context.Context, sel store.Selection) (*Found, error) {
	l.trace.lookups.Add(1)
	f := &Found{look: l, metric: sel.Metric}
	if sel.Range.StartMS > sel.Range.EndMS || rowkey.Impossible(sel.Matchers) {
		return f, nil
	}
	g := &gathering{sel: sel, found: f}
	if err := l.eachKey(ctx, sel, g.limit(), g.add); err != nil {
		if limit := (*store.LimitError)(nil); errors.As(err, &limit) {
			return nil, err
		}
		return nil, fmt.Errorf("look up series of %s: %w", sel.Metric, err)
	}
	return f, nil
}

// eachKey calls f with the matching row keys of each row of the selection, by
// several goroutines at once. Of a partition that has more than limit of them it
// may hand out only more than limit.
func (l *Look) eachKey(ctx context.Context, sel store.Selection, limit int, f func(Row, []rowkey.Key) error) error {
	low, high := l.reader.ks.Spec.RowRange(sel.Range)
	s := rowkey.Span{Metric: sel.Metric, LowMS: low, HighMS: high}
	if err := l.eachLegacyKey(ctx, s, sel.Matchers, f); err != nil {
		return err
	}
	states, err := l.statesOf(ctx, s, slices.ContainsFunc(sel.Matchers, rowkey.IsLiteral))
	if err != nil {
		return err
	}
	return work.Parallel(ctx, cap(l.slots), len(states), "look up the series of a row time", func(ctx context.Context, i int) error {
		p := l.partition(sel.Metric, states[i])
		keys, err := l.keysOf(ctx, p, sel.Matchers, limit)
		if err == nil && len(keys) > 0 {
			err = f(Row{p.key.TimeMS, Typed}, keys)
		}
		return err
	})
}

// maxGuessed is the most row times whose mtime is read before it is known that
// they exist.
const maxGuessed = 4

// statesOf returns the row times of a span. If their mtimes are likely to be
// needed, and there are few that can be, these are read at the same time, which
// saves a round trip. Of row times that were there a while ago it is enough that
// they have an mtime: row_key_time_index is not asked again.
func (l *Look) statesOf(ctx context.Context, s rowkey.Span, selective bool) ([]rowkey.RowTime, error) {
	possible := l.rowTimes(s)
	read := l.readStates
	if len(possible) > 0 && !slices.ContainsFunc(possible, func(k rowkey.Partition) bool { return !l.reader.postings.believes(k) }) {
		read = func(ctx context.Context, s rowkey.Span) ([]rowkey.RowTime, error) {
			return l.readBelieved(ctx, s, possible)
		}
	}
	var guesses []rowkey.Partition
	for _, k := range possible {
		if selective || l.reader.postings.holds(k) {
			guesses = append(guesses, k)
		}
	}
	var states []rowkey.RowTime
	err := work.Parallel(ctx, 1+len(guesses), 1+len(guesses), "look up the series of a row time", func(ctx context.Context, i int) (err error) {
		if i > 0 {
			_, err = l.stampOf(ctx, guesses[i-1])
			return err
		}
		states, err = memo(l, l.states, s).get(ctx, func() ([]rowkey.RowTime, error) { return read(ctx, s) })
		return err
	})
	return states, err
}

// readBelieved does what readStates does where all row times that the span may
// have were there a while ago.
func (l *Look) readBelieved(ctx context.Context, s rowkey.Span, possible []rowkey.Partition) ([]rowkey.RowTime, error) {
	known, err := inSlot(ctx, l, func(ctx context.Context) (map[int64]rowkey.RowTime, error) { return l.readStateRows(ctx, s) })
	if err != nil {
		return nil, err
	}
	var states []rowkey.RowTime
	for _, k := range possible {
		stamp, err := l.stampOf(ctx, k)
		switch {
		case err != nil:
			return nil, err
		case stamp.Mtime == (cql.UUID{}): // expired, or it is gone
			return l.readStates(ctx, s)
		}
		state, ok := known[k.TimeMS]
		if !ok {
			state = rowkey.RowTime{TimeMS: k.TimeMS}
		}
		states = append(states, state)
	}
	return states, nil
}

// rowTimes returns the partitions that a span may have, if they are few.
func (l *Look) rowTimes(s rowkey.Span) []rowkey.Partition {
	width := l.reader.ks.Spec.Width
	if s.LowMS < 0 || (s.HighMS-s.LowMS)/width >= maxGuessed {
		return nil
	}
	var all []rowkey.Partition
	for i := range (s.HighMS-s.LowMS)/width + 1 {
		all = append(all, rowkey.Partition{Metric: s.Metric, TimeMS: s.LowMS + i*width})
	}
	return all
}

func (l *Look) eachLegacyKey(ctx context.Context, s rowkey.Span, matchers []model.Matcher, f func(Row, []rowkey.Key) error) error {
	keys, err := memo(l, l.legacy, s).get(ctx, func() ([]legacyRow, error) {
		var rows []legacyRow
		keys, err := l.readLegacy(ctx, s)
		for _, k := range keys {
			rows = append(rows, legacySeries(k)...)
		}
		return rows, err
	})
	if err != nil {
		return err
	}
	for _, k := range keys {
		if model.MatchesAll(matchers, k.key.Tags) {
			if err := f(k.row, []rowkey.Key{k.key}); err != nil {
				return err
			}
		}
	}
	return nil
}

// keysOf returns the row keys of a partition that match. Of more than limit it
// may return only some, more than limit.
func (l *Look) keysOf(ctx context.Context, p *partition, matchers []model.Matcher, limit int) ([]rowkey.Key, error) {
	if p.full.loaded.Load() {
		return p.full.value.matching(nil, matchers), nil
	}
	literals := rowkey.Literals(matchers)
	if len(literals) == 0 && !l.reader.postings.holds(p.key) {
		return l.fullKeys(ctx, p, matchers, limit)
	}
	s, err := l.stampOf(ctx, p.key)
	if err != nil {
		return nil, err
	}
	if list := l.kept(postingKey{Partition: p.key}, p.version(s)); list != nil {
		l.answer(byCache)
		return list.matching(nil, matchers), nil
	}
	switch {
	case len(literals) == 0:
		return l.fullKeys(ctx, p, matchers, limit)
	case !p.state.Covers(s):
		l.answer(uncovered)
		l.reader.uncovered(p.key)
		return l.uncoveredKeys(ctx, p, s, literals, matchers, limit)
	}
	return l.indexedKeys(ctx, p, s, literals, matchers, limit)
}

// uncoveredKeys finds row keys of a partition of which the inverted index may
// lack some: by leaping over most of the others, or by reading it whole.
func (l *Look) uncoveredKeys(ctx context.Context, p *partition, s rowkey.Stamp, by, matchers []model.Matcher, limit int) ([]rowkey.Key, error) {
	if lists := l.knownLists(p, s, by); lists != nil {
		l.answer(byCache)
		var keys []rowkey.Key
		for _, list := range lists {
			keys = list.matching(keys, matchers)
		}
		return keys, nil
	}
	reader := l.reader
	literals, possible := sortedLiterals(by)
	if !possible {
		l.answer(byScan)
		return nil, nil
	}
	kind := kindOf(p.key.Metric, literals)
	if !reader.ordered || reader.givenUp.has(kind, reader.now()) {
		return l.sharedKeys(ctx, p, matchers)
	}
	loading := reader.postings.begin(p.key)
	var ok bool
	keys, err := inSlot(ctx, l, func(ctx context.Context) (keys []rowkey.Key, err error) {
		keys, ok, err = l.scan(ctx, p, literals, matchers, limit)
		return keys, err
	})
	switch {
	case err != nil:
		return nil, err
	case !ok:
		reader.givenUp.add(kind, reader.now())
		return l.sharedKeys(ctx, p, matchers)
	}
	l.answer(byScan)
	list := l.verifiedList(keys)
	if len(literals) == 1 && len(literals[0].values) == 1 && len(keys) <= limit {
		k := postingKey{p.key, literals[0].name, literals[0].values[0]}
		p.posting(k).set(list)
		reader.postings.put(k, list, p.version(s), reader.keptUntil(p, s), loading)
	}
	return list.matching(nil, matchers), nil
}

// verifiedList makes a list of row keys that were in row_keys a moment ago.
func (l *Look) verifiedList(keys []rowkey.Key) *keyList {
	list := l.newList()
	list.verified = true
	for _, k := range keys {
		list.add(k, rowkey.MapBytes(k.Tags))
	}
	return list
}

// sharedKeys reads a partition whole, together with whoever wants that at the
// same time.
func (l *Look) sharedKeys(ctx context.Context, p *partition, matchers []model.Matcher) ([]rowkey.Key, error) {
	list, err := p.full.get(ctx, func() (*keyList, error) {
		list, shared, err := l.flights().take(ctx, p.key, func() (*keyList, error) { return l.readWhole(ctx, p, nil, nil) })
		if shared {
			l.answer(byOthers)
		}
		return list, err
	})
	if err != nil {
		return nil, err
	}
	return list.matching(nil, matchers), nil
}

// fullKeys reads the partition whole, or until there are too many matching keys.
func (l *Look) fullKeys(ctx context.Context, p *partition, matchers []model.Matcher, limit int) ([]rowkey.Key, error) {
	n, seen := 0, map[rowkey.Key]bool{}
	more := func(k rowkey.Key) bool {
		if limit == math.MaxInt || !model.MatchesAll(matchers, k.Tags) {
			return true
		}
		if n++; !l.reader.ordered { // old servers hold a key once for each order of its tags
			seen[k] = true
			n = len(seen)
		}
		return n <= limit
	}
	var some *keyList
	list, err := p.full.get(ctx, func() (_ *keyList, err error) {
		some, err = l.readWhole(ctx, p, matchers, more)
		return some, err
	})
	switch {
	case errors.Is(err, errMatchesOnly):
		return some.keys, nil
	case errors.Is(err, errEnough):
		return some.matching(nil, matchers), nil
	case err != nil:
		return nil, err
	}
	return list.matching(nil, matchers), nil
}

// indexedKeys finds row keys through the inverted index: by the matcher that has
// the fewest; the others are applied to these. If that is the only one, it ends soon
// after there are more than limit.
func (l *Look) indexedKeys(ctx context.Context, p *partition, s rowkey.Stamp, literals, matchers []model.Matcher, limit int) ([]rowkey.Key, error) {
	lists := l.knownLists(p, s, literals)
	if lists != nil {
		l.answer(byCache)
	} else {
		l.answer(byIndex)
		var err error
		if len(matchers) > 1 {
			limit = math.MaxInt
		}
		// Fewer than maxVerified may turn out not to exist.
		if lists, err = l.race(ctx, p, s, literals, max(limit, maxVerified)); err != nil {
			return nil, err
		}
	}
	var keys, unsure []rowkey.Key
	for _, list := range lists {
		if list.verified {
			keys = list.matching(keys, matchers)
		} else {
			unsure = list.matching(unsure, matchers)
		}
	}
	if len(unsure) == 0 || len(unsure) > maxVerified {
		return append(keys, unsure...), nil
	}
	sure, err := l.existing(ctx, p, unsure)
	return append(keys, sure...), err
}

// knownLists returns the lists of a matcher, if this Look or the cache has all
// of them; nil if there is no such matcher.
func (l *Look) knownLists(p *partition, s rowkey.Stamp, literals []model.Matcher) []*keyList {
	return fewestKeys(p.key, literals, func(k postingKey) *keyList { return l.knownList(p, s, k) })
}

// fewestKeys returns the lists of the matcher that has the fewest row keys of a
// partition, of those for which list has all; nil if there is none.
func fewestKeys(p rowkey.Partition, literals []model.Matcher, list func(postingKey) *keyList) []*keyList {
	var best []*keyList
	fewest := math.MaxInt
	for _, m := range literals {
		var lists []*keyList
		n := 0
		for _, v := range rowkey.Distinct(m.Values) {
			of := list(postingKey{p, m.Tag, v})
			if of == nil {
				lists = nil
				break
			}
			lists = append(lists, of)
			n += len(of.keys)
		}
		if lists != nil && n < fewest {
			best, fewest = lists, n
		}
	}
	return best
}

func (l *Look) knownList(p *partition, s rowkey.Stamp, k postingKey) *keyList {
	if o := p.posting(k); o.loaded.Load() {
		return o.value
	}
	return l.kept(k, p.version(s))
}
