package spool

import (
	"encoding/binary"
	"fmt"

	"varve/internal/wal"
)

// Types of log records beside those of package record. The numbers are on disk
// and never reused.
const (
	typeCutV1   = 16 // a cut whose number is also the stamp of all samples of its generation
	typeFloorV1 = 17 // the floor record that goes with typeCutV1
	typeBatch   = 18 // a batch as in record.TypeBatch, preceded by its stamp
	typeCut     = 19 // everything since the previous cut is one generation
	typeFloor   = 20 // only a mark; it ends no generation
)

// stampSize is the size of the write timestamp, in milliseconds and little-endian, that
// precedes the batch in a typeBatch record.
const stampSize = 8

// A mark is the payload of a cut or floor record; fixed-width integers are
// little-endian:
//
//	+--------+----------+---------+----------+------+
//	| number | floor ms | drained | began ms | from |
//	| i64    | i64      | i64     | i64      | u64  |
//	+--------+----------+---------+----------+------+
type mark struct {
	number  int64       // of the generation that ends here; in a floor record, of the one that has begun
	floorMS int64       // later stamps are greater, unless the clock was set back
	drained int64       // generations up to this number were drained
	beganMS int64       // arrival of the generation's first sample, by the clock; 0 in a floor record
	from    wal.Segment // log segments before this one were given up, or are about to be
}

const markSize = 5 * 8

// maxMark bounds the numbers and times of a mark, so that adding 1 never overflows.
const maxMark = 1 << 60

func (m mark) append(dst []byte) []byte {
	for _, v := range [...]uint64{uint64(m.number), uint64(m.floorMS), uint64(m.drained), uint64(m.beganMS), uint64(m.from)} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	return dst
}

// isMark reports whether records of the type are marks.
func isMark(typ byte) bool {
	return typ == typeCut || typ == typeFloor || typ == typeCutV1 || typ == typeFloorV1
}

// parseMark reads the mark of a record in the given segment.
func parseMark(segment wal.Segment, typ byte, payload []byte) (mark, error) {
	if len(payload) != markSize {
		return mark{}, fmt.Errorf("end of a generation: expected %d bytes, got %d", markSize, len(payload))
	}
	at := func(i int) int64 { return int64(binary.LittleEndian.Uint64(payload[8*i:])) }
	m := mark{at(0), at(1), at(2), at(3), wal.Segment(at(4))}
	v1 := typ == typeCutV1 || typ == typeFloorV1
	switch floor := max(m.number, m.drained); {
	case max(m.floorMS, floor) > maxMark:
		return mark{}, fmt.Errorf("end of a generation: %d is out of range", max(m.floorMS, floor))
	case v1 && m.floorMS <= floor && floor != 0:
		return mark{}, fmt.Errorf("end of a generation: floor %d is not above the timestamp %d", m.floorMS, floor)
	case !v1 && m.drained >= m.number:
		return mark{}, fmt.Errorf("end of generation %d: generation %d was drained before", m.number, m.drained)
	}
	if m.from > segment {
		return mark{}, fmt.Errorf("end of a generation: log segment %d names segment %d, which comes after it", segment, m.from)
	}
	return m, nil
}
