package blockfile

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/chunk"
	"varve/internal/model"
)

// PageRef is where a page is and what it begins with.
type PageRef struct {
	Offset  int64
	Length  int64
	Series  model.SeriesNumber // of its first chunk
	FirstMS int64              // of its first sample
}

// Ref returns the index entry of page i.
func (f *File) Ref(i int) PageRef {
	p := &f.pages[i]
	return PageRef{Offset: int64(p.offset), Length: int64(p.length), Series: p.first.series, FirstMS: p.first.ms}
}

// salvageWindow bounds a page that is found without an index. Pages are about
// 16 KiB; one chunk of long byte strings can be larger.
const salvageWindow = 4 << 20

// searchFactor bounds the bytes that are read in search of pages, as a multiple of the
// file's size. A search normally reads each byte about once; only a file crafted to
// look like the beginnings of many pages reaches the bound.
const searchFactor = 32

// Salvage calls fn for every readable page of the file at path, in the order of the
// file, whatever the state of the rest. In a file without a readable index it searches
// for pages. fn's page is valid during the call. Salvage returns the bytes that belong
// to no readable page, without header, index and trailer if these can be told apart.
// The error is that of the file system, or fn's. size is the length that the file
// should have, 0 if unknown. Bytes beyond it are ignored: Varve did not write them, and
// a sparse file may have terabytes of them.
func Salvage(fs vfs.FS, path string, size int64, fn func(offset int64, p chunk.Page) error) (lost int64, err error) {
	f, err := Open(fs, path, 0, NewCache(0))
	if err == nil {
		defer f.Close()
		return f.salvage(fn)
	}
	file, err := fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return 0, fmt.Errorf("open block file: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, fmt.Errorf("size of block file %s: %w", path, err)
	}
	end := info.Size()
	if size > 0 {
		end = min(end, size)
	}
	s := &salvager{file: file, end: end, budget: searchFactor*end + salvageWindow}
	if at, ok := s.indexAt(); ok {
		s.end = at
	}
	return s.run(fn)
}

// salvage reads the pages listed in the index.
func (f *File) salvage(fn func(int64, chunk.Page) error) (lost int64, err error) {
	for i := range f.pages {
		p, err := f.Page(i)
		if err != nil {
			p, err = f.Page(i) // a disk may succeed at the second attempt
		}
		if err != nil {
			lost += int64(f.pages[i].length)
			continue
		}
		if err := fn(int64(f.pages[i].offset), p); err != nil {
			return lost, err
		}
	}
	return lost, nil
}

// A salvager searches for pages in a file without a readable index.
type salvager struct {
	file vfs.File
	end  int64 // of the pages, as far as known

	budget int64 // bytes that the search may still read

	buf  []byte
	base int64 // offset of buf[0]
}

// indexAt returns where the index begins according to the trailer, if that is plausible
// for the file.
func (s *salvager) indexAt() (int64, bool) {
	var t [trailerLen]byte
	at := s.end - trailerLen
	if at < headerSize {
		return 0, false
	}
	if n, _ := s.file.ReadAt(t[:], at); n < len(t) {
		return 0, false
	}
	indexAt := binary.LittleEndian.Uint64(t[:])
	size := uint64(binary.LittleEndian.Uint32(t[8:]))*indexEntry + uint64(binary.LittleEndian.Uint32(t[12:])) + uint64(binary.LittleEndian.Uint32(t[16:]))
	if indexAt < headerSize || indexAt > uint64(at) || size != uint64(at)-indexAt {
		return 0, false
	}
	return int64(indexAt), true
}

func (s *salvager) run(fn func(int64, chunk.Page) error) (lost int64, err error) {
	for at := int64(headerSize); at < s.end; {
		b := s.at(at)
		if len(b) == 0 {
			return lost + s.end - at, nil // the file has become shorter
		}
		n, walked := chunk.FindPage(b)
		if s.budget -= int64(walked); s.budget < 0 {
			return lost + s.end - at, nil
		}
		if n == 0 {
			lost++
			at++
			continue
		}
		p, err := chunk.OpenPage(bytes.Clone(b[:n]))
		if err == nil {
			err = fn(at, p)
		}
		if err != nil {
			return lost, err
		}
		at += int64(n)
	}
	return lost, nil
}

