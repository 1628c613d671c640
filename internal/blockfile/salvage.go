package blockfile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

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
// file, whatever the state of the rest. In a file without a sound index it searches
// for pages. Within a damaged page, a value may look like a page: its client decides what it is.
// So beyond damage, what is left of the index says where pages may begin; without any index,
// whatever looks like a page is one. fn's page is valid during the call. Salvage returns the bytes that belong
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
	if at, pages, ok := s.findIndex(); ok {
		s.end, s.known = at, s.readStarts(at, pages)
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

	known starts // of pages, from what is left of the index

	budget int64 // bytes that the search may still read

	buf  []byte
	base int64 // offset of buf[0]
}

// findIndex returns where the index begins, and its number of pages, according to the trailer, if that
// is plausible for the file. One of the trailer's numbers may be damaged.
func (s *salvager) findIndex() (at int64, pages int, ok bool) {
	var t [trailerLen]byte
	end := s.end - trailerLen
	if end < headerSize {
		return 0, 0, false
	}
	if n, _ := s.file.ReadAt(t[:], end); n < len(t) {
		return 0, 0, false
	}
	u32 := func(i int) int64 { return int64(binary.LittleEndian.Uint32(t[i:])) }
	size := u32(8)*indexEntry + u32(12) + u32(16)
	told := binary.LittleEndian.Uint64(t[:])
	inside := told >= headerSize && told <= uint64(end)
	switch {
	case inside && size == end-int64(told):
		return int64(told), int(u32(8)), true
	case end-size >= headerSize && s.beginsIndex(end-size, end):
		return end - size, int(u32(8)), true // told is damaged
	case inside && s.beginsIndex(int64(told), end):
		return int64(told), s.countEntries(int64(told), end), true // one of the lengths is
	}
	return 0, 0, false
}

// beginsIndex reports whether the entry at an offset is that of the first page.
func (s *salvager) beginsIndex(at, end int64) bool {
	if at+indexEntry > end {
		return false
	}
	var e [indexEntry]byte
	s.read(e[:], at)
	offset, length := placeOf(e[:])
	return offset == headerSize && length > 0 && offset+length <= at
}

// countEntries returns how many entries from an offset on follow each other, with pages up to there.
func (s *salvager) countEntries(at, end int64) (n int) {
	var e [indexEntry]byte
	for next := int64(headerSize); next < at && at+int64(n+1)*indexEntry <= end; n++ {
		s.read(e[:], at+int64(n)*indexEntry)
		offset, length := placeOf(e[:])
		if offset != next || length == 0 {
			break
		}
		next = offset + length
	}
	return n
}

// placeOf returns the offset and the length of a page from its entry in the index.
func placeOf(entry []byte) (offset, length int64) {
	return int64(min(binary.LittleEndian.Uint64(entry[16:]), math.MaxInt64)), int64(binary.LittleEndian.Uint32(entry[4:]))
}

// starts are where pages begin according to an index that may be damaged. Two entries state each
// start: one as the end of the previous page, the other as the offset of the page. A start is sure
// if both agree; so are the first start and the end of the last page.
type starts struct {
	claimed []int64 // ascending: starts that an entry states
	sure    []start // ascending
}

type start struct {
	at   int64
	page int
}

// readStarts reads the starts of pages from an index, whose own offset is the end of the last page.
func (s *salvager) readStarts(at int64, pages int) (k starts) {
	index := make([]byte, pages*indexEntry)
	s.read(index, at)
	k.sure = []start{{headerSize, 0}}
	end := int64(headerSize)
	for page := range pages {
		offset, length := placeOf(index[page*indexEntry:])
		for _, told := range []int64{offset, end} {
			if told >= headerSize && told < at {
				k.claimed = append(k.claimed, told)
			}
		}
		if offset == end && offset > k.sure[len(k.sure)-1].at && offset < at {
			k.sure = append(k.sure, start{offset, page})
		}
		end = addLength(offset, length)
	}
	k.sure = append(k.sure, start{at, pages})
	slices.Sort(k.claimed)
	k.claimed = slices.Compact(k.claimed)
	return k
}

// addLength adds a length of 32 bits to an offset, which may be any number.
func addLength(offset, length int64) int64 {
	if offset > math.MaxInt64-length {
		return math.MaxInt64
	}
	return offset + length
}

// next returns the first offset from at on where a page may begin: at itself, unless the index
// states all starts around it.
func (k *starts) next(at int64) int64 {
	i, found := slices.BinarySearchFunc(k.sure, at, func(s start, at int64) int { return cmp.Compare(s.at, at) })
	if found || i == 0 || i == len(k.sure) || k.sure[i].page-k.sure[i-1].page > 3 {
		return at
	}
	// A damaged entry makes two starts unsure, which the entries beside it still
	// state.
	j, _ := slices.BinarySearch(k.claimed, at)
	if j == len(k.claimed) {
		return k.sure[i].at
	}
	return min(k.claimed[j], k.sure[i].at)
}

func (s *salvager) run(fn func(int64, chunk.Page) error) (lost int64, err error) {
	follows := true // at is the end of a page, so that a page begins there
	for at := int64(headerSize); at < s.end; {
		if next := s.known.next(at); !follows && next > at {
			lost, at = lost+next-at, next
			continue
		}
		b := s.at(at)
		if len(b) == 0 {
			return lost + s.end - at, nil // the file has become shorter
		}
		n, walked := chunk.FindPage(b)
		if s.budget -= int64(walked); s.budget < 0 {
			return lost + s.end - at, nil
		}
		if follows = n > 0; !follows {
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
