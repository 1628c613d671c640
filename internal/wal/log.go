package wal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/store"
)

// Options are the dependencies of a log. Fields may be nil.
type Options struct {
	Registerer prometheus.Registerer
	Logger     *slog.Logger

	// From is a lower bound of the number of the first segment. A caller passes the
	// segment from which it replays, so that numbers continue upwards even if all files
	// were lost.
	From Segment

	step int64 // of reserving space, for tests; 0 = reserveStep
}

// A Log accepts records. Its methods may be called by many goroutines.
type Log struct {
	cfg     Config
	dir     *directory
	logger  *slog.Logger
	metrics *metrics

	first  Segment       // the first one that this log began
	acked  atomic.Uint64 // sequence of the last acknowledged record
	failed chan struct{} // closed after a failure
	wake   chan struct{} // one token: the writer has work
	done   chan struct{} // closed when the writer has ended
	spare  sync.Pool     // of *waiter

	unregister func()     // takes the metrics back
	releasing  sync.Mutex // one Release at a time; taken before mu

	mu      sync.Mutex // guards what follows; no I/O under it
	filling *buffer
	idle    bool  // the writer waits for wake
	enough  int   // number of records for which it waits
	closing bool  // no more records
	err     error // permanent failure

	sequence     uint64  // of the last record or rotation
	segment      Segment // of the next record
	segmentBytes int64   // in it so far
	rotation     uint64  // sequence of the last Rotate

	queued  int64     // bytes appended and not yet acknowledged
	waiters []*waiter // for acknowledgement
	askers  []*waiter // for room
}

// buffer is what is written in one go.
type buffer struct {
	data    []byte
	cuts    []int // offsets in data at which the next segment begins
	last    uint64
	records int
	sync    bool // must be durable before it is acknowledged, even with durability interval
}

func (b *buffer) empty() bool { return len(b.data) == 0 && len(b.cuts) == 0 && !b.sync }

// reset empties b and keeps its memory, unless that is more than twice the bound of
// queued bytes: one large record must not hold it for good.
func (b *buffer) reset(bufferBytes int) {
	b.data, b.cuts, b.records, b.sync = b.data[:0], b.cuts[:0], 0, false
	if cap(b.data) > 2*bufferBytes {
		b.data = nil
	}
}

// A Ticket is the position of a record in the log. The zero Ticket is acknowledged from
// the start.
type Ticket struct{ sequence uint64 }

// waiter is a parked goroutine. Its channel has room for the one signal.
type waiter struct {
	sequence uint64
	signal   chan struct{}
}

// Open opens the log in dir for appending, in a new segment after the existing ones.
// It does not replay: call Replay first, which reports damage. Only one Log may be
// open on a directory; the caller holds a lock on it.
func Open(fsys vfs.FS, dir string, cfg Config, o Options) (*Log, error) {
	d, err := openDirectory(fsys, dir, cfg)
	if err != nil {
		return nil, err
	}
	w, err := beginSegment(d, o.From)
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	l, err := newLog(d, o)
	if err != nil {
		return nil, errors.Join(err, w.file.Close(), d.close())
	}
	l.first, l.segment, l.segmentBytes = w.segment, w.segment, segmentHeaderSize
	w.log, w.metrics = l, l.metrics
	w.interval = d.cfg.Durability == Interval
	w.syncInterval = d.cfg.SyncInterval
	w.step = cmp.Or(o.step, reserveStep)
	go func() {
		defer close(l.done)
		w.run()
	}()
	return l, nil
}

// OpenFailed returns a log that refuses all records, but whose segments can be cleared.
// It replaces a log that cannot be opened on a full disk.
func OpenFailed(fsys vfs.FS, dir string, cfg Config, o Options, failure error) (*Log, error) {
	d, err := openDirectory(fsys, dir, cfg)
	if err != nil {
		return nil, err
	}
	l, err := newLog(d, o)
	if err := errors.Join(err, d.close()); err != nil {
		return nil, err
	}
	l.first = d.highest() + 1
	close(l.done)
	l.stop(failure)
	return l, nil
}

