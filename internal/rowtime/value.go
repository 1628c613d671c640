package rowtime

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf16"
	"unicode/utf8"

	"varve/internal/model"
)

// MaxStringBytes is the longest text that a row holds, in modified UTF-8.
const MaxStringBytes = 65535

// canonicalNaN is the only NaN that Java's doubleToLongBits yields.
const canonicalNaN = 0x7ff8000000000000

// AppendValue appends a value in the bytes of KairosDB's data_points:
//
//	Long     zigzag, then base 128, low group first, high bit = more follows
//	Double   8 bytes, big-endian; every NaN becomes 7ff8000000000000
//	String   u16 length, then modified UTF-8: NUL as c080, characters above
//	         U+FFFF as two surrogates of three bytes
//	Complex  two doubles
//	Null     nothing
//	Custom   as it is
//
// bits is the value of a fixed kind, data that of a variable kind, in the form
// of model.Columns. A string that is too long or not UTF-8, and a complex value
// that does not have 16 bytes, are errors; AppendValue then returns dst
// unchanged.
func AppendValue(dst []byte, k model.Kind, bits uint64, data []byte) ([]byte, error) {
	switch k {
	case model.Long:
		v := int64(bits)
		return binary.AppendUvarint(dst, uint64(v<<1)^uint64(v>>63)), nil
	case model.Double:
		return appendDouble(dst, bits), nil
	case model.String:
		return appendString(dst, data)
	case model.Complex:
		if len(data) != 16 {
			return dst, fmt.Errorf("complex value of %d bytes, want 16", len(data))
		}
		dst = appendDouble(dst, binary.BigEndian.Uint64(data))
		return appendDouble(dst, binary.BigEndian.Uint64(data[8:])), nil
	case model.Null:
		return dst, nil
	case model.Custom:
		return append(dst, data...), nil
	}
	return dst, fmt.Errorf("value of unknown kind %d", k)
}

func appendDouble(dst []byte, bits uint64) []byte {
	if math.IsNaN(math.Float64frombits(bits)) {
		bits = canonicalNaN
	}
	return binary.BigEndian.AppendUint64(dst, bits)
}

func appendString(dst, text []byte) ([]byte, error) {
	if !utf8.Valid(text) {
		return dst, errors.New("string value is not UTF-8")
	}
	start := len(dst)
	out := append(dst, 0, 0)
	for _, r := range string(text) {
		switch {
		case r == 0:
			out = append(out, 0xc0, 0x80)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			out = appendUnit(appendUnit(out, hi), lo)
		default:
			out = utf8.AppendRune(out, r)
		}
	}
	n := len(out) - start - 2
	if n > MaxStringBytes {
		return dst, fmt.Errorf("string value of %d bytes in modified UTF-8 is longer than %d", n, MaxStringBytes)
	}
	binary.BigEndian.PutUint16(out[start:], uint16(n))
	return out, nil
}

// appendUnit appends a surrogate in the three bytes that UTF-8 forbids.
func appendUnit(dst []byte, unit rune) []byte {
	return append(dst, 0xe0|byte(unit>>12), 0x80|byte(unit>>6)&0x3f, 0x80|byte(unit)&0x3f)
}

// DecodeValue is the inverse of AppendValue. data shares value's memory if the
// bytes are the same; otherwise it is a new slice. As in KairosDB, bytes after
// a complete value are ignored, and an unpaired surrogate reads as '?'.
func DecodeValue(k model.Kind, value []byte) (bits uint64, data []byte, err error) {
	switch k {
	case model.Long:
		bits, err = decodeLong(value)
		return bits, nil, err
	case model.Double:
		if len(value) < 8 {
			return 0, nil, cutOff(k, value)
		}
		return binary.BigEndian.Uint64(value), nil, nil
	case model.String:
		data, err = decodeString(value)
		return 0, data, err
	case model.Complex:
		if len(value) < 16 {
			return 0, nil, cutOff(k, value)
		}
		return 0, value[:16:16], nil
	case model.Null:
		return 0, nil, nil
	case model.Custom:
		return 0, value, nil
	}
	return 0, nil, fmt.Errorf("value of unknown kind %d", k)
}

