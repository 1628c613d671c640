package agg

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"varve/internal/query"
)

func TestRate(t *testing.T) {
	in := []sample{{0, 1}, {1000, 4}, {3000, 2.5}}
	tests := []struct {
		args Args
		want []sample
	}{
		{nil, []sample{{1000, 0.003}, {3000, -0.00075}}},
		{Args{"sampling": Sampling{1, Seconds}}, []sample{{1000, 3.0}, {3000, -0.75}}},
		{Args{"unit": Minutes}, []sample{{1000, 180.0}, {3000, -45.0}}},
		{Args{"sampling": Sampling{1, Months}}, []sample{{1000, 0.003 * 31 * dayMS}, {3000, -0.00075 * 31 * dayMS}}},
	}
	for _, tt := range tests {
		got, err := apply(t, newStep(t, "rate", tt.args), 0, 5000, in...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(sample{})); diff != "" {
			t.Errorf("%v:\n%s", tt.args, diff)
		}
	}
}

func TestRateOfOnePoint(t *testing.T) {
	got, err := apply(t, newStep(t, "rate", nil), 0, 10, sample{1, 1})
	if err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestRateOfEqualTimes(t *testing.T) {
	_, err := apply(t, newStep(t, "rate", nil), 0, 10, sample{1, 1}, sample{1, 2})
	if _, ok := err.(*query.ComputeError); !ok || !strings.Contains(err.Error(), "same time stamp.  You") {
		t.Errorf("%v", err)
	}
}
