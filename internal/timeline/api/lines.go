package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"

	"varve/internal/ingest"
	"varve/internal/store"
)

const (
	// leastBuffer is the size of the buffer at first. It grows when reads fill it, up to
	// usualBuffer, and beyond that only for a longer line.
	leastBuffer = 4 << 10
	usualBuffer = 256 << 10

	// gzipBytes is the memory that unpacking needs.
	gzipBytes = 64 << 10

	// skipLimit bounds how long a line that is too long may be skipped, as a multiple of lineMax.
	// A body with a longer line is not lines of events.
	skipLimit = 16

	// emptyMost is how many bytes may be unpacked without an event. A small body can unpack to
	// gigabytes of blanks, for minutes, even after its sender has left: the server does not
	// notice that before it has read the body.
	emptyMost = 128 << 20
)

// lineMax is the longest line: the largest data in base64, and room for the rest of the event.
func (a *API) lineMax() int { return int(a.config.PayloadBytesMax)/3*4 + 128<<10 }

// A lineReader reads a body line by line. Its buffer has what has arrived and was not returned by
// next, and counts as memory of bodies.
type lineReader struct {
	src      io.Reader
	share    *ingest.Share
	max      int // bytes of a line
	gzipped  bool
	stopping <-chan struct{} // closed when the server stops
	ended    bool            // there is no more to read

	buf        []byte
	from, upTo int   // the part of buf that next has not returned
	searched   int   // bytes of that part that have no line end
	skipped    int64 // bytes of the current line that were dropped because it is too long
	empty      int64 // bytes since the last event
}

// checkEmpty returns an error if a packed body has had no event for too long. some says whether
// there was one since the last call.
func (l *lineReader) checkEmpty(some bool) error {
	if some {
		l.empty = 0
	}
	if !l.gzipped || l.empty <= emptyMost {
		return nil
	}
	return &store.LimitError{Limit: "bytes without an accepted event in a compressed body", Max: emptyMost, Need: l.empty, What: "read the rest of the body"}
}

// errStopping ends a request while the server stops.
var errStopping = &store.UnavailableError{Reason: "the server is stopping: send the events from number \"next\" on again"}

// open reserves memory and prepares for the first fill.
func (l *lineReader) open(ctx context.Context) error {
	need := int64(leastBuffer)
	if l.gzipped {
		need += gzipBytes
	}
	if err := l.share.Grow(ctx, need); err != nil {
		return err
	}
	l.buf = make([]byte, leastBuffer)
	if l.gzipped {
		unpacked, err := gzip.NewReader(l.src)
		if err != nil {
			return bodyFault(err)
		}
		l.src = unpacked
	}
	return nil
}

// holds returns how many bytes of memory the reader uses.
func (l *lineReader) holds() int64 {
	n := int64(cap(l.buf))
	if l.gzipped {
		n += gzipBytes
	}
	return n
}

// fill reads more. Lines that next has returned are overwritten. At the end of the body, and
// after an error, ended is set.
func (l *lineReader) fill(ctx context.Context) error {
	select {
	case <-l.stopping:
		l.ended = true
		return errStopping
	default:
	}
	err := l.makeRoom(ctx)
	if err == nil {
		var n int
		n, err = l.src.Read(l.buf[l.upTo:])
		l.upTo += n
		l.empty += int64(n)
	}
	if err == nil {
		return ctx.Err()
	}
	l.ended = true
	if errors.Is(err, io.EOF) {
		return nil
	}
	l.upTo = l.from + bytes.LastIndexByte(l.buf[l.from:l.upTo], '\n') + 1 // the rest may be half a line
	l.searched = 0
	return bodyFault(err)
}

// makeRoom makes room in the buffer for at least a byte. It drops the beginning of a line that is
// too long.
func (l *lineReader) makeRoom(ctx context.Context) error {
	full := l.upTo == len(l.buf)
	l.upTo = copy(l.buf, l.buf[l.from:l.upTo])
	l.from = 0
	if l.upTo > l.max {
		l.skipped += int64(l.upTo)
		l.upTo, l.searched = 0, 0
		if l.skipped > int64(skipLimit*l.max) {
			return badf("%v; the line does not end within %d times that: the body is not lines of events", l.tooLong(l.skipped), skipLimit)
		}
	}
	size := len(l.buf)
	if full && size < usualBuffer || l.upTo == size {
		size *= 2
	}
	size = min(size, max(usualBuffer, l.max+1))
	if size == len(l.buf) {
		return nil
	}
	if err := l.share.Grow(ctx, l.holdsIf(size)); err != nil {
		return err
	}
	larger := make([]byte, size)
	copy(larger, l.buf[:l.upTo])
	l.buf = larger
	return nil
}

func (l *lineReader) holdsIf(size int) int64 { return l.holds() - int64(cap(l.buf)) + int64(size) }

func (l *lineReader) tooLong(bytes int64) error {
	return &store.LimitError{Limit: "bytes of a line of events", Max: int64(l.max), Need: bytes, What: "add an event"}
}

// next returns a line that has arrived completely and is not blank, or the error of one that
// is too long. The line is valid until fill is called.
func (l *lineReader) next() (line []byte, err error, ok bool) {
	for {
		if l.searched == 0 && l.skipped == 0 {
			for l.from < l.upTo && l.buf[l.from] == '\n' { // quickly: a packed body can have any number
				l.from++
			}
		}
		rest := l.buf[l.from:l.upTo]
		end := bytes.IndexByte(rest[l.searched:], '\n')
		switch {
		case end >= 0:
			end += l.searched
			line, l.from = rest[:end], l.from+end+1
		case l.ended && (len(rest) > 0 || l.skipped > 0):
			line, l.from = rest, l.upTo
		default:
			l.searched = len(rest)
			return nil, nil, false
		}
		l.searched = 0
		length := l.skipped + int64(len(line))
		l.skipped = 0
		if length > int64(l.max) {
			return nil, l.tooLong(length), true
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, nil, true
		}
	}
}

// bodyFault returns the error of a body that cannot be read to its end.
func bodyFault(err error) error {
	var (
		corrupt flate.CorruptInputError
		input   *store.InputError
	)
	switch {
	case errors.As(err, &input), errors.Is(err, ingest.ErrBusy):
		return err
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.As(err, &corrupt):
		return badf("the compressed body is damaged: %v", err)
	}
	return badf("the body ended early, so the text after its last line end is not stored: %s", fmt.Sprint(err))
}
