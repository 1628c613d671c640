package model

import "math"

// Max returns the largest of at least one fixed value, as the built-in max does:
// NaN if one is NaN, and 0 rather than -0.
func Max(k Kind, values []uint64) float64 {
	if k == Long {
		return float64(MaxLong(values))
	}
	return topDouble(values, 0)
}

// Min returns the smallest of at least one fixed value, as the built-in min does:
// NaN if one is NaN, and -0 rather than 0.
func Min(k Kind, values []uint64) float64 {
	if k == Long {
		return float64(MinLong(values))
	}
	return -topDouble(values, signBit)
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

// MaxLong returns the largest of at least one long.
func MaxLong(nums []uint64) int64 { return topLong(nums, 0) }

// MinLong returns the smallest of at least one long.
func MinLong(nums []uint64) int64 { return ^topLong(nums, -1) }

// topLong returns the largest of longs after an XOR of each with flip. A flip of -1
// reverses their order, so the result is the complement of the smallest. The four
// comparisons of a round do not depend on each other.
func topLong(nums []uint64, flip int64) int64 {
	a := int64(nums[0]) ^ flip
	b, c, d := a, a, a
	for len(nums) >= 4 {
		a, b = max(a, int64(nums[0])^flip), max(b, int64(nums[1])^flip)
		c, d = max(c, int64(nums[2])^flip), max(d, int64(nums[3])^flip)
		nums = nums[4:]
	}
	for _, v := range nums {
		a = max(a, int64(v)^flip)
	}
	return max(a, b, c, d)
}

const signBit = 1 << 63

// topDouble returns the largest of doubles after an XOR of each with flip, as the
// built-in max does. With signBit, that is the smallest with its sign changed.
func topDouble(bits []uint64, flip uint64) float64 {
	top := math.Float64frombits(bits[0] ^ flip)
	for _, b := range bits[1:] {
		// One comparison, which is mostly true. It is false for NaN too, so that max
		// keeps NaN.
		if f := math.Float64frombits(b ^ flip); !(f <= top) {
			top = max(top, f)
		}
	}
	if top == 0 { // of either sign: 0 and -0 are equal
		for _, b := range bits {
			top = max(top, math.Float64frombits(b^flip))
		}
	}
	return top
}
