package wal

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/store"
)

// windowBytes is how much of a segment is read at once.
const windowBytes = 256 << 10

// window reads a file through one buffer, which grows to the largest record read.
type window struct {
	file vfs.File
	name string
	size int64 // at most maxSegmentBytes
	over int64 // the size of the file, if that is more
	buf  []byte
	base int64 // offset of buf[0]
}

// at returns n bytes at offset; off+n must not be beyond size. They are valid
// until the next call.
func (w *window) at(offset, n int64) ([]byte, error) {
	if i := offset - w.base; i >= 0 && i+n <= int64(len(w.buf)) {
		return w.buf[i : i+n], nil
	}
	want := min(max(n, windowBytes), w.size-offset)
	if int64(cap(w.buf)) < want {
		w.buf = make([]byte, want)
	}
	w.buf, w.base = w.buf[:want], offset
	got, err := w.file.ReadAt(w.buf, offset)
	if int64(got) < want {
		w.buf = w.buf[:0]
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read %d bytes of %s at %d: %w", want, w.name, offset, err)
	}
	return w.buf[:n], nil
}

// rest returns what is buffered from offset on, at least n bytes.
func (w *window) rest(offset, n int64) ([]byte, error) {
	if i := offset - w.base; i >= 0 && i+n <= int64(len(w.buf)) {
		return w.buf[i:], nil
	}
	if _, err := w.at(offset, n); err != nil {
		return nil, err
	}
	return w.buf, nil
}

// A scanner walks the records of one segment and classifies what it cannot read.
//
// An unreadable place is damage if it was durable once: if the segment is sealed, or if
// a later readable record shows that more than this was durable when that record was
// written. Otherwise a write was torn there. What follows was never durable (a power
// cut may keep later pages of a write and lose earlier ones) and is cut off too.
type scanner struct {
	window
	segment Segment
	limit   int64 // where reading ends: the sealed length or the size of the file
	missing int64 // bytes of the sealed length that the file does not have
	proven  int64 // bytes known to have been durable
	budget  int64 // payload bytes that the search may still read

	visit  func(typ byte, payload []byte) error
	damage func(*store.CorruptionError) (skip bool)

	found scanResult
}

// searchFactor bounds the payload bytes that are read in search of readable records, as
// a multiple of the segment's length. A search needs a few percent; only a file crafted
// to look like many record headers reaches the bound.
const searchFactor = 8

type scanResult struct {
	end          int64 // valid length; 0 if not even the header is valid
	records      int
	payloadBytes int64
	cutBytes     int64
	damages      int
	skippedBytes int64
}

// unsealed is the length of a segment that may have a torn tail.
const unsealed = -1

// newScanner prepares to scan a segment whose sealed length is given.
func newScanner(w window, s Segment, sealedAt int64) *scanner {
	c := &scanner{window: w, segment: s, limit: w.size}
	if sealedAt != unsealed {
		c.limit = min(w.size, sealedAt)
		c.missing = sealedAt - c.limit
		c.proven = sealedAt
	}
	c.budget = searchFactor * c.limit
	return c
}

// scan calls visit for each record. For each damage it calls damage, which decides
// whether to continue after it. headerReason is why the segment's header cannot be
// read, empty if it can.
func (s *scanner) scan(headerReason string) error {
	offset, reason := int64(0), headerReason
	var err error
	if reason == "" {
		s.found.end = segmentHeaderSize
		offset, reason, err = s.walk(segmentHeaderSize)
	}
	for err == nil && reason != "" {
		if offset, err = s.judge(offset, reason); err == nil {
			offset, reason, err = s.walk(offset)
		}
	}
	return err
}

// walk visits the records from offset on. It ends at the end of the segment,
// or, with a reason, where no record can be read.
func (s *scanner) walk(offset int64) (at int64, reason string, err error) {
	for offset < s.limit {
		h, payload, reason, err := s.record(offset)
		if err != nil || reason != "" {
			return offset, reason, err
		}
		if h.typ == typeSeal {
			return offset, "", nil
		}
		if err := s.visit(h.typ, payload); err != nil {
			return offset, "", err
		}
		offset += recordHeaderSize + h.length
		s.found.records++
		s.found.payloadBytes += h.length
		s.found.end = offset
	}
	if s.missing > 0 {
		return offset, fmt.Sprintf("expected %d more bytes, got the end of the file", s.missing), nil
	}
	return offset, "", nil
}

