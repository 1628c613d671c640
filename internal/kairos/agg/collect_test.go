package agg

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"varve/internal/query"
)

func TestCollectors(t *testing.T) {
	in := []sample{{1000, 2}, {2000, 4.0}, {3000, 4}, {4000, 10}, {60_000, 5}}
	minute := func(more ...any) Args {
		a := Args{"sampling": Sampling{1, Minutes}}
		for i := 0; i < len(more); i += 2 {
			a[more[i].(string)] = more[i+1]
		}
		return a
	}
	sd := math.Sqrt(12) // of 2, 4, 4, 10: mean 5
	tests := []struct {
		name string
		args Args
		want []sample
	}{
		{"dev", minute(), []sample{{1000, sd}, {60_000, 0.0}}},
		{"dev", minute("align_end_time", true), []sample{{60_000, sd}, {120_000, 0.0}}},
		{"dev", minute("return_type", "pos_sd"), []sample{{1000, 5 + sd}, {60_000, 5.0}}},
		{"dev", minute("return_type", "neg_sd", "dev_count", int64(3)), []sample{{1000, 5 - 3*sd}, {60_000, 5.0}}},
		{"percentile", minute("percentile", 0.5), []sample{{1000, 4.0}, {60_000, 5.0}}},
		{"percentile", minute("percentile", 0.7), []sample{{1000, 7.0}, {60_000, 5.0}}},
		{"percentile", minute("percentile", 0.1), []sample{{1000, 2.0}, {60_000, 5.0}}},
		{"percentile", minute("percentile", 1.0), []sample{{1000, 10.0}, {60_000, 5.0}}},
		{"least_squares", minute("align_start_time", true), []sample{{1000, 1.4}, {4000, 8.6}, {60_000, 5}}},
		{"least_squares", Args{"sampling": Sampling{2, Seconds}}, []sample{{1000, 2}, {2000, 4.0}, {3000, 4}, {4000, 10}, {60_000, 5}}},
	}
	for _, tt := range tests {
		got, err := apply(t, newStep(t, tt.name, tt.args), 0, 100_000, in...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(sample{}), cmpopts.EquateApprox(1e-12, 0)); diff != "" {
			t.Errorf("%s %v:\n%s", tt.name, tt.args, diff)
		}
	}
}

// KairosDB answers 0 here, since all digits have cancelled.
func TestDevOfLargeValues(t *testing.T) {
	in := []sample{{0, 1000000000.1}, {1, 1000000000.2}, {2, 1000000000.3}, {3, 1000000000.4}}
	got, err := apply(t, newStep(t, "dev", Args{"sampling": Sampling{1, Seconds}}), 0, 10, in...)
	if err != nil || len(got) != 1 || math.Abs(got[0].value.(float64)-0.12909944) > 1e-6 {
		t.Errorf("%v, %v", got, err)
	}
}

// A deviation that fits a double is not refused because squares or differences do not.
// KairosDB answers 0 here.
func TestDevOfSquaresThatDoNotFit(t *testing.T) {
	for _, c := range []struct {
		in   []sample
		want float64
	}{
		{[]sample{{0, 1e300}, {1, 3e300}}, math.Sqrt2 * 1e300},
		{[]sample{{0, 1.0 / 3}, {1, 1e300}}, 1e300 / math.Sqrt2},
		{[]sample{{0, 1e200}, {1, 1e200}, {2, 1e200}}, 0},
		{[]sample{{0, 1.0}, {1, 2.0}, {2, 3.0}, {3, -1e250}}, 1e250 / 2},
		{[]sample{{0, 1.5e308}, {1, -1.5e308}, {2, 0.0}, {3, 0.0}}, 1.5e308 * math.Sqrt(2.0/3)},
		{[]sample{{0, 1.0}, {1, 1e200}, {2, 1.5e308}, {3, 1.5e308}, {4, -1.5e308}, {5, -1.5e308}, {6, 0.0}}, 1.5e308 * math.Sqrt(4.0/6)},
	} {
		got, err := apply(t, newStep(t, "dev", Args{"sampling": Sampling{1, Seconds}}), 0, 10, c.in...)
		if err != nil || len(got) != 1 || math.Abs(got[0].value.(float64)-c.want) > 1e-12*c.want {
			t.Errorf("%v: %v, %v; want %g", c.in, got, err, c.want)
		}
	}
}

