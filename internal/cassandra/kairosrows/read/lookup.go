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

// Lookup returns the matching series that have rows with possible samples in the range, each
// with these rows.
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

// find does the work of Lookup and Select.
func (l *Look) find(ctx context.Context, sel store.Selection) (*Found, error) {
	l.trace.lookups.Add(1)
	f := &Found{look: l, metric: sel.Metric}
	if sel.Range.StartMS > sel.Range.EndMS || rowkey.Impossible(sel.Matchers) {
		return f, nil
	}
	g := &gathering{sel: sel, found: f}
	if err := l.eachKey(ctx, sel, g.limit(), g.add); err != nil {
		if _, ok := errors.AsType[*store.LimitError](err); ok {
			return nil, err
		}
		return nil, fmt.Errorf("look up series of %s: %w", sel.Metric, err)
	}
	return f, nil
}

// eachKey calls f with the matching row keys of each row of the selection, from several
// goroutines at once. If a partition has more than limit of them, f may get only some, but more
// than limit.
func (l *Look) eachKey(ctx context.Context, sel store.Selection, limit int, f func(Row, []rowkey.Key) error) error {
	low, high := l.reader.ks.Spec.RowRange(sel.Range)
	s := rowkey.Span{Metric: sel.Metric, LowMS: low, HighMS: high}
	want := newWish(ctx, sel, limit, !l.reader.ordered)
	if err := l.eachLegacyKey(ctx, s, want, f); err != nil {
		return err
	}
	states, err := l.statesOf(ctx, s, slices.ContainsFunc(sel.Matchers, rowkey.IsLiteral))
	if err != nil {
		return err
	}
	return work.Parallel(ctx, cap(l.slots), len(states), "look up the series of a row time", func(ctx context.Context, i int) error {
		p := l.partition(sel.Metric, states[i])
		keys, err := l.keysOf(ctx, p, want)
		if err == nil && len(keys) > 0 {
			err = f(Row{p.key.TimeMS, Typed}, keys)
		}
		return err
	})
}

// maxGuessed is the maximum number of row times whose mtime is read before it is known whether
// they exist.
const maxGuessed = 4

// statesOf returns the row times of a span. If their mtimes will probably be needed, and the
// span has few possible row times, it reads the mtimes at the same time, which saves a round
// trip. For row times that existed recently an mtime is sufficient evidence, so
// row_key_time_index is not read again.
func (l *Look) statesOf(ctx context.Context, s rowkey.Span, selective bool) ([]rowkey.RowTime, error) {
	possible := l.rowTimes(s)
	read := l.readStates
	if len(possible) > 0 && !slices.ContainsFunc(possible, func(k rowkey.Partition) bool { return !l.reader.postings.hadRecently(k) }) {
		read = func(ctx context.Context, s rowkey.Span) ([]rowkey.RowTime, error) {
			return l.readRecent(ctx, s, possible)
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

// readRecent is readStates for a span in which all possible row times existed recently.
func (l *Look) readRecent(ctx context.Context, s rowkey.Span, possible []rowkey.Partition) ([]rowkey.RowTime, error) {
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
		case stamp.Mtime == (cql.UUID{}): // expired or removed
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

// rowTimes returns the possible partitions of a span, if they are few.
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

func (l *Look) eachLegacyKey(ctx context.Context, s rowkey.Span, want wish, f func(Row, []rowkey.Key) error) error {
	each := func(k legacyRow) error {
		if wanted, err := want.matches(k.key); err != nil || !wanted {
			return err
		}
		return f(k.row, []rowkey.Key{k.key})
	}
	rows, err := memo(l, l.legacy, s).get(ctx, func() ([]legacyRow, error) { return l.legacyRows(ctx, s, each) })
	if errors.Is(err, errMatchesOnly) {
		return nil
	}
	for i := 0; err == nil && i < len(rows); i++ {
		err = each(rows[i])
	}
	return err
}

// keysOf returns the wanted row keys of a partition. If there are more than the limit, it may
// return only some, but more than the limit.
func (l *Look) keysOf(ctx context.Context, p *partition, want wish) ([]rowkey.Key, error) {
	if p.full.loaded.Load() {
		return p.full.value.matching(nil, want)
	}
	literals := rowkey.Literals(want.matchers)
	if len(literals) == 0 && !l.reader.postings.holds(p.key) {
		return l.fullKeys(ctx, p, want)
	}
	s, err := l.stampOf(ctx, p.key)
	if err != nil {
		return nil, err
	}
	if list := l.kept(postingKey{Partition: p.key}, p.version(s)); list != nil {
		l.answer(byCache)
		return list.matching(nil, want)
	}
	switch {
	case len(literals) == 0:
		return l.fullKeys(ctx, p, want)
	case !p.state.Covers(s):
		l.answer(uncovered)
		l.reader.uncovered(p.key)
		return l.uncoveredKeys(ctx, p, s, literals, want)
	}
	return l.indexedKeys(ctx, p, s, literals, want)
}

// uncoveredKeys finds row keys of a partition for which the inverted index may be incomplete:
// with a scan that skips most others, or by reading the whole partition.
func (l *Look) uncoveredKeys(ctx context.Context, p *partition, s rowkey.Stamp, by []model.Matcher, want wish) ([]rowkey.Key, error) {
	if lists := l.knownLists(p, s, by); lists != nil {
		l.answer(byCache)
		var keys []rowkey.Key
		for _, list := range lists {
			var err error
			if keys, err = list.matching(keys, want); err != nil {
				return nil, err
			}
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
		return l.sharedKeys(ctx, p, want)
	}
	loading := reader.postings.begin(p.key)
	harvest, ok := newHarvest(want.among(by)), false
	list, err := inSlot(ctx, l, func(ctx context.Context) (list *keyList, err error) {
		list, ok, err = l.scan(ctx, p, literals, harvest)
		return list, err
	})
	switch {
	case errors.Is(err, errMatchesOnly):
		l.answer(byScan)
		return harvest.keys, nil
	case err != nil:
		return nil, err
	case !ok:
		reader.givenUp.add(kind, reader.now())
		return l.sharedKeys(ctx, p, want)
	}
	l.answer(byScan)
	list.verified = true // all were read from row_keys
	if len(literals) == 1 && len(literals[0].values) == 1 {
		k := postingKey{p.key, literals[0].name, literals[0].values[0]}
		p.posting(k).set(list)
		reader.postings.put(k, list, p.version(s), reader.keptUntil(p, s), loading)
	}
	return list.matching(nil, want)
}

// sharedKeys reads a whole partition, together with other lookups that need it at the same
// time.
func (l *Look) sharedKeys(ctx context.Context, p *partition, want wish) ([]rowkey.Key, error) {
	return l.readKeys(ctx, p, want, func(h *harvest) (*keyList, error) {
		if h.tick != nil { // another request may do the reading, and must not wait for this one
			h.tick, h.gone = nil, ctx.Err
		}
		list, shared, err := l.flights().take(ctx, p.key, h, func(all []*harvest) (*keyList, error) { return l.readWhole(ctx, p, all...) })
		if shared {
			l.answer(byOthers)
		}
		return list, err
	})
}

// fullKeys reads the whole partition, or until there are too many matching keys.
func (l *Look) fullKeys(ctx context.Context, p *partition, want wish) ([]rowkey.Key, error) {
	return l.readKeys(ctx, p, want, func(h *harvest) (*keyList, error) { return l.readWhole(ctx, p, h) })
}

// readKeys returns the wanted keys of a partition, which load reads if this Look does not have
// them.
func (l *Look) readKeys(ctx context.Context, p *partition, want wish, load func(*harvest) (*keyList, error)) ([]rowkey.Key, error) {
	h := newHarvest(want)
	list, err := p.full.get(ctx, func() (*keyList, error) { return load(h) })
	switch {
	case errors.Is(err, errMatchesOnly):
		return h.keys, nil
	case err != nil:
		return nil, err
	}
	return list.matching(nil, want)
}

// indexedKeys finds row keys through the inverted index: it reads those of the matcher that has
// the fewest, and applies the other matchers to them. It stops soon after more keys match than
// are wanted.
func (l *Look) indexedKeys(ctx context.Context, p *partition, s rowkey.Stamp, literals []model.Matcher, want wish) ([]rowkey.Key, error) {
	unsureWant := want
	unsureWant.limit = max(want.limit, maxVerified) // some may turn out not to exist
	lists := l.knownLists(p, s, literals)
	if lists != nil {
		l.answer(byCache)
	} else {
		l.answer(byIndex)
		var err error
		if lists, err = l.race(ctx, p, s, literals, unsureWant); err != nil {
			return nil, err
		}
	}
	var keys, unsure []rowkey.Key
	for _, list := range lists {
		var err error
		if list.verified {
			keys, err = list.matching(keys, want)
		} else {
			unsure, err = list.matching(unsure, unsureWant)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(unsure) == 0 || len(unsure) > maxVerified {
		return append(keys, unsure...), nil
	}
	sure, err := l.existing(ctx, p, unsure)
	return append(keys, sure...), err
}

// knownLists returns the lists of a matcher for which this Look or the cache has all lists; nil
// if there is none.
func (l *Look) knownLists(p *partition, s rowkey.Stamp, literals []model.Matcher) []*keyList {
	return fewestKeys(p.key, literals, func(k postingKey) *keyList { return l.knownList(p, s, k) })
}

// fewestKeys considers the matchers for which list has all lists, and returns the lists of the
// one with the fewest row keys; nil if there is none.
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
