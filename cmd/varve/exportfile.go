package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// An exportFile is what is written to: a file, packed or not, or the standard
// output. Each metric of a packed file is a gzip member of its own, so that the
// file can be cut and appended to.
type exportFile struct {
	f   *os.File // nil for the standard output
	buf *bufio.Writer
	zip *gzip.Writer // nil if not packed
	w   io.Writer
}

func openExport(path string, stdout io.Writer, appending, resuming bool) (*exportFile, error) {
	if path == "" {
		buf := bufio.NewWriterSize(stdout, 1<<20)
		return &exportFile{buf: buf, w: buf}, nil
	}
	packed := strings.HasSuffix(path, ".gz")
	flags := os.O_RDWR | os.O_CREATE
	if !appending && !resuming {
		flags |= os.O_TRUNC
	}
	if _, err := os.Stat(path); resuming && err != nil {
		return nil, fmt.Errorf("the recovery file (-r) lists metrics that are done, but they are not there: %w", err)
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		return nil, err
	}
	if err := toEnd(f, packed, resuming); err != nil {
		return nil, errors.Join(fmt.Errorf("append to %s: %w", path, err), f.Close())
	}
	e := &exportFile{f: f, buf: bufio.NewWriterSize(f, 1<<20)}
	e.w = e.buf
	if packed {
		e.zip = gzip.NewWriter(e.buf)
		e.w = e.zip
	}
	return e, nil
}

// toEnd goes to the end of a file that is appended to. Where an interrupted
// export is resumed, it removes what that has left behind the last whole line, or
// the last whole gzip member. It removes nothing else: the file may be any.
func toEnd(f *os.File, packed, resuming bool) error {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	var keep int64
	if packed {
		keep, err = wholeMembers(f, end)
	} else {
		keep, err = wholeLines(f, end)
	}
	if err != nil || keep == end {
		_, seekErr := f.Seek(end, io.SeekStart)
		return errors.Join(err, seekErr)
	}
	what := "a line"
	if packed {
		what = "a gzip member"
	}
	torn, err := tornExport(f, keep, end, packed)
	switch {
	case err != nil:
		return err
	case !torn:
		return fmt.Errorf("what is behind byte %d is not %s that an export has begun; nothing was changed", keep, what)
	case !resuming:
		return fmt.Errorf("it ends within %s, which begins at byte %d; nothing was changed; -r goes on with an interrupted export", what, keep)
	}
	if err := f.Truncate(keep); err != nil {
		return err
	}
	_, err = f.Seek(keep, io.SeekStart)
	return err
}

// tornExport reports whether what is from one offset to another begins as an
// export's lines do.
func tornExport(f *os.File, from, end int64, packed bool) (bool, error) {
	const head = `{"name":"`
	var in io.Reader = io.NewSectionReader(f, from, end-from)
	if packed {
		const magic = "\x1f\x8b\x08"
		first := make([]byte, min(end-from, int64(len(magic))))
		if _, err := f.ReadAt(first, from); err != nil {
			return false, err
		}
		if string(first) != magic[:len(first)] {
			return false, nil
		}
		zip, err := gzip.NewReader(in)
		if err != nil {
			return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF), nil // a part of a header
		}
		in = zip
	}
	text := make([]byte, len(head))
	n, err := io.ReadFull(in, text)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, nil
	}
	return string(text[:n]) == head[:n], nil
}

// wholeLines is the offset behind the last line end.
func wholeLines(f *os.File, end int64) (int64, error) {
	buf := make([]byte, 64<<10)
	for end > 0 {
		from := max(0, end-int64(len(buf)))
		piece := buf[:end-from]
		if _, err := f.ReadAt(piece, from); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(piece, '\n'); i >= 0 {
			return from + int64(i) + 1, nil
		}
		end = from
	}
	return 0, nil
}

// A countingReader knows how many bytes were taken from it.
type countingReader struct {
	r *bufio.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func (c *countingReader) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}

// wholeMembers is the offset behind the last gzip member that is complete. A file
// that is damaged before its end is an error: what is behind the damage may be
// whole, and is noted as done.
func wholeMembers(f *os.File, end int64) (keep int64, err error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	in := &countingReader{r: bufio.NewReaderSize(f, 1<<20)}
	zip, err := gzip.NewReader(in)
	for err == nil {
		zip.Multistream(false)
		if _, err = io.Copy(io.Discard, zip); err == nil {
			keep = in.n
			err = zip.Reset(in)
		}
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return keep, nil
	case keep == 0 && errors.Is(err, gzip.ErrHeader):
		return 0, errors.New("it is not packed with gzip, as its name says; nothing was changed")
	}
	return 0, fmt.Errorf("it cannot be unpacked behind byte %d of %d (%w); nothing was changed; truncate -s %d cuts that off, if it is not needed", keep, end, err, keep)
}

// endMetric completes a gzip member.
func (e *exportFile) endMetric() error {
	if e.zip == nil {
		return nil
	}
	err := e.zip.Close()
	e.zip.Reset(e.buf)
	return err
}

// sync puts on disk what was written.
func (e *exportFile) sync() error {
	if err := e.buf.Flush(); err != nil || e.f == nil {
		return err
	}
	return e.f.Sync()
}

func (e *exportFile) close() error {
	err := e.sync()
	if e.f != nil {
		err = errors.Join(err, e.f.Close())
	}
	return err
}
