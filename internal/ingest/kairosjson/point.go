package kairosjson

import (
	"encoding/binary"
	"math"

	"varve/internal/ingest"
	"varve/internal/ingest/decimal"
	"varve/internal/ingest/jsontext"
)

// commonPoint reads [ms,number]. width is 0 when b does not begin with just
// that.
func commonPoint(b []byte) (ms int64, n decimal.Number, value []byte, width int) {
	ms, i, ok := commonTime(b)
	if !ok {
		return 0, n, nil, 0
	}
	n = decimal.Scan(b[i:])
	end := i + n.Len
	if n.Len == 0 || !n.JSON || end >= len(b) || b[end] != ']' {
		return 0, n, nil, 0
	}
	return ms, n, b[i:end], end + 1
}

// numbers are the series of a metric that take its numbers, nil where one is not known.
type numbers struct {
	long, double *ingest.Alias
}

// common adds the points at the beginning of b to the series of s, up to most of them,
// for as long as they have the common form, follow each other with a comma and one
// blank at most, and their series is known. It returns how many it has added, and the
// bytes up to the bracket that ends the last of them. point parses the rest.
func (p *parser) common(b []byte, s numbers, ttl uint32, most int) (n, used int) {
	for at := 0; n < most && at < len(b) && b[at] == '['; n++ {
		width := p.addCommon(b[at:], s, ttl)
		if width == 0 {
			break
		}
		at += width
		used = at
		if at+2 >= len(b) || b[at] != ',' {
			return n + 1, used
		}
		if at++; b[at] == ' ' {
			at++
		}
	}
	return n, used
}

// addCommon adds the point at the beginning of b, if it is common, and returns its
// length, 0 if nothing was added.
func (p *parser) addCommon(b []byte, s numbers, ttl uint32) (width int) {
	ms, value, ok := commonTime(b)
	if !ok {
		return 0
	}
	n, fraction, neg, width := shortNumber(b[value:])
	if width == 0 {
		return p.addLonger(b, value, s, ms, ttl)
	}
	stored := false
	if fraction == 0 {
		stored = p.addWhole(s, ms, signed(int64(n), neg), ttl)
	} else {
		stored = p.addFraction(s, ms, signed(decimal.Quotient(n, fraction), neg), ttl)
	}
	if !stored {
		return 0
	}
	return value + width + 1
}

func (p *parser) addWhole(s numbers, ms, v int64, ttl uint32) bool {
	return s.long != nil && p.w.AddLong(s.long.Ref, ms, v, ttl) == nil
}

func (p *parser) addFraction(s numbers, ms int64, v float64, ttl uint32) bool {
	return s.double != nil && !math.IsInf(v, 0) && p.w.AddDouble(s.double.Ref, ms, v, ttl) == nil
}

func signed[N int64 | float64](v N, neg bool) N {
	if neg {
		return -v // also of 0.0
	}
	return v
}

// addLonger is addCommon for a point whose number, at value, is not short.
func (p *parser) addLonger(b []byte, value int, s numbers, ms int64, ttl uint32) (width int) {
	n := decimal.Scan(b[value:])
	end := value + n.Len
	if n.Len == 0 || !n.JSON || end >= len(b) || b[end] != ']' {
		return 0
	}
	stored := false
	if v, whole := wholeNumber(&n); whole {
		stored = p.addWhole(s, ms, v, ttl)
	} else {
		stored = p.addFraction(s, ms, n.Float64(b[value:end]), ttl)
	}
	if !stored {
		return 0
	}
	return end + 1
}

// commonTime reads the time at the beginning of a point, with the comma and at most one blank after
// it. value is where they end.
func commonTime(b []byte) (ms int64, value int, ok bool) {
	if len(b) > 16 && b[14] == ',' { // the 13 digits of a time between 2001 and 2286
		high, highOK := eightDigits(binary.LittleEndian.Uint64(b[1:])<<24 | '0'<<16 | '0'<<8 | '0')
		low, lowOK := eightDigits(binary.LittleEndian.Uint64(b[6:]))
		if highOK && lowOK {
			ms, value = int64(high*1e8+low), 15
		}
	}
	if value == 0 {
		if ms, value = anyTime(b); value == 0 {
			return 0, 0, false
		}
	}
	if b[value] == ' ' {
		value++
	}
	return ms, value, true
}

// anyTime reads a time of any length. value is where its comma ends, 0 if there is no such time, or
// nothing after it.
func anyTime(b []byte) (ms int64, value int) {
	i := 1 // the bracket
	negative := i < len(b) && b[i] == '-'
	if negative {
		i++
	}
	first := i
	for i < len(b) && b[i]-'0' <= 9 {
		ms = ms*10 + int64(b[i]-'0')
		i++
	}
	if i == first || i-first > 18 || i+1 >= len(b) || b[i] != ',' {
		return 0, 0
	}
	if negative {
		ms = -ms
	}
	return ms, i + 1
}