// newLog returns a log without a segment.
func newLog(d *directory, o Options) (*Log, error) {
	l := &Log{
		cfg: d.cfg, dir: d,
		logger:  o.Logger,
		failed:  make(chan struct{}),
		wake:    make(chan struct{}, 1),
		done:    make(chan struct{}),
		filling: &buffer{},
	}
	l.logger = cmp.Or(l.logger, slog.New(slog.DiscardHandler))
	l.spare.New = func() any { return &waiter{signal: make(chan struct{}, 1)} }
	l.metrics = newMetrics(l)
	var err error
	if l.unregister, err = l.metrics.Register(o.Registerer); err != nil {
		return nil, fmt.Errorf("register metrics of the log: %w", err)
	}
	return l, nil
}

// Reserve waits until n more bytes of records fit the bound of queued bytes; if n alone
// exceeds the bound, until nothing is queued. It reserves nothing for the caller:
// concurrent callers may together exceed the bound by what each of them appends
// afterwards. More than a record can hold is a *store.InputError.
func (l *Log) Reserve(ctx context.Context, n int) error {
	limit := int64(l.cfg.BufferBytes)
	if n > maxRecordBytes {
		return &store.InputError{Reason: fmt.Sprintf("one record of the write-ahead log holds at most %d bytes, got %d: write or delete less at once", maxRecordBytes, n)}
	}
	waited := false
	for {
		l.mu.Lock()
		if err := l.stateLocked(); err != nil || l.queued == 0 || l.queued+int64(n) <= limit {
			l.mu.Unlock()
			return err
		}
		w := l.newWaiter(0)
		l.askers = append(l.askers, w)
		l.mu.Unlock()
		if !waited {
			waited = true
			l.metrics.roomWaits.Inc()
		}
		if err := l.park(ctx, w, &l.askers); err != nil {
			return fmt.Errorf("wait for room in the write-ahead log: %w", err)
		}
	}
}

// Append queues one record: the concatenation of the pieces of payload, which it
// copies. typ is 1 to 254. It does not block and does no I/O. After a failure or Close
// the record is dropped, and Wait returns the reason. The payload is at most
// maxRecordBytes, which Reserve ensures.
func (l *Log) Append(typ byte, payload ...[]byte) Ticket {
	length := 0
	for _, p := range payload {
		length += len(p)
	}
	if typ == typeNone || typ == typeSeal || length > maxRecordBytes {
		panic(fmt.Sprintf("wal: append of type %d, %d bytes", typ, length))
	}
	size := int64(recordHeaderSize + length)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.sequence++
	if l.stateLocked() != nil {
		return Ticket{l.sequence}
	}
	if l.segmentBytes > segmentHeaderSize && l.segmentBytes+size > int64(l.cfg.SegmentBytes) {
		l.cutLocked()
	}
	b := l.filling
	var header [recordHeaderSize]byte
	frame(header[:], typ, length)
	b.data = append(b.data, header[:]...)
	for _, p := range payload {
		b.data = append(b.data, p...)
	}
	b.records++
	b.last = l.sequence
	l.segmentBytes += size
	l.queued += size
	if b.records >= l.enough {
		l.wakeLocked()
	}
	return Ticket{l.sequence}
}

