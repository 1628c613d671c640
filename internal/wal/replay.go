package wal

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/safefile"
	"varve/internal/store"
)

// ReplayOptions define what is replayed.
type ReplayOptions struct {
	// From is the first segment that matters. Older segments are not read, and their
	// absence is not damage. Zero means the first existing segment.
	From Segment

	// Begun states that From was begun, so its header was durable. Then an absent
	// segment From or an unreadable header is damage, even if no later segment refers
	// to it.
	Begun bool

	// To is the last segment that is read, 0 for all. With To, an open log can be read
	// up to a complete segment.
	To Segment

	// OnDamage decides, for each damage, whether to continue with the next readable
	// record. If it is nil, the first damage ends the replay.
	OnDamage func(*store.CorruptionError) (skip bool)
}

// ReplayStats are the results of a replay.
type ReplayStats struct {
	Segments     int
	Records      int
	Bytes        int64 // of payload
	CutBytes     int64 // of torn tails, as far as they can be distinguished from a file's former content
	Damages      int   // that OnDamage skipped
	SkippedBytes int64 // in those
}

// Replay calls fn for each record of the log in dir, in the order in which they were
// appended. payload is valid during the call. The log must not be open. An error of fn
// ends the replay and is returned unchanged; a damage that is not skipped is a
// *store.CorruptionError. A missing directory is an empty log. Memory is bounded by the
// largest record plus a constant.
func Replay(fsys vfs.FS, dir string, o ReplayOptions, fn func(s Segment, typ byte, payload []byte) error) (ReplayStats, error) {
	r := replayer{fs: fsys, dir: dir, options: o, fn: fn}
	if o.OnDamage == nil {
		r.options.OnDamage = func(*store.CorruptionError) bool { return false }
	}
	err := r.run()
	return r.stats, err
}

type replayer struct {
	fs      vfs.FS
	dir     string
	options ReplayOptions
	fn      func(Segment, byte, []byte) error
	stats   ReplayStats
	buf     []byte
}

func (r *replayer) run() error {
	segments, err := Segments(r.fs, r.dir)
	if err != nil {
		return err
	}
	segments = slices.DeleteFunc(segments, func(s Segment) bool { return s < r.options.From })
	headers, err := r.headers(segments)
	if err != nil {
		return err
	}
	previous := max(r.options.From, 1) - 1
	for i, s := range segments {
		if r.options.To != 0 && s > r.options.To {
			break // only its header was needed
		}
		if err := r.checkPrevious(headers[i], s, previous, i == 0); err != nil {
			return err
		}
		begun := r.options.Begun && s == r.options.From
		previous = s
		sealedAt := int64(unsealed)
		if i+1 < len(segments) && headers[i+1].reason == "" && headers[i+1].previous == s {
			sealedAt = headers[i+1].previousAt
		}
		if sealedAt == 0 && !begun { // the process died while it created the segment
			continue
		}
		if err := r.segment(s, headers[i].reason, sealedAt, begun); err != nil {
			return err
		}
	}
	if len(segments) == 0 && r.options.Begun {
		return r.missing(r.options.From, "expected the first segment of the log that is needed, got no such file")
	}
	return nil
}

// readHeader is a segment's header, or the reason why it cannot be read.
type readHeader struct {
	segmentHeader
	reason string
}

func (r *replayer) headers(segments []Segment) ([]readHeader, error) {
	headers := make([]readHeader, len(segments))
	for i, s := range segments {
		w, err := openWindow(r.fs, r.dir, s, nil)
		if err != nil {
			return nil, err
		}
		headers[i], err = w.header(s)
		if err := errors.Join(err, w.file.Close()); err != nil {
			return nil, err
		}
	}
	return headers, nil
}

// checkPrevious reports missing segments between previous and s. For the first existing
// segment, previous is the one before From; only Begun and that segment's header show
// whether From itself should exist.
func (r *replayer) checkPrevious(h readHeader, s, previous Segment, first bool) error {
	want := h.previous
	if h.reason != "" {
		want = s - 1
	}
	switch {
	case first && r.options.Begun:
		want = max(want, min(r.options.From, s-1))
	case first && (h.reason != "" || r.options.From == 0):
		return nil
	}
	if want <= previous {
		return nil
	}
	return r.missing(want, fmt.Sprintf("expected the segment before %d, got no such file", s))
}

func (r *replayer) missing(s Segment, reason string) error {
	corruption := &store.CorruptionError{File: r.fs.PathJoin(r.dir, s.FileName()), Offset: -1, Reason: reason}
	if !r.options.OnDamage(corruption) {
		return corruption
	}
	r.stats.Damages++
	return nil
}

func (r *replayer) segment(s Segment, headerReason string, sealedAt int64, begun bool) error {
	w, err := openWindow(r.fs, r.dir, s, r.buf)
	if err != nil {
		return err
	}
	c := newScanner(w, s, sealedAt)
	if begun {
		c.proven = max(c.proven, segmentHeaderSize)
	}
	c.visit = func(typ byte, payload []byte) error { return r.fn(s, typ, payload) }
	c.damage = r.options.OnDamage
	err = c.scan(headerReason)
	r.buf = c.buf
	r.stats.Segments++
	r.stats.Records += c.found.records
	r.stats.Bytes += c.found.payloadBytes
	r.stats.CutBytes += c.found.cutBytes
	r.stats.Damages += c.found.damages
	r.stats.SkippedBytes += c.found.skippedBytes
	return errors.Join(err, w.file.Close())
}

// openWindow opens a segment for reading through buf.
func openWindow(fsys vfs.FS, dir string, s Segment, buf []byte) (window, error) {
	w := window{name: fsys.PathJoin(dir, s.FileName()), buf: buf[:0]}
	var err error
	if w.file, err = fsys.Open(w.name, vfs.SequentialReadsOption); err != nil {
		return w, fmt.Errorf("open log segment: %w", err)
	}
	info, err := w.file.Stat()
	if err != nil {
		return w, errors.Join(fmt.Errorf("size of log segment %s: %w", w.name, err), w.file.Close())
	}
	if w.size = info.Size(); w.size > maxSegmentBytes {
		w.size, w.over = maxSegmentBytes, w.size
	}
	return w, nil
}

// header reads the segment's header. A header of a later format is an error.
func (w *window) header(s Segment) (h readHeader, err error) {
	b, err := w.at(0, min(segmentHeaderSize, w.size))
	if err != nil {
		return h, err
	}
	var version uint32
	h.segmentHeader, version, h.reason = decodeSegmentHeader(b, s)
	if w.over > 0 {
		h.reason = fmt.Sprintf("expected at most %d bytes, got a file of %d", int64(maxSegmentBytes), w.over)
	}
	if h.reason == "" && version != formatVersion {
		return h, fmt.Errorf("%s has log format %d, this build reads only %d: use the build that wrote it", w.name, version, formatVersion)
	}
	return h, nil
}

// Segments lists the segments in dir, ascending. A missing directory has none.
func Segments(fsys vfs.FS, dir string) ([]Segment, error) {
	names, err := safefile.List(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("list log directory %s: %w", dir, err)
	}
	var segments []Segment
	for _, name := range names {
		if s, suffix, ok := parseName(name); ok && suffix == segmentSuffix {
			segments = append(segments, s)
		}
	}
	slices.Sort(segments)
	return segments, nil
}
