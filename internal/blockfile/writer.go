package blockfile

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/chunk"
	"varve/internal/model"
)

const (
	magicHead    = "VARVEBLK"
	magicTail    = "VARVEEND"
	version      = 1
	versionTwo   = 2 // files of buckets
	versionThree = 3 // files of buckets that may have sketches
	headerSize   = 16
	indexEntry   = 24
	trailerLen   = 8 + 4 + 4 + 4 + 4 + 8

	pageTarget   = 16 << 10
	chunkBytes   = 64 << 10 // of byte strings in one chunk, unless a single one has more
	bytesPerSync = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Properties describe what a file holds.
type Properties struct {
	// Sequence orders files by when their samples were written: if two files have a
	// sample of the same series and time, that of the greater Sequence is valid.
	// Buckets of the same series and time in several files add up instead.
	Sequence uint64 `json:"sequence"`

	// Deletions up to this sequence do not apply to the file: they were older than its
	// samples, or have been applied to them.
	Deletions uint64 `json:"deletions"`

	Samples int64 `json:"samples"`
	Chunks  int64 `json:"chunks"`
	MinMS   int64 `json:"min_ms"`
	MaxMS   int64 `json:"max_ms"`

	// ExpiresMS is when the last sample expires, and HalfExpiresMS when at least half
	// of the samples have expired; math.MaxInt64 if never.
	ExpiresMS     int64 `json:"expires_ms"`
	HalfExpiresMS int64 `json:"half_expires_ms"`

	// SeriesExpireMS is when, for the first time, all of some series' samples in the
	// file have expired; math.MaxInt64 if never, 0 if unknown: files of earlier builds
	// do not have it.
	SeriesExpireMS int64 `json:"series_expire_ms,omitempty"`

	// StepMS is 0 for a file of samples. Otherwise the file has aggregates of buckets
	// of this width, a multiple of whole seconds, at the start of each bucket, and
	// MaxMS is the last instant of the last bucket. The header has the width too, in
	// seconds.
	StepMS int64 `json:"step_ms,omitempty"`

	// Sketches is true if the aggregates of a file of buckets may have sketches. The
	// version in the header depends on it, since earlier builds cannot read sketches.
	Sketches bool `json:"sketches,omitempty"`

	Late
}

// Late is when samples that were old enough for a coarser stage when they arrived were
// written to a file: the first and the last of them, in ms since 1970. 0 means that
// there are none, or that it is unknown: files of earlier builds do not have it.
type Late struct {
	FirstMS int64 `json:"late_first_ms,omitempty"`
	LastMS  int64 `json:"late_last_ms,omitempty"`
}

// Union returns the Late of two files together.
func (l Late) Union(o Late) Late {
	switch {
	case l == Late{}:
		return o
	case o == Late{}:
		return l
	}
	return Late{min(l.FirstMS, o.FirstMS), max(l.LastMS, o.LastMS)}
}

// Range is the span of the file's samples.
func (p Properties) Range() model.TimeRange { return model.TimeRange{StartMS: p.MinMS, EndMS: p.MaxMS} }

// A Writer writes one file. It is used by one goroutine.
type Writer struct {
	fs     vfs.FS
	path   string
	file   vfs.File // nil when closed
	out    *bufio.Writer
	offset uint64
	err    error // the first; every later call returns it
	done   bool  // finished or aborted

	page    chunk.PageBuilder
	level   chunk.Level
	first   place // first sample of the page being built
	last    place // last sample added
	encoded []byte
	index   []byte
	pages   uint32
	series  *roaring.Bitmap
	tally   Tally
}

// place is the position of a sample in the order of a file.
type place struct {
	series model.SeriesNumber
	ms     int64
}

func (p place) before(o place) bool {
	return p.series < o.series || p.series == o.series && p.ms < o.ms
}

// An Origin has the properties of a file that do not follow from its samples.
type Origin struct {
	Sequence, Deletions uint64
	StepMS              int64
	Sketches            bool // see Properties
	Late                Late
}

// Create begins a file at path, and overwrites an existing one. Either Finish or Abort
// must follow.
func Create(fs vfs.FS, path string, level chunk.Level, o Origin) (*Writer, error) {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fmt.Errorf("create block file %s: %w", path, err)
	}
	f = vfs.NewSyncingFile(f, vfs.SyncingFileOptions{BytesPerSync: bytesPerSync})
	w := &Writer{
		fs: fs, path: path, file: f, level: level,
		out:    bufio.NewWriterSize(f, 128<<10),
		series: roaring.New(),
		tally:  Tally{props: Properties{Sequence: o.Sequence, Deletions: o.Deletions, StepMS: o.StepMS, Sketches: o.Sketches, Late: o.Late}},
	}
	w.page.Reset(level)
	w.write(appendHeader(nil, o))
	return w, nil
}

// appendHeader appends the header of a file of samples, or of buckets.
func appendHeader(dst []byte, o Origin) []byte {
	v := uint32(version)
	switch {
	case o.Sketches:
		v = versionThree
	case o.StepMS != 0:
		v = versionTwo
	}
	dst = binary.LittleEndian.AppendUint32(append(dst, magicHead...), v)
	return binary.LittleEndian.AppendUint32(dst, uint32(o.StepMS/1000))
}

