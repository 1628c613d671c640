package numeric

// Buckets are intervals of equal length, in seconds.
type Buckets struct {
	Start        int64 // of the first one, since 1970
	Interval     int64
	XFilesFactor float64 // the fraction of a bucket's values that must not be null
}

// Aggregate sets out to the aggregates of the buckets. Value i is at start + i*step.
// It calls check regularly and ends with its error.
func (b Buckets) Aggregate(out, values []float64, start, step int64, aggregate Aggregation, check func() error) error {
	perBucket := float64(b.Interval) / float64(step)
	i, n := int64(0), int64(len(values))
	for k := range out {
		from := b.Start + int64(k)*b.Interval
		first, nonNull := i, 0
		for ; i < n && start+i*step < from+b.Interval; i++ {
			at := start + i*step
			if at <= from {
				first = i
			}
			if at >= from && !IsNull(values[i]) {
				nonNull++
			}
		}
		out[k] = Null
		if Enough(nonNull, perBucket, b.XFilesFactor) {
			out[k] = aggregate(values[first:i])
		}
		if k&0xfff == 0xfff {
			if err := check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Spread interprets values as rates per second, each constant during a step, and
// sets sums to the number of events in each bucket. Value i is at start + i*step.
// Events outside all buckets are dropped.
func (b Buckets) Spread(sums, values []float64, start, step int64) {
	Fill(sums, Null)
	n := int64(len(sums))
	put := func(bucket int64, hits float64) {
		if bucket < 0 || bucket >= n {
			return
		}
		if IsNull(sums[bucket]) {
			sums[bucket] = 0
		}
		sums[bucket] += hits
	}
	for i, v := range values {
		if IsNull(v) {
			continue
		}
		from := start + int64(i)*step - b.Start
		first, last := FloorDiv(from, b.Interval), FloorDiv(from+step, b.Interval)
		into := FloorMod(from+step, b.Interval)
		if last >= n {
			last, into = n-1, b.Interval
		}
		if first >= last {
			put(first, v*float64(into-FloorMod(from, b.Interval)))
			continue
		}
		put(first, v*float64(b.Interval-FloorMod(from, b.Interval)))
		for k := max(first+1, 0); k < last; k++ {
			put(k, v*float64(b.Interval))
		}
		if into > 0 {
			put(last, v*float64(into))
		}
	}
}

// Consolidate sets out to the aggregates of groups of perPoint values. The last group
// may be smaller; xFilesFactor applies to the full number there, too.
func Consolidate(out, values []float64, perPoint int, aggregate Aggregation, xFilesFactor float64) {
	for i := range out {
		group := values[i*perPoint : min((i+1)*perPoint, len(values))]
		out[i] = Null
		if n := Present(group); n > 0 && !(float64(n)/float64(perPoint) < xFilesFactor) {
			out[i] = aggregate(group)
		}
	}
}
