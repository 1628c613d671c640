package spool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/blockfile"
	"varve/internal/downsample"
	"varve/internal/index"
	"varve/internal/model"
	"varve/internal/notify"
	"varve/internal/registry"
	"varve/internal/safefile"
	"varve/internal/store"
	"varve/internal/wal"
	"varve/internal/writelog"
)

const (
	lockName  = "LOCK"
	logName   = "log"
	spillName = "spill"
)

// A Sink writes generations to the remote store.
type Sink interface {
	// Write stores all samples of g under their write timestamps. It is called for one
	// generation at a time, oldest first, and again for the same one after an error or a
	// restart, so it must be idempotent. When it returns nil the samples are safe in the remote
	// store. After a *PartialError it may be called for later generations before it is called
	// for this one again.
	Write(ctx context.Context, g *Generation) error
}

// A PartialError says that a sink could not write all of a generation.
type PartialError struct {
	Left    int64 // number of series with samples that are not written
	Written bool  // this attempt has written something
	Err     error // why the first of them is not written

	// Series are the ids of those series. The samples of all others are safe in the remote
	// store and are read from there. If Series is nil, any series may be unwritten.
	Series *roaring.Bitmap
}

func (e *PartialError) Error() string {
	return fmt.Sprintf("samples of %d series cannot be written yet: %v", e.Left, e.Err)
}

func (e *PartialError) Unwrap() error { return e.Err }

// Options are the dependencies of a spool. Fields may be nil.
type Options struct {
	Sink       Sink          // nil = none until Start
	Section    store.Section // of Config in the configuration
	Registerer prometheus.Registerer
	Check      func(b *store.Batch, kinds []model.Kind) error // returns why samples of a batch cannot be stored
	First      func(metric string)                            // called for the first sample of each series; must not block
	Logger     *slog.Logger
	Now        func() time.Time // nil = time.Now

	// ClockSet reports whether the clock can be relied on. Until then, write timestamps do not go
	// back with it: after a start it may be behind until the machine has asked others for the
	// time. Call FollowClock when it can be relied on; from then on, ClockSet must return true.
	ClockSet func() bool // nil = always

	retryFirst, retryMost time.Duration // 0 = the defaults
	idleInterval          time.Duration
}

// A LockedError means that another process has the directory open.
type LockedError struct {
	Dir string
	Err error
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("spool directory %s is in use by another process (%v): stop that one, or give this one a directory of its own", e.Dir, e.Err)
}

func (e *LockedError) Unwrap() error { return e.Err }

// refs implements some methods of store.Appender.
type refs = writelog.Refs

// Spool implements [store.Appender]. All methods may be called by many
// goroutines at once, except Close, which is called once, last.
type Spool struct {
	refs

	fs      vfs.FS
	dir     string
	cfg     Config
	options Options
	logger  *slog.Logger
	now     func() time.Time

	lock    io.Closer
	files   sync.Mutex // serializes changes of the log's set of files, except rotation
	log     *writelog.Log
	series  *registry.Registry
	index   *index.Index
	cache   *blockfile.Cache
	metrics *metrics
	notes   downsample.LogNotes
	noted   bool // the notes of the replayed samples are stored

	order struct {
		*sync.Mutex             // the log's
		floorMS     int64       // later stamps are greater, unless the clock is set back
		stampMS     int64       // of the last batch of the active generation, or below floorMS
		number      int64       // of the active generation
		segment     wal.Segment // of the next record, directly after a rotation
		sinceRotate int64       // bytes logged since Rotate
		from        wal.Segment // a replay begins here
		indexed     idSet       // series that are in the index
		mark        []byte      // scratch
	}

	mu         sync.Mutex
	held       []*Generation // all with holders, oldest first: the drained ones, the frozen ones, the active one; copied to remove one
	viewed     int           // number of drained ones in held
	sink       Sink
	sinkErr    error     // of the last attempt
	sinkSince  time.Time // of the first of the current failures
	sinkFails  uint64    // failed attempts
	sinkWrote  int64     // samples of the oldest frozen generation that were written when sinkErr was set
	spillErr   error     // of the last attempt to write a file
	spillTotal int64     // bytes of files

	active        atomic.Pointer[Generation]             // the last of held; changed under order and mu
	frozenMem     atomic.Int64                           // memory of frozen heads, including those that only views hold
	logBytes      atomic.Int64                           // log records that are not drained
	drainedNumber atomic.Int64                           // of the last generation that was drained
	hurried       atomic.Bool                            // Flush waits for the active generation
	refused       atomic.Pointer[store.UnavailableError] // set by Refuse
	overfull      atomic.Bool                            // a batch did not fit max_bytes since the last drain

	idle idleBook

	pokeKeeper  chan struct{}
	pokeDrainer chan struct{}
	pokeRetry   chan struct{} // ends the pause after an attempt that failed
	pokeSpiller chan struct{}
	room        *notify.Notifier // announces freed memory or disk space
	offers      *notify.Notifier // announces each offer of a generation to the sink

	passed     int64  // used by the drainer only: see offerBehind
	nextFile   uint64 // used by the spiller only
	ctx        context.Context
	stop       context.CancelFunc
	background sync.WaitGroup
}

