package cassandra

import (
	"slices"

	"varve/internal/cassandra/kairosrows"
	"varve/internal/model"
	"varve/internal/store"
)

// A guess is what is read while the index is still being asked which series there
// are: those that an earlier question found. That saves one of the two round
// trips that a question about few series takes.
type guess struct {
	found   []kairosrows.SeriesRows
	streams []*stream // of each
}

// guess begins to read what will probably be selected, nil if there is nothing
// to go by.
func (v *view) guess(sel store.Selection) *guess {
	k := v.keyspaces[0]
	if !sel.ReadsAll || len(v.keyspaces) > 1 || k.look == nil {
		return nil
	}
	found := k.look.Guess(sel, v.store.cfg.ReadAhead)
	if len(found) == 0 {
		return nil
	}
	g := &guess{found: found, streams: make([]*stream, len(found))}
	if !v.ahead.whileOpen(func() {
		for i, of := range found {
			g.streams[i] = v.ahead.beginLocked(v, selected{series: of.Series, stored: []stored{{k, of.Rows}}}, store.ReadOptions{Range: sel.Range})
		}
	}) {
		return nil
	}
	return g
}

// settle keeps what was read of the series that were handed out, if they are what
// was guessed; else it drops all. Series that only the spool has do not matter.
func (v *view) settle(g *guess, within model.TimeRange, found []selected, out []store.Series) {
	if g == nil {
		return
	}
	streams := g.of(found, out)
	if streams == nil || !v.ahead.adopt(streams, readForm{within: within}, out[len(out)-1].Ref+1) {
		g.drop()
		v.store.metrics.guesses.WithLabelValues("wrong").Inc()
		return
	}
	v.store.metrics.guesses.WithLabelValues("right").Inc()
}

// of returns the streams of what was found, nil if that is not what was guessed.
func (g *guess) of(found []selected, out []store.Series) map[store.Ref]*stream {
	written := 0
	for i := range found {
		if len(found[i].stored) > 0 {
			written++
		}
	}
	if written != len(g.found) {
		return nil
	}
	streams := make(map[store.Ref]*stream, len(g.found))
	for i, of := range g.found {
		at := slices.IndexFunc(found, func(s selected) bool { return s.series == of.Series })
		if at < 0 || len(found[at].stored) != 1 || !slices.Equal(found[at].stored[0].rows, of.Rows) {
			return nil
		}
		streams[out[at].Ref] = g.streams[i]
	}
	return streams
}

func (g *guess) drop() {
	if g == nil {
		return
	}
	for _, s := range g.streams {
		s.Close()
	}
}
