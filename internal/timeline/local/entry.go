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
	b = binary.AppendUvarint(append(b, flags), uint64(e.Partition))
	b = append(binary.AppendUvarint(b, uint64(len(e.Type))), e.Type...)
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
	flags, rest := value[0], value[1:]
	part, rest, ok := uvarint(rest)
	if !ok || part >= timeline.FactorMax {
		return e, 0, errEntry
	}
	size, rest, ok := uvarint(rest)
	if !ok || size > uint64(len(rest)) {
		return e, 0, errEntry
	}
	e.Type, rest = string(rest[:size]), rest[size:]
	if flags&flagPointer == 0 {
		e.Data = append([]byte{}, rest...)
		return e, int(part), nil
	}
	if len(rest) < len(e.Pointer) {
		return e, 0, errEntry
	}
	rest = rest[copy(e.Pointer[:], rest):]
	size, rest, ok = uvarint(rest)
	if !ok || len(rest) > 0 || size > 1<<31 {
		return e, 0, errEntry
	}
	e.Size = int(size)
	return e, int(part), nil
}

func uvarint(b []byte) (uint64, []byte, bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, false
	}
	return v, b[n:], true
}
