package wal

import (
	"encoding/binary"
	"hash/crc32"
)

// A record is framed by 15 bytes; docs/formats/wal.md has the drawing.
const (
	// RecordOverhead is the bytes of a record in the log besides its payload.
	RecordOverhead = recordHeaderSize

	recordHeaderSize = 15

	atLength  = 0  // u32, bytes of payload
	atDurable = 4  // u32, bytes of this segment that were durable before this write
	atType    = 8  // u8
	atCheck   = 9  // u16, low half of the crc of bytes [0,9)
	atCRC     = 11 // u32, crc of bytes [0,9) and payload
)

const (
	typeNone = 0   // never valid, so zeros are never a record
	typeSeal = 255 // last record of a segment that was properly ended
)

// maxRecordBytes keeps offsets within a segment below 4 GiB, together with the
// bound of Config.SegmentBytes.
const maxRecordBytes = 1 << 30

// maxSegmentBytes is more than Varve writes to a segment. A longer file is damaged, and
// may be a sparse file whose end no reader would reach.
const maxSegmentBytes = 4 << 30

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seed is the initial value of a record's checksum. A record is valid only where it was
// written: the same bytes at another offset in the same segment, or at the same offset
// in another segment, always have another checksum, since the multiplier is odd and a
// crc maps initial values one to one.
func seed(s Segment, offset int64) uint32 {
	return uint32(s)*0x9E3779B1 + uint32(offset)
}

// frame starts the header of a record; finish completes it once its place is
// known.
func frame(h []byte, typ byte, length int) {
	binary.LittleEndian.PutUint32(h[atLength:], uint32(length))
	h[atType] = typ
}

// finish completes the record at the start of b and returns its size.
func finish(b []byte, s Segment, offset, durable int64) int {
	size := recordHeaderSize + int(binary.LittleEndian.Uint32(b[atLength:]))
	binary.LittleEndian.PutUint32(b[atDurable:], uint32(durable))
	crc := crc32.Update(seed(s, offset), castagnoli, b[:atCheck])
	binary.LittleEndian.PutUint16(b[atCheck:], uint16(crc))
	crc = crc32.Update(crc, castagnoli, b[recordHeaderSize:size])
	binary.LittleEndian.PutUint32(b[atCRC:], crc)
	return size
}

// recordHeader is the framing of a record as read.
type recordHeader struct {
	typ     byte
	length  int64
	durable int64
	headCRC uint32 // crc of bytes [0,9), which the payload's continues
	crc     uint32
}

// plausible reports whether the lengths at the start of b may be those of a record at
// offset in a segment of limit readable bytes. Random bytes and zeros seldom are. The
// compiler inlines it where a whole segment is searched.
func plausible(b []byte, offset, limit int64) bool {
	x := binary.LittleEndian.Uint64(b) // length and durable
	length, durable := int64(uint32(x)), int64(x>>32)
	return uint64(durable-segmentHeaderSize) <= uint64(offset-segmentHeaderSize) && length <= limit-offset-recordHeaderSize
}

// parseHeader reads the header at the start of b. It returns false if no record of
// segment s can begin at offset, which is at least segmentHeaderSize.
func parseHeader(b []byte, s Segment, offset, limit int64) (h recordHeader, ok bool) {
	_ = b[recordHeaderSize-1]
	if !plausible(b, offset, limit) || b[atType] == typeNone {
		return h, false
	}
	h.typ = b[atType]
	h.length = int64(binary.LittleEndian.Uint32(b[atLength:]))
	h.durable = int64(binary.LittleEndian.Uint32(b[atDurable:]))
	h.headCRC = crc32.Update(seed(s, offset), castagnoli, b[:atCheck])
	h.crc = binary.LittleEndian.Uint32(b[atCRC:])
	return h, uint16(h.headCRC) == binary.LittleEndian.Uint16(b[atCheck:])
}

func (h recordHeader) valid(payload []byte) bool {
	return crc32.Update(h.headCRC, castagnoli, payload) == h.crc
}
