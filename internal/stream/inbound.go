package stream

import (
	"encoding/binary"
	"sync"
)

// An inbound buffers bytes that have arrived over the network and that TLS has not read yet. TLS
// reads one record at a time, in two or three pieces. Without a buffer, a block of lines would
// be one record of at most 16 KiB, and cost two or three system calls. The buffer takes several
// records at once, and tells whether the next record has arrived completely, so that it can be
// read without waiting.
//
// All connections share the large buffers. A connection takes one only for bytes that have already
// arrived: otherwise each connection that was once busy would keep one while it is idle, or while
// it waits for a turn of its [Pace].
type inbound struct {
	own   []byte // the small buffer
	large *[mostInbound]byte
	buf   []byte // own, or large
	r, w  int    // buf[r:w] was not read by TLS yet
	left  int    // bytes up to the end of the record that buf[r] is in; 0 at its begin
	last  int    // bytes of the last read
}

const (
	recordHead = 5 // bytes of a record's header

	firstInbound = 4 << 10
	mostInbound  = 128 << 10
)

var largeInbounds = sync.Pool{New: func() any { return new([mostInbound]byte) }}

// A source is what an inbound reads from.
type source interface {
	readMetered(p []byte) (int, error)
	more() bool // a read would not wait, for the client or for a turn; a guess
}

// next returns bytes of at most one record. If the buffer is empty, next reads
// from the network first.
func (in *inbound) next(p []byte, from source) (int, error) {
	for in.r == in.w || in.left == 0 && in.w-in.r < recordHead {
		if err := in.fill(from); err != nil {
			return 0, err
		}
	}
	if in.left == 0 {
		in.left = in.record()
	}
	n := copy(p, in.buf[in.r:min(in.w, in.r+in.left)])
	in.r += n
	in.left -= n
	return n, nil
}

// record returns the size of the record that begins at buf[r], whose header has arrived.
func (in *inbound) record() int {
	return recordHead + int(binary.BigEndian.Uint16(in.buf[in.r+3:]))
}

// fill reads once, and appends to what the buffer has: less than the header of
// a record.
func (in *inbound) fill(from source) error {
	rest := in.buf[in.r:in.w]
	if in.own == nil {
		in.own = make([]byte, firstInbound)
	}
	in.r, in.w, in.buf = 0, copy(in.own, rest), in.own
	switch more := in.last >= firstInbound/2 && from.more(); {
	case more && in.large == nil:
		in.large = largeInbounds.Get().(*[mostInbound]byte)
	case !more:
		in.release()
	}
	if in.large != nil {
		in.w, in.buf = copy(in.large[:], in.own[:in.w]), in.large[:]
	}
	n, err := from.readMetered(in.buf[in.w:])
	in.w += n
	if in.last = n; n > 0 {
		return nil // the next read returns the error again
	}
	return err
}

// release gives the large buffer back.
func (in *inbound) release() {
	if in.large != nil {
		largeInbounds.Put(in.large)
		in.large = nil
	}
}

// whole reports whether the next record has arrived completely.
func (in *inbound) whole() bool {
	return in.left == 0 && in.w-in.r >= recordHead && in.w-in.r >= in.record()
}
