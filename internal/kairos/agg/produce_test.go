package agg

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// An aggregator may consume all points that gaps adds without yielding one. The
// query ends nevertheless: by cancel, timeout or limit.
func TestConsumedGapsEnd(t *testing.T) {
	millisecond, age := Args{"sampling": Sampling{1, Milliseconds}}, Args{"sampling": Sampling{1000, Years}}
	swallow := map[string][]Step{
		"count":  {newStep(t, "gaps", millisecond), newStep(t, "count", age)},
		"first":  {newStep(t, "gaps", millisecond), newStep(t, "first", age)},
		"last":   {newStep(t, "gaps", millisecond), newStep(t, "last", age)},
		"avg":    {newStep(t, "gaps", millisecond), newStep(t, "avg", age)},
		"filter": {newStep(t, "gaps", millisecond), newStep(t, "filter", Args{"filter_op": "ne", "threshold": true})},
		"sma":    {newStep(t, "gaps", millisecond), newStep(t, "sma", Args{"size": int64(math.MaxInt32)})},
	}
	for name, steps := range swallow {
		for _, metric := range []string{"m", "nothing"} {
			f := newFixture(t, query.DefaultConfig())
			f.put("m", model.MustTags("h", "a"), sample{0, 1.5}, sample{1_000_000_000_000, 1.5})
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			points, err := f.points(ctx, model.TimeRange{StartMS: 0, EndMS: 900_000_000}, metric, steps)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s of %s: %v, %v", name, metric, points, err)
			}
			cancel()
			config := query.DefaultConfig()
			config.MaxSamples = 1000
			f = newFixture(t, config)
			f.put("m", model.MustTags("h", "a"), sample{0, 1.5})
			var limit *store.LimitError
			points, err = f.points(t.Context(), model.AllTime, metric, steps)
			if !errors.As(err, &limit) || limit.Limit != "query.max_samples" || limit.Need < 1_000_000 {
				t.Errorf("%s of %s over all time: %v, %v", name, metric, points, err)
			}
			points, err = f.points(t.Context(), model.TimeRange{StartMS: 0, EndMS: 1000}, metric, steps)
			if !errors.As(err, &limit) || limit.Limit != "query.max_samples" {
				t.Errorf("%s of %s over 1001 points: %v, %v", name, metric, points, err)
			}
		}
	}
}

// points asks for the points of the first group.
func (f *fixture) points(ctx context.Context, within model.TimeRange, metric string, steps []Step) ([]sample, error) {
	run, err := f.Start(ctx, Query{Range: within, Metrics: []MetricQuery{{Metric: metric, Steps: steps}}})
	if err != nil {
		return nil, err
	}
	defer run.Close(nil)
	result, err := run.Metric(0)
	if err != nil {
		return nil, err
	}
	defer result.Close()
	g, err := result.Next()
	if err != nil || g == nil {
		return nil, err
	}
	return drainPoints(g.Points)
}

// Times whose difference exceeds int64.
func TestDifferencesOfExtremeTimes(t *testing.T) {
	all := []sample{{math.MinInt64, 0}, {math.MaxInt64, math.Exp2(64)}}
	got, err := apply(t, newStep(t, "rate", Args{"sampling": Sampling{1, Milliseconds}}), math.MinInt64, math.MaxInt64, all...)
	if err != nil || len(got) != 1 || got[0].value != 1.0 {
		t.Errorf("rate: %v, %v", got, err)
	}
	day := Args{"sampling": Sampling{1, Days}}
	got, err = apply(t, newStep(t, "sampler", day), math.MinInt64, math.MaxInt64, sample{math.MaxInt64 - 1, 0}, sample{math.MaxInt64, 2})
	if err != nil || len(got) != 1 || got[0].value != 2.0*dayMS {
		t.Errorf("sampler beyond the calendar: %v, %v", got, err)
	}
	env := &Env{Range: model.AllTime}
	by := &TimeGroupBy{Size: Sampling{math.MaxInt32, Years}, Count: math.MaxInt32}
	if n, err := by.number(env, &Point{TimeMS: math.MaxInt64}); err != nil || n < 0 {
		t.Errorf("group by time: %d, %v", n, err)
	}
}