// Wait returns when the record is acknowledged: with durability fsync when it was
// synced, with interval when it was written to the operating system. It returns the
// log's permanent error if that comes first. If ctx ends first, the record may or may
// not be written.
func (l *Log) Wait(ctx context.Context, t Ticket) error {
	if l.acked.Load() >= t.sequence {
		return nil
	}
	l.mu.Lock()
	if l.acked.Load() >= t.sequence {
		l.mu.Unlock()
		return nil
	}
	if l.filling == nil { // the writer has ended
		defer l.mu.Unlock()
		return l.stateLocked()
	}
	w := l.newWaiter(t.sequence)
	l.waiters = append(l.waiters, w)
	l.mu.Unlock()
	if err := l.park(ctx, w, &l.waiters); err != nil {
		return fmt.Errorf("wait for the write-ahead log: %w", err)
	}
	if l.acked.Load() >= t.sequence {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stateLocked()
}

// Sync returns when all records that were acknowledged before are durable. With
// durability fsync they are already.
func (l *Log) Sync(ctx context.Context) error {
	if l.cfg.Durability != Interval {
		return nil
	}
	l.mu.Lock()
	if err := l.stateLocked(); err != nil {
		l.mu.Unlock()
		return err
	}
	l.sequence++
	l.filling.last, l.filling.sync = l.sequence, true
	t := Ticket{l.sequence}
	l.wakeLocked()
	l.mu.Unlock()
	return l.Wait(ctx, t)
}

// Acknowledged reports whether Wait would return nil at once.
func (l *Log) Acknowledged(t Ticket) bool { return l.acked.Load() >= t.sequence }

// Last returns the ticket of the latest append or rotation. When it is acknowledged, so
// is everything before it, and a segment that an earlier Rotate returned is begun.
func (l *Log) Last() Ticket {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Ticket{l.sequence}
}

// Rotate ends the current segment: records appended from now on are in the returned
// segment or a later one, all others in earlier ones. It does no I/O.
//
// A segment without records stays the current one, unless its file is a large one that
// was reused: after Trim, Rotate replaces it with a small one.
func (l *Log) Rotate() (Segment, error) { return l.rotate(false) }

// Complete is Rotate, but also ends a segment without records: all segments before the
// returned one, the current one included, will not be written to again.
func (l *Log) Complete() (Segment, error) { return l.rotate(true) }

func (l *Log) rotate(empty bool) (Segment, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.stateLocked(); err != nil {
		return 0, err
	}
	if empty || l.segmentBytes > segmentHeaderSize || l.dir.outsize(l.segment) {
		l.sequence++
		l.filling.last = l.sequence
		l.rotation = l.sequence
		l.cutLocked()
		l.wakeLocked()
	}
	return l.segment, nil
}

// Begun waits until the header of a segment that Rotate returned is durable, and
// reports whether it is. After a failure it is not.
func (l *Log) Begun(s Segment) bool {
	l.mu.Lock()
	rotation := l.rotation
	l.mu.Unlock()
	if err := l.Wait(context.Background(), Ticket{rotation}); err != nil {
		l.logger.Debug("a log segment could not be started", "segment", uint64(s), "error", err)
	}
	return s >= l.first && l.dir.has(s) // this log did not begin earlier segments
}

// Release drops the segments before the given one, which Rotate returned: it removes
// their files or keeps them for reuse. It waits until the header of the given segment
// is durable. After an error it may be called again.
func (l *Log) Release(before Segment) error {
	l.releasing.Lock()
	defer l.releasing.Unlock()
	l.mu.Lock()
	rotation := l.rotation
	before = min(before, l.segment)
	l.mu.Unlock()
	if err := l.Wait(context.Background(), Ticket{rotation}); err != nil {
		return fmt.Errorf("release log segments before %d: %w", before, err)
	}
	return l.dir.release(before)
}

// Trim removes the files that Release has kept for reuse.
func (l *Log) Trim() error {
	l.releasing.Lock()
	defer l.releasing.Unlock()
	return l.dir.trim()
}

// Err returns the permanent failure, a *store.UnavailableError, or nil.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Failed returns a channel that is closed when the log failed.
func (l *Log) Failed() <-chan struct{} { return l.failed }

// Close writes and syncs what was appended before, and stops the writer. It returns the
// permanent failure if there is one. Further calls only return the same.
func (l *Log) Close() error {
	l.mu.Lock()
	l.closing = true
	l.wakeLocked()
	l.mu.Unlock()
	<-l.done
	l.unregister()
	return l.Err()
}

// Discard closes the log and removes the segments that it began, unless a record in
// them was acknowledged. Otherwise each attempt to open a log on a full disk would
// leave a file behind.
func (l *Log) Discard() error {
	err := l.Close()
	if l.acked.Load() > 0 {
		return err
	}
	return errors.Join(err, l.dir.removeFrom(l.first))
}

// Clear removes all segments of a log that has failed, and its files kept for reuse.
// Their content must no longer be needed, since Clear cannot be logged. It returns a
// lower bound for the number of the next segment. A crash during Clear leaves the
// beginning of the log.
func (l *Log) Clear() (from Segment, err error) {
	<-l.done
	from = max(l.first, l.dir.highest()+1)
	return from, errors.Join(l.dir.removeFrom(0), l.Trim())
}

// stateLocked returns why the log refuses records, nil if it accepts them. l.mu must be
// held.
func (l *Log) stateLocked() error {
	switch {
	case l.err != nil:
		return l.err
	case l.closing:
		return fmt.Errorf("write-ahead log: %w", store.ErrClosed)
	}
	return nil
}

// cutLocked begins the next segment. l.mu must be held.
func (l *Log) cutLocked() {
	l.filling.cuts = append(l.filling.cuts, len(l.filling.data))
	l.segment++
	l.segmentBytes = segmentHeaderSize
}

// wakeLocked wakes the writer if it sleeps. l.mu must be held.
func (l *Log) wakeLocked() {
	if l.idle {
		l.idle = false
		l.wake <- struct{}{}
	}
}

// take swaps the filled buffer for an empty one. It waits for records, for Close, or
// for the timer, and then for more records as g decides. It returns nil if there are no
// records.
func (l *Log) take(empty *buffer, timer *time.Timer, g *group) (b *buffer, closing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.filling.empty() && !l.closing {
		if !l.sleepLocked(1, timer) {
			return nil, false
		}
	}
	if d := g.wait(l.filling, time.Now()); d > 0 && !l.closing {
		before := l.filling.records
		timer.Reset(d)
		l.sleepLocked(g.enough, timer)
		timer.Stop()
		g.waited(l.filling.records > before)
	}
	if l.filling.empty() {
		return nil, true
	}
	b, l.filling = l.filling, empty
	return b, false
}

// sleepLocked waits until so many records are queued, for another reason to write, or for
// the timer: then it returns false. l.mu must be held; it is released meanwhile.
func (l *Log) sleepLocked(records int, timer *time.Timer) bool {
	l.idle, l.enough = true, records
	l.mu.Unlock()
	woken := true
	select {
	case <-l.wake:
	case <-timer.C:
		woken = false
	}
	l.mu.Lock()
	if !woken && !l.idle { // a token is in the channel
		<-l.wake
	}
	l.idle = false
	return woken
}

// acknowledge wakes the goroutines that wait for b's records, and those that wait for
// room. It returns the number of records that are queued.
func (l *Log) acknowledge(b *buffer) (queued int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked.Store(b.last)
	l.queued -= int64(len(b.data))
	wakeUpTo(&l.waiters, b.last)
	wakeUpTo(&l.askers, b.last)
	return l.filling.records
}

// Cause returns the failure behind an error of Wait, Reserve or Err, for callers that
// report a failed log in their own words.
func Cause(err error) error {
	if failed, ok := errors.AsType[*store.UnavailableError](err); ok && failed.Err != nil {
		return failed.Err
	}
	return err
}

// stop ends the log, with a failure unless err is nil.
func (l *Log) stop(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.err = &store.UnavailableError{Reason: "the write-ahead log failed; remove the cause, then open the store again", Err: err}
		l.metrics.failures.Inc()
		close(l.failed)
	}
	l.closing = true
	l.filling, l.queued = nil, 0
	wakeUpTo(&l.waiters, l.sequence)
	wakeUpTo(&l.askers, l.sequence)
}

func (l *Log) newWaiter(sequence uint64) *waiter {
	w := l.spare.Get().(*waiter)
	w.sequence = sequence
	return w
}

// wakeUpTo signals and removes the waiters up to a sequence.
func wakeUpTo(list *[]*waiter, sequence uint64) {
	keep := (*list)[:0]
	for _, w := range *list {
		if w.sequence > sequence {
			keep = append(keep, w)
			continue
		}
		w.signal <- struct{}{}
	}
	clear((*list)[len(keep):])
	*list = keep
}

// park waits for w's signal or the end of ctx, and then frees w.
func (l *Log) park(ctx context.Context, w *waiter, list *[]*waiter) error {
	defer l.spare.Put(w)
	select {
	case <-w.signal:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, x := range *list {
		if x == w {
			*list = append((*list)[:i], (*list)[i+1:]...)
			return ctx.Err()
		}
	}
	<-w.signal
	return ctx.Err()
}