var _ store.Appender = (*Spool)(nil)

// Open opens the spool in dir, created if need be, and replays what is in its
// log. Errors are a *LockedError, a *store.CorruptionError, or what the file
// system says.
func Open(fsys vfs.FS, dir string, cfg Config, o Options) (*Spool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("settings of the spool: %w", err)
	}
	s := newSpool(fsys, dir, cfg, o)
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.undo())
	}
	s.background.Go(func() { s.keeper(s.ctx) })
	s.background.Go(func() { s.drainer(s.ctx) })
	s.background.Go(func() { s.spiller(s.ctx) })
	return s, nil
}

const spillCacheBytes = 8 << 20

func newSpool(fsys vfs.FS, dir string, cfg Config, o Options) *Spool {
	s := &Spool{
		fs: fsys, dir: dir, cfg: cfg, options: o, logger: o.Logger, now: o.Now, sink: o.Sink,
		series:      registry.New(),
		index:       index.New(),
		cache:       blockfile.NewCache(spillCacheBytes),
		pokeKeeper:  make(chan struct{}, 1),
		pokeDrainer: make(chan struct{}, 1),
		pokeRetry:   make(chan struct{}, 1),
		pokeSpiller: make(chan struct{}, 1),
		room:        notify.New(),
		offers:      notify.New(),
	}
	s.logger = cmp.Or(s.logger, slog.New(slog.DiscardHandler))
	if s.now == nil {
		s.now = time.Now
	}
	s.options.setDefaults()
	s.order.number = 1
	s.idle.used, s.idle.drained = roaring.New(), roaring.New()
	s.ctx, s.stop = context.WithCancel(context.Background())
	g := s.newGeneration(0)
	s.active.Store(g)
	s.held = []*Generation{g}
	s.metrics = newMetrics(s)
	s.newLog()
	return s
}

func (o *Options) setDefaults() {
	if o.retryFirst == 0 {
		o.retryFirst, o.retryMost = 100*time.Millisecond, 15*time.Second
	}
	o.idleInterval = cmp.Or(o.idleInterval, 10*time.Minute)
}

