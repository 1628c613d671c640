package events

import (
	"encoding/binary"
	"fmt"

	"varve/internal/store"
	"varve/internal/timeline"
)

// The cell of an event. One cell per row costs Cassandra less than several.
//
//	0      1                  n            m
//	+------+------------------+------------+-------------------------------------+
//	| kind | length of type   | type       | inline:  data                       |
//	| u8   | uvarint          |            | pieces:  size uvarint               |
//	|      |                  |            | pointer: key 16 bytes, size uvarint |
//	+------+------------------+------------+-------------------------------------+
const (
	kindInline  = 1
	kindPieces  = 2 // the data is in timeline_pieces
	kindPointer = 3 // the data is in timeline_payloads
)

// appendRow appends the cell of an entry.
func appendRow(dst []byte, e *timeline.Entry) []byte {
	kind := byte(kindInline)
	switch {
	case e.Pointer != (timeline.PayloadKey{}):
		kind = kindPointer
	case len(e.Data) > inlineBytesMax:
		kind = kindPieces
	}
	dst = timeline.AppendText(append(dst, kind), e.Type)
	switch kind {
	case kindInline:
		return append(dst, e.Data...)
	case kindPieces:
		return binary.AppendUvarint(dst, uint64(len(e.Data)))
	}
	return binary.AppendUvarint(append(dst, e.Pointer[:]...), uint64(e.Size))
}

// parseRow decodes a cell. If inPieces is set, the data must be read from its pieces, and
// e.Size is its length. The entry does not refer to the memory of cell.
func parseRow(cell []byte, e *timeline.Entry) (inPieces bool, err error) {
	bad := func(what string) (bool, error) {
		return false, &store.CorruptionError{File: "timeline_events", Reason: fmt.Sprintf("event %q at %d: %s", e.ID, e.Time, what)}
	}
	if len(cell) == 0 || cell[0] < kindInline || cell[0] > kindPointer {
		return bad("its cell has a kind that this version of Varve does not know")
	}
	kind, c := cell[0], timeline.Cutter{Rest: cell[1:]}
	e.Type = string(c.Text())
	if c.Bad {
		return bad("its cell is cut off")
	}
	if kind == kindInline {
		e.Data = append([]byte{}, c.Rest...)
		return false, nil
	}
	if kind == kindPointer {
		if len(c.Rest) < len(e.Pointer) {
			return bad("its cell is cut off")
		}
		c.Rest = c.Rest[copy(e.Pointer[:], c.Rest):]
	}
	size := c.Uvarint()
	if c.Bad || len(c.Rest) > 0 || size > 1<<31 {
		return bad("its cell is cut off")
	}
	e.Size = int(size)
	return kind == kindPieces, nil
}
