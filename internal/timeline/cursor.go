package timeline

import (
	"encoding/base64"
	"encoding/binary"
	"unicode/utf8"
)

// A cursor says where to continue reading: a position, the direction, and, for a merged read,
// the last timeline with an event at that position. It does not depend on buckets or
// partitions, so it survives changes of layout. Its text is base64 (of URLs, without padding)
// of
//
//	version u8 | kind u8 | time varint | id length uvarint | id | name length uvarint | name
//
// or, to follow a timeline, of
//
//	version u8 | kind u8 | position in the log of arrivals
type cursor struct {
	direction Direction

	// at bounds what is left: before it descending, from it on ascending. With a name, at is
	// the position of the last returned event, and name is its timeline; events at the same
	// position in timelines with greater names are left.
	at   Position
	name string
}

const (
	cursorVersion    = 1
	cursorDescending = 'd'
	cursorAscending  = 'a'
	cursorTail       = 't'

	cursorBytesMax = 2 + binary.MaxVarintLen64 + 2 + IDBytesMax + 1 + 2 + NameBytesMax
)

var cursorText = base64.RawURLEncoding

func (c cursor) String() string {
	kind := byte(cursorDescending)
	if c.direction == Ascending {
		kind = cursorAscending
	}
	b := binary.AppendVarint([]byte{cursorVersion, kind}, c.at.Time)
	return cursorText.EncodeToString(AppendText(AppendText(b, c.at.ID), c.name))
}

func tailCursor(after []byte) string {
	return cursorText.EncodeToString(append([]byte{cursorVersion, cursorTail}, after...))
}

// errCursor is an *store.InputError.
var errCursor = badf("the cursor was not issued by this server for such a request: begin without a cursor")

func decodeCursor(text string, bytesMax int) (kind byte, rest []byte, err error) {
	if len(text) > cursorText.EncodedLen(bytesMax) {
		return 0, nil, errCursor
	}
	b, err := cursorText.DecodeString(text)
	if err != nil || len(b) < 2 {
		return 0, nil, errCursor
	}
	if b[0] != cursorVersion {
		return 0, nil, badf("the cursor has version %d, this server knows %d: begin without a cursor", b[0], cursorVersion)
	}
	return b[1], b[2:], nil
}

// parseCursor reads the cursor of a page. Errors are *store.InputErrors.
func parseCursor(text string, want Direction) (cursor, error) {
	c := cursor{}
	kind, b, err := decodeCursor(text, cursorBytesMax)
	switch {
	case err != nil:
		return c, err
	case kind == cursorAscending:
		c.direction = Ascending
	case kind != cursorDescending:
		return c, errCursor
	}
	if c.direction != want {
		return c, badf("the cursor belongs to a request with order %v, not %v", c.direction, want)
	}
	rest := Cutter{Rest: b}
	c.at.Time = rest.Varint()
	if rest.Bad || c.at.Time < MinTime || c.at.Time > MaxTime+1 {
		return c, errCursor
	}
	id, name := rest.Text(), rest.Text()
	fit := len(id) <= IDBytesMax+1 && len(name) <= NameBytesMax && utf8.Valid(id) && utf8.Valid(name) // Position.Next adds a byte to an id
	c.at.ID, c.name = string(id), string(name)
	if rest.Bad || !fit || len(rest.Rest) > 0 || c.String() != text {
		return cursor{}, errCursor
	}
	return c, nil
}

func parseTailCursor(text string) ([]byte, error) {
	kind, rest, err := decodeCursor(text, 2+ArrivalBytesMax)
	if err == nil && (kind != cursorTail || len(rest) == 0) {
		err = errCursor
	}
	return rest, err
}

// left returns what is left of r to read, in the timeline of that name.
func (c cursor) left(r Range, name string) Range {
	at := c.at
	if c.name != "" && (name > c.name) == (c.direction == Descending) {
		at = at.Next() // descending: with the event at that position; ascending: without
	}
	if c.direction == Ascending {
		return r.Intersect(Range{at, r.To})
	}
	return r.Intersect(Range{r.From, at})
}
