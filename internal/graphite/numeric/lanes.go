package numeric

import "math"

// lanes is the number of windows that are folded at once. An addition has to wait for the previous one
// in its window, but not for those in others, so a processor adds up eight windows in the time of one.
// The order within a window is Graphite's, and so is the result, to the last bit.
const lanes = 8

// A laneFold folds windows value by value.
type laneFold struct {
	first bool // the fold of a window starts with its first value, not with 0
	one   func(acc, mean float64, values []float64) float64
	all   func(acc, means *[lanes]float64, values []float64)
}

var (
	laneSum      = laneFold{false, addOne, addAll}
	laneDiff     = laneFold{true, subtractOne, subtractAll}
	laneProduct  = laneFold{true, multiplyOne, multiplyAll}
	laneDistance = laneFold{false, squareOne, squareAll}
)

func addOne(acc, _ float64, values []float64) float64 {
	for _, v := range values {
		acc += v
	}
	return acc
}

func subtractOne(acc, _ float64, values []float64) float64 {
	for _, v := range values {
		acc -= v
	}
	return acc
}

func multiplyOne(acc, _ float64, values []float64) float64 {
	for _, v := range values {
		acc *= v
	}
	return acc
}

// squareOne adds up squares of distances from the mean. The conversion to float64 prevents the
// compiler from fusing product and addition, because Python does not fuse them.
func squareOne(acc, mean float64, values []float64) float64 {
	for _, v := range values {
		acc += float64((v - mean) * (v - mean))
	}
	return acc
}

func addAll(acc, _ *[lanes]float64, values []float64) {
	a, b, c, d, e, f, g, h := acc[0], acc[1], acc[2], acc[3], acc[4], acc[5], acc[6], acc[7]
	for _, v := range values {
		a, b, c, d, e, f, g, h = a+v, b+v, c+v, d+v, e+v, f+v, g+v, h+v
	}
	*acc = [lanes]float64{a, b, c, d, e, f, g, h}
}

func subtractAll(acc, _ *[lanes]float64, values []float64) {
	a, b, c, d, e, f, g, h := acc[0], acc[1], acc[2], acc[3], acc[4], acc[5], acc[6], acc[7]
	for _, v := range values {
		a, b, c, d, e, f, g, h = a-v, b-v, c-v, d-v, e-v, f-v, g-v, h-v
	}
	*acc = [lanes]float64{a, b, c, d, e, f, g, h}
}

func multiplyAll(acc, _ *[lanes]float64, values []float64) {
	a, b, c, d, e, f, g, h := acc[0], acc[1], acc[2], acc[3], acc[4], acc[5], acc[6], acc[7]
	for _, v := range values {
		a, b, c, d, e, f, g, h = a*v, b*v, c*v, d*v, e*v, f*v, g*v, h*v
	}
	*acc = [lanes]float64{a, b, c, d, e, f, g, h}
}

// squareAll processes half of the windows at a time, because the means also need registers.
func squareAll(acc, means *[lanes]float64, values []float64) {
	for half := 0; half < lanes; half += lanes / 2 {
		a, b, c, d := acc[half], acc[half+1], acc[half+2], acc[half+3]
		p, q, r, s := means[half], means[half+1], means[half+2], means[half+3]
		for _, v := range values {
			w, x, y, z := v-p, v-q, v-r, v-s
			a, b, c, d = a+float64(w*w), b+float64(x*x), c+float64(y*y), d+float64(z*z)
		}
		acc[half], acc[half+1], acc[half+2], acc[half+3] = a, b, c, d
	}
}

// A batch is consecutive windows. Window k is values[from[k]:to[k]], none of which is null.
type batch struct{ from, to [lanes]int }

// lanePart is the number of values that a batch folds between two checks. It allows for products close
// to 0 (denormal numbers), which take ten times as long as others.
const lanePart = 1 << 14

// fold folds each window of a batch: first the values before those that all windows have in common,
// then the common ones for all windows at once, then the others.
func (f laneFold) fold(b *batch, values []float64, means *[lanes]float64, check func() error) (acc [lanes]float64, err error) {
	first, last := b.from[lanes-1]+1, b.to[0] // each window begins before first
	if first >= last {
		for k := range acc {
			acc[k] = f.begin(values[b.from[k]:b.to[k]], means[k])
		}
		return acc, nil
	}
	for k := range acc {
		acc[k] = f.begin(values[b.from[k]:first], means[k])
	}
	for ; first < last; first += lanePart {
		f.all(&acc, means, values[first:min(first+lanePart, last)])
		if last-first < lanePart {
			break
		}
		if err := check(); err != nil {
			return acc, err
		}
	}
	for k := range acc {
		acc[k] = f.one(acc[k], means[k], values[last:b.to[k]])
	}
	return acc, nil
}

// begin folds the first values of a window.
func (f laneFold) begin(values []float64, mean float64) float64 {
	if f.first && len(values) > 0 {
		return f.one(values[0], mean, values[1:])
	}
	return f.one(0, mean, values)
}

// laneAggregation returns the function that aggregates the windows of a batch, nil if the aggregation
// has none.
func laneAggregation(name string) func(b *batch, values []float64, check func() error) ([lanes]float64, error) {
	switch name {
	case "sum", "total":
		return laneSum.plain
	case "diff":
		return laneDiff.plain
	case "multiply":
		return laneProduct.plain
	case "average", "avg", "avg_zero": // equal here, because nulls are removed before
		return laneMeans
	case "stddev":
		return laneDeviations
	}
	return nil
}

func (f laneFold) plain(b *batch, values []float64, check func() error) ([lanes]float64, error) {
	return f.fold(b, values, &[lanes]float64{}, check)
}

func laneMeans(b *batch, values []float64, check func() error) ([lanes]float64, error) {
	acc, err := laneSum.plain(b, values, check)
	for k := range acc {
		acc[k] /= float64(b.to[k] - b.from[k])
	}
	return acc, err
}

func laneDeviations(b *batch, values []float64, check func() error) ([lanes]float64, error) {
	means, err := laneMeans(b, values, check)
	if err != nil {
		return means, err
	}
	acc, err := laneDistance.fold(b, values, &means, check)
	for k := range acc {
		acc[k] = math.Sqrt(Quotient(acc[k], float64(b.to[k]-b.from[k])))
	}
	return acc, err
}

// inLanes is Windows with a laneAggregation.
func inLanes(out, values []float64, points int, aggregate func(*batch, []float64, func() error) ([lanes]float64, error), xFilesFactor float64, check func() error) error {
	packed := present(values)
	from, to := 0, 0 // of the window, in packed
	for i := range min(points, len(values)) {
		to += presence(values[i])
	}
	work := 0
	for i := 0; i < len(out); i += lanes {
		var b batch
		for k := range lanes {
			if i+k < len(out) { // else repeat the last window
				from += presence(values[i+k])
				to += presence(values[i+k+points])
			}
			b.from[k], b.to[k] = from, to
		}
		results, err := aggregate(&b, packed, check)
		if err != nil {
			return err
		}
		for k := range min(lanes, len(out)-i) {
			out[i+k] = Null
			if Enough(b.to[k]-b.from[k], float64(points), xFilesFactor) {
				out[i+k] = results[k]
			}
		}
		if work += lanes * (1 + to - from); work > 1<<18 {
			work = 0
			if err := check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// presence returns 1 for a value, 0 for null.
func presence(v float64) int {
	if IsNull(v) {
		return 0
	}
	return 1
}
