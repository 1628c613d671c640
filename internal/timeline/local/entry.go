package local

import (
	"encoding/binary"
	"errors"

	"varve/internal/timeline"
)

// The value of an event:
//
//	+----------+-------------------+------------------+------+
//	| flags u8 | partition uvarint | type length uvar | type | data
//	+----------+-------------------+------------------+------+
//
// With flagPointer the data is stored separately, and the type is followed by its key (16 bytes) and
// its size (uvarint) instead.
const flagPointer = 1

func appendEntry(b []byte, e *timeline.Placed) []byte {
	pointer := e.Pointer != timeline.PayloadKey{}
	flags := byte(0)
	if pointer {
		flags = flagPointer
	}
	b = timeline.AppendText(binary.AppendUvarint(append(b, flags), uint64(e.Partition)), e.Type)
	if pointer {
		return binary.AppendUvarint(append(b, e.Pointer[:]...), uint64(e.Size))
	}
	return append(b, e.Data...)
}

var errEntry = errors.New("an event's value is cut short or has unknown flags")

// parseEntry reads the value of the event at p. The results do not share memory with value.
func parseEntry(p timeline.Position, value []byte) (e timeline.Entry, partition int, err error) {
	e.Time, e.ID = p.Time, p.ID
	if len(value) == 0 || value[0]&^flagPointer != 0 {
		return e, 0, errEntry
	}
	c := timeline.Cutter{Rest: value[1:]}
	part := c.Uvarint()
	e.Type = string(c.Text())
	if c.Bad || part >= timeline.FactorMax {
		return e, 0, errEntry
	}
	if value[0]&flagPointer == 0 {
		e.Data = append([]byte{}, c.Rest...)
		return e, int(part), nil
	}
	if len(c.Rest) < len(e.Pointer) {
		return e, 0, errEntry
	}
	c.Rest = c.Rest[copy(e.Pointer[:], c.Rest):]
	size := c.Uvarint()
	if c.Bad || len(c.Rest) > 0 || size > 1<<31 {
		return e, 0, errEntry
	}
	e.Size = int(size)
	return e, int(part), nil
}
