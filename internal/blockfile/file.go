package blockfile

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sort"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/chunk"
	"varve/internal/model"
	"varve/internal/store"
)

// A File is an open block file. All methods but Close may be called by many
// goroutines at once.
type File struct {
	Properties
	Path   string
	Number uint64 // identifies the file in the cache
	Bytes  int64

	// Series are the numbers of the series with samples in the file. It must not be
	// changed.
	Series *roaring.Bitmap

	file  vfs.File
	pages []pageRef
	cache *Cache
}

type pageRef struct {
	first  place // of its first sample
	offset uint64
	length uint32
}

// Open opens the file at path. number must be unique among the files that share the
// cache. Errors are a *store.CorruptionError, also for a format version that this build
// does not know, or an error of the file system.
func Open(fs vfs.FS, path string, number uint64, cache *Cache) (*File, error) {
	vf, err := fs.Open(path, vfs.RandomReadsOption)
	if err != nil {
		return nil, fmt.Errorf("open block file %s: %w", path, err)
	}
	f := &File{Path: path, Number: number, file: vf, cache: cache}
	if err := f.readTail(); err != nil {
		vf.Close()
		return nil, err
	}
	return f, nil
}

func (f *File) corrupt(offset int64, reason string, args ...any) error {
	return &store.CorruptionError{File: f.Path, Offset: offset, Reason: fmt.Sprintf(reason, args...)}
}

func (f *File) readTail() error {
	info, err := f.file.Stat()
	if err != nil {
		return fmt.Errorf("stat block file %s: %w", f.Path, err)
	}
	f.Bytes = info.Size()
	if f.Bytes < headerSize+trailerLen {
		return f.corrupt(0, "a file of %d bytes is too short to be a block file", f.Bytes)
	}
	if err := f.readHead(); err != nil {
		return err
	}
	var t [trailerLen]byte
	at := f.Bytes - trailerLen
	if err := f.readAt(t[:], at); err != nil {
		return err
	}
	if string(t[24:]) != magicTail {
		return f.corrupt(at+24, "expected %q, got %q: the end of the file is missing", magicTail, t[24:])
	}
	indexAt := binary.LittleEndian.Uint64(t[0:])
	pages := binary.LittleEndian.Uint32(t[8:])
	seriesLen := binary.LittleEndian.Uint32(t[12:])
	propsLen := binary.LittleEndian.Uint32(t[16:])
	size := uint64(pages)*indexEntry + uint64(seriesLen) + uint64(propsLen)
	if indexAt < headerSize || indexAt > uint64(at) || size != uint64(at)-indexAt {
		return f.corrupt(at, "an index of %d bytes at %d does not fit the file of %d", size, indexAt, f.Bytes)
	}
	tail := make([]byte, size+trailerLen-12)
	if err := f.readAt(tail, int64(indexAt)); err != nil {
		return err
	}
	want := binary.LittleEndian.Uint32(t[20:])
	if got := crc32.Checksum(tail, castagnoli); got != want {
		return f.corrupt(int64(indexAt), "index checksum: expected %08x, got %08x", want, got)
	}
	return f.parseTail(tail, indexAt, pages, seriesLen, propsLen)
}

func (f *File) readHead() error {
	var head [headerSize]byte
	if err := f.readAt(head[:], 0); err != nil {
		return err
	}
	if string(head[:8]) != magicHead {
		return f.corrupt(0, "expected %q, got %q: not a block file", magicHead, head[:8])
	}
	v, step := binary.LittleEndian.Uint32(head[8:]), binary.LittleEndian.Uint32(head[12:])
	switch {
	case v < version || v > versionThree:
		return f.corrupt(8, "format version %d is not known to this build (it knows %d to %d); use a newer one, and do not repair with this one", v, version, versionThree)
	case v == version && step != 0:
		return f.corrupt(12, "expected zero, got %d", step)
	case v != version && step == 0:
		return f.corrupt(12, "expected the width of buckets in seconds, got zero")
	}
	f.StepMS, f.Sketches = int64(step)*1000, v == versionThree
	return nil
}

func (f *File) parseTail(tail []byte, indexAt uint64, pages, seriesLen, propsLen uint32) error {
	if err := f.parsePages(tail[:pages*indexEntry], indexAt); err != nil {
		return err
	}
	at := int64(indexAt) + int64(pages*indexEntry)
	tail = tail[pages*indexEntry:]
	var err error
	if f.Series, err = parseSeries(tail[:seriesLen]); err != nil {
		return f.corrupt(at, "series: %v", err)
	}
	step, sketches := f.StepMS, f.Sketches
	f.StepMS, f.Sketches = 0, false
	if err := json.Unmarshal(tail[seriesLen:seriesLen+propsLen], &f.Properties); err != nil {
		return f.corrupt(at+int64(seriesLen), "properties: %v", err)
	}
	if f.StepMS != step {
		return f.corrupt(12, "the header says buckets of %d ms, the properties say %d", step, f.StepMS)
	}
	if f.Sketches != sketches {
		return f.corrupt(8, "the header says sketches: %t, the properties say %t", sketches, f.Sketches)
	}
	return nil
}

