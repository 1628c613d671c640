package chunk

import (
	"encoding/binary"
	"fmt"
)

// reader parses a chunk or page. After the first fault every call returns zero and err
// keeps that fault, so that callers check once per step.
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
	b := r.b[r.pos:]
	if len(b) > 1 { // most are one byte or two
		if b[0] < 0x80 {
			r.pos++
			return uint64(b[0])
		}
		if b[1] < 0x80 {
			r.pos += 2
			return uint64(b[0]&0x7f) | uint64(b[1])<<7
		}
	}
	v, n := binary.Uvarint(b)
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

// skipVarints skips n variable-length numbers, at least one, without decoding them.
func (r *reader) skipVarints(n int) {
	if r.err != nil {
		return
	}
	for at, c := range r.b[r.pos:] {
		if c >= 0x80 {
			continue
		}
		if n--; n == 0 {
			r.pos += at + 1
			return
		}
	}
	r.fail("cut off")
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
