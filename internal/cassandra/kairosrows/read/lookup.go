package read

import (
	"cmp"
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
	l.trace[countLookups].Add(1)
	l.holdBy(sel.Hold)
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
	want.hold = l.hold
	if err := l.eachLegacyKey(ctx, s, want, f); err != nil {
		return err
	}
	states, err := l.statesOf(ctx, s, slices.ContainsFunc(sel.Matchers, rowkey.IsLiteral))
	if err != nil {
		return err
	}
	if sel.Limit == 1 { // lists of names ask one metric after the other whether it has series
		defer l.forget(s, states)
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
// trip. For row times of which the cache has row keys an mtime is sufficient evidence, so
// row_key_time_index is not read again.
func (l *Look) statesOf(ctx context.Context, s rowkey.Span, selective bool) ([]rowkey.RowTime, error) {
	possible := l.rowTimes(s)
	read := l.readStates
	unknown := func(k rowkey.Partition) bool { return !l.reader.postings.holds(k) }
	if len(possible) > 0 && !slices.ContainsFunc(possible, unknown) {
		read = func(ctx context.Context, s rowkey.Span) ([]rowkey.RowTime, error) {
			return l.readKnown(ctx, s, possible)
		}
	}
	var guesses []rowkey.Partition
	for _, k := range possible {
		if selective || !unknown(k) {
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

// readKnown is readStates for a span of which the cache has row keys of all possible row times.
func (l *Look) readKnown(ctx context.Context, s rowkey.Span, possible []rowkey.Partition) ([]rowkey.RowTime, error) {
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
	return states, l.hold(int64(len(states)) * rowTimeBytes)
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

// keysOf returns the wanted row keys of a partition, in the cheapest way that finds all of them:
// the package comment has a drawing. If there are more than the limit, it may return only some,
// but more than the limit.
func (l *Look) keysOf(ctx context.Context, p *partition, want wish) ([]rowkey.Key, error) {
	if p.full.loaded.Load() {
		return p.full.value.matching(nil, want)
	}
	literals := rowkey.Literals(want.matchers)
	if len(literals) == 0 && !l.reader.postings.holds(p.key) {
		return l.wholeKeys(ctx, p, want, false)
	}
	s, err := l.stampOf(ctx, p.key)
	if err != nil {
		return nil, err
	}
	if list := l.kept(p, tagPair{}, s); list != nil {
		l.answer(byCache)
		return list.matching(nil, want)
	}
	if len(literals) == 0 {
		return l.wholeKeys(ctx, p, want, false)
	}
	covered := p.state.Covers(s)
	if !covered {
		l.answer(uncovered)
		l.reader.uncovered(p.key)
	}
	if lists := l.knownLists(p, s, literals); lists != nil {
		l.answer(byCache)
		return l.matchingOf(ctx, p, lists, want)
	}
	if !covered {
		return l.uncoveredKeys(ctx, p, s, literals, want)
	}
	l.answer(byIndex)
	lists, err := l.readIndex(ctx, p, s, literals, want.orUnsure())
	if err != nil {
		return nil, err
	}
	return l.matchingOf(ctx, p, lists, want)
}

// uncoveredKeys finds row keys of a partition for which the inverted index may be incomplete:
// with a scan that skips most others, or by reading the whole partition.
func (l *Look) uncoveredKeys(ctx context.Context, p *partition, s rowkey.Stamp, by []model.Matcher, want wish) ([]rowkey.Key, error) {
	reader := l.reader
	literals, possible := sortedLiterals(by)
	if !possible {
		l.answer(byScan)
		return nil, nil
	}
	kind := kindOf(p.key.Metric, literals)
	if !reader.ordered || reader.givenUp.has(kind, reader.now()) {
		return l.wholeKeys(ctx, p, want, true)
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
		return l.wholeKeys(ctx, p, want, true)
	}
	l.answer(byScan)
	list.verified = true // all were read from row_keys
	if len(literals) == 1 && len(literals[0].values) == 1 {
		l.keepPostings(p, tagPair{literals[0].name, literals[0].values[0]}, list, s, loading)
	}
	return list.matching(nil, want)
}

// wholeKeys returns the wanted keys of a partition that is read whole, or until there are too
// many matching keys. With share, lookups that need it at the same time read it together.
func (l *Look) wholeKeys(ctx context.Context, p *partition, want wish, share bool) ([]rowkey.Key, error) {
	h := newHarvest(want)
	list, err := p.full.get(ctx, func() (*keyList, error) {
		if share {
			return l.readShared(ctx, p, h)
		}
		return l.readWhole(ctx, p, h)
	})
	switch {
	case errors.Is(err, errMatchesOnly):
		return h.keys, nil
	case err != nil:
		return nil, err
	}
	return list.matching(nil, want)
}

// readShared is readWhole for all requests that need the partition at the same time. One of them
// reads: it must not wait for the others, nor fail for lack of their memory. So each of the others
// takes memory for what it gets afterwards.
func (l *Look) readShared(ctx context.Context, p *partition, h *harvest) (*keyList, error) {
	h.hold = nil
	if h.tick != nil {
		h.tick, h.gone = nil, ctx.Err
	}
	list, shared, err := l.reader.flights.take(ctx, flightKey{p.key, l.level}, h, func(all []*harvest) (*keyList, error) {
		h.hold = l.hold
		return l.readWhole(ctx, p, all...)
	})
	if !shared {
		return list, err
	}
	l.answer(byOthers)
	held := h.bytes()
	if list != nil {
		held += list.bytes
	}
	return list, cmp.Or(l.hold(held), err)
}

// orUnsure returns the wish for row keys of which some may turn out not to exist.
func (w wish) orUnsure() wish {
	w.limit = max(w.limit, maxVerified)
	return w
}

// matchingOf returns the wanted row keys of lists. It looks for those in row_keys of which it is
// unsure whether they exist.
func (l *Look) matchingOf(ctx context.Context, p *partition, lists []*keyList, want wish) ([]rowkey.Key, error) {
	var keys, unsure []rowkey.Key
	for _, list := range lists {
		var err error
		if list.verified {
			keys, err = list.matching(keys, want)
		} else {
			unsure, err = list.matching(unsure, want.orUnsure())
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

// knownLists returns the lists of the matcher with the fewest row keys, of those matchers for
// which this Look or the cache has all lists; nil if there is none.
func (l *Look) knownLists(p *partition, s rowkey.Stamp, literals []model.Matcher) []*keyList {
	var best []*keyList
	fewest := math.MaxInt
	for _, m := range literals {
		var lists []*keyList
		n := 0
		for _, v := range rowkey.Distinct(m.Values) {
			of := l.knownList(p, s, tagPair{m.Tag, v})
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

func (l *Look) knownList(p *partition, s rowkey.Stamp, k tagPair) *keyList {
	p.mu.Lock()
	list := p.postings[k]
	p.mu.Unlock()
	if list != nil {
		return list
	}
	return l.kept(p, k, s)
}
