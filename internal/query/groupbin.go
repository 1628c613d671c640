package query

import (
	"fmt"

	"varve/internal/store"
)

// maxBins bounds what each point is compared with.
const maxBins = 10_000

// binSpec groups points by the bin that their value falls into.
func binSpec() GroupBySpec {
	return GroupBySpec{
		Name: "bin", Doc: "Points between the same two of a list of values.",
		Properties: []Property{{Name: "bins", Kind: DoublesProperty, Doc: "borders, ascending"}},
		New: func(a Args) (GroupBy, error) {
			if n := len(a.Doubles("bins")); n > maxBins {
				return nil, &ArgumentError{[]string{fmt.Sprintf("bins may not be more than %d, not %d", maxBins, n)}}
			}
			return &BinGroupBy{Bins: a.Doubles("bins")}, nil
		},
	}
}

// A BinGroupBy numbers points 0 below Bins[0], i+1 from Bins[i] on. What is not
// a number is in group -1.
type BinGroupBy struct{ Bins []float64 }

func (*BinGroupBy) groupBy() {}

// number follows KairosDB where bins are out of order, too: the first pair that
// holds the value counts, and what none holds is above all.
func (g *BinGroupBy) number(_ *Env, p *Point) (int64, error) {
	if len(g.Bins) == 0 {
		return 0, &store.InputError{Reason: "bins may not be empty"}
	}
	if !p.Kind.Fixed() {
		return -1, nil
	}
	v := p.Float()
	if v < g.Bins[0] {
		return 0, nil
	}
	for i := range len(g.Bins) - 1 {
		if g.Bins[i] <= v && v < g.Bins[i+1] {
			return int64(i + 1), nil
		}
	}
	return int64(len(g.Bins)), nil
}
