package model

import (
	"math"
	"math/rand/v2"
	"testing"

	"varve/internal/quantile"
)

// TestAggregate compares aggregates that were merged in parts with a loop over all
// values.
func TestAggregate(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var whole, merged, part Aggregate
		low, high, sum, count := math.Inf(1), math.Inf(-1), 0.0, int64(0)
		last, lastMS := 0.0, int64(0)
		for ms := range int64(rng.IntN(20)) {
			v := float64(rng.IntN(1000) - 500)
			if rng.IntN(5) == 0 {
				v = math.NaN()
			}
			whole.Add(ms, v)
			part.Add(ms, v)
			if v == v {
				low, high, sum, count, last, lastMS = min(low, v), max(high, v), sum+v, count+1, v, ms
			}
			if rng.IntN(4) == 0 {
				merged.Merge(part)
				part = Aggregate{}
			}
		}
		merged.Merge(part)
		want := Aggregate{}
		if count > 0 {
			want = Aggregate{Sum: sum, Count: count, Min: low, Max: high, Last: last, LastMS: lastMS}
		}
		if whole != want || merged != want {
			t.Fatalf("%+v at once, %+v in parts, want %+v", whole, merged, want)
		}
	}
}

// TestSketchesOfAggregates: an aggregate has the sketch of all its values, or none.
func TestSketchesOfAggregates(t *testing.T) {
	of := func(sketched bool, values ...float64) (a Aggregate) {
		for i, v := range values {
			a.Add(int64(i), v)
		}
		if sketched {
			a.Sketch = quantile.Of(values...)
		}
		return a
	}
	x := of(true, 1, 2, 3)
	x.Merge(of(true, 10, 20))
	x.Merge(Aggregate{})
	x.Add(9, 100)
	x.Add(9, math.NaN())
	if x.Sketch != quantile.Of(1, 2, 3, 10, 20, 100) {
		t.Errorf("merged: %q", x.Sketch)
	}
	if got, err := ParseAggregate(x.Append(nil)); err != nil || got != x {
		t.Errorf("%+v became %+v, %v", x, got, err)
	}
	if got, err := ParsePlain(x.Append(nil)); err != nil || got.Sketch != "" || got.Sum != x.Sum {
		t.Errorf("without its sketch: %+v, %v", got, err)
	}
	x.Merge(of(false, 5))
	if x.Sketch != "" || x.Count != 7 {
		t.Errorf("merged with one that has no sketch: %+v", x)
	}
	var empty Aggregate
	if empty.Merge(of(true, 5)); empty.Sketch == "" {
		t.Error("merged into none, the sketch is lost")
	}
	few := of(true, 1, 2)
	few.Sketch = quantile.Of(1)
	if got, err := ParseAggregate(few.Append(nil)); err == nil {
		t.Errorf("a sketch of fewer values: %+v", got)
	}
	if got, err := ParseAggregate(append(of(false, 1).Append(nil), 0x80)); err == nil {
		t.Errorf("bytes that are no sketch: %+v", got)
	}
}

func TestRank(t *testing.T) {
	for _, c := range []struct {
		percent     float64
		count, want int64
	}{{0.1, 10, 1}, {50, 1, 1}, {50, 2, 2}, {50, 3, 2}, {50, 4, 3}, {95, 19, 19}, {95, 20, 20}, {100, 20, 20}, {90, 19, 18}} {
		if got := Rank(c.percent, c.count); got != c.want {
			t.Errorf("%v percent of %d: rank %d, want %d", c.percent, c.count, got, c.want)
		}
	}
}

func TestAggregateOrder(t *testing.T) {
	late := Aggregate{Sum: 1, Count: 1, Min: 1, Max: 1, Last: 1, LastMS: 20}
	late.Add(10, 5)
	if late.Last != 1 || late.LastMS != 20 {
		t.Errorf("last is %v at %d ms after an earlier sample was added", late.Last, late.LastMS)
	}
	late.Add(20, 7)
	if late.Last != 7 {
		t.Errorf("last is %v after another sample of the same time was added, want 7", late.Last)
	}
	early := Aggregate{}
	early.Add(math.MinInt64, -1)
	if early.Count != 1 || early.LastMS != math.MinInt64 {
		t.Errorf("the earliest time of all: %+v", early)
	}
}

func TestAggregateBytes(t *testing.T) {
	for _, a := range []Aggregate{
		{}, {Sum: math.Inf(1), Count: math.MaxInt64, Min: math.Copysign(0, -1), Max: math.MaxFloat64, Last: -1.5, LastMS: math.MinInt64},
	} {
		b := a.Append([]byte("x"))[1:]
		got, err := ParseAggregate(b)
		if err != nil || got != a || math.Signbit(got.Min) != math.Signbit(a.Min) || len(b) != AggregateSize {
			t.Errorf("%+v became %+v, %v", a, got, err)
		}
	}
	for _, b := range [][]byte{nil, make([]byte, AggregateSize-1), Aggregate{Count: -1}.Append(nil)} {
		if a, err := ParseAggregate(b); err == nil {
			t.Errorf("ParseAggregate(%x) = %+v, want an error", b, a)
		}
	}
}
