package kairosjson

import (
	"varve/internal/ingest"
	"varve/internal/ingest/decimal"
	"varve/internal/ingest/jsontext"
)

// commonPoint reads [ms,number]. width is 0 when b does not begin with just
// that.
func commonPoint(b []byte) (ms int64, n decimal.Number, value []byte, width int) {
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
		return 0, n, nil, 0
	}
	if negative {
		ms = -ms
	}
	i++
	if b[i] == ' ' {
		i++
	}
	n = decimal.Scan(b[i:])
	end := i + n.Len
	if n.Len == 0 || !n.JSON || end >= len(b) || b[end] != ']' {
		return 0, n, nil, 0
	}
	return ms, n, b[i:end], end + 1
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