func cutOff(k model.Kind, value []byte) error {
	return fmt.Errorf("%s value %x is cut off", k, value)
}

// decodeLong reads a varint as KairosDB does: at most ten groups, bits beyond
// the 64th are lost.
func decodeLong(value []byte) (uint64, error) {
	var z uint64
	for i := 0; i < len(value) && i < binary.MaxVarintLen64; i++ {
		z |= uint64(value[i]&0x7f) << (7 * i)
		if value[i] < 0x80 {
			return z>>1 ^ -(z & 1), nil
		}
	}
	if len(value) < binary.MaxVarintLen64 {
		return 0, cutOff(model.Long, value)
	}
	return 0, fmt.Errorf("long value %x has more than %d groups", value[:binary.MaxVarintLen64], binary.MaxVarintLen64)
}

// stringBody returns what follows the length.
func stringBody(value []byte) ([]byte, error) {
	if len(value) < 2 {
		return nil, cutOff(model.String, value)
	}
	n := int(binary.BigEndian.Uint16(value))
	if n > len(value)-2 {
		return nil, fmt.Errorf("string value of %d bytes has only %d", n, len(value)-2)
	}
	return value[2 : 2+n : 2+n], nil
}

// decodeString reads modified UTF-8 as Java does: overlong forms are accepted,
// forms of four bytes are not.
func decodeString(value []byte) ([]byte, error) {
	body, err := stringBody(value)
	if err != nil {
		return nil, err
	}
	if isPlain(body) {
		return body, nil
	}
	text := make([]byte, 0, len(body))
	high := rune(0) // a high surrogate that waits for its low one
	for i := 0; i < len(body); {
		unit, n := javaChar(body[i:])
		if n == 0 {
			return nil, fmt.Errorf("string value: malformed at byte %d", i)
		}
		i += n
		if r := utf16.DecodeRune(high, unit); high != 0 && r != utf8.RuneError {
			text, high = utf8.AppendRune(text, r), 0
			continue
		}
		if high != 0 {
			text, high = append(text, '?'), 0
		}
		switch {
		case unit >= 0xd800 && unit < 0xdc00:
			high = unit
		case unit >= 0xdc00 && unit < 0xe000:
			text = append(text, '?')
		default:
			text = utf8.AppendRune(text, unit)
		}
	}
	if high != 0 {
		text = append(text, '?')
	}
	return text, nil
}

// isPlain reports whether modified UTF-8 and UTF-8 are the same for b.
func isPlain(b []byte) bool {
	for _, c := range b {
		if c >= 0xf0 {
			return false
		}
	}
	return utf8.Valid(b)
}

// javaChar reads one UTF-16 unit. n is 0 if b does not begin with one.
func javaChar(b []byte) (unit rune, n int) {
	tail := func(i int) bool { return i < len(b) && b[i]&0xc0 == 0x80 }
	switch c := b[0]; {
	case c < 0x80:
		return rune(c), 1
	case c&0xe0 == 0xc0 && tail(1):
		return rune(c&0x1f)<<6 | rune(b[1]&0x3f), 2
	case c&0xf0 == 0xe0 && tail(1) && tail(2):
		return rune(c&0x0f)<<12 | rune(b[1]&0x3f)<<6 | rune(b[2]&0x3f), 3
	}
	return 0, 0
}

// DecodeLegacyValue reads a value of a row of type TypeLegacy. floating comes
// from the column, see Spec.LegacyColumn:
//
//	false  Long: big-endian without leading zero bytes; none at all is 0
//	true   Double: 01 and a float of 4 bytes, or any other byte and 8 bytes
func DecodeLegacyValue(floating bool, value []byte) (k model.Kind, bits uint64, err error) {
	if !floating {
		for _, b := range value {
			bits = bits<<8 | uint64(b)
		}
		return model.Long, bits, nil
	}
	switch {
	case len(value) >= 5 && value[0] == 1:
		f := math.Float32frombits(binary.BigEndian.Uint32(value[1:]))
		return model.Double, math.Float64bits(float64(f)), nil
	case len(value) >= 9 && value[0] != 1:
		return model.Double, binary.BigEndian.Uint64(value[1:]), nil
	}
	return model.Double, 0, cutOff(model.Double, value)
}
