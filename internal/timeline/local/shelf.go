package local

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/diskspace"
	"varve/internal/embedded/catalogue"
	"varve/internal/store"
	"varve/internal/units"
	"varve/internal/wal"
)

// Version is the version of the format of the rows.
const Version = 1

// Options say how a shelf is opened.
type Options struct {
	MinFreeBytes units.Bytes // free space below which writes are refused, except deletes; 0: the check is off

	Logger     *slog.Logger // nil: nothing is logged
	Registerer prometheus.Registerer

	// Fatal is called once when the disk has failed in a way that must end the process. Nil: panic.
	Fatal func(reason string)

	tune func(*pebble.Options) // for tests
}

// A Shelf is an open directory of timelines.
type Shelf struct {
	db      *catalogue.Pebble // nil while it cannot be opened again; see resume
	files   *fileSystem       // of db
	fs      vfs.FS
	dir     string
	options Options
	logger  *slog.Logger
	metrics *metrics
	disk    diskspace.Guard

	opening opening // the current one

	durable atomic.Uint64         // sequence of the last arrival that readers may see
	broken  atomic.Pointer[error] // error of the first commit that failed; no other is tried until resume

	calls struct { // calls in progress hold it for reading
		sync.RWMutex
		closed bool
	}

	// meta is held while histories, marks and references are read and changed.
	meta struct {
		sync.Mutex
		next  number // of the next timeline
		count int    // histories
	}
	numbers numbers

	order struct {
		sync.Mutex
		sequence uint64 // of the last row of arrivals
		logs     map[number]*arrivalLog
		row      []byte
	}

	stop    chan struct{}
	stopped sync.WaitGroup
}

// Open opens the shelf in a directory, which it creates if it does not exist. The caller must
// hold the lock of the data directory.
func Open(fs vfs.FS, dir string, o Options) (*Shelf, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	s := &Shelf{fs: fs, dir: dir, options: o, logger: o.Logger, stop: make(chan struct{})}
	s.metrics = newMetrics(s)
	s.disk = diskspace.Guard{
		Owner: "the store of timelines", Setting: "embedded.min_free_bytes", Least: o.MinFreeBytes,
		WayOut: "free some space, delete data, or enlarge the disk", Free: s.free, Refused: s.metrics.refused.Inc, Logger: o.Logger,
	}
	if err := fs.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("open timelines: %w", err)
	}
	if err := s.openDB(); err != nil {
		return nil, fmt.Errorf("open timelines in %s: %w", dir, catalogue.Damage(err, dir))
	}
	if err := s.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("open timelines in %s: %w", dir, catalogue.Damage(err, dir)), s.closeDB())
	}
	return s, nil
}

// openDB opens the database and reads the state that the shelf keeps in memory.
func (s *Shelf) openDB() (err error) {
	s.files = &fileSystem{FS: s.fs, fatal: s.fatal, full: s.full}
	s.db, err = catalogue.OpenPebble(s.files, s.dir, true, s.pebbleOptions())
	if err != nil {
		s.db = nil
		return err
	}
	s.order.logs = map[number]*arrivalLog{}
	s.numbers.known = map[string]number{}
	s.meta.Lock()
	err = s.openMeta()
	s.meta.Unlock()
	if err != nil {
		return errors.Join(err, s.closeDB())
	}
	s.order.sequence = uint64(s.opening.generation) << sequenceShift
	s.durable.Store(s.order.sequence)
	return nil
}

// closeDB closes the database, if it is open.
func (s *Shelf) closeDB() error {
	if s.db == nil {
		return nil
	}
	s.files.closing.Store(true)
	err := s.db.Close()
	s.db = nil
	return err
}

// pebbleOptions returns options that were chosen by measurement; see docs/formats/timelines.md.
func (s *Shelf) pebbleOptions() *pebble.Options {
	o := &pebble.Options{
		CacheSize:                   32 << 20,
		MemTableSize:                64 << 20,
		MemTableStopWritesThreshold: 3,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       24,
		LBaseMaxBytes:               64 << 20,
		FlushSplitBytes:             8 << 20,
		WALBytesPerSync:             1 << 20,
		BytesPerSync:                1 << 20,
		Logger:                      catalogue.Logger{Log: s.logger, Fatal: s.fatal},
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].BlockSize = 16 << 10
	}
	if s.options.tune != nil {
		s.options.tune(o)
	}
	return o
}

// fatal reports a failure that must end the process. Pebble calls it when it cannot continue.
func (s *Shelf) fatal(reason string) {
	if s.options.Fatal != nil {
		s.options.Fatal("timelines: " + reason)
	}
	panic("timelines: " + reason)
}

