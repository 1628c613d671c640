package kairosrows

import "varve/internal/store"

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
		if !l.guessKeys(g, p, most) {
			return nil
		}
	}
	if len(g.found) > most || l.allKept(sel, g.found) {
		return nil
	}
	return g.found
}

// guessKeys adds the row keys of a partition that match. It reports false if these
// were not kept, or searching what was kept is work itself.
func (l *Look) guessKeys(g *gathering, p partKey, most int) bool {
	lists := fewestKeys(p, literalsOf(g.sel.Matchers), l.reader.postings.believed)
	if lists == nil {
		if all := l.reader.postings.believed(postingKey{partKey: p}); all != nil {
			lists = []*keyList{all}
		}
	}
	var keys []rowKey
	for _, list := range lists {
		if len(list.keys) > indexFrom {
			return false
		}
		keys = list.matching(keys, g.sel.Matchers)
	}
	if lists == nil || len(keys) > most {
		return false
	}
	return len(keys) == 0 || g.add(Row{p.timeMS, Typed}, keys) == nil
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