// undo releases the resources of a failed Open.
func (s *Spool) undo() error {
	var errs []error
	s.stop()
	errs = append(errs, s.log.Close())
	for _, g := range s.frozenLocked() {
		s.retire(g)
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

func (s *Spool) open() error {
	if err := s.openDir(); err != nil {
		return err
	}
	if err := s.openNotes(); err != nil {
		return err
	}
	if err := s.reportMissingLog(); err != nil {
		return err
	}
	if err := s.replay(); err != nil {
		return err
	}
	if err := s.openLog(); err != nil {
		return err
	}
	if err := s.saveBegun(); err != nil {
		return err
	}
	_, err := s.metrics.Register(s.options.Registerer)
	return err
}

// openDir locks the directory and removes the spilled files of an earlier process. The replay
// of the log creates them again.
func (s *Spool) openDir() error {
	spill := s.path(spillName)
	if err := s.fs.MkdirAll(spill, 0o750); err != nil {
		return fmt.Errorf("create spool directory: %w", err)
	}
	lock, err := s.fs.Lock(s.path(lockName))
	switch {
	case errors.As(err, new(*fs.PathError)):
		return fmt.Errorf("lock the spool: %w; the directory and its files must belong to the user of the server", err)
	case err != nil:
		return &LockedError{Dir: s.dir, Err: err}
	}
	s.lock = lock
	for _, dir := range []string{s.dir, s.fs.PathDir(s.dir)} {
		if err := safefile.SyncDir(s.fs, dir); err != nil {
			return err
		}
	}
	names, err := s.fs.List(spill)
	if err != nil {
		return fmt.Errorf("list spilled files: %w", err)
	}
	for _, name := range names {
		if err := s.fs.Remove(s.fs.PathJoin(spill, name)); err != nil {
			return fmt.Errorf("remove spilled file: %w", err)
		}
	}
	return nil
}

func (s *Spool) path(name string) string { return s.fs.PathJoin(s.dir, name) }

// Start sets the sink of a spool that was opened without one, and begins to drain.
func (s *Spool) Start(sink Sink) {
	s.mu.Lock()
	s.sink = sink
	s.mu.Unlock()
	notify.Wake(s.pokeDrainer)
	notify.Wake(s.pokeKeeper)
}

// SeriesBytes implements store.Appender.
func (s *Spool) SeriesBytes() int64 {
	all, _ := s.series.Bytes()
	return all + s.index.Bytes()
}

// Close stops accepting samples and writing to the sink. Undrained samples stay in the log for
// the next Open. All views must be closed before the call.
func (s *Spool) Close() error {
	if err := s.log.Shut(); err != nil {
		return err
	}
	s.stop()
	s.room.Notify()
	s.background.Wait()
	s.closeNotes()
	err := s.log.Close()
	if err != nil && s.log.Writable() != nil {
		err = nil // reported already
	}
	s.mu.Lock()
	left := s.frozenLocked()
	s.mu.Unlock()
	for _, g := range left {
		s.release(g)
	}
	return errors.Join(err, s.lock.Close())
}

// undrainedLocked returns the frozen generations and the active one, oldest first. s.mu must be
// held. The result never changes.
func (s *Spool) undrainedLocked() []*Generation { return s.held[s.viewed:] }

// frozenLocked returns the frozen generations, written or not, oldest first. s.mu must be held. The
// result never changes.
func (s *Spool) frozenLocked() []*Generation { return s.held[s.viewed : len(s.held)-1] }

// release drops one reference to a generation.
func (s *Spool) release(g *Generation) {
	s.mu.Lock()
	g.holders--
	last := g.holders == 0
	if last {
		i := slices.Index(s.held, g)
		s.held = slices.Concat(s.held[:i], s.held[i+1:])
		if i < s.viewed {
			s.viewed--
		}
	}
	s.mu.Unlock()
	if last {
		s.retire(g)
	}
}

// retire releases the memory, or removes the file, of a frozen generation without holders.
func (s *Spool) retire(g *Generation) {
	f := g.place.Load().file
	if f == nil {
		s.frozenMem.Add(-g.memory())
		s.room.Notify()
		return
	}
	err := s.removeFile(f)
	s.mu.Lock()
	f.each(func(f *blockfile.File) { s.spillTotal -= f.Bytes })
	s.mu.Unlock()
	if err != nil {
		s.logger.Warn("spilled file could not be removed; the next start will remove it", "file", f.Path, "error", err)
	}
}
