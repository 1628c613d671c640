package numeric

import "math"

// Windows sets out to the aggregates of the windows of a number of points, without their nulls. The first
// window ends with values[points], so out must have len(values)-points elements. A window of nulls is
// null. Windows needs [WindowBytes] of memory. It calls check regularly and ends with its error.
func Windows(out, values []float64, points int, name string, xFilesFactor float64, check func() error) error {
	s, err := sliderOf(name, values, points, check)
	if err != nil {
		return err
	}
	if s != nil {
		return slide(out, values, points, s, xFilesFactor, check)
	}
	if windows, _ := blockAggregation(name, points); windows != nil && len(out) > 0 {
		return windows(out, values, points, xFilesFactor, check)
	}
	if fold := laneAggregation(name); fold != nil && points > lanes && len(out) > 0 {
		return inLanes(out, values, points, fold, xFilesFactor, check)
	}
	aggregate := aggregations[name]
	var present []float64
	work := 0
	for i := range out {
		out[i] = Null
		if points <= 0 {
			continue
		}
		present = present[:0]
		for _, v := range values[i+1 : i+1+points] {
			if !IsNull(v) {
				present = append(present, v)
			}
		}
		if Enough(len(present), float64(points), xFilesFactor) {
			out[i] = aggregate(present)
		}
		if work += points; work > 1<<18 {
			work = 0
			if err := check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// slidingLook is the number of values that are processed between two checks.
const slidingLook = 1 << 14

// slide is Windows with a slider.
func slide(out, values []float64, points int, s slider, xFilesFactor float64, check func() error) error {
	n := 0
	for i := 1; i < points+len(out); i++ {
		if !IsNull(values[i]) {
			s.enter(i)
			n++
		}
		if at := i - points; at >= 0 {
			if at > 0 && !IsNull(values[at]) {
				s.leave(at)
				n--
			}
			out[at] = Null
			if Enough(n, float64(points), xFilesFactor) {
				out[at] = s.aggregate(n)
			}
		}
		if i%slidingLook == 0 {
			if err := check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Exponential sets out, which must have len(values)-first+1 elements, to the
// exponential moving average of values. It begins with the mean of the first values;
// each further value changes the average by the given weight. Averages are rounded to
// six decimals, and null where the value is. Exponential calls check regularly and
// ends with its error.
func Exponential(out, values []float64, first int, weight float64, check func() error) error {
	average := Average(values[:first])
	if IsNull(average) {
		average = 0
	}
	out[0] = Round(average, 6)
	for i, v := range values[first:] {
		out[i+1] = Null
		if !IsNull(v) {
			average = weight*v + (1-weight)*average
			out[i+1] = Round(average, 6)
		}
		if i%slidingLook == slidingLook-1 {
			if err := check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Deviations sets out to the standard deviations of the last points values. A
// deviation is null if the fraction of values that are not null is below tolerance.
func Deviations(out, values []float64, points int64, tolerance float64) {
	valid, sum, squares := 0, 0.0, 0.0
	for i, v := range values {
		if dropped := int64(i) - points; dropped >= 0 && !IsNull(values[dropped]) {
			valid--
			sum -= values[dropped]
			squares -= values[dropped] * values[dropped]
		}
		if !IsNull(v) {
			valid++
			sum += v
			squares += v * v
		}
		out[i] = Null
		if valid > 0 && float64(valid)/float64(points) >= tolerance {
			out[i] = math.Sqrt(float64(valid)*squares-sum*sum) / float64(valid)
		}
	}
}
