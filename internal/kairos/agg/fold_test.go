package agg

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each fold over the same samples: two buckets of ten seconds, longs and doubles, and
// one empty bucket.
func TestFolds(t *testing.T) {
	in := []sample{{1000, 3}, {2000, 1.5}, {9999, -4}, {10_000, 7}, {35_000, 2.5}}
	ten := Args{"sampling": Sampling{10, Seconds}}
	tests := []struct {
		name string
		args Args
		want []sample
	}{
		{"sum", ten, []sample{{1000, 0.5}, {10_000, 7.0}, {35_000, 2.5}}},
		{"avg", ten, []sample{{1000, 0.5 / 3}, {10_000, 7.0}, {35_000, 2.5}}},
		{"min", ten, []sample{{1000, -4.0}, {10_000, 7.0}, {35_000, 2.5}}},
		{"max", ten, []sample{{1000, 3.0}, {10_000, 7.0}, {35_000, 2.5}}},
		{"count", ten, []sample{{1000, 3}, {10_000, 1}, {35_000, 1}}},
		{"first", ten, []sample{{1000, 3}, {10_000, 7}, {35_000, 2.5}}},
		{"last", ten, []sample{{9999, -4}, {10_000, 7}, {35_000, 2.5}}},
		{"last", Args{"sampling": Sampling{10, Seconds}, "align_start_time": true}, []sample{{0, -4}, {10_000, 7}, {30_000, 2.5}}},
		{"sum", Args{"sampling": Sampling{10, Seconds}, "align_end_time": true}, []sample{{10_000, 0.5}, {20_000, 7.0}, {40_000, 2.5}}},
		{"sum", Args{"sampling": Sampling{10, Seconds}, "align_end_time": true, "align_start_time": true}, []sample{{0, 0.5}, {10_000, 7.0}, {30_000, 2.5}}},
		{"sum", Args{}, []sample{{1000, 3.0}, {2000, 1.5}, {9999, -4.0}, {10_000, 7.0}, {35_000, 2.5}}},
	}
	for _, tt := range tests {
		got, err := apply(t, newStep(t, tt.name, tt.args), 500, 60_000, in...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(sample{})); diff != "" {
			t.Errorf("%s %v:\n%s", tt.name, tt.args, diff)
		}
	}
}

func TestFoldsOfText(t *testing.T) {
	in := []sample{{0, "a"}, {1, "b"}, {2000, "c"}}
	second := Args{"sampling": Sampling{1, Seconds}}
	for name, want := range map[string][]sample{
		"first": {{0, "a"}, {2000, "c"}},
		"last":  {{1, "b"}, {2000, "c"}},
		"count": {{0, 2}, {2000, 1}},
	} {
		got, err := apply(t, newStep(t, name, second), 0, 5000, in...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(sample{})); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// A point before the origin is in bucket 0 if less than one sampling before it, and a
// bucket stays open to its end: KairosDB truncates quotients.
func TestPointsBeforeTheOrigin(t *testing.T) {
	start := int64(10_000)
	args := Args{"sampling": Sampling{2, Seconds}, "align_sampling": false, "start_time": start, "align_start_time": true}
	got, err := apply(t, newStep(t, "sum", args), 0, 60_000, sample{5_000, 1}, sample{7_000, 2}, sample{8_500, 4}, sample{11_000, 8})
	if err != nil {
		t.Fatal(err)
	}
	// 5 s: k = -2, [6 s, 8 s); 8.5 s: k = 0, [10 s, 12 s).
	want := []sample{{6_000, 3.0}, {10_000, 12.0}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(sample{})); diff != "" {
		t.Error(diff)
	}
}

func TestZeroSamplingNeedsPoints(t *testing.T) {
	s := newStep(t, "sum", Args{"sampling": Sampling{0, Days}})
	if got, err := apply(t, s, 0, 10); err != nil || got != nil {
		t.Errorf("without points: %v, %v", got, err)
	}
	if _, err := apply(t, s, 0, 10, sample{1, 1}); err != error(errZeroSampling) {
		t.Errorf("with a point: %v", err)
	}
}

func TestNumericFoldsRefuseNull(t *testing.T) {
	if _, err := apply(t, newStep(t, "sum", nil), 0, 10, sample{1, nil}); err == nil {
		t.Error("sum took a null")
	}
	if _, err := apply(t, newStep(t, "count", nil), 0, 10, sample{1, nil}); err != nil {
		t.Error(err)
	}
}
