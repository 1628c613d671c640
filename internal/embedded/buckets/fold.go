package buckets

import (
	"math"
	"slices"

	"varve/internal/model"
	"varve/internal/quantile"
	"varve/internal/retention"
	"varve/internal/store"
)

// A Fold makes the data of one series as coarse as its plan requires. Data comes in order of time,
// from places of one step: all samples, or all buckets of a width.
type Fold struct {
	Task

	Made func(store.Bucket) error // takes the buckets that are made, in order of time

	Folded int64 // data that went into buckets
	Gone   int64 // data that is older than the plan

	open    store.Bucket // StepMS 0: none; without its sketch
	sketch  quantile.Builder
	partial bool   // a part of open has no sketch
	lastMS  int64  // the last instant of open
	pending sample // of the current slot, not in open yet
	slotMS  int64  // the last instant of the slot
	span    int    // of the plan, in which the last data was
}

// A Task says what to do with the data of a series.
type Task struct {
	Plan   retention.Plan
	StepMS int64 // of the data, 0 for samples

	// SlotMS, if not 0, is the intended distance of samples: of several samples in one slot, the
	// last one counts.
	SlotMS int64

	Sketches bool // buckets that are made have one
}

type sample struct {
	ms    int64
	value float64
	there bool
}

// Begin prepares for another series.
func (f *Fold) Begin(t Task) {
	f.Task = t
	f.sketch.Reset()
	f.partial = false
	f.open, f.pending, f.span, f.slotMS = store.Bucket{}, sample{}, -1, math.MinInt64
}

// Run returns the end of the run of times, beginning with index from, that are in the
// same span of the plan: Keeps gives the same answer for all of them.
func (f *Fold) Run(times []int64, from int) int {
	f.seek(times[from])
	if f.span+1 == len(f.Plan) || times[len(times)-1] < f.Plan[f.span+1].FromMS {
		return len(times)
	}
	n, _ := slices.BinarySearch(times[from:], f.Plan[f.span+1].FromMS)
	return from + n
}

// seek moves to the span that ms is in.
func (f *Fold) seek(ms int64) {
	for f.span+1 < len(f.Plan) && f.Plan[f.span+1].FromMS <= ms {
		f.span++
		f.lastMS = math.MinInt64 // buckets have another width now
	}
}

// Keeps reports whether n samples or buckets of one run, beginning at ms, stay as they are. If they
// do not, the caller passes them to Samples or Bucket, unless they are older than the plan: Keeps
// counts such data as gone.
func (f *Fold) Keeps(ms int64, n int) (stays, goes bool) {
	f.seek(ms)
	if f.span < 0 {
		f.Gone += int64(n)
		return false, true
	}
	return f.Plan.Target(f.span, f.StepMS) == f.StepMS, false
}

// Samples folds a run of samples that Keeps has just declined.
func (f *Fold) Samples(kind model.Kind, times []int64, values []uint64) error {
	f.Folded += int64(len(times))
	for i, ms := range times {
		v := model.Float(kind, values[i])
		if v != v {
			continue // no value at all, see model.Aggregate
		}
		if f.open.StepMS == 0 || ms > f.lastMS {
			if err := f.enter(ms); err != nil {
				return err
			}
		}
		if f.pending.there && (f.SlotMS == 0 || ms > f.slotMS) {
			f.settle()
		}
		if !f.pending.there && f.SlotMS != 0 {
			f.slot(ms)
		}
		f.pending = sample{ms, v, true}
	}
	return nil
}

// slot records the end of the slot that contains ms. Mostly this is the slot after the previous
// one.
func (f *Fold) slot(ms int64) {
	if next := f.slotMS + f.SlotMS; f.slotMS < ms && ms <= next && f.slotMS != math.MinInt64 {
		f.slotMS = next
		return
	}
	f.slotMS = lastOf(ms, f.SlotMS)
}

// Bucket folds a bucket with a start that Keeps has just declined.
func (f *Fold) Bucket(b store.Bucket) error {
	f.Folded++
	if err := f.enter(b.StartMS); err != nil {
		return err
	}
	if f.Sketches {
		f.sketch.AddSketch(b.Sketch)
		f.partial = f.partial || b.Sketch == "" && b.Count > 0
	}
	b.Sketch = ""
	f.open.Merge(b.Aggregate)
	return nil
}

// enter opens the bucket that ms is in.
func (f *Fold) enter(ms int64) error {
	step := f.Plan.Target(f.span, f.StepMS)
	start := model.Floor(ms, step)
	f.lastMS = lastOf(ms, step)
	if f.open.StepMS == step && f.open.StartMS == start {
		return nil
	}
	if err := f.End(); err != nil {
		return err
	}
	f.open = store.Bucket{StartMS: start, StepMS: step}
	return nil
}

// lastOf returns the last instant of the bucket that ms is in, ms itself for the first
// bucket of all, which wraps: see model.Floor.
func lastOf(ms, stepMS int64) int64 {
	if start := model.Floor(ms, stepMS); start <= ms {
		return lastInstant(start, stepMS)
	}
	return ms
}

// settle counts the pending sample.
func (f *Fold) settle() {
	if f.pending.there {
		f.open.Add(f.pending.ms, f.pending.value)
		if f.Sketches {
			f.sketch.Add(f.pending.value)
		}
	}
	f.pending = sample{}
}

// End hands out the last bucket.
func (f *Fold) End() error {
	f.settle()
	b := f.open
	f.open = store.Bucket{}
	if b.Count == 0 {
		return nil
	}
	b.Sum = tidy(b.Aggregate)
	if f.Sketches {
		if !f.partial {
			b.Sketch = f.sketch.Sketch()
		}
		f.sketch.Reset()
		f.partial = false
	}
	return f.Made(b)
}

const (
	tidyDigits = 6    // after the point, at most
	tidyMargin = 1024 // by which the distance of decimal numbers exceeds the error of a sum
)

// tidy returns the sum of a bucket without the rounding errors of additions in its last digits, if
// it is clear which decimal number is meant: 0.1 + 0.2 is 0.3, not 0.30000000000000004. Such a sum
// is more exact, and takes a tenth of the space.
func tidy(a model.Aggregate) float64 {
	if a.Count == 1 {
		return a.Sum
	}
	n, most := float64(a.Count), max(math.Abs(a.Min), math.Abs(a.Max))
	apart := n * n * most * 0x1p-53 * tidyMargin // least distance of two decimal numbers that can be told apart
	for digits, scale := 0, 1.0; digits <= tidyDigits && 1/scale > apart; digits, scale = digits+1, scale*10 {
		near := math.RoundToEven(a.Sum*scale) / scale
		if math.Abs(near-a.Sum) <= apart/tidyMargin {
			return near
		}
	}
	return a.Sum
}
