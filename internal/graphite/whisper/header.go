package whisper

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"varve/internal/retention"
)

// Reasons why a file cannot be read. The errors of Open wrap one of them.
var (
	ErrNotWhisper = errors.New("not a Whisper file")
	ErrDamaged    = errors.New("damaged")
	ErrCompressed = errors.New("compressed by go-carbon, which Varve cannot read")
)

const (
	headerBytes  = 16
	archiveBytes = 12
	pointBytes   = 12

	// maxArchives limits the archives of a file. Carbon's examples have three.
	maxArchives = 64
)

// compressedMagic is the beginning of files that go-carbon compresses.
var compressedMagic = []byte("whisper_compressed")

// methods are the aggregation methods by their number in a header.
var methods = []retention.Method{
	1: retention.Average, 2: retention.Sum, 3: retention.Last, 4: retention.Max, 5: retention.Min,
	6: retention.AverageZero, 7: retention.AbsoluteMax, 8: retention.AbsoluteMin,
}

// A Header describes the archives of a file, and how one is computed from another.
type Header struct {
	Method       retention.Method
	XFilesFactor float64
	Archives     []Archive // from the finest to the coarsest
}

// An Archive is a ring of points.
type Archive struct {
	Step   int64 // seconds between points, positive
	Points int64 // positive
	offset int64 // of the first point in the file
}

// Keep returns the time that an archive covers, in seconds.
func (a Archive) Keep() int64 { return a.Step * a.Points }

func (a Archive) end() int64 { return a.offset + a.Points*pointBytes }

// Stages returns the archives as stages of a policy.
func (h *Header) Stages() retention.Stages {
	stages := make(retention.Stages, len(h.Archives))
	for i, a := range h.Archives {
		stages[i] = retention.Stage{Step: a.Step, Keep: a.Keep()}
	}
	return stages
}

// A File is a Whisper file that is open for reading.
type File struct {
	Header
	r io.ReaderAt
}

// Open reads the header of a file of size bytes. Its error wraps ErrNotWhisper,
// ErrDamaged, ErrCompressed or an error of r.
func Open(r io.ReaderAt, size int64) (*File, error) {
	head := make([]byte, min(size, headerBytes+maxArchives*archiveBytes))
	if n, err := r.ReadAt(head, 0); n < len(head) {
		return nil, fmt.Errorf("read the header: %w", err)
	}
	h, err := parseHeader(head, size)
	if err != nil {
		return nil, err
	}
	return &File{Header: *h, r: r}, nil
}

// parseHeader parses the header in the first bytes of a file.
func parseHeader(head []byte, size int64) (*Header, error) {
	damaged := func(format string, args ...any) (*Header, error) {
		return nil, fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
	}
	switch {
	case bytes.HasPrefix(head, compressedMagic):
		return nil, ErrCompressed
	case len(head) == 0:
		return damaged("the file is empty")
	case len(bytes.Trim(head, "\x00")) == 0:
		return damaged("the header has nothing but zeros")
	case len(head) < headerBytes:
		return damaged("the file ends within its header, after %d bytes", size)
	}
	word := func(at int) int64 { return int64(binary.BigEndian.Uint32(head[at:])) }
	method, count := word(0), word(12)
	factor := float64(math.Float32frombits(binary.BigEndian.Uint32(head[8:])))
	switch {
	case method == 0 || method >= int64(len(methods)):
		return nil, fmt.Errorf("%w: unknown aggregation method %d", ErrNotWhisper, method)
	case !(factor >= 0 && factor <= 1):
		return nil, fmt.Errorf("%w: xFilesFactor is %v, not from 0 to 1", ErrNotWhisper, factor)
	case count == 0 || count > maxArchives:
		return nil, fmt.Errorf("%w: it has %d archives, not from 1 to %d", ErrNotWhisper, count, maxArchives)
	case headerBytes+count*archiveBytes > int64(len(head)):
		return damaged("the file ends within its header, after %d bytes", size)
	}
	h := &Header{Method: methods[method], XFilesFactor: shortest(factor)}
	free := headerBytes + count*archiveBytes // the first byte after the header and the previous archives
	for i := range int(count) {
		at := headerBytes + i*archiveBytes
		a := Archive{offset: word(at), Step: word(at + 4), Points: word(at + 8)}
		switch {
		case a.Step == 0 || a.Points == 0:
			return damaged("archive %d has %d points, one in %d s", i, a.Points, a.Step)
		case i > 0 && (a.Step <= h.Archives[i-1].Step || a.Keep() <= h.Archives[i-1].Keep()):
			return damaged("archive %d is not coarser and longer than the one before", i)
		case a.offset < free:
			return damaged("archive %d begins at byte %d, within the header or another archive", i, a.offset)
		case a.end() > size:
			return damaged("archive %d ends at byte %d, and the file at byte %d", i, a.end(), size)
		}
		free = a.end()
		h.Archives = append(h.Archives, a)
	}
	return h, nil
}

// shortest returns the decimal number that a 32-bit float was made from: 0.1 for the
// float nearest to 0.1.
func shortest(v float64) float64 {
	return math.Round(v*1e6) / 1e6
}
