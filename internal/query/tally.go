package query

import (
	"varve/internal/model"
	"varve/internal/store"
)

// A Tally is a number of series and of their samples.
type Tally struct{ Series, Samples int64 }

// Tally counts the samples of a selection in its range, and the series that have any. Samples
// that the store can count without reading them are not read.
func (s *Session) Tally(want store.Selection) (t Tally, err error) {
	lease := s.Lease()
	defer lease.Release()
	want.AnyOrder = true
	list, err := s.Collect(want, &lease, nil)
	if err != nil {
		return Tally{}, err
	}
	n := counter{session: s}
	scan := Scan{Session: s, Into: &n, Summary: store.Summary{Final: func(int64) int64 { return want.Range.EndMS }}}
	for series := range list.All() {
		n.samples = 0
		if err := scan.Read(*series, want.Range); err != nil {
			return Tally{}, s.Cause(err)
		}
		if t.Samples += n.samples; n.samples > 0 {
			t.Series++
		}
	}
	return t, s.Cause(scan.Count())
}

// A counter is a Reducer that only counts. Others have their turn meanwhile.
type counter struct {
	session *Session
	samples int64
}

// AddBlock implements Reducer.
func (c *counter) AddBlock(_ model.Kind, block *store.Block) (n int64, err error) {
	if block.Stats == nil {
		n = int64(block.Len())
	}
	for i := range block.Stats {
		n += int64(block.Stats[i].Count)
	}
	c.samples += n
	return n, c.session.Tick(selectWork)
}
