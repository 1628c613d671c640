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

// Differences puts the difference of each value from the one before it into out.
func Differences(out, values []float64) {
	previous := Null
	for i, v := range values {
		out[i] = v - previous
		previous = v
	}
}

// Sums puts the sum of the values up to each one into out. Nulls stay.
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

// A Counter tells increases from restarts and wrap-arounds. Values outside its
// bounds, where it has them, are no readings.
type Counter struct {
	Max, Min       float64
	HasMax, HasMin bool
}

// Increases puts into out how much the counter grew to each value.
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

// FillGaps fills gaps of at most limit nulls with the value before them.
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

// Interpolate fills gaps of at most limit nulls with values on a line between
// their ends.
func Interpolate(values []float64, limit float64) {
	last := -1 // place of the value before a gap
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

// Period returns the place of the first value and the distance of the second
// from it, if a third value follows at this distance, alone. Zeros are taken for
// gaps, as in Graphite.
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

// Slide keeps the last values where the reference, of which filled tells the places with
// a value, has more places: Graphite takes those behind the end of the series for null,
// fills them with fill, and cuts the result at its beginning.
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
