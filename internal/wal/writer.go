package wal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/store"
)

// writer writes buffers to segments. It belongs to one goroutine, which is the
// only one that writes or syncs.
type writer struct {
	log     *Log
	metrics *metrics
	dir     *directory

	interval     bool // sync by time, not for each buffer
	syncInterval time.Duration

	file    vfs.File
	segment Segment
	offset  int64 // end of what was written
	durable int64 // end of what was synced

	reserved int64 // bytes that the file has room for
	step     int64 // by which room is made

	timer  *time.Timer
	timing bool // the timer runs: there is something to sync

	group group
}

// beginSegment makes the segment after the existing ones. It first makes the readable
// part of the last one durable: the process that wrote it may have died before it
// synced, and a power cut must not lose what the caller has replayed while newer
// records are safe.
func beginSegment(d *directory, from Segment) (*writer, error) {
	h := segmentHeader{previous: d.highest()}
	h.segment = max(h.previous+1, from)
	if h.previous != 0 {
		var err error
		if h.previousAt, err = sealOrphan(d, h.previous); err != nil {
			return nil, err
		}
	}
	f, reserved, err := d.create(h)
	if err != nil {
		return nil, err
	}
	return &writer{dir: d, file: f, segment: h.segment, reserved: reserved, offset: segmentHeaderSize, durable: segmentHeaderSize}, nil
}

