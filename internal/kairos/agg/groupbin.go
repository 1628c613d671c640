package agg

import (
	"fmt"
	"math"
	"sort"

	"varve/internal/store"
)

// maxBins bounds the bins, which each group repeats.
const maxBins = 10_000

// binSpec groups points by the bin that their value falls into.
func binSpec() GroupBySpec {
	return GroupBySpec{
		Name: "bin", Doc: "Points between the same two bounds of a list.",
		Properties: []Property{{Name: "bins", Kind: DoublesProperty, Doc: "bounds, ascending"}},
		New: func(a Args) (GroupBy, error) {
			bins := a.Doubles("bins")
			if n := len(bins); n > maxBins {
				return nil, &ArgumentError{[]string{fmt.Sprintf("bins may not be more than %d, not %d", maxBins, n)}}
			}
			top, tops := math.Inf(-1), make([]float64, len(bins))
			for i, v := range bins {
				if v-v != 0 { // NaN or infinite, which JSON has no text for
					return nil, &ArgumentError{[]string{fmt.Sprintf("bins must be finite numbers, not %v", v)}}
				}
				top = max(top, v)
				tops[i] = top
			}
			return &BinGroupBy{Bins: bins, tops: tops}, nil
		},
	}
}

// A BinGroupBy numbers points 0 below Bins[0], i+1 from Bins[i] on. Points that are
// not numbers are in group -1.
type BinGroupBy struct {
	Bins []float64
	tops []float64 // tops[i] is the largest of Bins[:i+1]
}

func (*BinGroupBy) groupBy() {}

// number follows KairosDB even if bins are out of order: the first pair of neighbouring
// bins that contains the value counts; if there is none, the value is above all bins.
// That is the pair before the first bin above the value, since no earlier bin is above it.
func (g *BinGroupBy) number(_ *Env, p *Point) (int64, error) {
	if len(g.Bins) == 0 {
		return 0, &store.InputError{Reason: "bins may not be empty"}
	}
	if !p.Kind.Fixed() {
		return -1, nil
	}
	v := p.Float()
	return int64(sort.Search(len(g.tops), func(i int) bool { return g.tops[i] > v })), nil
}
