package numeric

import (
	"math"
	"strconv"
)

// Round rounds to a number of decimals, which may be negative. It rounds the exact
// binary value, so most decimal ties are not ties.
func Round(v float64, decimals int64) float64 {
	if IsNull(v) || math.IsInf(v, 0) || v == 0 || decimals > 330 {
		return v
	}
	if decimals >= 0 {
		out, err := strconv.ParseFloat(strconv.FormatFloat(v, 'f', int(decimals), 64), 64)
		if err != nil {
			return v
		}
		return out
	}
	if decimals < -330 {
		return math.Copysign(0, v)
	}
	exponent := int64(math.Floor(math.Log10(math.Abs(v))))
	digits := exponent + decimals // after the first digit
	if digits < -1 {
		return math.Copysign(0, v)
	}
	if digits == -1 {
		unit := math.Pow(10, float64(-decimals))
		if math.Abs(v) > unit/2 {
			return math.Copysign(unit, v)
		}
		return math.Copysign(0, v)
	}
	out, err := strconv.ParseFloat(strconv.FormatFloat(v, 'e', int(digits), 64), 64)
	if err != nil {
		return v
	}
	return out
}

// Log is the natural logarithm. On amd64, math.Log of all subnormal numbers is that of the smallest
// normal one.
func Log(v float64) float64 {
	const smallestNormal = 0x1p-1022
	if 0 < v && v < smallestNormal {
		return math.Log(v*0x1p54) - 54*math.Ln2
	}
	return math.Log(v)
}

// Quotient divides. A quotient by zero is null.
func Quotient(a, b float64) float64 {
	if b == 0 {
		return Null
	}
	return a / b
}

// Percent returns a as a percentage of b.
func Percent(a, b float64) float64 { return Quotient(a, b) * 100 }

// FinitePow raises base to exponent. It is null if finite arguments give an infinite
// result.
func FinitePow(base, exponent float64) float64 {
	v := math.Pow(base, exponent)
	if math.IsInf(v, 0) && !math.IsInf(base, 0) && !math.IsInf(exponent, 0) {
		return Null
	}
	return v
}

// FloorDiv divides and rounds down. b must be positive.
func FloorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

// FloorMod returns the remainder of FloorDiv, which is not negative. b must be positive.
func FloorMod(a, b int64) int64 { return a - FloorDiv(a, b)*b }

// MaxStep limits the common step of series, in seconds. The product of steps
// without a common divisor can be longer than any time range.
const MaxStep = 1 << 40

// LCM returns the least common multiple of two steps, or some number above MaxStep
// if that is greater.
func LCM(a, b int64) int64 {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	if x == 0 || a/x > MaxStep/max(b, 1)+1 {
		return MaxStep + 1
	}
	return a / x * b
}

// Scaled divides a number by the largest unit of a system that does not exceed
// it, and returns the unit's prefix.
func Scaled(v float64, system string) (float64, string) {
	base := 1000.0
	prefixes := [...]string{"P", "T", "G", "M", "k"}
	if system == "binary" {
		base, prefixes = 1024, [...]string{"Pi", "Ti", "Gi", "Mi", "Ki"}
	}
	prefix := ""
	out := v
	for i, p := range prefixes {
		if size := math.Pow(base, float64(5-i)); math.Abs(v) >= size {
			out, prefix = v/size, p
			break
		}
	}
	if out-math.Floor(out) < 1e-11 && v > 1 {
		out = math.Floor(out)
	}
	return out, prefix
}