// start registers the metrics and starts watching the disk.
func (s *Shelf) start() error {
	unregister, err := s.metrics.Register(s.options.Registerer)
	if err != nil {
		return err
	}
	s.metrics.unregister = unregister
	s.stopped.Go(s.watchDisk)
	return nil
}

func (s *Shelf) free() (units.Bytes, error) {
	u, err := s.fs.GetDiskUsage(s.dir)
	return units.Bytes(u.AvailBytes), err
}

// watchDisk checks every second whether the disk has too little space, in which case writes are
// refused.
func (s *Shelf) watchDisk() {
	s.every(time.Second, func() { s.disk.Look(s.resume) })
}

// resume accepts writes again once the disk has space. After a commit that failed for lack of
// space, the content of the log is unknown, so the database is opened again, as at a start.
func (s *Shelf) resume() error {
	err := s.brokenErr()
	if err == nil || !wal.NoSpace(err) {
		return err
	}
	if err := s.probe(); err != nil {
		return err
	}
	s.calls.Lock()
	defer s.calls.Unlock()
	if s.calls.closed {
		return store.ErrClosed
	}
	if err := s.closeDB(); err != nil { // fails because the log cannot be completed
		s.logger.Debug("closing timelines in order to reopen them", "error", err)
	}
	if err := s.openDB(); err != nil {
		return fmt.Errorf("open timelines again: %w", err)
	}
	s.broken.Store(nil)
	return nil
}

// probeBytes is enough space for Pebble to begin a log and a list of tables.
const probeBytes = 1 << 20

// probe returns an error if a file of probeBytes cannot be written.
func (s *Shelf) probe() error {
	path := s.fs.PathJoin(s.dir, "probe")
	f, err := s.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, probeBytes))
	return errors.Join(err, f.Sync(), f.Close(), s.fs.Remove(path))
}

func (s *Shelf) every(d time.Duration, do func()) {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
			do()
		}
	}
}

// Close implements [timeline.Shelf]. It waits for the calls in progress.
func (s *Shelf) Close() error {
	s.calls.Lock()
	closed := s.calls.closed
	s.calls.closed = true
	s.calls.Unlock()
	if closed {
		return store.ErrClosed
	}
	close(s.stop)
	s.stopped.Wait()
	s.metrics.unregister()
	if err := s.closeDB(); err != nil && !wal.NoSpace(s.brokenErr()) {
		return fmt.Errorf("close timelines: %w", err)
	}
	return nil
}

// CopyTo makes a consistent copy in a directory that does not exist. Everything that was
// acknowledged before the call is in it. Tables are hard links where that is possible.
func (s *Shelf) CopyTo(dir string) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end()
	if err := s.db.CopyTo(dir); err != nil {
		return fmt.Errorf("copy timelines: %w", err)
	}
	return nil
}

// begin keeps the shelf open until the caller calls end.
func (s *Shelf) begin() error {
	s.calls.RLock()
	if s.calls.closed {
		s.calls.RUnlock()
		return store.ErrClosed
	}
	if s.db == nil {
		s.calls.RUnlock()
		return &store.UnavailableError{Reason: "timelines could not be opened again after the disk was full; will retry each second", Err: s.brokenErr()}
	}
	return nil
}

func (s *Shelf) end() { s.calls.RUnlock() }

// beginRead is begin for a single read. Callers that loop check the context themselves.
func (s *Shelf) beginRead(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.begin()
}

// beginWrite is begin for writes.
func (s *Shelf) beginWrite(ctx context.Context) error {
	if err := s.disk.Err(); err != nil {
		return err
	}
	return s.beginErase(ctx)
}

// beginErase is begin for writes that free space, which go on while the disk is nearly full.
func (s *Shelf) beginErase(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.brokenErr(); err != nil {
		return err
	}
	return s.begin()
}

func (s *Shelf) brokenErr() error {
	if err := s.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// Healthy returns why events are refused, nil if they are accepted.
func (s *Shelf) Healthy() error {
	if err := s.disk.Err(); err != nil {
		return err
	}
	return s.brokenErr()
}

// breakWith stops all writes: after a failed commit, the content of the disk is unknown. If the
// disk was full, resume allows writes again.
func (s *Shelf) breakWith(err error) error {
	var e error = &store.UnavailableError{Reason: "timelines cannot be written; fix the disk, then restart the server", Err: err}
	if wal.NoSpace(err) {
		e = s.disk.Block(err)
	}
	if s.broken.CompareAndSwap(nil, &e) && !wal.NoSpace(err) {
		s.logger.Error("timelines accept no more writes until the server is restarted", "error", err)
	}
	return s.brokenErr()
}

// full stops all writes at once when the disk has no space for the log, since Pebble ends the
// process if it is given more.
func (s *Shelf) full(err error) { s.breakWith(err) }

// failed returns the error of a read that failed.
func (s *Shelf) failed(doing string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if damage := catalogue.Damage(err, s.dir); errors.As(damage, new(*store.CorruptionError)) {
		return fmt.Errorf("timelines: %s: %w; varve check reports what is damaged, and what to do", doing, damage)
	}
	return &store.UnavailableError{Reason: "timelines: " + doing, Err: err}
}

// get calls use with the value of a row, which is valid until use returns. It reports whether the row
// exists.
func (s *Shelf) get(doing string, key []byte, use func(value []byte) error) (found bool, err error) {
	value, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, s.failed(doing, err)
	}
	defer closer.Close()
	return true, use(value)
}