func TestGroupsByTime(t *testing.T) {
	const start = 1_700_000_000_000
	env := &Env{Range: model.TimeRange{StartMS: start, EndMS: math.MaxInt64}}
	for unit, length := range map[Unit]int64{
		Milliseconds: 1, Seconds: 1000, Minutes: 60_000, Hours: 3_600_000, Days: 86_400_000, Weeks: 7 * 86_400_000, Years: 364 * 86_400_000,
	} {
		by := &TimeGroupBy{Size: Sampling{2, unit}, Count: 3}
		for at, want := range map[int64]int64{0: 0, 2*length - 1: 0, 2 * length: 1, 5*length + length/2: 2, 6 * length: 0} {
			if n, err := by.number(env, &Point{TimeMS: start + at}); err != nil || n != want {
				t.Errorf("%d ms after the start in groups of 2 %s: %d, %v, want %d", at, unit, n, err, want)
			}
		}
	}
}

// Every aggregator ends without a fault, or at a limit, for extreme parameters, times
// and values.
func TestExtremeArguments(t *testing.T) {
	samples := []sample{
		{math.MinInt64, math.MaxFloat64}, {math.MinInt64 + 1, -math.MaxFloat64}, {-maxCalendarMS - 1, math.MinInt64}, {-1, -1},
		{0, math.Copysign(0, -1)}, {1, 5e-324}, {1_700_000_000_000, 1 << 53}, {maxCalendarMS + 1, math.MaxInt64},
		{math.MaxInt64 - 1, 0}, {math.MaxInt64, 1},
	}
	config := query.DefaultConfig()
	config.MaxSamples = 10_000
	f := newFixture(t, config)
	f.put("m", model.MustTags("h", "a"), samples...)
	f.put("m", model.MustTags("h", "b"), samples...)
	ranges := []model.TimeRange{model.AllTime, {StartMS: math.MaxInt64, EndMS: math.MaxInt64}, {StartMS: math.MinInt64, EndMS: math.MinInt64}, {StartMS: -1, EndMS: 1}}
	numbers := []int64{1, 1000, math.MaxInt32}
	for _, spec := range Aggregators() {
		if spec.Name == "save_as" {
			continue
		}
		for _, value := range numbers {
			for unit := Milliseconds; unit <= Years; unit++ {
				for _, origin := range []any{nil, int64(math.MinInt64), int64(math.MaxInt64)} {
					args := Args{
						"sampling": Sampling{value, unit}, "unit": unit, "align_end_time": value == 1000, "size": value,
						"percentile": 1.0, "factor": math.MaxFloat64, "divisor": 5e-324, "dev_count": value, "filter_op": "gt",
						"thresholds": []Threshold{{math.Inf(1), true}, {math.Inf(-1), false}}, "trim": value == 1000,
					}
					if spec.Name == "trim" {
						args["trim"] = "both"
					}
					if origin != nil {
						args["start_time"], args["align_sampling"] = origin, false
					}
					step, err := spec.New(args)
					if err != nil {
						t.Fatalf("%s %v: %v", spec.Name, args, err)
					}
					for _, within := range ranges {
						_, err := f.points(t.Context(), within, "m", []Step{step})
						var limit *store.LimitError
						if err != nil && !errors.As(err, &limit) && !errors.As(err, new(*query.ComputeError)) {
							t.Errorf("%s %v over %v: %v", spec.Name, args, within, err)
						}
					}
				}
			}
		}
	}
	for _, by := range []GroupBy{
		&TimeGroupBy{Size: Sampling{math.MaxInt32, Years}, Count: math.MaxInt32}, &TimeGroupBy{Size: Sampling{1, Months}, Count: 1},
		&TimeGroupBy{Size: Sampling{1, Milliseconds}, Count: math.MaxInt32}, &ValueGroupBy{Size: math.MaxInt32}, &ValueGroupBy{Size: 1},
		newGroupBy(t, "bin", Args{"bins": []float64{-math.MaxFloat64, math.MaxFloat64, 0}}),
	} {
		groups, _, err := f.ask(math.MinInt64, math.MaxInt64, "Pacific/Apia", MetricQuery{Metric: "m", GroupBy: []GroupBy{by}, Descending: true, Limit: math.MaxInt32})
		if err != nil || len(groups) == 0 {
			t.Errorf("%T: %v, %v", by, groups, err)
		}
	}
}