// Above 1028 values KairosDB's percentile is random.
func TestPercentileOfManyValues(t *testing.T) {
	var in []sample
	for i := range 3001 {
		in = append(in, sample{int64(i), (i * 1009) % 3001})
	}
	got, err := apply(t, newStep(t, "percentile", Args{"percentile": 0.5, "sampling": Sampling{1, Hours}}), 0, 10, in...)
	if err != nil || len(got) != 1 || got[0].value != 1500.0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestGaps(t *testing.T) {
	in := []sample{{12_500, 1}, {16_000, 2}, {30_000, "x"}}
	tests := []struct {
		name       string
		args       Args
		start, end int64
		want       []sample
	}{
		{"all", Args{}, 0, 40_000, []sample{{0, nil}, {12_500, 1}, {16_000, 2}, {20_000, nil}, {30_000, "x"}, {40_000, nil}}},
		{"start within a bucket", Args{}, 15_000, 29_000, []sample{{12_500, 1}, {16_000, 2}, {20_000, nil}, {30_000, "x"}}},
		{"trim", Args{"trim": true}, 0, 60_000, []sample{{12_500, 1}, {16_000, 2}, {20_000, nil}, {30_000, "x"}}},
		{"own ends", Args{"start_time": int64(10_000), "end_time": int64(50_000)}, 0, 40_000,
			[]sample{{12_500, 1}, {16_000, 2}, {20_000, nil}, {30_000, "x"}, {40_000, nil}, {50_000, nil}}},
		{"points beyond the end", Args{}, 0, 5_000, []sample{{0, nil}, {12_500, 1}, {16_000, 2}, {20_000, nil}, {30_000, "x"}}},
		{"points before the start", Args{}, 22_000, 29_000, []sample{{12_500, 1}, {16_000, 2}, {30_000, "x"}}},
	}
	for _, tt := range tests {
		tt.args["sampling"] = Sampling{10, Seconds}
		got, err := apply(t, newStep(t, "gaps", tt.args), tt.start, tt.end, in...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(sample{})); diff != "" {
			t.Errorf("%s:\n%s", tt.name, diff)
		}
	}
}

// Gaps are found even without any data.
func TestGapsWithoutData(t *testing.T) {
	f := newFixture(t, query.DefaultConfig())
	m := MetricQuery{Metric: "m", Steps: []Step{newStep(t, "gaps", Args{"sampling": Sampling{1, Seconds}})}}
	got, n, err := f.ask(0, 1000, "UTC", m)
	want := []output{{Points: []sample{{0, nil}, {1000, nil}}}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(sample{})); diff != "" || n != 0 || err != nil {
		t.Errorf("%d, %v\n%s", n, err, diff)
	}
}

// An aggregator that uses the value of a null fails, and no other does, as in KairosDB.
func TestNullsAmongNumbers(t *testing.T) {
	null, one := sample{0, nil}, sample{1000, 1}
	for _, tt := range []struct {
		name  string
		args  Args
		in    []sample
		fails bool
	}{
		{"sampler", Args{"unit": Seconds}, []sample{null}, false},
		{"sampler", Args{"unit": Seconds}, []sample{null, one}, true},
		{"sampler", Args{"unit": Seconds}, []sample{one, {2000, nil}}, true},
		{"rate", Args{"unit": Seconds}, []sample{null}, false},
		{"rate", Args{"unit": Seconds}, []sample{null, one}, true},
		{"diff", nil, []sample{null}, false},
		{"diff", nil, []sample{null, one}, true},
		{"filter", Args{"filter_op": "equal", "threshold": 5.0}, []sample{null}, true},
		{"filter", Args{"filter_op": "equal", "threshold": "x"}, []sample{null}, false},
		{"scale", nil, []sample{null}, true},
		{"sum", Args{"sampling": Sampling{1, Hours}}, []sample{null, one}, true},
		{"avg", Args{"sampling": Sampling{1, Hours}}, []sample{null, one}, false},
		{"avg", Args{"sampling": Sampling{1, Seconds}}, []sample{null, one}, true},
		{"trim", nil, []sample{null}, false},
		{"sma", Args{"size": int64(3)}, []sample{null, one}, false},
		{"sma", Args{"size": int64(2)}, []sample{null, one}, true},
		{"sma", Args{"size": int64(1)}, []sample{one, {2000, nil}}, true},
	} {
		_, err := apply(t, newStep(t, tt.name, tt.args), 0, 5000, tt.in...)
		if (err != nil) != tt.fails {
			t.Errorf("%s of %v: %v", tt.name, tt.in, err)
		}
	}
}