// walk calls look at each key from lower on and before upper, in the order of keys or in reverse,
// until it returns false or an error.
func (s *Shelf) walk(ctx context.Context, doing string, lower, upper []byte, reverse bool, look func(*pebble.Iterator) (more bool, err error)) error {
	it, err := s.db.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return s.failed(doing, err)
	}
	defer it.Close()
	first, next := it.First, it.Next
	if reverse {
		first, next = it.Last, it.Prev
	}
	for ok := first(); ok; ok = next() {
		if more, err := look(it); err != nil || !more {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return s.failed(doing, err)
	}
	return nil
}

// commit makes a batch visible and durable. prepare, which may be nil, adds to the batch under
// the order lock.
//
// Durability "interval" of the embedded store does not apply here: without a sync, Pebble
// keeps the end of its log in memory, where kill -9 loses it. So every commit is synced,
// together with those of other writers.
func (s *Shelf) commit(b *pebble.Batch, prepare func() error) error {
	sequence, err := s.apply(b, prepare)
	if err != nil {
		return err
	}
	if err := b.SyncWait(); err != nil {
		return s.breakWith(err)
	}
	if err := s.db.MarkSynced(); err != nil { // the batch is durable, so it is not refused
		s.breakWith(err)
	}
	for {
		seen := s.durable.Load()
		if seen >= sequence || s.durable.CompareAndSwap(seen, sequence) {
			return nil
		}
	}
}

// apply gives a batch its place in Pebble's log, and returns the last sequence of arrivals by
// then. It does not wait for the sync.
func (s *Shelf) apply(b *pebble.Batch, prepare func() error) (sequence uint64, err error) {
	s.order.Lock()
	defer s.order.Unlock()
	if err := s.brokenErr(); err != nil {
		return 0, err
	}
	if prepare != nil {
		if err := prepare(); err != nil {
			return 0, err
		}
	}
	if err := s.db.ApplyNoSyncWait(b, pebble.Sync); err != nil {
		return 0, s.breakWith(err)
	}
	return s.order.sequence, nil
}

// openMeta checks the version, reads the counters, and records this opening.
func (s *Shelf) openMeta() error {
	version, err := s.metaNumber("format", Version)
	if err != nil {
		return err
	}
	if version != Version {
		return fmt.Errorf("the timelines have format version %d, this build knows %d: use a newer build", version, Version)
	}
	generation, err := s.metaNumber("generation", 0)
	if err != nil {
		return err
	}
	next, err := s.metaNumber("next number", 0)
	if err != nil {
		return err
	}
	s.opening, s.meta.next = opening{generation + 1, 1 + rand.Uint32N(math.MaxUint32)}, number(next)
	if s.opening.generation >= 1<<(64-sequenceShift) {
		return errors.New("the store was opened 16 million times: its log of arrivals has no numbers left; export the events and start with a new directory")
	}
	if s.meta.count, err = s.countHistories(); err != nil {
		return err
	}
	b := s.db.NewBatch()
	defer b.Close()
	return errors.Join(setMeta(b, "format", Version), setMeta(b, "generation", s.opening.generation), setMeta(b, openingName(s.opening.generation), s.opening.id),
		b.Commit(pebble.Sync), s.db.MarkSynced())
}

func openingName(generation uint32) string {
	return string(binary.BigEndian.AppendUint32([]byte("opening "), generation))
}

// openingOf returns the opening that has a generation.
func (s *Shelf) openingOf(generation uint32) (opening, error) {
	id, err := s.metaNumber(openingName(generation), 0)
	return opening{generation, id}, err
}

func (s *Shelf) metaNumber(name string, absent uint32) (uint32, error) {
	_, err := s.get(fmt.Sprintf("read the row %q", name), metaKey(name), func(value []byte) error {
		if len(value) != 4 {
			return s.damaged("the row %q has %d bytes, want 4", name, len(value))
		}
		absent = binary.BigEndian.Uint32(value)
		return nil
	})
	return absent, err
}

func setMeta(b *pebble.Batch, name string, v uint32) error {
	return b.Set(metaKey(name), binary.BigEndian.AppendUint32(nil, v), nil)
}
