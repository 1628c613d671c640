package query

import (
	"slices"

	"varve/internal/model"
	"varve/internal/store"
)

// A Tally is a number of series and of their samples.
type Tally struct{ Series, Samples int64 }

// Tally counts the samples of a selection in its range, and the series that have any. Samples
// that the store can count without reading them are not read. Samples that were downsampled
// count if their bucket lies entirely in the range: a delete leaves others.
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
		scan.Buckets, scan.Stages = store.BucketsAsSamples, &store.StageLog{}
		if err := scan.Read(*series, want.Range); err != nil {
			return Tally{}, s.Cause(err)
		}
		if slices.ContainsFunc(scan.Stages.Used(), func(u store.StageUse) bool { return u.StepMS > 0 && u.LastMS > want.Range.EndMS }) {
			if err := s.tallyParts(&scan, &n, *series, want.Range); err != nil {
				return Tally{}, s.Cause(err)
			}
		}
		if t.Samples += n.samples; n.samples > 0 {
			t.Series++
		}
	}
	return t, s.Cause(scan.Count())
}

// tallyParts counts a series again, if one of its buckets reaches beyond the range: first its
// samples, then the buckets that lie in the range.
func (s *Session) tallyParts(scan *Scan, n *counter, series store.Series, within model.TimeRange) error {
	n.samples = 0
	scan.Buckets = store.WithoutBuckets
	if err := scan.Read(series, within); err != nil {
		return err
	}
	cursor := s.Open(series, store.ReadOptions{Range: within, Buckets: store.BucketsOnly})
	defer cursor.Close()
	for {
		b, err := cursor.Next()
		if err != nil || b == nil || b.Buckets == nil {
			return err
		}
		for i, startMS := range b.Buckets.StartMS {
			if uint64(within.EndMS)-uint64(startMS) >= uint64(b.Buckets.StepMS[i]-1) { // both may be extreme
				n.samples += int64(b.Buckets.Count[i])
			}
		}
	}
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
