package buckets

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"varve/internal/model"
	"varve/internal/quantile"
	"varve/internal/retention"
	"varve/internal/store"
)

// A part is what a fold is given: a sample, or a bucket of the task's step.
type part struct {
	ms  int64 // the beginning of a bucket
	agg model.Aggregate
}

// folded is what a fold leaves.
type folded struct {
	made         []store.Bucket
	kept         []int64 // times
	folded, gone int64
}

// simply folds as Fold does, in steps that each are simple and slow.
func simply(t Task, parts []part) (out folded) {
	type place struct{ step, start int64 }
	type slot struct {
		place
		start int64
	}
	groups, last := map[place][]part{}, map[slot]int{}
	var order []place
	for _, p := range parts {
		span := t.Plan.At(p.ms)
		if span < 0 {
			out.gone++
			continue
		}
		step := t.Plan.Target(span, t.StepMS)
		if step == t.StepMS {
			out.kept = append(out.kept, p.ms)
			continue
		}
		out.folded++
		if p.agg.Count == 0 {
			continue
		}
		at := place{step, model.Floor(p.ms, step)}
		if groups[at] == nil {
			order = append(order, at)
		}
		if t.StepMS == 0 && t.SlotMS != 0 {
			s := slot{at, model.Floor(p.ms, t.SlotMS)}
			if i, ok := last[s]; ok {
				groups[at][i] = p
				continue
			}
			last[s] = len(groups[at])
		}
		groups[at] = append(groups[at], p)
	}
	for _, at := range order {
		b := store.Bucket{StartMS: at.start, StepMS: at.step}
		var sketch quantile.Sketch
		for i, p := range groups[at] {
			switch {
			case i == 0:
				sketch = p.agg.Sketch
			case sketch != "" && p.agg.Sketch != "":
				sketch = quantile.Merge(sketch, p.agg.Sketch)
			default:
				sketch = ""
			}
			p.agg.Sketch = ""
			b.Merge(p.agg)
		}
		if t.Sketches {
			b.Sketch = sketch
		}
		out.made = append(out.made, b)
	}
	return out
}

// by gives parts to a fold, in runs of at most so many.
func by(f *Fold, t Task, parts []part, most int) (out folded, err error) {
	f.Begin(t)
	f.Folded, f.Gone = 0, 0
	f.Made = func(b store.Bucket) error { out.made = append(out.made, b); return nil }
	for len(parts) > 0 && err == nil {
		n := min(most, len(parts))
		var times []int64
		var values []uint64
		for _, p := range parts[:n] {
			times = append(times, p.ms)
			values = append(values, math.Float64bits(p.agg.Sum))
		}
		for from, to := 0, 0; from < n && err == nil; from = to {
			to = f.Run(times, from)
			stays, goes := f.Keeps(times[from], to-from)
			switch {
			case stays:
				out.kept = append(out.kept, times[from:to]...)
			case goes:
			case t.StepMS == 0:
				err = f.Samples(model.Double, times[from:to], values[from:to])
			default:
				for _, p := range parts[from:to] {
					err = errors.Join(err, f.Bucket(store.Bucket{StartMS: p.ms, StepMS: t.StepMS, Aggregate: p.agg}))
				}
			}
		}
		parts = parts[n:]
	}
	err = errors.Join(err, f.End())
	out.folded, out.gone = f.Folded, f.Gone
	return out, err
}

// drawPlan returns a plan over some hundred instants around 0.
func drawPlan(r *rand.Rand) retention.Plan {
	plans := []retention.Plan{
		{{FromMS: math.MinInt64, StepMS: 16}},
		{{FromMS: -64, StepMS: 16}, {FromMS: 64, StepMS: 0}},
		{{FromMS: -128, StepMS: 32}, {FromMS: -32, StepMS: 8}, {FromMS: 96, StepMS: 0}},
		{{FromMS: -96, StepMS: 24}, {FromMS: 0, StepMS: 8}, {FromMS: 48, StepMS: 4}},
		{{FromMS: -96, StepMS: 32}, {FromMS: -96, StepMS: 8}, {FromMS: 32, StepMS: 0}},
	}
	return plans[r.IntN(len(plans))]
}

// drawParts returns parts for a task. Numbers are whole, so that sums are exact in any order.
func drawParts(r *rand.Rand, t Task) (parts []part) {
	sparse := 1 + r.IntN(3)*7
	for ms := int64(-160); ms < 160; ms += max(t.StepMS, 1) {
		if r.IntN(sparse) != 0 {
			continue
		}
		p := part{ms: ms}
		for range 1 + r.IntN(3) {
			v := float64(r.IntN(100) - 50)
			p.agg.Merge(model.Aggregate{Sum: v, Count: 1, Min: v, Max: v, Last: v, LastMS: ms, Sketch: quantile.Of(v)})
			if t.StepMS == 0 {
				break
			}
		}
		switch r.IntN(12) {
		case 0:
			p.agg = model.Aggregate{Sum: math.NaN()} // no value
			if t.StepMS != 0 {
				p.agg.Sum = 0
			}
		case 1:
			if t.StepMS != 0 {
				p.agg.Sketch = ""
			}
		}
		parts = append(parts, p)
	}
	return parts
}

