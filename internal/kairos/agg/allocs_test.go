package agg

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"varve/internal/model"
	"varve/internal/query"
)

// streaming are arguments for each aggregator, with buckets of 100 samples
// where it has any.
var streaming = map[string]Args{
	"avg": {}, "count": {}, "dev": {}, "diff": {}, "div": {"divisor": 2.0},
	"filter": {"filter_op": "lt", "threshold": 0.0}, "first": {}, "gaps": {}, "last": {},
	"least_squares": {}, "max": {}, "min": {}, "percentile": {"percentile": 0.9},
	"rate": {}, "sampler": {}, "save_as": {"metric_name": "copy"}, "scale": {"factor": 2.0},
	"score": {"thresholds": []Threshold{{Value: 1}}}, "sma": {"size": int64(10)}, "sum": {}, "trim": {"trim": "both"},
}

// TestAggregatorsStream compares the allocations of a query with the samples it reads:
// ten times as many samples may need only a few more allocations, for the growth of
// tables of buckets. It covers every aggregator, alone and on several series at once,
// folded and merged.
func TestAggregatorsStream(t *testing.T) {
	if testing.Short() {
		t.Skip("with -short, as under the race detector, which drops what pools hold")
	}
	const few, many = 2_000, 20_000
	e := openEmbedded(t)
	fillGauges(t, e, 1, 4, many, 1000)
	if err := e.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	engine := newEngine(e, query.DefaultConfig())
	engine.saver = forgetful{}
	merging := newEngine(e, query.DefaultConfig())
	merging.saver = forgetful{}
	merging.merging = true
	for _, spec := range Aggregators() {
		given, ok := streaming[spec.Name]
		if !ok {
			t.Errorf("no arguments for %s: each aggregator is to be here", spec.Name)
			continue
		}
		args := Args{}
		for _, p := range spec.Properties {
			if p.Name == "sampling" {
				args["sampling"] = Sampling{100, Seconds}
			}
		}
		maps.Copy(args, given)
		steps := []Step{newStep(t, spec.Name, args)}
		if spec.Name == "rate" || spec.Name == "sampler" { // which take one point of each time
			steps = append([]Step{newStep(t, "avg", Args{"sampling": Sampling{10, Seconds}})}, steps...)
		}
		for _, on := range []struct {
			name   string
			engine *Engine
			by     []GroupBy
		}{
			{"one series", engine, []GroupBy{&TagGroupBy{Tags: []string{"n"}}}},
			{"merged", merging, nil},
			{"folded", engine, nil},
		} {
			t.Run(fmt.Sprintf("%s/%s", spec.Name, on.name), func(t *testing.T) {
				allocs := func(samples int64) float64 {
					m := MetricQuery{Metric: "m", GroupBy: on.by, Steps: steps}
					within := model.TimeRange{StartMS: 0, EndMS: samples*1000 - 1}
					return testing.AllocsPerRun(5, func() {
						if err := exhaustWithin(on.engine, within, m); err != nil {
							t.Fatal(err)
						}
					})
				}
				allocs(many) // pools are filled
				if a, b := allocs(few), allocs(many); b > a+60 {
					t.Errorf("%v allocations for %d samples of each series, %v for %d", a, few, b, many)
				}
			})
		}
	}
}

// forgetful is a Saver that saves nothing.
type forgetful struct{}

func (forgetful) Save(context.Context, Target, []Point) error { return nil }
