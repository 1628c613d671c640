package spool

import (
	"encoding/binary"
	"fmt"

	"varve/internal/wal"
)

// Types of log records beside those of package record. The numbers are on disk
// and never reused.
const (
	typeCut   = 16 // everything since the cut before is one generation
	typeFloor = 17 // only moves the floor
)

// A mark is the payload of a cut or floor record; fixed-width integers are
// little-endian:
//
//	+----------+----------+------------+----------+------+
//	| stamp ms | floor ms | drained ms | began ms | from |
//	| i64      | i64      | i64        | i64      | u64  |
//	+----------+----------+------------+----------+------+
type mark struct {
	stampMS   int64       // write timestamp of the generation that ends here; 0 in a floor record
	floorMS   int64       // all later stamps are greater
	drainedMS int64       // generations up to this stamp were drained
	beganMS   int64       // by the clock: first sample of the generation; 0 in a floor record
	from      wal.Segment // log segments before this one were given up, or are about to be
}

const markSize = 5 * 8

func (m mark) append(dst []byte) []byte {
	for _, v := range [...]uint64{uint64(m.stampMS), uint64(m.floorMS), uint64(m.drainedMS), uint64(m.beganMS), uint64(m.from)} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	return dst
}

// parseMark reads a mark of a record that lies in the given segment.
func parseMark(segment wal.Segment, payload []byte) (mark, error) {
	if len(payload) != markSize {
		return mark{}, fmt.Errorf("end of a generation: expected %d bytes, got %d", markSize, len(payload))
	}
	at := func(i int) int64 { return int64(binary.LittleEndian.Uint64(payload[8*i:])) }
	m := mark{at(0), at(1), at(2), at(3), wal.Segment(at(4))}
	if floor := max(m.stampMS, m.drainedMS); m.floorMS <= floor && floor != 0 {
		return mark{}, fmt.Errorf("end of a generation: floor %d is not above the timestamp %d", m.floorMS, floor)
	}
	if m.from > segment {
		return mark{}, fmt.Errorf("end of a generation: log segment %d names segment %d, which is behind it", segment, m.from)
	}
	return m, nil
}
