package agg

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sort"
	"strconv"

	"varve/internal/model"
	"varve/internal/quantile"
	"varve/internal/query"
	"varve/internal/store"
)

// percentileSpec is an exact percentile of a bucket. KairosDB's becomes random above
// 1028 values. If a store has downsampled samples and kept sketches of them, these
// samples count too, see package quantile.
var percentileSpec = AggregatorSpec{
	Name: "percentile", Doc: "Percentile of the values.",
	Properties: append(rangeProperties,
		Property{Name: "percentile", Kind: DoubleProperty, Doc: "the percentile, above 0 and up to 1"}),
	New: newPercentile,
}

func newPercentile(a Args) (Step, error) {
	p := a.Double("percentile", 0)
	if p == 0 {
		return nil, &ArgumentError{[]string{"percentile may not be zero"}}
	}
	return &collectStep{Range: rangeOf(a), wholes: true, collector: func(env *Env) collector {
		return &percentileCollector{percentile: p, ctx: env.run.Context(), lease: env.lease}
	}}, nil
}

// percentileCollector holds the values of one bucket, within the query's memory.
type percentileCollector struct {
	percentile float64
	ctx        context.Context
	lease      *query.Lease
	values     []float64 // of samples

	downsampled quantile.Builder // of downsampled samples
	low, high   float64          // their range
	count       int64
	weighted    []weighted // scratch
}

// A weighted value represents count samples.
type weighted struct {
	value float64
	count int64
}

func (c *percentileCollector) add(p *Point) error {
	if c.percentile < 0 || c.percentile > 1 || math.IsNaN(c.percentile) {
		return &store.InputError{Reason: strconv.FormatFloat(c.percentile, 'g', -1, 64) + " is not in [0..1]: percentile must be a fraction, such as 0.95 for the 95th"}
	}
	if p.Whole != nil && p.Whole.Sketch != "" {
		return c.addWhole(p.Whole)
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

// addWhole adds all samples of a bucket.
func (c *percentileCollector) addWhole(a *model.Aggregate) error {
	if c.weighted == nil {
		if err := c.lease.Take(sketchBytes); err != nil {
			return err
		}
		c.weighted = []weighted{}
	}
	if c.count == 0 {
		c.low, c.high = a.Min, a.Max
	}
	c.low, c.high, c.count = min(c.low, a.Min), max(c.high, a.Max), c.count+a.Count
	c.downsampled.AddSketch(a.Sketch)
	return nil
}

// sketchBytes bounds the memory of a Builder and of the values that it returns.
const sketchBytes = 5 * 16 * quantile.MaxBins

func (c *percentileCollector) emit(stamp int64, out []Point) ([]Point, error) {
	if err := c.sort(); err != nil {
		return out, err
	}
	value := 0.0
	if c.count > 0 {
		value = c.ofAll()
	} else {
		value = percentileOf(c.values, c.percentile)
	}
	var p Point
	p.setDouble(stamp, value)
	c.values = c.values[:0]
	return append(out, p), nil
}

// ofAll is percentileOf over the samples and the downsampled samples; it then drops the
// latter. Values from sketches are in the order of their samples, so that each
// neighbour of the percentile has its own error.
func (c *percentileCollector) ofAll() float64 {
	c.weighted = c.weighted[:0]
	for v, n := range c.downsampled.Sketch().Values(c.low, c.high) {
		c.weighted = append(c.weighted, weighted{v, n})
	}
	total := c.count + int64(len(c.values))
	c.downsampled.Reset()
	c.count = 0
	pos := c.percentile * float64(total+1)
	i := min(max(int64(pos), 1), total)
	below := c.at(i)
	if pos < 1 || i == total {
		return below
	}
	return below + (pos-float64(i))*(c.at(i+1)-below)
}

// at returns the value of a rank, counted from 1, among sorted values and weighted
// ones.
func (c *percentileCollector) at(rank int64) float64 {
	values, more := c.values, c.weighted
	for len(more) > 0 {
		n := int64(sort.SearchFloat64s(values, more[0].value))
		if rank <= n {
			break
		}
		rank, values = rank-n, values[n:]
		if rank <= more[0].count {
			return more[0].value
		}
		rank, more = rank-more[0].count, more[1:]
	}
	if rank > int64(len(values)) { // the count in a damaged file may be too large
		return c.high
	}
	return values[rank-1]
}

// sort checks the context if there is much to sort.
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
