package agg

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"varve/internal/model"
	"varve/internal/query"
)

// Each aggregator answers for samples at both ends of time, alone and with other
// samples in their bucket, folded and merged.
func TestSamplesAtTheEndsOfTime(t *testing.T) {
	const last, first = math.MaxInt64, math.MinInt64
	hour := Args{"sampling": Sampling{1, Hours}}
	day := Args{"sampling": Sampling{1, Days}}
	stamped := Args{"sampling": Sampling{1, Hours}, "align_end_time": true}
	tests := []struct {
		step    string
		args    Args
		startMS int64
		want    []sample
	}{
		{"max", hour, 0, []sample{{10, 2.0}, {last - 1, 4.0}}},
		{"sum", hour, 0, []sample{{10, 80.0}, {last - 1, 200.0}}},
		{"count", hour, 0, []sample{{10, 40}, {last - 1, 80}}},
		{"avg", hour, 0, []sample{{10, 2.0}, {last - 1, 2.5}}},
		{"last", hour, 0, []sample{{10, 2.0}, {last, 4.0}}},
		{"percentile", Args{"sampling": Sampling{1, Hours}, "percentile": 1.0}, 0, []sample{{10, 2.0}, {last - 1, 4.0}}},
		{"max", stamped, 0, []sample{{hourMS, 2.0}, {last, 4.0}}},
		{"max", day, 0, []sample{{10, 2.0}, {last - 1, 4.0}}},
		{"max", Args{"sampling": Sampling{1, Milliseconds}}, 0, []sample{{10, 2.0}, {last - 1, 1.0}, {last, 4.0}}},
		{"max", hour, last, []sample{{last, 4.0}}},
		{"max", hour, first, []sample{{first, 8.0}, {10, 2.0}, {last - 1, 4.0}}},
		{"max", day, first, []sample{{first, 8.0}, {10, 2.0}, {last - 1, 4.0}}},
		{"max", Args{"sampling": Sampling{1, Milliseconds}}, first, []sample{{first, 8.0}, {10, 2.0}, {last - 1, 1.0}, {last, 4.0}}},
	}
	for _, merging := range []bool{false, true} {
		f := newFixture(t, query.DefaultConfig())
		f.merging = merging
		for i := range 40 {
			f.put("m", model.MustTags("h", fmt.Sprint(i)), sample{first, 8.0}, sample{10, 2.0}, sample{last - 1, 1.0}, sample{last, 4.0})
		}
		for _, tt := range tests {
			got, _, err := f.ask(tt.startMS, last, "UTC", MetricQuery{Metric: "m", WithoutTags: true, Steps: []Step{newStep(t, tt.step, tt.args)}})
			if err != nil || len(got) != 1 {
				t.Errorf("%s %v from %d, merging %v: %v, %v", tt.step, tt.args, tt.startMS, merging, got, err)
				continue
			}
			if diff := cmp.Diff(tt.want, got[0].Points, cmp.AllowUnexported(sample{})); diff != "" {
				t.Errorf("%s %v from %d, merging %v:\n%s", tt.step, tt.args, tt.startMS, merging, diff)
			}
		}
	}
}

// gaps ends with the last possible bucket, whatever its end.
func TestGapsEndWithTime(t *testing.T) {
	for _, unit := range []Unit{Hours, Days, Years} {
		step := newStep(t, "gaps", Args{
			"sampling": Sampling{1, unit}, "align_sampling": false,
			"start_time": int64(math.MaxInt64 - 2*hourMS), "end_time": int64(math.MaxInt64),
		})
		got, err := apply(t, step, 0, math.MaxInt64, sample{math.MaxInt64, 1})
		if err != nil || len(got) == 0 || len(got) > 3 || got[len(got)-1] != (sample{math.MaxInt64, 1}) {
			t.Errorf("%s: %v, %v", unit, got, err)
		}
	}
}

// An earlier step may make values that no double holds. The min and max of a bucket are KairosDB's.
func TestMinAndMaxOfInfinities(t *testing.T) {
	hour := Args{"sampling": Sampling{1, Hours}}
	for _, tt := range []struct {
		step  string
		value float64
		want  float64
	}{
		{"min", 1e300, math.MaxFloat64},
		{"min", -1e300, math.Inf(-1)},
		{"max", 1e300, math.Inf(1)},
		{"max", -1e300, -math.MaxFloat64},
	} {
		f := newFixture(t, query.DefaultConfig())
		f.put("m", model.MustTags("h", "a"), sample{0, tt.value}, sample{1, tt.value})
		got, _, err := f.ask(0, hourMS, "UTC", MetricQuery{Metric: "m", WithoutTags: true,
			Steps: []Step{newStep(t, "scale", Args{"factor": 1e300}), newStep(t, tt.step, hour)}})
		if err != nil || len(got) != 1 {
			t.Fatalf("%v, %v", got, err)
		}
		if diff := cmp.Diff([]sample{{0, tt.want}}, got[0].Points, cmp.AllowUnexported(sample{})); diff != "" {
			t.Errorf("%s of %v times 1e300:\n%s", tt.step, tt.value, diff)
		}
	}
}
