package numeric

// Shift moves values by a number of steps; vacated places become null.
func Shift(out, values []float64, steps int64) {
	for i := range out {
		out[i] = Null
		if from := int64(i) - steps; from >= 0 && from < int64(len(values)) {
			out[i] = values[from]
		}
	}
}

// Differences sets out to the difference of each value and the previous one.
func Differences(out, values []float64) {
	previous := Null
	for i, v := range values {
		out[i] = v - previous
		previous = v
	}
}

// Sums sets out to the running sums of the values. Nulls remain.
func Sums(out, values []float64) {
	sum := 0.0
	for i, v := range values {
		out[i] = Null
		if !IsNull(v) {
			sum += v
			out[i] = sum
		}
	}
}

// A Counter computes the increases of a counter that may restart or wrap around.
// Values outside its limits, if it has them, are ignored.
type Counter struct {
	Max, Min       float64
	HasMax, HasMin bool
}

// Increases sets out to the increase of the counter since the previous value.
func (k Counter) Increases(out, values []float64) {
	previous := Null
	for i, v := range values {
		if k.HasMax && v > k.Max || k.HasMin && v < k.Min {
			out[i], previous = Null, Null
			continue
		}
		out[i], previous = k.increase(previous, v), v
	}
}

func (k Counter) increase(previous, v float64) float64 {
	switch {
	case IsNull(previous) || IsNull(v):
		return Null
	case v >= previous:
		return v - previous
	case k.HasMax:
		return k.Max + 1 + v - previous - k.Min
	case k.HasMin:
		return v - k.Min
	}
	return Null
}

// FillGaps fills gaps of at most limit nulls with the value before the gap.
func FillGaps(values []float64, limit float64) {
	last, gap := Null, 0
	fill := func(end int) {
		if gap > 0 && float64(gap) <= limit && !IsNull(last) {
			Fill(values[end-gap:end], last)
		}
		gap = 0
	}
	for i, v := range values {
		if IsNull(v) {
			gap++
			continue
		}
		fill(i)
		last = v
	}
	fill(len(values))
}

// Interpolate fills gaps of at most limit nulls by linear interpolation.
func Interpolate(values []float64, limit float64) {
	last := -1 // index of the value before a gap
	for i, v := range values {
		if IsNull(v) {
			continue
		}
		gap := i - last - 1
		if last >= 0 && gap > 0 && float64(gap) <= limit {
			from := values[last]
			for k := 1; k <= gap; k++ {
				values[last+k] = from + float64(k)*(v-from)/float64(gap+1)
			}
		}
		last = i
	}
}

// Period finds a regular distance between values. It returns the index of the first
// value and its distance to the second one. ok is true if a third value follows at
// the same distance, between nulls. Zeros count as nulls, as in Graphite.
func Period(values []float64) (first, distance int, ok bool) {
	set := func(i int) bool { return !IsNull(values[i]) && values[i] != 0 }
	second := 0
	for i := range values {
		if !set(i) {
			continue
		}
		if first > 0 {
			second = i
			break
		}
		first = i
	}
	distance = second - first
	third := second + distance
	alone := distance > 1 && third <= len(values)-2 && set(third) && IsNull(values[third-1]) && IsNull(values[third+1])
	return first, distance, alone
}

// Slide adapts values to a longer reference series; filled says where that has a value. Like
// Graphite, it extends the series to the length of the reference, with fill where that has a
// value and null elsewhere, and then drops values at the beginning to keep its length.
func Slide(values []float64, filled []bool, fill float64) {
	n := len(values)
	extra := len(filled) - n
	if extra <= 0 {
		return
	}
	for i := range n {
		switch from := i + extra; {
		case from < n:
			values[i] = values[from]
		case filled[from]:
			values[i] = fill
		default:
			values[i] = Null
		}
	}
}