// at returns the bytes from an offset on, up to salvageWindow/2 or more, none if
// the file ends there.
func (s *salvager) at(offset int64) []byte {
	i := offset - s.base
	have := int64(len(s.buf)) - i
	if i >= 0 && have > 0 && (have >= salvageWindow/2 || s.base+int64(len(s.buf)) >= s.end) {
		return s.buf[i:]
	}
	want := min(salvageWindow, s.end-offset)
	if int64(cap(s.buf)) < want {
		s.buf = make([]byte, want)
	}
	s.buf, s.base = s.buf[:want], offset
	s.buf = s.buf[:s.read(s.buf, offset)]
	return s.buf
}

// sector is the smallest unit in which a disk fails to read.
const sector = 4 << 10

// read fills buf from an offset on, and returns how much of it is in the file. After an
// error it reads sector by sector. Unreadable sectors become zeros, so that the pages
// after them are found.
func (s *salvager) read(buf []byte, offset int64) int {
	n, err := s.file.ReadAt(buf, offset)
	if err == nil || errors.Is(err, io.EOF) {
		return n
	}
	for n < len(buf) {
		part := buf[n:min(n+sector, len(buf))]
		m, _ := s.file.ReadAt(part, offset+int64(n))
		clear(part[m:])
		n += len(part)
	}
	return n
}

// SalvageProperties searches for the properties of a file whose index or trailer is
// damaged.
func SalvageProperties(fs vfs.FS, path string) (Properties, error) {
	file, err := fs.Open(path, vfs.RandomReadsOption)
	if err != nil {
		return Properties{}, fmt.Errorf("open block file: %w", err)
	}
	defer file.Close()
	return findProperties(file, path, false)
}

// findProperties searches for the properties of a file. With strict, it accepts none
// with an unknown field.
func findProperties(file vfs.File, path string, strict bool) (Properties, error) {
	info, err := file.Stat()
	if err != nil {
		return Properties{}, fmt.Errorf("size of block file %s: %w", path, err)
	}
	const span = 4 << 10 // they are a few hundred bytes
	tail := make([]byte, min(span, info.Size()))
	n, _ := file.ReadAt(tail, info.Size()-int64(len(tail)))
	tail = tail[:n]
	at := bytes.LastIndex(tail, []byte(`{"sequence":`))
	if at < 0 {
		return Properties{}, errors.New("no properties found")
	}
	var p Properties
	d := json.NewDecoder(bytes.NewReader(tail[at:]))
	if strict {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(&p); err != nil {
		return Properties{}, fmt.Errorf("properties: %w", err)
	}
	return p, nil
}

// Newer reports whether a newer build wrote a file, so that what this build cannot read
// of it is not damage: the file's version is greater than the known ones, and its
// properties are missing or have a field that is unknown here. Each new version comes
// with a new property.
func Newer(fs vfs.FS, path string) bool {
	file, err := fs.Open(path, vfs.RandomReadsOption)
	if err != nil {
		return false
	}
	defer file.Close()
	var head [headerSize]byte
	if n, _ := file.ReadAt(head[:], 0); n < len(head) || string(head[:8]) != magicHead || binary.LittleEndian.Uint32(head[8:]) <= versionThree {
		return false
	}
	_, err = findProperties(file, path, true)
	return err != nil
}

// SalvageHead returns StepMS and Sketches from the header of a file whose properties
// cannot be read; zero if the header cannot be read either.
func SalvageHead(fs vfs.FS, path string) (p Properties) {
	file, err := fs.Open(path, vfs.RandomReadsOption)
	if err != nil {
		return p
	}
	defer file.Close()
	f := File{Path: path, file: file}
	if f.readHead() != nil {
		return p
	}
	return f.Properties
}

// A Tally recomputes a file's properties from its samples.
type Tally struct{ w Writer }

// NewTally begins a tally of a file of samples, or of buckets. p has what was read from
// the header.
func NewTally(p Properties) Tally {
	return Tally{Writer{props: Properties{StepMS: p.StepMS, Sketches: p.Sketches}}}
}

// Add counts the samples of the next chunk, in the order of the file.
func (t *Tally) Add(series model.SeriesNumber, c *model.Columns) {
	if t.w.props.Chunks == 0 {
		t.w.props.MinMS, t.w.props.MaxMS = math.MaxInt64, math.MinInt64
	}
	t.w.note(series, c, 0, c.Len())
}

// Properties returns the result, without sequence and deletions, which do not follow
// from the samples.
func (t *Tally) Properties() Properties {
	t.w.finishProperties()
	return t.w.props
}
