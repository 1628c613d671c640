package whisper

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"varve/internal/retention"
)

// maxBytes is the largest length of a file, since offsets have 32 bits.
const maxBytes = math.MaxUint32

// NewHeader lays out a file with an archive for each stage of a policy.
func NewHeader(stages retention.Stages, a *retention.Aggregation) (*Header, error) {
	h := &Header{Method: a.Method, XFilesFactor: a.XFilesFactor}
	if slices.Index(methods, a.Method) <= 0 {
		return nil, fmt.Errorf("there is no aggregation method %q in Whisper", a.Method)
	}
	if len(stages) == 0 || len(stages) > maxArchives {
		return nil, fmt.Errorf("there are %d archives; want 1 to %d", len(stages), maxArchives)
	}
	at := int64(headerBytes + len(stages)*archiveBytes)
	for _, s := range stages {
		if s.Step > math.MaxUint32 || s.Keep > math.MaxUint32 || s.Points() > (maxBytes-at)/pointBytes {
			return nil, fmt.Errorf("archive %v does not fit into a file: Whisper files have at most 4 GiB, and times below 2^32 s", s)
		}
		archive := Archive{Step: s.Step, Points: s.Points(), offset: at}
		at = archive.end()
		h.Archives = append(h.Archives, archive)
	}
	return h, nil
}

// Size returns the length of a file with this header.
func (h *Header) Size() int64 { return h.Archives[len(h.Archives)-1].end() }

// bytes returns the header in the format of the file.
func (h *Header) bytes() []byte {
	var b []byte
	word := func(v int64) { b = binary.BigEndian.AppendUint32(b, uint32(v)) }
	word(int64(slices.Index(methods, h.Method)))
	word(h.Archives[len(h.Archives)-1].Keep())
	word(int64(math.Float32bits(float32(h.XFilesFactor))))
	word(int64(len(h.Archives)))
	for _, a := range h.Archives {
		word(a.offset)
		word(a.Step)
		word(a.Points)
	}
	return b
}

// A Writer writes a file that is all zeros and Size bytes long. It computes the points of
// coarser archives from those of finer ones, as Whisper does if all points arrive in order.
// It holds one bucket for each archive: one step, with a value for each step of the next
// finer archive.
type Writer struct {
	w      io.WriterAt
	levels []level
	how    *retention.Aggregation
}

// A level is an archive in the course of writing.
type level struct {
	Archive
	base  int64 // time in the first slot, 0 before the first point
	since int64 // older points are not written
	finer int64 // buckets that begin before this time are older than the finer archive

	run   []byte // buffered points for consecutive slots
	runAt int64  // slot of the first buffered point
	next  int64  // slot after the last point

	bucket []float64 // points of the finer archive in one step of this one
	start  int64     // of the bucket
	filled bool      // the bucket is in use
	set    bool      // SetPoint has set the value, whatever the finer points are
	value  float64   // if set; NaN: no point
}

// runBytes limits the points that are buffered for one write.
const runBytes = 1024 * pointBytes

// NewWriter writes the header. how aggregates finer points to coarser ones; its method may
// be one that headers do not have. now is in seconds. A point that is older than an archive
// reaches back at that time is written only to coarser ones.
func NewWriter(w io.WriterAt, h *Header, how *retention.Aggregation, now int64) (*Writer, error) {
	if _, err := w.WriteAt(h.bytes(), 0); err != nil {
		return nil, err
	}
	out := &Writer{w: w, how: how}
	for i, a := range h.Archives {
		l := level{Archive: a, since: now - now%a.Step - a.Keep() + a.Step}
		if i > 0 {
			finer := h.Archives[i-1]
			l.bucket, l.finer = make([]float64, a.Step/finer.Step), now-finer.Keep()
		}
		out.levels = append(out.levels, l)
	}
	return out, nil
}

// Add adds a point of the finest archive. Times must be positive, and each in a later step
// than the one before.
func (w *Writer) Add(p Point) error {
	p.Time -= p.Time % w.levels[0].Step
	return w.add(0, p)
}

// SetPoint sets the point of an archive and replaces the one computed from finer points. NaN
// is no point. Finer points within its step may be added before or after it, but none of
// a later step before it.
func (w *Writer) SetPoint(archive int, p Point) error {
	if archive == 0 {
		if p.Value != p.Value {
			return nil
		}
		return w.Add(p)
	}
	l := &w.levels[archive]
	start := p.Time - p.Time%l.Step
	for i := 1; i <= archive; i++ {
		if w.levels[i].filled && w.levels[i].start < start {
			if err := w.complete(i); err != nil {
				return err
			}
		}
	}
	if !l.filled {
		l.begin(start)
	}
	l.set, l.value = true, p.Value
	return nil
}

// begin starts an empty bucket.
func (l *level) begin(start int64) {
	l.start, l.filled, l.set = start, true, false
	for k := range l.bucket {
		l.bucket[k] = math.NaN()
	}
}

// add writes a point of an archive, and adds it to the bucket of the next coarser one.
func (w *Writer) add(i int, p Point) error {
	if err := w.levels[i].write(w.w, p); err != nil {
		return err
	}
	if i++; i == len(w.levels) {
		return nil
	}
	l := &w.levels[i]
	start := p.Time - p.Time%l.Step
	if l.filled && l.start != start {
		if err := w.complete(i); err != nil {
			return err
		}
	}
	if !l.filled {
		l.begin(start)
	}
	l.bucket[(p.Time-start)/w.levels[i-1].Step] = p.Value
	return nil
}

// complete computes a point from the bucket of an archive, and adds it.
func (w *Writer) complete(i int) error {
	l := &w.levels[i]
	l.filled = false
	v := l.value
	if !l.set {
		v = w.how.Merge(l.bucket, l.start < l.finer)
	}
	if v != v {
		return nil
	}
	return w.add(i, Point{l.start, v})
}

// Close writes the unfinished buckets and the buffers. It does not close the file.
func (w *Writer) Close() error {
	for i := range w.levels {
		if w.levels[i].filled {
			if err := w.complete(i); err != nil {
				return err
			}
		}
		if err := w.levels[i].flush(w.w); err != nil {
			return err
		}
	}
	return nil
}

// write writes a point to its slot. The first point determines base.
func (l *level) write(w io.WriterAt, p Point) error {
	if p.Time < l.since || p.Time <= 0 || p.Time > math.MaxUint32 {
		return nil
	}
	if l.base == 0 {
		l.base = p.Time
	}
	slot := (p.Time - l.base) / l.Step % l.Points
	if slot != l.next || len(l.run) == runBytes {
		if err := l.flush(w); err != nil {
			return err
		}
	}
	if len(l.run) == 0 {
		l.runAt = slot
	}
	l.run = binary.BigEndian.AppendUint32(l.run, uint32(p.Time))
	l.run = binary.BigEndian.AppendUint64(l.run, math.Float64bits(p.Value))
	l.next = slot + 1
	return nil
}

func (l *level) flush(w io.WriterAt) error {
	if len(l.run) == 0 {
		return nil
	}
	_, err := w.WriteAt(l.run, l.offset+l.runAt*pointBytes)
	l.run = l.run[:0]
	return err
}
