package timeline

import "math"

// A partition of Cassandra should have at most partitionRows rows and partitionBytes bytes.
// Layouts aim at a tenth of that, and change when they are off by a factor of hysteresis.
const (
	partitionRows  = 100_000
	partitionBytes = 100_000_000
	aim            = 10
	hysteresis     = 4

	evidence = 20 // events that are needed to measure a rate
	rowBytes = 60 // per event, beside its data
)

// defaultLayout is the layout of a timeline whose rate is unknown. It suits up to 10,000
// events per second.
var defaultLayout = Layout{From: Beginning, Size: Sizes[0], Factor: 1, Mode: Materialised, Placement: Hash}

// load is how full the partitions of a layout become, 1 being what layouts aim at.
func load(rate, bytes float64, size int64, factor int) float64 {
	rows := rate * float64(size) / float64(second) / float64(factor)
	return max(rows/(partitionRows/aim), rows*(bytes+rowBytes)/(partitionBytes/aim))
}

// choose returns the size and the factor for a rate and the mean size of data: the largest
// buckets that need no splitting, or the smallest ones, split.
func choose(rate, bytes float64) (size int64, factor int) {
	for i := len(Sizes) - 1; i >= 0; i-- {
		if load(rate, bytes, Sizes[i], 1) <= 1 {
			return Sizes[i], 1
		}
	}
	return Sizes[0], int(min(FactorMax, math.Ceil(load(rate, bytes, Sizes[0], 1))))
}

// adapted returns a better layout for a rate, if the present one is far off.
func adapted(l Layout, rate, bytes float64) (size int64, factor int, better bool) {
	size, factor = choose(rate, bytes)
	now := load(rate, bytes, l.Size, l.Factor)
	next := load(rate, bytes, size, factor)
	switch {
	case now > hysteresis:
		return size, factor, next < now
	case now*hysteresis < 1 && next >= now*hysteresis:
		return size, factor, true
	}
	return l.Size, l.Factor, false
}

// firstLayout is the layout of a timeline that is created by the events of t. If they are
// enough, it suits their rate, even if they are a bulk load. A timeline of Options.Own has
// the layout given there.
func (e *Engine) firstLayout(t *target) Layout {
	if own, ok := e.options.Own[t.name]; ok {
		return own
	}
	l := defaultLayout
	if span := t.last - t.first; t.count >= evidence && span > 0 {
		rate := float64(t.count-1) * float64(second) / float64(span)
		l.Size, l.Factor = choose(rate, float64(t.bytes)/float64(t.count))
	}
	return l
}
