// Package decimal reads decimal numbers from bytes without allocating: the
// numbers of telnet lines and of JSON. It does no I/O.
//
// Integers keep all 64 bits. Floats are the nearest float64: numbers of up to
// 15 digits or so with a small exponent are exact by one multiplication or
// division of exact operands, the rest goes to strconv.
package decimal

import (
	"errors"
	"math"
	"strconv"
	"unsafe"
)

// Number is a scanned decimal number: ±Mant × 10^Exp.
type Number struct {
	Mant uint64
	Exp  int32
	Len  int  // bytes read; 0 = no number there
	Neg  bool // there was a minus sign
	Dot  bool // there was a point
	E    bool // there was an exponent
	Over bool // more digits than Mant holds: Mant and Exp are not exact
	JSON bool // well-formed by JSON's grammar
}

// safeDigits is how many bytes of digits and point may be read without looking
// for an overflow.
const safeDigits = 18

// maxExp is far beyond what a float64 holds, and far from overflowing int32.
const maxExp = 1 << 20

// Scan reads the longest number at the start of b:
//
//	-? digits? ( . digits? )? ( [eE] [+-]? digits )?
//
// with at least one digit before or after the point.
func Scan(b []byte) (n Number) {
	i := 0
	if i < len(b) && b[i] == '-' {
		n.Neg = true
		i++
	}
	first := i
	mant := uint64(0)
	for safe := min(len(b), first+safeDigits); i < safe && b[i]-'0' <= 9; i++ {
		mant = mant*10 + uint64(b[i]-'0')
	}
	n.Mant = mant
	for i < len(b) && b[i]-'0' <= 9 {
		if n.Mant >= math.MaxUint64/10-1 {
			n.Over = true
			n.Exp++
		} else {
			n.Mant = n.Mant*10 + uint64(b[i]-'0')
		}
		i++
	}
	whole := i - first
	n.JSON = whole > 0 && (whole == 1 || b[first] != '0')
	fraction := 0
	if i < len(b) && b[i] == '.' {
		n.Dot = true
		i++
		point := i
		mant = n.Mant
		for safe := min(len(b), first+safeDigits); i < safe && b[i]-'0' <= 9; i++ {
			mant = mant*10 + uint64(b[i]-'0')
		}
		n.Mant = mant
		fraction = i - point
		n.Exp -= int32(fraction)
		for i < len(b) && b[i]-'0' <= 9 {
			if n.Mant >= math.MaxUint64/10-1 {
				n.Over = true
			} else {
				n.Mant = n.Mant*10 + uint64(b[i]-'0')
				n.Exp--
			}
			i++
			fraction++
		}
		n.JSON = n.JSON && fraction > 0
	}
	if whole+fraction == 0 {
		return Number{}
	}
	n.Len = i
	if i < len(b) && b[i]|0x20 == 'e' {
		n.exponent(b, i+1)
	}
	return n
}

// exponent reads what follows an e at b[i-1]; without a digit the number ends
// before it.
func (n *Number) exponent(b []byte, i int) {
	negative := false
	if i < len(b) && (b[i] == '+' || b[i] == '-') {
		negative = b[i] == '-'
		i++
	}
	digits, exp := 0, int32(0)
	for i < len(b) && b[i]-'0' <= 9 {
		if exp < maxExp {
			exp = exp*10 + int32(b[i]-'0')
		}
		i++
		digits++
	}
	if digits == 0 {
		return
	}
	if negative {
		exp = -exp
	}
	n.E, n.Exp, n.Len = true, n.Exp+exp, i
}

// Int64 returns the number as an integer. ok is false when it was written with
// a point or an exponent, or does not fit.
func (n *Number) Int64() (v int64, ok bool) {
	if n.Dot || n.E || n.Over {
		return 0, false
	}
	return n.signed(n.Mant)
}

// signed returns m with the sign of the number. ok is false when it does not fit.
func (n *Number) signed(m uint64) (v int64, ok bool) {
	if n.Neg {
		return -int64(m), m <= 1<<63
	}
	return int64(m), m < 1<<63
}

