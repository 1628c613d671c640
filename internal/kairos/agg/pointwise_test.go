package agg

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Steps that process points rather than buckets.
func TestPointwise(t *testing.T) {
	numbers := []sample{{0, 1}, {1000, 4}, {3000, 2.5}, {4000, -7}}
	mixed := []sample{{0, "b"}, {1, "a"}, {2, "13"}}
	zeros := []sample{{0, math.Copysign(0, -1)}, {1, 0.0}}
	tests := []struct {
		name string
		args Args
		in   []sample
		want []sample
	}{
		{"diff", nil, numbers, []sample{{1000, 3.0}, {3000, -1.5}, {4000, -9.5}}},
		{"diff", nil, numbers[:1], nil},
		{"sampler", Args{"unit": Seconds}, numbers, []sample{{1000, 4.0}, {3000, 1.25}, {4000, -7.0}}},
		{"scale", Args{"factor": 2.0}, numbers[:2], []sample{{0, 2.0}, {1000, 8.0}}},
		{"scale", nil, numbers[:2], []sample{{0, 0.0}, {1000, 0.0}}},
		{"div", Args{"divisor": 2.0}, numbers[:2], []sample{{0, 0.5}, {1000, 2.0}}},
		{"sma", Args{"size": int64(2)}, numbers, []sample{{1000, 2.5}, {3000, 3.25}, {4000, -2.25}}},
		{"sma", Args{"size": int64(1)}, numbers[:2], []sample{{0, 1.0}, {1000, 4.0}}},
		{"sma", Args{"size": int64(4)}, numbers, []sample{{4000, 0.125}}},
		{"sma", Args{"size": int64(5)}, numbers, nil},
		{"trim", Args{"trim": "FIRST"}, numbers, numbers[1:]},
		{"trim", Args{"trim": "last"}, numbers, numbers[:3]},
		{"trim", Args{"trim": "both"}, numbers, numbers[1:3]},
		{"trim", Args{"trim": "both"}, mixed, mixed[1:2]},
		{"trim", Args{"trim": "both"}, numbers[:1], nil},
		{"trim", nil, numbers, numbers},
		{"filter", Args{"filter_op": "LT", "threshold": 2.5}, numbers, numbers[1:3]},
		{"filter", Args{"filter_op": "lte", "threshold": 2.5}, numbers, numbers[1:2]},
		{"filter", Args{"filter_op": "gt"}, numbers, numbers[3:]},
		{"filter", Args{"filter_op": "gte", "threshold": -7.0}, numbers, nil},
		{"filter", Args{"filter_op": "equal", "threshold": 4.0}, numbers[:3], []sample{{0, 1}, {3000, 2.5}}},
		{"filter", Args{"filter_op": "ne", "threshold": 4.0}, numbers, numbers[1:2]},
		{"filter", Args{"filter_op": "ne"}, zeros, zeros[1:]},
		{"filter", Args{"filter_op": "equal"}, zeros, zeros[:1]},
		{"filter", Args{"filter_op": "lt"}, zeros, zeros[1:]},
		{"filter", Args{"filter_op": "gte", "threshold": math.Copysign(0, -1)}, zeros, nil},
		{"filter", Args{"filter_op": "gt", "threshold": "a"}, mixed, mixed[1:]},
		{"filter", Args{"filter_op": "gt", "threshold": 0.0}, mixed, nil},
		{"filter", Args{"filter_op": "gt", "threshold": true}, numbers, nil},
		{"score", Args{"thresholds": []Threshold{{Value: 4}, {Value: 1}, {Value: 1, Inferior: true}}}, numbers,
			[]sample{{0, 1.0}, {1000, 2.0}, {3000, 2.0}, {4000, 0.0}}},
		{"score", Args{"thresholds": []Threshold{{Value: 0}}, "order": "descending"}, numbers[2:], []sample{{3000, 0.0}, {4000, 1.0}}},
	}
	for _, tt := range tests {
		got, err := apply(t, newStep(t, tt.name, tt.args), 0, 5000, tt.in...)
		if err != nil {
			t.Fatalf("%s %v: %v", tt.name, tt.args, err)
		}
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(sample{})); diff != "" && len(tt.want)+len(got) > 0 {
			t.Errorf("%s %v:\n%s", tt.name, tt.args, diff)
		}
	}
}

func TestWrongArguments(t *testing.T) {
	tests := []struct {
		name string
		args Args
	}{
		{"div", nil}, {"div", Args{"divisor": 0.0}}, {"percentile", nil}, {"score", nil},
		{"score", Args{"thresholds": []Threshold{}, "order": "DESCENDING"}},
		{"trim", Args{"trim": "x"}}, {"filter", Args{"filter_op": "x"}}, {"dev", Args{"return_type": "VALUE"}},
		{"sma", nil}, {"sma", Args{"size": int64(0)}},
	}
	for _, tt := range tests {
		for _, spec := range Aggregators() {
			if spec.Name != tt.name {
				continue
			}
			if _, err := spec.New(tt.args); err == nil {
				t.Errorf("%s took %v", tt.name, tt.args)
			} else if _, ok := err.(*ArgumentError); !ok {
				t.Errorf("%s: %T", tt.name, err)
			}
		}
	}
}

// Faults that KairosDB notices only if there are points.
func TestArgumentsThatNeedPoints(t *testing.T) {
	for name, args := range map[string]Args{
		"filter": {"threshold": 1.0}, "percentile": {"percentile": 1.5}, "sampler": {"unit": Seconds},
	} {
		s := newStep(t, name, args)
		if got, err := apply(t, s, 0, 10); err != nil || got != nil {
			t.Errorf("%s without points: %v, %v", name, got, err)
		}
		if _, err := apply(t, s, 0, 10, sample{1, 1}, sample{1, 2}); err == nil {
			t.Errorf("%s took points", name)
		}
	}
}

func TestRegistryIsSortedAndComplete(t *testing.T) {
	var previous string
	for _, spec := range Aggregators() {
		if spec.Name <= previous || spec.Doc == "" || spec.New == nil {
			t.Errorf("%s after %s, %q", spec.Name, previous, spec.Doc)
		}
		previous = spec.Name
	}
	previous = ""
	for _, spec := range GroupBys() {
		if spec.Name <= previous || spec.Doc == "" || spec.New == nil {
			t.Errorf("%s after %s", spec.Name, previous)
		}
		previous = spec.Name
	}
}

// The mean of each window, however often the ring has wrapped around.
func TestSmaTurns(t *testing.T) {
	var in []sample
	for i := range 100 {
		in = append(in, sample{int64(i), i * i % 37})
	}
	for size := int64(1); size < 9; size++ {
		got, err := apply(t, newStep(t, "sma", Args{"size": size}), 0, 100, in...)
		if err != nil || int64(len(got)) != 101-size {
			t.Fatalf("%d points, %v", len(got), err)
		}
		for i, p := range got {
			sum := 0
			for _, s := range in[i : i+int(size)] {
				sum += s.value.(int)
			}
			if want := float64(sum) / float64(size); p.value != want {
				t.Errorf("size %d at %d: %v, want %v", size, p.ms, p.value, want)
			}
		}
	}
}
