package local

import (
	"encoding/binary"
	"strings"

	"varve/internal/timeline"
)

// The first byte of a key is its table. Integers in keys are big-endian so that they sort.
//
//	'h' name                        -> number u32, JSON of the history
//	'e' number u32, time, id        -> event or pointer, see appendEntry; newest first
//	'b' number u32, bucket i64      -> when it was marked, microseconds i64
//	'a' number u32, sequence u64    -> positions, in the order of arrival
//	'f' number u32                  -> sequence u64: arrivals up to it were removed
//	'p' payload key                 -> data
//	'r' payload key, number u32     -> (empty): a timeline that refers to it
//	'm' name                        -> "format", "next number", "generation": u32
//	'm' "opening " generation u32   -> id u32
const (
	tableHistory   = 'h'
	tableEvent     = 'e'
	tableMark      = 'b'
	tableArrival   = 'a'
	tableFloor     = 'f'
	tablePayload   = 'p'
	tableReference = 'r'
	tableMeta      = 'm'
)

// A number identifies a timeline in keys. No number is used twice.
type number uint32

func numbered(table byte, n number) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, 48), table), uint32(n))
}

// afterNumber is the end of the rows of one timeline in a table.
func afterNumber(table byte, n number) []byte {
	if n == ^number(0) {
		return []byte{table + 1}
	}
	return numbered(table, n+1)
}

func historyKey(name string) []byte { return append([]byte{tableHistory}, name...) }

func metaKey(name string) []byte { return append([]byte{tableMeta}, name...) }

// ordered maps an integer to an unsigned one with the same order.
func ordered(v int64) uint64 { return uint64(v) ^ 1<<63 }

func markKey(n number, start int64) []byte {
	return binary.BigEndian.AppendUint64(numbered(tableMark, n), ordered(start))
}

func arrivalKey(n number, sequence uint64) []byte {
	return binary.BigEndian.AppendUint64(numbered(tableArrival, n), sequence)
}

func payloadKey(k timeline.PayloadKey) []byte { return append([]byte{tablePayload}, k[:]...) }

func referenceKey(k timeline.PayloadKey, n number) []byte {
	return binary.BigEndian.AppendUint32(append([]byte{tableReference}, k[:]...), uint32(n))
}

// An event's key has the complements of its time and of its id. A byte b of the id is
// written as 0xfe - b, and 0xff ends the id: so an id sorts after longer ones that begin
// with it. UTF-8 has no byte 0xff.
const (
	idTop = 0xfe
	idEnd = 0xff
)

func eventKey(key []byte, n number, p timeline.Position) []byte {
	key = binary.BigEndian.AppendUint32(append(key, tableEvent), uint32(n))
	key = binary.BigEndian.AppendUint64(key, ^ordered(p.Time))
	for i := range len(p.ID) {
		key = append(key, idTop-p.ID[i])
	}
	return append(key, idEnd)
}

const eventKeyFixed = 1 + 4 + 8

// parsePosition reads the position from an event's key.
func parsePosition(key []byte) (timeline.Position, bool) {
	if len(key) < eventKeyFixed+1 || key[len(key)-1] != idEnd {
		return timeline.Position{}, false
	}
	var id strings.Builder
	for _, b := range key[eventKeyFixed : len(key)-1] {
		if b > idTop {
			return timeline.Position{}, false
		}
		id.WriteByte(idTop - b)
	}
	return timeline.Position{Time: int64(^binary.BigEndian.Uint64(key[5:]) ^ 1<<63), ID: id.String()}, true
}

// eventBounds returns the bounds of the keys of the events in a range. The newest event has the
// smallest key: positions before To have keys after that of To.
func eventBounds(n number, r timeline.Range) (lower, upper []byte) {
	return append(eventKey(nil, n, r.To), 0), append(eventKey(nil, n, r.From), 0)
}