// sealOrphan syncs a segment that another process left behind and returns its valid
// length. Damage counts as part of that length, so that each Replay reports it.
func sealOrphan(d *directory, s Segment) (length int64, err error) {
	w, err := openWindow(d.fs, d.path, s, nil)
	if err != nil {
		return 0, err
	}
	h, err := w.header(s)
	if err == nil {
		c := newScanner(w, s, unsealed)
		c.visit = func(byte, []byte) error { return nil }
		c.damage = func(*store.CorruptionError) bool { return true }
		err = c.scan(h.reason)
		length = c.found.end
	}
	if err := errors.Join(err, w.file.Close()); err != nil {
		return 0, err
	}
	f, err := d.fs.OpenReadWrite(w.name, writeCategory)
	if err != nil {
		return 0, fmt.Errorf("open log segment for syncing: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return 0, fmt.Errorf("sync log segment %s: %w", w.name, err)
	}
	return length, nil
}

// run writes until the log is closed or fails.
func (w *writer) run() {
	w.timer = time.NewTimer(time.Hour)
	w.timer.Stop()
	defer w.timer.Stop()
	err := w.serve()
	if err == nil {
		err = w.end()
	}
	if w.file != nil {
		err = errors.Join(err, w.file.Close())
	}
	if err = errors.Join(err, w.dir.close()); err != nil {
		w.logFailure(err)
	}
	w.log.stop(err)
}

// logFailure logs why the log has failed. If the disk is full, the store logs that once, and tries to
// begin another log each second, which fails in the same way until there is space.
func (w *writer) logFailure(err error) {
	level, text := slog.LevelError, "write-ahead log failed: no more writes are accepted"
	if NoSpace(err) {
		level, text = slog.LevelDebug, "write-ahead log failed for lack of space"
	}
	w.log.logger.Log(context.Background(), level, text,
		"segment", uint64(w.segment), "written_bytes", w.offset, "durable_bytes", w.durable, "error", err)
}

func (w *writer) serve() error {
	empty := &buffer{}
	for {
		b, closing := w.log.take(empty, w.timer, &w.group)
		if closing {
			return nil
		}
		if b == nil {
			if err := w.sync(); err != nil {
				return err
			}
			continue
		}
		if err := w.write(b); err != nil {
			return err
		}
		queued := w.log.acknowledge(b)
		if !w.interval {
			w.group.acknowledged(b.records, queued)
		}
		w.metrics.records.Add(float64(b.records))
		w.metrics.bytes.Add(float64(len(b.data)))
		b.reset(int(w.log.cfg.BufferBytes))
		empty = b
		// Let appenders that were just woken append before the next sync begins: 14 of
		// 16 appenders then share a sync, otherwise 8.
		runtime.Gosched()
		if err := w.syncIfDue(); err != nil {
			return err
		}
	}
}

// write writes a buffer, and syncs it if its acknowledgement requires that.
func (w *writer) write(b *buffer) error {
	from := 0
	for _, cut := range b.cuts {
		if err := w.writeRecords(b.data[from:cut]); err != nil {
			return err
		}
		if err := w.rotate(); err != nil {
			return err
		}
		from = cut
	}
	if err := w.writeRecords(b.data[from:]); err != nil {
		return err
	}
	if w.interval && !b.sync {
		return nil
	}
	return w.sync()
}

// writeRecords completes the records in data and writes them to the segment.
func (w *writer) writeRecords(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	for at := 0; at < len(data); {
		at += finish(data[at:], w.segment, w.offset+int64(at), w.durable)
	}
	if err := w.reserve(w.offset + int64(len(data))); err != nil {
		return err
	}
	if _, err := w.file.Write(data); err != nil {
		return fmt.Errorf("write %d bytes at %d of log segment %d: %w", len(data), w.offset, w.segment, err)
	}
	w.offset += int64(len(data))
	w.dir.grown(w.segment, w.offset)
	return nil
}

// reserveStep is how far ahead of its end a segment's space is reserved: far enough
// that few syncs have to allocate, and little enough that the log of an idle store is
// small.
const reserveStep = 1 << 20

// NoSpace reports whether a file system error means that there is no space, on the disk
// or within a quota.
func NoSpace(err error) bool {
	return vfs.IsNoSpaceError(err) || errors.Is(err, syscall.EDQUOT)
}

// reserve reserves space for the segment up to the given end. It detects a full disk
// before a write rather than in the middle of one. Other errors only mean that the file
// system cannot reserve space, and are ignored.
func (w *writer) reserve(end int64) error {
	if end <= w.reserved {
		return nil
	}
	length := (end - w.reserved + w.step - 1) / w.step * w.step
	if err := w.file.Preallocate(w.reserved, length); NoSpace(err) {
		return fmt.Errorf("reserve %d bytes for log segment %d: %w", length, w.segment, err)
	}
	if err := w.fillZeros(end, length); err != nil {
		return err
	}
	w.reserved += length
	return nil
}

// zeros is what fillZeros writes.
var zeros [64 << 10]byte

// fillZeros writes zeros into the length bytes that were just reserved, from end on:
// what is before end is about to be written anyway. Later writes then overwrite blocks
// that the file system knows as written, and a sync writes data only. After a write
// into blocks that are only reserved, each sync also writes the file system's own
// journal: on ext4 that takes twice the CPU time and twice as long (105 to 128 µs of
// CPU time instead of 65 to 72, for 12 KiB).
//
// The price is that a new file is written twice. So the first step of a file, which is
// all that the log of an idle store uses, is not filled. With durability interval,
// syncs are too rare to gain anything.
func (w *writer) fillZeros(end, length int64) error {
	if w.interval || w.reserved < w.step {
		return nil
	}
	for at, to := end, w.reserved+length; at < to; {
		n := min(to-at, int64(len(zeros)))
		if _, err := w.file.WriteAt(zeros[:n], at); err != nil {
			return fmt.Errorf("write %d zeros at %d of log segment %d: %w", n, at, w.segment, err)
		}
		at += n
	}
	return nil
}

// sync makes durable what was written.
func (w *writer) sync() error {
	w.timing = false
	if w.durable == w.offset {
		return nil
	}
	start := time.Now()
	if err := w.file.SyncData(); err != nil {
		return fmt.Errorf("sync log segment %d: %w", w.segment, err)
	}
	took := time.Since(start)
	w.metrics.syncSeconds.Observe(took.Seconds())
	w.group.synced(start.Add(took), took)
	w.durable = w.offset
	return nil
}

// syncIfDue starts the timer for the next sync after a write, or syncs if the time has
// passed under load.
func (w *writer) syncIfDue() error {
	if !w.interval || w.durable == w.offset {
		return nil
	}
	if !w.timing {
		w.timer.Reset(w.syncInterval)
		w.timing = true
		return nil
	}
	select {
	case <-w.timer.C:
		return w.sync()
	default:
		return nil
	}
}

// seal makes the segment durable and marks its end. The mark itself is not synced: it
// serves only if the header of the next segment is lost.
func (w *writer) seal() error {
	if err := w.sync(); err != nil {
		return err
	}
	mark := make([]byte, recordHeaderSize)
	frame(mark, typeSeal, 0)
	finish(mark, w.segment, w.offset, w.durable)
	if _, err := w.file.Write(mark); err != nil {
		return fmt.Errorf("write the end of log segment %d: %w", w.segment, err)
	}
	return nil
}

// rotate seals the segment and begins the next one.
func (w *writer) rotate() error {
	if err := w.seal(); err != nil {
		return err
	}
	err := w.file.Close()
	w.file = nil
	if err != nil {
		return fmt.Errorf("close log segment %d: %w", w.segment, err)
	}
	f, reserved, err := w.dir.create(segmentHeader{segment: w.segment + 1, previous: w.segment, previousAt: w.offset})
	if err != nil {
		return err
	}
	w.file, w.segment, w.reserved = f, w.segment+1, reserved
	w.offset, w.durable = segmentHeaderSize, segmentHeaderSize
	return nil
}

// end ends the log in an orderly way.
func (w *writer) end() error {
	if err := w.seal(); err != nil {
		return err
	}
	if err := w.file.SyncData(); err != nil {
		return fmt.Errorf("sync the end of log segment %d: %w", w.segment, err)
	}
	return nil
}
