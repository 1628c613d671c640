package stream

import "encoding/binary"

// An inbound holds what has come over the network and TLS has not taken yet. TLS reads a
// record at a time, in two or three pieces, and so a block of lines would be a record of
// 16 KiB and each would cost as many system calls. The buffer takes several records at once, and
// says whether the next one is there as a whole, so that a reader can have it without waiting.
type inbound struct {
	buf  []byte
	r, w int // buf[r:w] was not given yet
	left int // bytes up to the end of the record that buf[r] is in; 0 at its begin

	small int // reads in a row that brought little
}

const (
	recordHead = 5 // bytes before what is in a record

	firstInbound = 4 << 10
	mostInbound  = 128 << 10 // of a busy connection

	// quietInbound is after how many small reads a grown buffer is given up.
	quietInbound = 64
)

// next gives bytes of one record at most; fill is asked for more if there are none.
func (in *inbound) next(p []byte, fill func([]byte) (int, error)) (int, error) {
	for in.r == in.w || in.left == 0 && in.w-in.r < recordHead {
		if err := in.fill(fill); err != nil {
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

// record is the size of the record that begins at buf[r], whose head is there.
func (in *inbound) record() int {
	return recordHead + int(binary.BigEndian.Uint16(in.buf[in.r+3:]))
}

// fill reads once, after what is there: less than the head of a record.
func (in *inbound) fill(read func([]byte) (int, error)) error {
	rest := in.buf[in.r:in.w]
	size := max(len(in.buf), firstInbound)
	switch {
	case in.w == len(in.buf) && in.w > 0 && size < mostInbound: // the last read filled it
		size *= 4
	case in.small >= quietInbound:
		size = firstInbound
	}
	if size = min(size, mostInbound); size != len(in.buf) {
		in.buf, in.small = make([]byte, size), 0
	}
	in.r, in.w = 0, copy(in.buf, rest)
	n, err := read(in.buf[in.w:])
	in.w += n
	if n < firstInbound {
		in.small++
	} else {
		in.small = 0
	}
	if n > 0 {
		return nil // an error comes again
	}
	return err
}

// whole reports whether the next record is there as a whole.
func (in *inbound) whole() bool {
	return in.left == 0 && in.w-in.r >= recordHead && in.w-in.r >= in.record()
}
