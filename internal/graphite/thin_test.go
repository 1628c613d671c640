package graphite

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"varve/internal/model"
	"varve/internal/retention"
	"varve/internal/store"
)

// ones is a bucket of so many samples of 1.
func ones(startMS, stepMS, n int64) store.Bucket {
	return store.Bucket{StartMS: startMS, StepMS: stepMS, Aggregate: model.Aggregate{Sum: float64(n), Count: n, Min: 1, Max: 1, Last: 1, LastMS: startMS + stepMS - 1}}
}

func newThin(t *testing.T, method retention.Method, factor float64) thin {
	rules, _, err := retention.ParseSchemas("[a]\npattern = .\nretentions = 10s:6h,60s:30d,1h:5y\n")
	if err != nil {
		t.Fatal(err)
	}
	policy := retention.Policy{Rule: &rules[0], Aggregation: &retention.Aggregation{Method: method, XFilesFactor: factor}}
	return thin{policy: policy, stage: 2, stepMS: 10_000}
}

// TestThinPoints: buckets of several files that are in one point, and samples that came
// late, make that point together.
func TestThinPoints(t *testing.T) {
	values := make([]float64, 720)
	fill(values)
	values[7] = 5 // in the first hour
	buckets := []store.Bucket{ones(0, 3_600_000, 180), ones(1_800_000, 60_000, 6), ones(1_860_000, 60_000, 6), ones(3_600_000, 60_000, 6), ones(3_660_000, 60_000, 3)}
	got := newThin(t, retention.Sum, 0).points(values, buckets)
	want := []thinPoint{{2, 0, 197}, {1, 60, 6}, {1, 61, 3}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(thinPoint{})); d != "" {
		t.Error(d)
	}
}

// TestThinFactor: more samples in a bucket never make its point vanish, but for a single
// one at its very beginning.
func TestThinFactor(t *testing.T) {
	th := newThin(t, retention.Average, 0.5)
	for n := int64(1); n <= 360; n++ {
		if v := th.value(ones(0, 3_600_000, n)); (v == v) != (n >= 180) {
			t.Errorf("%d samples of 360: %v", n, v)
		}
	}
	imported := ones(0, 3_600_000, 1)
	imported.LastMS = 0
	if v := th.value(imported); v != 1 {
		t.Errorf("a point of a coarser archive: %v", v)
	}
}
