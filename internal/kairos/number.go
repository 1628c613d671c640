package kairos

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf8"
)

// appendDouble formats v as KairosDB does: like Java, but with trailing zeros cut from
// plain decimals. v must be finite.
//
//	3.0 -> 3    0.25 -> 0.25    12345678 -> 1.2345678E7    -0.0 -> -0
func appendDouble(dst []byte, v float64) []byte {
	abs := math.Abs(v)
	if abs >= 1e-3 && abs < 1e7 {
		if out, ok := appendShort(dst, v); ok {
			return out
		}
	}
	if abs == 0 || (abs >= 1e-3 && abs < 1e7) {
		return strconv.AppendFloat(dst, v, 'f', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, v, 'e', -1, 64)
	e := start + bytes.IndexByte(dst[start:], 'e')
	var exponent [8]byte
	n := copy(exponent[:], dst[e+1:])
	dst = dst[:e]
	if bytes.IndexByte(dst[start:], '.') < 0 {
		dst = append(dst, ".0"...)
	}
	dst = append(dst, 'E')
	digits := exponent[:n]
	if digits[0] == '-' {
		dst = append(dst, '-')
	}
	return append(dst, bytes.TrimLeft(digits, "+-0")...)
}

// appendShort formats a double that was a decimal of at most six places, as most are,
// in a fraction of the time of AppendFloat. The quotient of two exact numbers is
// correctly rounded, and two decimals of at most 15 digits are never the same double.
// So a mantissa of at most 13 digits that reproduces v is, without trailing zeros, the
// shortest form.
func appendShort(dst []byte, v float64) ([]byte, bool) {
	if m := math.RoundToEven(v * 1e3); m/1e3 == v {
		if m < 0 {
			dst, m = append(dst, '-'), -m
		}
		n := uint64(m)
		return appendPlaces(appendDigits(dst, n/1000), uint32(n%1000*1000)), true
	}
	if m := math.RoundToEven(v * 1e6); m/1e6 == v {
		if m < 0 {
			dst, m = append(dst, '-'), -m
		}
		n := uint64(m)
		return appendPlaces(appendDigits(dst, n/1_000_000), uint32(n%1_000_000)), true
	}
	return dst, false
}

// appendPlaces renders millionths, without zeros at the end.
func appendPlaces(dst []byte, n uint32) []byte {
	if n == 0 {
		return dst
	}
	a, b, c := n/10_000*2, n/100%100*2, n%100*2
	dst = append(dst, '.', twoDigits[a], twoDigits[a+1], twoDigits[b], twoDigits[b+1], twoDigits[c], twoDigits[c+1])
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	return dst
}

// twoDigits are the numbers from 00 to 99.
const twoDigits = "00010203040506070809101112131415161718192021222324" +
	"25262728293031323334353637383940414243444546474849" +
	"50515253545556575859606162636465666768697071727374" +
	"75767778798081828384858687888990919293949596979899"

// appendDigits renders a number, mostly a small one.
func appendDigits(dst []byte, n uint64) []byte {
	switch {
	case n < 10:
		return append(dst, '0'+byte(n))
	case n < 100:
		return append(dst, twoDigits[2*n], twoDigits[2*n+1])
	}
	return strconv.AppendUint(dst, n, 10)
}

// A timeText formats consecutive times, which mostly differ only in their last digits.
type timeText struct {
	head int64    // the number in text, 0 if none
	text [16]byte // of the digits before the last six
	size int
}

func (t *timeText) append(dst []byte, ms int64) []byte {
	head := ms / 1_000_000
	if head <= 0 {
		return strconv.AppendInt(dst, ms, 10)
	}
	if head != t.head {
		t.head, t.size = head, len(strconv.AppendInt(t.text[:0], head, 10))
	}
	n := len(dst) + t.size
	dst = append(dst, t.text[:]...)[:n] // a copy of fixed size is faster
	tail := uint32(ms - 1_000_000*head)
	a, b, c := tail/10_000*2, tail/100%100*2, tail%100*2
	return append(dst, twoDigits[a], twoDigits[a+1], twoDigits[b], twoDigits[b+1], twoDigits[c], twoDigits[c+1])
}

const hexDigits = "0123456789abcdef"

// appendText renders a JSON string with KairosDB's escapes: control characters,
// U+0080..U+009F, U+2000..U+20FF, and the slash of "</". Bytes that are not
// UTF-8 become U+FFFD.
func appendText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			dst = appendRune(dst, r)
			i += n
			continue
		}
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '/' && i > 0 && s[i-1] == '<':
			dst = append(dst, '\\', '/')
		case c >= ' ':
			dst = append(dst, c)
		default:
			dst = appendControl(dst, c)
		}
		i++
	}
	return append(dst, '"')
}

func appendRune(dst []byte, r rune) []byte {
	if (r >= 0x80 && r < 0xa0) || (r >= 0x2000 && r < 0x2100) {
		return append(dst, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
	}
	return utf8.AppendRune(dst, r)
}

func appendControl(dst []byte, c byte) []byte {
	switch c {
	case '\b':
		return append(dst, '\\', 'b')
	case '\t':
		return append(dst, '\\', 't')
	case '\n':
		return append(dst, '\\', 'n')
	case '\f':
		return append(dst, '\\', 'f')
	case '\r':
		return append(dst, '\\', 'r')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}