// TestFoldsAsAModel: of any data, by any plan, given in runs of any length, a fold makes
// what simply makes, also one that was used before.
func TestFoldsAsAModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var f Fold
	for round := range 3000 {
		task := Task{Plan: drawPlan(r), Sketches: r.IntN(2) == 0}
		if r.IntN(2) == 0 {
			task.StepMS = 4
		} else {
			task.SlotMS = int64(r.IntN(4))
		}
		parts := drawParts(r, task)
		want := simply(task, parts)
		got, err := by(&f, task, parts, 1+r.IntN(40))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.made, want.made) || !slices.Equal(got.kept, want.kept) || got.folded != want.folded || got.gone != want.gone {
			t.Fatalf("round %d, %+v:\n got %+v\nwant %+v", round, task, got, want)
		}
	}
}

// TestFoldsAtTheEdges: the first and the last instants of all are folded too.
func TestFoldsAtTheEdges(t *testing.T) {
	for _, step := range []int64{1, 7, 1000} {
		for _, slot := range []int64{0, 3} {
			task := Task{Plan: retention.Plan{{FromMS: math.MinInt64, StepMS: step}}, SlotMS: slot}
			var parts []part
			for _, ms := range []int64{math.MinInt64, math.MinInt64 + 1000, math.MaxInt64 - 1000, math.MaxInt64} {
				parts = append(parts, part{ms, model.Aggregate{Sum: 5, Count: 1, Min: 5, Max: 5, Last: 5, LastMS: ms}})
			}
			var f Fold
			got, err := by(&f, task, parts, len(parts))
			if want := simply(task, parts); err != nil || !slices.Equal(got.made, want.made) {
				t.Errorf("step %d, slot %d: %v\n got %+v\nwant %+v", step, slot, err, got.made, want.made)
			}
		}
	}
}

// TestFoldStops: a bucket that cannot be written ends the fold, whichever it is.
func TestFoldStops(t *testing.T) {
	full := errors.New("disk full")
	plan := retention.Plan{{FromMS: 0, StepMS: 16}}
	one := model.Aggregate{Sum: 1, Count: 1, Min: 1, Max: 1, Last: 1}
	for name, give := range map[string]func(f *Fold) error{
		"sample": func(f *Fold) error { return f.Samples(model.Double, []int64{0, 16}, []uint64{0, 0}) },
		"bucket": func(f *Fold) error {
			return errors.Join(f.Bucket(store.Bucket{StartMS: 0, StepMS: f.StepMS, Aggregate: one}),
				f.Bucket(store.Bucket{StartMS: 16, StepMS: f.StepMS, Aggregate: one}))
		},
	} {
		f := Fold{Made: func(store.Bucket) error { return full }}
		f.Begin(Task{Plan: plan, StepMS: map[string]int64{"bucket": 4}[name]})
		f.Keeps(0, 2)
		if err := give(&f); !errors.Is(err, full) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f := Fold{Made: func(store.Bucket) error { return full }}
	f.Begin(Task{Plan: plan})
	f.Keeps(0, 1)
	if err := f.Samples(model.Double, []int64{0}, []uint64{0}); err != nil {
		t.Errorf("within a bucket: %v", err)
	}
	if err := f.End(); !errors.Is(err, full) {
		t.Errorf("the last: %v", err)
	}
}

// TestFoldBeginsAnew: what a series that was not finished has left does not go into the next one.
func TestFoldBeginsAnew(t *testing.T) {
	task := Task{Plan: retention.Plan{{FromMS: math.MinInt64, StepMS: 16}}, StepMS: 4, Sketches: true}
	bare := model.Aggregate{Count: 1, Sum: 5, Min: 5, Max: 5, Last: 5}
	parts := []part{{0, model.Aggregate{Count: 1, Sum: 7, Min: 7, Max: 7, Last: 7, Sketch: quantile.Of(7)}}}
	var f Fold
	f.Begin(task)
	f.Run([]int64{0}, 0)
	f.Keeps(0, 1)
	if err := f.Bucket(store.Bucket{StepMS: 4, Aggregate: bare}); err != nil {
		t.Fatal(err)
	}
	got, err := by(&f, task, parts, 1)
	if want := simply(task, parts); err != nil || !slices.Equal(got.made, want.made) {
		t.Errorf("%v\n got %+v\nwant %+v", err, got.made, want.made)
	}
}
