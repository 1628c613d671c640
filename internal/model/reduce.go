package model

import "math"

// Max returns the largest of some fixed values, at least one, as the built-in max
// does: NaN if one is NaN, and 0 rather than -0.
func Max(k Kind, values []uint64) float64 {
	if k == Long {
		return float64(MaxLong(values))
	}
	return maxDouble(values)
}

// Min returns the smallest of some fixed values, at least one, as the built-in min
// does: NaN if one is NaN, and -0 rather than 0.
func Min(k Kind, values []uint64) float64 {
	if k == Long {
		return float64(MinLong(values))
	}
	return minDouble(values)
}

// Sum adds fixed values as doubles, from left to right.
func Sum(k Kind, values []uint64) (sum float64) {
	if k == Long {
		for _, v := range values {
			sum += float64(int64(v))
		}
		return sum
	}
	for _, v := range values {
		sum += math.Float64frombits(v)
	}
	return sum
}

// MaxLong returns the largest of some longs, at least one. Four at a time do not
// wait for each other.
func MaxLong(nums []uint64) int64 {
	a := int64(nums[0])
	b, c, d := a, a, a
	for len(nums) >= 4 {
		a, b = max(a, int64(nums[0])), max(b, int64(nums[1]))
		c, d = max(c, int64(nums[2])), max(d, int64(nums[3]))
		nums = nums[4:]
	}
	for _, v := range nums {
		a = max(a, int64(v))
	}
	return max(a, b, c, d)
}

// MinLong returns the smallest of some longs, at least one.
func MinLong(nums []uint64) int64 {
	a := int64(nums[0])
	b, c, d := a, a, a
	for len(nums) >= 4 {
		a, b = min(a, int64(nums[0])), min(b, int64(nums[1]))
		c, d = min(c, int64(nums[2])), min(d, int64(nums[3]))
		nums = nums[4:]
	}
	for _, v := range nums {
		a = min(a, int64(v))
	}
	return min(a, b, c, d)
}

// maxDouble returns the largest of some doubles, at least one, as the built-in max does:
// NaN if one is NaN, and 0 rather than -0.
func maxDouble(bits []uint64) float64 {
	top := math.Float64frombits(bits[0])
	for _, b := range bits[1:] {
		// One comparison that is mostly true. It is false for NaN too, which max keeps.
		if f := math.Float64frombits(b); !(f <= top) {
			top = max(top, f)
		}
	}
	if top == 0 {
		for _, b := range bits {
			top = max(top, math.Float64frombits(b))
		}
	}
	return top
}

// minDouble returns the smallest of some doubles, at least one, as the built-in min does:
// NaN if one is NaN, and -0 rather than 0.
func minDouble(bits []uint64) float64 {
	low := math.Float64frombits(bits[0])
	for _, b := range bits[1:] {
		if f := math.Float64frombits(b); !(f >= low) {
			low = min(low, f)
		}
	}
	if low == 0 {
		for _, b := range bits {
			low = min(low, math.Float64frombits(b))
		}
	}
	return low
}
