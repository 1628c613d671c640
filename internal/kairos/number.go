package kairos

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
	"strings"
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
	abs := math.Abs(v)
	thousandths := int64(abs*1e3 + 0.5)
	m := 1000 * thousandths // millionths
	if float64(thousandths)/1e3 != abs {
		if m = int64(abs*1e6 + 0.5); float64(m)/1e6 != abs {
			return dst, false
		}
	}
	if v < 0 {
		dst = append(dst, '-')
	}
	whole := uint64(m) / 1_000_000
	return appendPlaces(appendDigits(dst, whole), uint32(uint64(m)-1_000_000*whole)), true
}

// The digits of a number are collected in a word, with the first one in the lowest byte, and
// appended by one store. Bytes that are not digits are cut off afterwards.

// twoDigits are the numbers from 00 to 99. The elements are words, because the compiler
// would split the store of a word some of whose bytes it knows.
var twoDigits = func() (t [100]uint64) {
	for n := range uint64(len(t)) {
		t[n] = '0' + n/10 | ('0'+n%10)<<8
	}
	return t
}()

const zeros = 0x30_30_30_30_30_30 // six

// sixDigits returns the digits of a number below a million.
func sixDigits(n uint32) uint64 {
	return twoDigits[n/10_000] | twoDigits[n/100%100]<<16 | twoDigits[n%100]<<32
}

// appendPlaces renders millionths, without zeros at the end.
func appendPlaces(dst []byte, n uint32) []byte {
	if n == 0 {
		return dst
	}
	digits := sixDigits(n)
	size := (bits.Len64(digits-zeros) + 7) / 8 // up to the last that is not 0
	dst = binary.LittleEndian.AppendUint64(dst, digits<<8|'.')
	return dst[:len(dst)-7+size]
}

// appendDigits renders a number, mostly a small one.
func appendDigits(dst []byte, n uint64) []byte {
	if n >= 1_000_000 {
		return strconv.AppendUint(dst, n, 10)
	}
	digits := sixDigits(uint32(n))
	leading := bits.TrailingZeros64((digits-zeros)|1<<40) / 8 // zeros, but not the last digit
	dst = binary.LittleEndian.AppendUint64(dst, digits>>(8*leading))
	return dst[:len(dst)-2-leading]
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
	dst = binary.LittleEndian.AppendUint64(dst, sixDigits(uint32(ms-1_000_000*head)))
	return dst[:len(dst)-2]
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
	if i := strings.IndexByte("\b\t\n\f\r", c); i >= 0 {
		return append(dst, '\\', "btnfr"[i])
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}