// eightDigits reads a number of eight decimal digits, the first in the lowest byte. It
// adds neighbours: digits to pairs, pairs to fours, fours to the number.
func eightDigits(b uint64) (v uint64, ok bool) {
	const high, six, zeros = 0xf0f0f0f0f0f0f0f0, 0x0606060606060606, 0x3030303030303030
	if b&high != zeros || (b+six)&high != zeros {
		return 0, false
	}
	b = (b & 0x0f0f0f0f0f0f0f0f) * (10<<8 + 1) >> 8
	b = (b & 0x00ff00ff00ff00ff) * (100<<16 + 1) >> 16
	return (b & 0x0000ffff0000ffff) * (10000<<32 + 1) >> 32, true
}

// shortNumber reads a JSON number with at most 15 digits and no exponent, and the bracket after it:
// n, whose last digits are its fraction. width is 0 if there is no such number.
func shortNumber(b []byte) (n uint64, fraction int, neg bool, width int) {
	const most = 15 // digits that fit a float64
	i := 0
	if len(b) > 0 && b[0] == '-' {
		neg = true
		i++
	}
	first := i
	for i < len(b) && b[i]-'0' <= 9 {
		n = n*10 + uint64(b[i]-'0')
		i++
	}
	digits := i - first
	if digits == 0 || digits > 1 && b[first] == '0' {
		return 0, 0, false, 0
	}
	if i < len(b) && b[i] == '.' {
		i++
		point := i
		for i < len(b) && b[i]-'0' <= 9 {
			n = n*10 + uint64(b[i]-'0')
			i++
		}
		if fraction = i - point; fraction == 0 {
			return 0, 0, false, 0
		}
		digits += fraction
	}
	if digits > most || i >= len(b) || b[i] != ']' {
		return 0, 0, false, 0
	}
	return n, fraction, neg, i
}

// A point is the place of a point in the body, for faults.
type point struct {
	from, to int
	listed   bool // in datapoints
}

// point reads one element of datapoints, in any form.
func (p *parser) point() error {
	t, serr := p.s.Next()
	if serr != nil {
		return p.syntaxFault(serr)
	}
	where := point{from: t.Start, listed: true}
	if t.Kind != jsontext.Array {
		if t.Kind == jsontext.Object {
			serr = p.s.Skip(t.Kind)
		}
		if serr != nil {
			return p.syntaxFault(serr)
		}
		where.to = p.s.Offset()
		return p.refusePoint(where, ingest.BadSyntax, "point must be an array of timestamp and value, not %s.", t.Kind)
	}
	parts, n, serr := p.pointParts()
	if serr != nil {
		return p.syntaxFault(serr)
	}
	where.to = p.s.Offset()
	switch {
	case n == 0:
		return p.refusePoint(where, ingest.BadTime, "timestamp cannot be null or empty.")
	case n == 1:
		return p.refusePoint(where, ingest.BadValue, "value cannot be null or empty.")
	case parts[0].Kind == jsontext.Null:
		return p.refusePoint(where, ingest.BadTime, "timestamp may not be null.")
	}
	typ := p.m.typ
	if n >= 3 {
		if !parts[2].Kind.Scalar() || parts[2].Kind == jsontext.Null {
			return p.refusePoint(where, ingest.BadType, "type must be a text, not %s.", parts[2].Kind)
		}
		typ = p.text(parts[2])
	}
	value := parts[1]
	switch {
	case value.Kind == jsontext.Null || p.isEmptyText(value, typ):
		return p.refusePoint(where, ingest.BadValue, "value may not be empty.")
	case value.Kind == jsontext.Array && p.isEmptyArray(value):
		return p.refusePoint(where, ingest.BadValue, "value may not be an empty array.")
	}
	num := decimal.Scan(parts[0].Text)
	ms, fits := num.Trunc()
	if num.Len == 0 || num.Len != len(parts[0].Text) || !fits {
		return p.refusePoint(where, ingest.BadTime, "timestamp must be a number of milliseconds, not %s.", describe(parts[0]))
	}
	return p.store(where, ms, value, typ)
}

// describe returns the text of a token for messages.
func describe(t jsontext.Token) string {
	if !t.Kind.Scalar() {
		return t.Kind.String()
	}
	return "'" + ingest.Brief(t.Text) + "'"
}

// pointParts reads the elements of a point, whose bracket was read, and keeps
// the first three.
func (p *parser) pointParts() (parts [3]jsontext.Token, n int, _ *jsontext.SyntaxError) {
	for {
		more, err := p.s.More(']', n == 0)
		if err != nil || !more {
			return parts, n, err
		}
		t, err := p.s.Next()
		if err == nil && !t.Kind.Scalar() {
			err = p.s.Skip(t.Kind)
		}
		if err != nil {
			return parts, n, err
		}
		if n < len(parts) {
			parts[n] = t
		}
		n++
	}
}