// Trunc returns the number as an integer with its fraction cut off. ok is false
// when it does not fit 64 bits.
func (n *Number) Trunc() (v int64, ok bool) {
	if n.Over && n.Exp > 0 {
		return 0, false
	}
	m, exp := n.Mant, n.Exp
	if m == 0 {
		return 0, true
	}
	for ; exp > 0; exp-- {
		if m > math.MaxUint64/10 {
			return 0, false
		}
		m *= 10
	}
	for ; exp < 0 && m > 0; exp++ {
		m /= 10
	}
	return n.signed(m)
}

// Whole returns the number as an integer. ok is false when it has a fraction or
// does not fit 64 bits; 1e3 and 10e-1 are whole.
func (n *Number) Whole() (v int64, ok bool) {
	if n.Over {
		return 0, false
	}
	m, exp := n.Mant, n.Exp
	if m == 0 {
		return 0, true
	}
	for ; exp < 0; exp++ {
		if m%10 != 0 {
			return 0, false
		}
		m /= 10
	}
	for ; exp > 0; exp-- {
		if m > math.MaxUint64/10 {
			return 0, false
		}
		m *= 10
	}
	return n.signed(m)
}

var pow10 = [...]float64{
	1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
	1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
}

// Quotient returns the nearest float64 of n / 10^digits, for n up to 2^53 and at most 22
// digits: both operands are exact.
func Quotient(n uint64, digits int) float64 { return float64(n) / pow10[digits] }

// Float64 returns the nearest float64 of the number that was scanned from the
// start of text. It is infinite when the number is too large.
func (n *Number) Float64(text []byte) float64 {
	if !n.Over && n.Mant < 1<<53 {
		f := float64(n.Mant)
		if n.Neg {
			f = -f // also of 0
		}
		if n.Exp == 0 {
			return f
		}
		if 0 < n.Exp && n.Exp < int32(len(pow10)) {
			return f * pow10[n.Exp]
		}
		if n.Exp < 0 && -n.Exp < int32(len(pow10)) {
			return f / pow10[-n.Exp]
		}
	}
	text = text[:n.Len]
	f, err := strconv.ParseFloat(unsafe.String(unsafe.SliceData(text), len(text)), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		panic("decimal: scanned number is not one: " + err.Error())
	}
	return f
}

// Int reads the whole of b as an optional minus sign and digits. inRange is
// false when the digits do not fit 64 bits.
func Int(b []byte) (v int64, ok, inRange bool) {
	if len(b) > 0 && len(b) <= safeDigits && b[0] != '-' {
		for _, c := range b {
			if c-'0' > 9 {
				return 0, false, false
			}
			v = v*10 + int64(c-'0')
		}
		return v, true, true
	}
	n := Scan(b)
	if n.Len == 0 || n.Len != len(b) || n.Dot || n.E {
		return 0, false, false
	}
	v, inRange = n.Int64()
	return v, true, inRange
}

// Float reads the whole of b as a decimal number, which may be signed with
// plus or minus, begin or end with its point, and have an exponent. Words such
// as NaN are not numbers. The result may be infinite.
func Float(b []byte) (f float64, ok bool) {
	if len(b) > 1 && b[0] == '+' && b[1] != '-' {
		b = b[1:]
	}
	n := Scan(b)
	if n.Len == 0 || n.Len != len(b) {
		return 0, false
	}
	return n.Float64(b), true
}

// IsWord reports whether b is one of the words for numbers that are not finite:
// nan, inf, infinity, in any case and with any sign.
func IsWord(b []byte) bool {
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		b = b[1:]
	}
	if len(b) != 3 && len(b) != 8 {
		return false
	}
	var low [8]byte
	for i, c := range b {
		low[i] = c | 0x20
	}
	switch string(low[:len(b)]) {
	case "nan", "inf", "infinity":
		return true
	}
	return false
}
