package job

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"

	"varve/internal/statefile"
)

// The first bytes of an export, and of a compressed file.
const (
	exportHead = `{"name":"`
	gzipMagic  = "\x1f\x8b\x08"
)

// An exportFile is the destination of an export: a file, compressed or not, or the
// standard output. In a compressed file each metric is a separate gzip member, so
// that the file can be truncated after a metric and appended to.
type exportFile struct {
	f   *os.File  // nil for the standard output
	own io.Closer // the lock of f; nil if f is not a regular file
	buf *bufio.Writer
	zip *gzip.Writer // nil if not compressed
	w   io.Writer
	old bool // f may contain an earlier export, which begin removes
}

// openExport opens the file of an export. resuming means that an earlier run has finished metrics.
// If mending is set, openExport removes the incomplete line that an earlier run left, which may be
// the only line.
func openExport(path string, stdout io.Writer, appending, resuming, mending bool) (*exportFile, error) {
	if path == "" {
		buf := bufio.NewWriterSize(stdout, 1<<20)
		return &exportFile{buf: buf, w: buf}, nil
	}
	packed := strings.HasSuffix(path, ".gz")
	if _, err := os.Stat(path); resuming && err != nil {
		return nil, fmt.Errorf("the recovery file (-r) lists finished metrics, but the file with their points is missing: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	e := &exportFile{f: f, buf: bufio.NewWriterSize(f, 1<<20), old: !appending && !resuming}
	if err := e.lock(path, stdout); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if !e.old {
		if err := toEnd(f, packed, mending); err != nil {
			return nil, errors.Join(fmt.Errorf("append to %s: %w", path, err), e.close())
		}
	}
	e.w = e.buf
	if packed {
		e.zip = gzip.NewWriter(e.buf)
		e.w = e.zip
	}
	return e, nil
}

// lock keeps another export from writing to the same file, which would mix the lines of both.
func (e *exportFile) lock(path string, stdout io.Writer) error {
	info, err := e.f.Stat()
	if err != nil || !info.Mode().IsRegular() { // a pipe or a device
		return err
	}
	if out, ok := stdout.(*os.File); ok {
		if other, err := out.Stat(); err == nil && os.SameFile(info, other) { // the command's reports would overwrite points
			return fmt.Errorf("%s is the standard output; to write to it, leave out -f", path)
		}
	}
	e.own, err = lockFile(path, "write to another file with -f")
	return err
}

// lockFile locks a file that exists. path may be a link, such as /dev/fd/3: the lock is beside the file
// itself.
func lockFile(path, instead string) (io.Closer, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	return statefile.Lock(path, instead)
}

// begin removes an earlier export from the file, on its first call. The caller calls it when it has
// something to write, so the old file is not lost if the server is unavailable or refuses the export.
func (e *exportFile) begin() error {
	if !e.old {
		return nil
	}
	e.old = false
	info, err := e.f.Stat()
	if err != nil || !info.Mode().IsRegular() { // a pipe or a device has nothing to remove
		return err
	}
	return e.f.Truncate(0)
}

// toEnd seeks to the end of a file that an export appends to. If mending, it first
// removes the incomplete line or gzip member that an interrupted export left at the
// end. It removes nothing else, because the file may not be an export at all.
func toEnd(f *os.File, packed, mending bool) error {
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
		return fmt.Errorf("the text after byte %d is not the beginning of %s of an export; nothing was changed", keep, what)
	case !mending:
		return fmt.Errorf("the file ends within %s, which begins at byte %d; nothing was changed; -r resumes an interrupted export", what, keep)
	}
	if err := f.Truncate(keep); err != nil {
		return err
	}
	_, err = f.Seek(keep, io.SeekStart)
	return err
}

// tornExport reports whether the bytes from from to end begin like a line of an
// export.
func tornExport(f *os.File, from, end int64, packed bool) (bool, error) {
	var in io.Reader = io.NewSectionReader(f, from, end-from)
	if packed {
		first := make([]byte, min(end-from, int64(len(gzipMagic))))
		if _, err := f.ReadAt(first, from); err != nil {
			return false, err
		}
		if string(first) != gzipMagic[:len(first)] {
			return false, nil
		}
		zip, err := gzip.NewReader(in)
		if err != nil {
			return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF), nil // an incomplete header
		}
		in = zip
	}
	text := make([]byte, len(exportHead))
	n, err := io.ReadFull(in, text)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, nil
	}
	return string(text[:n]) == exportHead[:n], nil
}

// wholeLines returns the offset after the last line break.
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

// A countingReader counts the bytes that are read from it.
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

// wholeMembers returns the offset after the last complete gzip member. Damage
// before the end of the file is an error: later members may be intact, and the
// recovery file lists their metrics as finished.
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
		return 0, errors.New("the file is not compressed with gzip, although its name ends in .gz; nothing was changed")
	}
	return 0, fmt.Errorf("the file cannot be decompressed after byte %d of %d (%w); nothing was changed; if the rest is not needed, truncate -s %d removes it", keep, end, err, keep)
}

// endMetric completes the gzip member of a metric.
func (e *exportFile) endMetric() error {
	if err := e.begin(); err != nil || e.zip == nil {
		return err
	}
	err := e.zip.Close()
	e.zip.Reset(e.buf)
	return err
}

// sync writes the buffers and syncs the file. A pipe or a device cannot be synced.
func (e *exportFile) sync() error {
	if err := e.buf.Flush(); err != nil || e.own == nil {
		return err
	}
	return e.f.Sync()
}

func (e *exportFile) close() error {
	err := e.sync()
	if e.f != nil {
		err = errors.Join(err, e.f.Close())
	}
	if e.own != nil {
		err = errors.Join(err, e.own.Close())
	}
	return err
}