// judge classifies an unreadable place, and returns where to continue.
func (s *scanner) judge(bad int64, reason string) (next int64, err error) {
	next, last, err := s.search(bad)
	if err != nil {
		return 0, err
	}
	if bad >= s.proven {
		s.found.cutBytes = last - bad
		return s.limit, nil
	}
	corruption := &store.CorruptionError{File: s.name, Offset: bad, Reason: reason}
	if !s.damage(corruption) {
		return 0, corruption
	}
	s.found.damages++
	s.found.skippedBytes += next - bad
	s.found.end = next
	if next == s.limit {
		s.found.skippedBytes += s.missing
		s.missing = 0
	}
	return next, nil
}

// record reads the record at offset. reason is not empty if there is none.
func (s *scanner) record(offset int64) (h recordHeader, payload []byte, reason string, err error) {
	rest := s.limit - offset
	if rest < recordHeaderSize {
		return h, nil, fmt.Sprintf("expected a record, got only %d bytes", rest), nil
	}
	b, err := s.at(offset, recordHeaderSize)
	if err != nil {
		return h, nil, "", err
	}
	h, ok := parseHeader(b, s.segment, offset, s.limit)
	if !ok {
		return h, nil, fmt.Sprintf("expected a record header, got %x", b), nil
	}
	payload, err = s.at(offset+recordHeaderSize, h.length)
	if err != nil {
		return h, nil, "", err
	}
	if !h.valid(payload) {
		return h, nil, fmt.Sprintf("record of %d bytes does not match its crc %08x", h.length, h.crc), nil
	}
	return h, payload, "", nil
}

// search searches after the unreadable place bad. It returns the offset of the next
// readable record (limit if there is none) and the end of the last thing that belongs
// to this segment. It raises proven if a record shows that bad was durable, and stops
// at that record.
func (s *scanner) search(bad int64) (next, last int64, err error) {
	next, last = s.limit, bad
	found := false
	for offset := max(bad, segmentHeaderSize); offset+recordHeaderSize <= s.limit; {
		candidate, h, err := s.candidate(offset)
		if err != nil {
			return 0, 0, err
		}
		if candidate < 0 {
			break
		}
		end := candidate + recordHeaderSize + h.length
		if candidate == bad { // known to be unreadable; its header contains how much is lost
			last, offset = end, bad+1
			continue
		}
		if s.budget -= h.length; s.budget < 0 {
			// The budget ended without a result: never treat damage as a torn tail.
			s.proven = max(s.proven, bad+1)
			break
		}
		payload, err := s.at(candidate+recordHeaderSize, h.length)
		if err != nil {
			return 0, 0, err
		}
		if !h.valid(payload) {
			offset = candidate + 1
			continue
		}
		if !found {
			next, found = candidate, true
		}
		s.proven = max(s.proven, h.durable)
		last = max(last, end)
		if bad < s.proven {
			break
		}
		offset = end
	}
	return next, last, nil
}

// candidate returns the first offset at or after the given one where a record
// header of this segment can be read, -1 if there is none.
func (s *scanner) candidate(offset int64) (int64, recordHeader, error) {
	for offset+recordHeaderSize <= s.limit {
		b, err := s.rest(offset, recordHeaderSize)
		if err != nil {
			return 0, recordHeader{}, err
		}
		for i := 0; i+recordHeaderSize <= len(b); i++ {
			if !plausible(b[i:], offset+int64(i), s.limit) {
				continue
			}
			if h, ok := parseHeader(b[i:i+recordHeaderSize], s.segment, offset+int64(i), s.limit); ok {
				return offset + int64(i), h, nil
			}
		}
		offset += int64(len(b)) - recordHeaderSize + 1
	}
	return -1, recordHeader{}, nil
}
