package catalogue

import (
	"encoding/binary"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// syncMark says that a log of Pebble is durable up to an offset. In the log it is the first
// operation of a batch, whose text Pebble ignores:
//
//	sequence u64 | count u32 | kind 3 u8 | length 18 u8 | "synced" | log u32 | offset u64
//
// All integers are little-endian.
type syncMark struct {
	log    uint32
	offset uint64
}

const (
	markName  = "synced"
	markBytes = len(markName) + 4 + 8
	batchHead = 8 + 4
)

var markHead = append([]byte{byte(pebble.InternalKeyKindLogData), byte(markBytes)}, markName...)

func (m syncMark) encode() []byte {
	b := append(make([]byte, 0, markBytes), markName...)
	b = binary.LittleEndian.AppendUint32(b, m.log)
	return binary.LittleEndian.AppendUint64(b, m.offset)
}

// markIn returns the mark of the batch that begins with the chunk at an offset of a log, and
// the zero value if that chunk does not begin a batch with a mark. The chunk is readable.
func markIn(b []byte, at int) (m syncMark) {
	const size = batchHead + 2 + markBytes
	var record []byte
	for first := true; at < len(b) && len(record) < size; first = false {
		end, ok := readChunk(b, at)
		begins := at+chunkHeaderSync <= end && (b[at+6] == chunkFull || b[at+6] == chunkFirst)
		if !ok || first != begins {
			return m
		}
		record = append(record, b[at+min(chunkHeaderSync, end-at):min(end, at+chunkHeaderSync+size)]...)
		at = end
	}
	if len(record) < size || !slices.Equal(record[batchHead:batchHead+len(markHead)], markHead) {
		return m
	}
	text := record[batchHead+len(markHead):]
	return syncMark{binary.LittleEndian.Uint32(text), binary.LittleEndian.Uint64(text[4:])}
}