func parseSeries(b []byte) (*roaring.Bitmap, error) {
	ids := roaring.New()
	n, err := ids.ReadFrom(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	if n != int64(len(b)) || ids.IsEmpty() {
		return nil, fmt.Errorf("bitmap of %d ids takes %d of %d bytes", ids.GetCardinality(), n, len(b))
	}
	return ids, ids.Validate()
}

// parsePages parses the page index. The pages must fill the file from the header to the
// index.
func (f *File) parsePages(index []byte, indexAt uint64) error {
	f.pages = make([]pageRef, len(index)/indexEntry)
	next := uint64(headerSize)
	for i := range f.pages {
		e := index[i*indexEntry:]
		p := pageRef{
			first: place{
				series: model.SeriesNumber(binary.LittleEndian.Uint32(e)),
				ms:     int64(binary.LittleEndian.Uint64(e[8:])),
			},
			length: binary.LittleEndian.Uint32(e[4:]),
			offset: binary.LittleEndian.Uint64(e[16:]),
		}
		if p.offset != next || p.length == 0 || uint64(p.length) > indexAt-p.offset || i > 0 && !f.pages[i-1].first.before(p.first) {
			return f.corrupt(int64(indexAt)+int64(i*indexEntry), "page %d does not follow the one before", i)
		}
		next += uint64(p.length)
		f.pages[i] = p
	}
	if next != indexAt {
		return f.corrupt(int64(next), "pages end here, expected at %d", indexAt)
	}
	return nil
}

func (f *File) readAt(b []byte, offset int64) error {
	n, err := f.file.ReadAt(b, offset)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return f.corrupt(offset, "expected %d bytes, got %d", len(b), n)
	}
	return fmt.Errorf("read %d bytes of %s at %d: %w", len(b), f.Path, offset, err)
}

// Pages is the number of pages.
func (f *File) Pages() int { return len(f.pages) }

// Close releases the file.
func (f *File) Close() error {
	f.cache.drop(f)
	return f.file.Close()
}

// Page reads page i and verifies it, without the cache.
func (f *File) Page(i int) (chunk.Page, error) { return f.readPage(i, false) }

// indexedPage reads page i through the cache, and returns its index too. The index is
// nil the first time, since making it costs as much as scanning the page once.
func (f *File) indexedPage(i int) (chunk.Page, *chunk.Index, error) {
	p, x, ok := f.cache.get(f.Number, i)
	if !ok {
		p, err := f.readPage(i, true)
		return p, nil, err
	}
	if x == nil {
		x = p.Index()
		f.cache.putIndex(f.Number, i, x)
	}
	return p, x, nil
}

func (f *File) readPage(i int, keep bool) (chunk.Page, error) {
	ref := f.pages[i]
	raw := make([]byte, ref.length)
	if err := f.readAt(raw, int64(ref.offset)); err != nil {
		return chunk.Page{}, err
	}
	p, err := chunk.OpenPage(raw)
	if err != nil {
		return chunk.Page{}, f.corrupt(int64(ref.offset), "page %d: %v", i, err)
	}
	if err := checkFirst(p, ref.first); err != nil {
		return chunk.Page{}, f.corrupt(int64(ref.offset), "page %d: %v", i, err)
	}
	if keep {
		f.cache.put(f.Number, i, p, int64(len(raw)))
	}
	return p, nil
}

// checkFirst detects an intact page that was not written at this place.
func checkFirst(p chunk.Page, want place) error {
	entries := p.Iter()
	var e chunk.Entry
	if !entries.Next(&e) {
		return cmp.Or(entries.Err(), errors.New("no chunks"))
	}
	if got := (place{e.Series, e.FirstMS}); got != want {
		return fmt.Errorf("expected series %d at %d ms first, got series %d at %d ms", want.series, want.ms, got.series, got.ms)
	}
	return nil
}

// find returns the pages [lo, hi] that may contain chunks of a series that overlap r.
// There are none if lo > hi.
func (f *File) find(series model.SeriesNumber, r model.TimeRange) (lo, hi int) {
	after := func(ms int64) int { // first page that begins after (series, ms)
		return sort.Search(len(f.pages), func(i int) bool {
			p := &f.pages[i]
			return place{series, ms}.before(p.first)
		})
	}
	return max(0, after(r.StartMS)-1), after(r.EndMS) - 1
}

// Scan calls fn for the header of every chunk, in file order. It reads the whole
// file, past the cache, and ends early with the context's error.
func (f *File) Scan(ctx context.Context, fn func(*chunk.Entry)) error {
	for i := range f.pages {
		if err := ctx.Err(); err != nil {
			return err
		}
		p, err := f.Page(i)
		if err != nil {
			return err
		}
		entries := p.Iter()
		var e chunk.Entry
		for entries.Next(&e) {
			fn(&e)
		}
		if err := entries.Err(); err != nil {
			return f.corrupt(int64(f.pages[i].offset), "page %d: %v", i, err)
		}
	}
	return nil
}