// Add appends samples [from, to) of c, at most chunk.MaxSamples, as one chunk, or as
// several if they are long byte strings. Calls must be in order of series, then time.
// After an error every call returns that error.
func (w *Writer) Add(series model.SeriesNumber, kind model.Kind, c *model.Columns, from, to int) error {
	for from < to && w.err == nil {
		end := cut(kind, c, from, to)
		w.add(series, kind, c, from, end)
		from = end
	}
	return w.err
}

// cut returns where a chunk that begins at from ends.
func cut(kind model.Kind, c *model.Columns, from, to int) int {
	if !kind.Variable() {
		return to
	}
	end := from + 1
	for end < to && c.Offsets[end+1]-c.Offsets[from] <= chunkBytes {
		end++
	}
	return end
}

func (w *Writer) add(series model.SeriesNumber, kind model.Kind, c *model.Columns, from, to int) {
	first := place{series, c.Times[from]}
	if w.tally.props.Chunks > 0 && !w.last.before(first) {
		w.err = fmt.Errorf("write block file %s: series %d at %d ms comes after series %d at %d ms",
			w.path, w.last.series, w.last.ms, series, first.ms)
		return
	}
	if w.page.Entries() > 0 && w.page.Size() >= pageTarget {
		w.flushPage()
	}
	if w.page.Entries() == 0 {
		w.first = first
	}
	w.page.Add(series, kind, c, from, to)
	w.last = place{series, c.Times[to-1]}
	w.series.Add(uint32(series))
	w.tally.add(series, c, from, to)
}

func (w *Writer) flushPage() {
	w.encoded = w.page.Finish(w.encoded[:0])
	if uint64(len(w.encoded)) > math.MaxUint32 && w.err == nil {
		w.err = fmt.Errorf("write block file %s: page of %d bytes, at most %d possible", w.path, len(w.encoded), uint32(math.MaxUint32))
	}
	w.index = binary.LittleEndian.AppendUint32(w.index, uint32(w.first.series))
	w.index = binary.LittleEndian.AppendUint32(w.index, uint32(len(w.encoded)))
	w.index = binary.LittleEndian.AppendUint64(w.index, uint64(w.first.ms))
	w.index = binary.LittleEndian.AppendUint64(w.index, w.offset)
	w.pages++
	w.write(w.encoded)
	w.page.Reset(w.level)
}

func (w *Writer) write(b []byte) {
	w.try(func() error {
		_, err := w.out.Write(b)
		w.offset += uint64(len(b))
		return err
	})
}

// Size is the number of bytes written so far.
func (w *Writer) Size() int64 { return int64(w.offset) }

// Finish completes, syncs and closes the file. After an error the file has been
// removed. A file without samples is an error. The file's name is durable only after
// the caller has synced its directory.
func (w *Writer) Finish() (Properties, error) {
	if w.page.Entries() > 0 {
		w.flushPage()
	}
	props := w.tally.Properties()
	if w.err == nil && props.Samples == 0 {
		w.err = fmt.Errorf("block file %s has no samples", w.path)
	}
	w.writeTail(props)
	w.try(w.out.Flush)
	w.try(func() error { return w.file.Sync() })
	w.try(w.closeFile)
	if err := w.err; err != nil {
		w.Abort()
		return Properties{}, err
	}
	w.done, w.err = true, fmt.Errorf("block file %s is finished", w.path)
	return props, nil
}

// try runs a step unless an earlier one has failed.
func (w *Writer) try(step func() error) {
	if w.err != nil {
		return
	}
	if err := step(); err != nil {
		w.err = fmt.Errorf("write block file %s: %w", w.path, err)
	}
}

func (w *Writer) closeFile() error {
	f := w.file
	w.file = nil
	return f.Close()
}

func (w *Writer) writeTail(p Properties) {
	indexAt := w.offset
	series, err := w.series.ToBytes()
	if err == nil {
		var props []byte
		if props, err = json.Marshal(p); err == nil {
			tail := append(append(w.index, series...), props...)
			tail = binary.LittleEndian.AppendUint64(tail, indexAt)
			tail = binary.LittleEndian.AppendUint32(tail, w.pages)
			tail = binary.LittleEndian.AppendUint32(tail, uint32(len(series)))
			tail = binary.LittleEndian.AppendUint32(tail, uint32(len(props)))
			tail = binary.LittleEndian.AppendUint32(tail, crc32.Checksum(tail, castagnoli))
			w.write(append(tail, magicTail...))
			return
		}
	}
	if w.err == nil {
		w.err = fmt.Errorf("encode index of block file %s: %w", w.path, err)
	}
}

// Abort closes and removes an unfinished file. After Finish or Abort it does nothing.
func (w *Writer) Abort() {
	if w.done {
		return
	}
	w.done = true
	if w.file != nil {
		_ = w.closeFile()
	}
	// The file is in no manifest; if removing fails, opening the store removes it.
	_ = w.fs.Remove(w.path)
	if w.err == nil {
		w.err = fmt.Errorf("block file %s was abandoned", w.path)
	}
}
