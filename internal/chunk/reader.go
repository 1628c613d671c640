package chunk

import (
	"encoding/binary"
	"fmt"
)

// reader takes a chunk or page apart. After the first fault every call returns
// zero and err keeps that fault, so that callers check once per step.
type reader struct {
	b   []byte
	pos int
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = &FormatError{Offset: r.pos, Reason: fmt.Sprintf(format, args...)}
	}
}

func (r *reader) u8() byte {
	if r.err != nil || r.pos >= len(r.b) {
		r.fail("cut off")
		return 0
	}
	v := r.b[r.pos]
	r.pos++
	return v
}

func (r *reader) uvarint() uint64 {
	if r.err != nil {
		return 0
	}
	if r.pos < len(r.b) && r.b[r.pos] < 0x80 { // most are one byte
		r.pos++
		return uint64(r.b[r.pos-1])
	}
	v, n := binary.Uvarint(r.b[r.pos:])
	if n <= 0 {
		r.fail("bad variable-length number")
		return 0
	}
	r.pos += n
	return v
}

func (r *reader) varint() int64 { return unzigzag(r.uvarint()) }

func (r *reader) u64() uint64 {
	b := r.take(8)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// take returns the next n bytes without copying, or nil if there are fewer.
func (r *reader) take(n int) []byte {
	if r.err != nil {
		return nil
	}
	if n < 0 || n > len(r.b)-r.pos {
		r.fail("%d bytes expected, %d left", n, len(r.b)-r.pos)
		return nil
	}
	r.pos += n
	return r.b[r.pos-n : r.pos : r.pos]
}

func zigzag(v int64) uint64   { return uint64(v)<<1 ^ uint64(v>>63) }
func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }
