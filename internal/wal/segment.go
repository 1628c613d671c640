package wal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// Segment is the number of a file of the log. The first is 1.
type Segment uint64

const (
	segmentSuffix = ".wal"
	freeSuffix    = ".free"
)

// FileName is the name of the segment's file in the log's directory.
func (s Segment) FileName() string { return fmt.Sprintf("%010d%s", uint64(s), segmentSuffix) }

// parseName splits a file name into number and suffix.
func parseName(name string) (s Segment, suffix string, ok bool) {
	digits, suffix, ok := strings.Cut(name, ".")
	suffix = "." + suffix
	if !ok || len(digits) < 10 || (suffix != segmentSuffix && suffix != freeSuffix) {
		return 0, "", false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n == 0 || n > 1<<62 {
		return 0, "", false
	}
	return Segment(n), suffix, true
}

// segmentHeader begins a file. It is durable before the first record is written.
type segmentHeader struct {
	segment    Segment
	previous   Segment // 0 if there is none
	previousAt int64   // valid length of the previous segment
}

const (
	segmentHeaderSize = 40
	formatVersion     = 1
)

var magic = [8]byte{'v', 'a', 'r', 'v', 'e', 'w', 'a', 'l'}

func (h segmentHeader) encode() []byte {
	b := make([]byte, segmentHeaderSize)
	copy(b, magic[:])
	binary.LittleEndian.PutUint32(b[8:], formatVersion)
	binary.LittleEndian.PutUint64(b[12:], uint64(h.segment))
	binary.LittleEndian.PutUint64(b[20:], uint64(h.previous))
	binary.LittleEndian.PutUint64(b[28:], uint64(h.previousAt))
	binary.LittleEndian.PutUint32(b[36:], crc32.Checksum(b[:36], castagnoli))
	return b
}

// decodeSegmentHeader reads the header of segment s. reason is not empty if b is not
// such a header. version differs from formatVersion if this build does not know the
// header's format.
func decodeSegmentHeader(b []byte, s Segment) (h segmentHeader, version uint32, reason string) {
	if len(b) < segmentHeaderSize {
		return h, 0, fmt.Sprintf("segment header of %d bytes, got %d", segmentHeaderSize, len(b))
	}
	if [8]byte(b[:8]) != magic {
		return h, 0, fmt.Sprintf("expected magic %q, got %q", magic[:], b[:8])
	}
	want, got := crc32.Checksum(b[:36], castagnoli), binary.LittleEndian.Uint32(b[36:])
	if want != got {
		return h, 0, fmt.Sprintf("segment header: expected crc %08x, got %08x", want, got)
	}
	version = binary.LittleEndian.Uint32(b[8:])
	h.segment = Segment(binary.LittleEndian.Uint64(b[12:]))
	h.previous = Segment(binary.LittleEndian.Uint64(b[20:]))
	h.previousAt = int64(binary.LittleEndian.Uint64(b[28:]))
	if h.segment != s {
		return h, version, fmt.Sprintf("expected header of segment %d, got %d", s, h.segment)
	}
	return h, version, ""
}
