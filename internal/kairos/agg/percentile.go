package agg

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"

	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// percentileSpec is an exact percentile of a bucket. KairosDB's becomes random
// above 1028 values.
func percentileSpec() AggregatorSpec {
	return AggregatorSpec{
		Name: "percentile", Doc: "Percentile of the values.",
		Properties: append(rangeProperties(),
			Property{Name: "percentile", Kind: DoubleProperty, Doc: "which one, above 0 and up to 1"}),
		New: newPercentile,
	}
}

func newPercentile(a Args) (Step, error) {
	p := a.Double("percentile", 0)
	if p == 0 {
		return nil, &ArgumentError{[]string{"percentile may not be zero"}}
	}
	return &collectStep{Range: rangeOf(a), collector: func(env *Env) collector {
		return &percentileCollector{percentile: p, ctx: env.run.Context(), lease: env.lease}
	}}, nil
}

// percentileCollector holds the values of one bucket, within the query's memory.
type percentileCollector struct {
	percentile float64
	ctx        context.Context
	lease      *query.Lease
	values     []float64
}

func (c *percentileCollector) add(p *Point) error {
	if c.percentile < 0 || c.percentile > 1 || math.IsNaN(c.percentile) {
		return &store.InputError{Reason: strconv.FormatFloat(c.percentile, 'g', -1, 64) + " is not in [0..1]: percentile must be a share, such as 0.95 for the 95th"}
	}
	if len(c.values) == cap(c.values) {
		if err := c.lease.Take(int64(len(c.values)+64) * 8); err != nil {
			return err
		}
		c.values = slices.Grow(c.values, len(c.values)+64)
	}
	c.values = append(c.values, p.Float())
	return nil
}

func (c *percentileCollector) emit(stamp int64, out []Point) ([]Point, error) {
	if err := c.sort(); err != nil {
		return out, err
	}
	var p Point
	p.setDouble(stamp, percentileOf(c.values, c.percentile))
	c.values = c.values[:0]
	return append(out, p), nil
}

// sort looks at the context where there is much to sort.
func (c *percentileCollector) sort() error {
	if len(c.values) > 1<<16 {
		return model.SortFunc(c.ctx, c.values, cmp.Compare[float64])
	}
	slices.Sort(c.values)
	return nil
}

// percentileOf interpolates between the neighbours of position p(n+1) of n
// sorted values, counted from 1.
func percentileOf(v []float64, p float64) float64 {
	pos := p * float64(len(v)+1)
	i := int(pos)
	switch {
	case pos < 1:
		return v[0]
	case i >= len(v):
		return v[len(v)-1]
	}
	return v[i-1] + (pos-float64(i))*(v[i]-v[i-1])
}
