package kairos

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf8"
)

// appendDouble renders v as KairosDB does: like Java, but with trailing zeros
// cut from plain decimals. v must be finite.
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

// appendShort renders a double that was a decimal number of at most three
// places, as most are, in about half of the time that AppendFloat takes. The
// quotient of two exact numbers is correctly rounded, so a mantissa of at most
// ten digits that gives v back is its shortest form.
func appendShort(dst []byte, v float64) ([]byte, bool) {
	for places, power := range [...]float64{1, 10, 100, 1000} {
		m := math.RoundToEven(v * power)
		if m/power != v {
			continue
		}
		n := int64(m)
		if n < 0 {
			dst, n = append(dst, '-'), -n
		}
		unit := int64(power)
		dst = strconv.AppendInt(dst, n/unit, 10)
		if places == 0 {
			return dst, true
		}
		at := len(dst)
		dst = strconv.AppendInt(dst, unit+n%unit, 10) // a one before the places keeps their zeros
		dst[at] = '.'
		return dst, true
	}
	return dst, false
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
