package kairosrows

import (
	"errors"

	"varve/internal/store"
)

var errNoGuess = errors.New("nothing to guess from")

// Guess returns what Lookup will find if the row keys are those that an earlier
// Look found for the same metric, matchers and row times, without asking
// Cassandra: at most most series, of whose rows one has to be read from there. It
// returns none if it knows no such thing. Whether it was right shows Lookup.
func (l *Look) Guess(sel store.Selection, most int) []SeriesRows {
	if sel.Range.StartMS > sel.Range.EndMS || impossible(sel.Matchers) {
		return nil
	}
	low, high := l.reader.ks.Spec.RowRange(sel.Range)
	g := &gathering{sel: sel, places: map[rowKey]int32{}}
	possible := l.rowTimes(span{sel.Metric, low, high})
	for _, p := range possible {
		if err := l.guessKeys(g, p, most); err != nil {
			return nil
		}
	}
	if len(g.found) > most || l.allKept(sel, g.found) {
		return nil
	}
	return g.found
}

// guessKeys adds the row keys of a partition that match, if they were kept.
func (l *Look) guessKeys(g *gathering, p partKey, most int) error {
	var best *keyList
	for _, m := range g.sel.Matchers {
		if !isLiteral(m) || len(m.Values) != 1 {
			continue
		}
		if list := l.reader.postings.believed(postingKey{p, m.Tag, m.Values[0]}); list != nil && (best == nil || len(list.keys) < len(best.keys)) {
			best = list
		}
	}
	if best == nil {
		best = l.reader.postings.believed(postingKey{partKey: p})
	}
	if best == nil || len(best.keys) > indexFrom {
		return errNoGuess // of so many the search itself is work
	}
	keys := best.matching(nil, g.sel.Matchers)
	if len(keys) > most {
		return errNoGuess
	}
	if len(keys) == 0 {
		return nil
	}
	return g.add(Row{p.timeMS, Typed}, keys)
}

// allKept reports whether all that these rows have of the range is in the cache
// of packed chunks, and so is not worth a head start.
func (l *Look) allKept(sel store.Selection, found []SeriesRows) bool {
	for _, s := range found {
		for _, row := range s.Rows {
			key, err := rowKeyBytes(s.Series, row)
			if err == nil && !(l.reader.finished(row) && l.reader.chunks.holds(cacheKey(key, row.Form), sliceOf(l.reader.ks.Spec, row, sel.Range))) {
				return false
			}
		}
	}
	return true
}
