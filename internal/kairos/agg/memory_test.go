package agg

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"varve/internal/model"
	"varve/internal/quantile"
	"varve/internal/query"
	"varve/internal/store"
	"varve/internal/units"
)

// thick is a store of thick cursors.
type thick struct {
	store.Viewer
	sizes []int
}

type thickView struct {
	store.View
	sizes []int
}

// A thickCursor has blocks of a number of buckets with large sketches.
type thickCursor struct {
	sizes  []int
	next   int64
	sketch quantile.Sketch
}

func (s thick) View(ctx context.Context) (store.View, error) {
	v, err := s.Viewer.View(ctx)
	return thickView{v, s.sizes}, err
}

func (v thickView) Read(context.Context, store.Series, store.ReadOptions) store.Cursor {
	return &thickCursor{sizes: v.sizes, sketch: thickSketch()}
}

// thickSketch has nearly as many bins as a sketch may have.
func thickSketch() quantile.Sketch {
	var values []float64
	for i := range 2000 {
		values = append(values, math.Pow(1.02, float64(i)))
	}
	return quantile.Of(values...)
}

func (c *thickCursor) Next() (*store.Block, error) {
	if len(c.sizes) == 0 {
		return nil, nil
	}
	var b store.Block
	for range c.sizes[0] {
		c.next++
		b.AppendFixed(c.next, math.Float64bits(1), 0)
		b.Aggregates = append(b.Aggregates, model.Aggregate{Count: 2000, Min: 1, Max: 2e17, Sum: 1, Last: 1, Sketch: c.sketch})
	}
	c.sizes = c.sizes[1:]
	return &b, nil
}

func (c *thickCursor) Close() {}

// TestSketchesAreCharged: each block with sketches that a query holds is charged to its
// memory: the first one of a series, the one read ahead, and later ones.
func TestSketchesAreCharged(t *testing.T) {
	const series = 50
	f := newFixture(t, query.DefaultConfig())
	for i := range series {
		f.put("m", model.MustTags("h", fmt.Sprint(i)), sample{1, 1.5})
	}
	sketch := int64(len(thickSketch()))
	for name, c := range map[string]struct {
		sizes []int
		held  int64 // sketches of a series at one time
	}{"first": {[]int{60}, 60}, "second": {[]int{40, 60}, 100}, "later": {[]int{300, 600}, 600}} {
		for more, want := range map[int64]bool{-1: true, 4: false} { // parts of ten that are there beyond what is held
			config := query.DefaultConfig()
			config.MaxMemory = units.Bytes(series * c.held * sketch * (10 + more) / 10)
			_, _, err := fixtureOver(t, thick{f.store, c.sizes}, config).ask(0, 1000, "UTC", MetricQuery{Metric: "m", Steps: []Step{newStep(t, "percentile", Args{"percentile": 0.5, "sampling": Sampling{1, Hours}})}})
			if limit := (*store.LimitError)(nil); errors.As(err, &limit) != want {
				t.Errorf("%s, %d bytes for a query: %v", name, config.MaxMemory, err)
			}
		}
	}
}
