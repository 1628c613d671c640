package kairosjson

import (
	"bytes"

	"varve/internal/ingest"
	"varve/internal/ingest/jsontext"
	"varve/internal/model"
)

// A shape is how the sender writes metric objects: all bytes of the last one that was read member
// by member, except for three parts, the name, the tags and the points:
//
//	{"name":"load","datapoints":[[1700000000000,1.5]],"tags":{"host":"a"}}
//	\_ glue _/\part/\___ glue ____/\_____ part ______/\ glue _/\___ part ___/\glue
//
// If an object has the same glue, a name and tags spelt like those of a known series, and points of
// the common form, then its points belong to that series, as if the object was read member by
// member. Reading it takes only a comparison of bytes, and reading the numbers. This is valid
// because each part is one token, or one object or array, whose end depends on nothing outside of
// it, and because the glue is compared with everything that surrounds the parts.
type shape struct {
	parts [parts]part
	glue  [parts + 1][]byte
	ttl   uint32 // that the glue sets
	known bool
}

// A part is one of the varying parts of a shape.
type part uint8

const (
	namePart part = iota
	tagsPart
	pointsPart
	parts // how many there are
)

// Shapes with more glue, and of objects with more bytes of points, are not learnt.
// Usual glue has 40 bytes. An object with many points gains little, and if it does not
// fit the block its points are read twice.
const (
	maxGlue        = 1 << 10
	maxShapePoints = 16 << 10
)

// span is a part in the body.
type span struct {
	part     part
	from, to int
}

// learn keeps the shape of the metric object that was just read, if it has one. Objects with other
// members that affect how their points are stored have none.
func (p *parser) learn() {
	m := &p.m
	p.shape.known = false
	if m.structural != nil || m.skip || m.typ != "" || m.hasTime || m.hasValue || !m.hasName || m.name.Kind != jsontext.String ||
		m.tagsEnd == 0 || m.points == 0 || m.pointsEnd-m.points > maxShapePoints {
		return
	}
	spans := [parts]span{{namePart, m.name.Start, m.nameEnd}, {tagsPart, m.tags, m.tagsEnd}, {pointsPart, m.points, m.pointsEnd}}
	for i := range spans { // three are sorted quickly
		for j := i; j > 0 && spans[j].from < spans[j-1].from; j-- {
			spans[j], spans[j-1] = spans[j-1], spans[j]
		}
	}
	glue := m.end - m.start
	for _, s := range spans {
		glue -= s.to - s.from
	}
	if glue > maxGlue {
		return
	}
	at := m.start
	for i, s := range spans {
		p.shape.parts[i] = s.part
		p.shape.glue[i] = append(p.shape.glue[i][:0], p.s.Bytes(at, s.from)...)
		at = s.to
	}
	p.shape.glue[parts] = append(p.shape.glue[parts][:0], p.s.Bytes(at, m.end)...)
	p.shape.ttl, p.shape.known = m.ttl, true
}

// foreseen stores the next metric object if it has the shape of the previous one, and its series is
// the one that followed last time. It reports whether it did. If not, nothing has changed.
func (p *parser) foreseen() bool {
	if !p.shape.known || p.general {
		return false
	}
	a := p.w.Guess()
	if a == nil || a.Head() == "" || a.Head()[0] != '"' { // made of a token in quotes
		return false
	}
	before := len(p.w.Batch().Samples)
	series, last := numbers{}.with(a), a
	if other := p.w.Sibling(a); other != nil {
		series, last = series.with(other), other
	}
	width := p.fits(p.s.Rest(), a, series)
	if width == 0 {
		p.w.Retract(before)
		return false
	}
	p.w.Follow(last)
	p.m.end = p.s.Offset() + width
	p.s.Seek(p.m.end)
	return true
}

// with returns s with the series of an alias, if that is for numbers.
func (s numbers) with(a *ingest.Alias) numbers {
	switch a.Kind() {
	case model.Long:
		s.long = a
	case model.Double:
		s.double = a
	}
	return s
}

// fits adds the points of the object at the beginning of b to the batch, and returns the
// length of the object, 0 if it does not have the shape, or is not spelt as a.
func (p *parser) fits(b []byte, a *ingest.Alias, series numbers) (width int) {
	rest, ok := bytes.CutPrefix(b, p.shape.glue[0])
	for i := 0; ok && i < len(p.shape.parts); i++ {
		switch p.shape.parts[i] {
		case namePart:
			rest, ok = ingest.CutText(rest, a.Head())
		case tagsPart:
			rest, ok = ingest.CutText(rest, a.Tail())
		case pointsPart:
			n, used := p.common(rest, series, p.shape.ttl, p.w.Room())
			rest, ok = rest[used:], n > 0
		}
		if ok {
			rest, ok = bytes.CutPrefix(rest, p.shape.glue[i+1])
		}
	}
	if !ok {
		return 0
	}
	return len(b) - len(rest)
}
