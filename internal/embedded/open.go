package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/blockfile"
	"varve/internal/gate"
	"varve/internal/head"
	"varve/internal/index"
	"varve/internal/registry"
	"varve/internal/rowtime"
	"varve/internal/store"
	"varve/internal/wal"
)

const (
	lockName      = "LOCK"
	catalogueName = "catalogue"
	logName       = "log"
	blocksName    = "blocks"
	blockSuffix   = ".blk"
)

// A LockedError means that another process has the directory open.
type LockedError struct {
	Dir string
	Err error
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("data directory %s is in use by another process (%v): stop that one, or give this one a directory of its own", e.Dir, e.Err)
}

func (e *LockedError) Unwrap() error { return e.Err }

// lockDir takes the lock of a data directory for writing.
func lockDir(disk vfs.FS, dir string) (io.Closer, error) {
	lock, err := disk.Lock(disk.PathJoin(dir, lockName))
	if err != nil {
		return nil, lockError(dir, err, !errors.As(err, new(*fs.PathError)))
	}
	return lock, nil
}

// lockToRead takes the lock of a data directory for reading, if the file system
// knows how to do that without writing. A directory without a lock file is not in
// use.
func lockToRead(disk vfs.FS, dir string) (io.Closer, error) {
	name := disk.PathJoin(dir, lockName)
	if r, ok := disk.(interface {
		LockToRead(name string) (lock io.Closer, held bool, err error)
	}); ok {
		lock, held, err := r.LockToRead(name)
		if err != nil {
			return nil, lockError(dir, err, held)
		}
		return lock, nil
	}
	if _, err := disk.Stat(name); errors.Is(err, fs.ErrNotExist) {
		return nopCloser{}, nil
	}
	return lockDir(disk, dir)
}

type nopCloser struct{}

func (nopCloser) Close() error { return nil }

// lockError distinguishes a lock that is held from a file that cannot be used.
func lockError(dir string, err error, held bool) error {
	if held {
		return &LockedError{Dir: dir, Err: err}
	}
	return fmt.Errorf("find out whether data directory %s is in use: %w", dir, err)
}

// OpenToRead opens the store in dir for reading only, while no server uses it. It
// changes nothing there, so that the directory may be a snapshot or somebody
// else's. What the log holds is replayed into memory.
func OpenToRead(disk vfs.FS, dir string, cfg Config, o Options) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("settings of the embedded store: %w", err)
	}
	s := newStore(disk, dir, cfg, o)
	s.failure.Store(&store.UnavailableError{Reason: "the store was opened for reading only"})
	if err := s.openToRead(); err != nil {
		return nil, errors.Join(err, s.undo())
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

func (s *Store) openToRead() (err error) {
	if s.lock, err = lockToRead(s.fs, s.dir); err != nil {
		return err
	}
	if err := verifyCatalogue(s.fs, s.path(catalogueName)); err != nil {
		return fmt.Errorf("open catalogue: %w", err)
	}
	if s.catalogue, err = openCatalogueToRead(s.fs, s.path(catalogueName)); err != nil {
		return err
	}
	s.width = rowtime.Spec{Width: s.catalogue.spec.RowWidthMS}
	if err := s.openSeries(); err != nil {
		return err
	}
	if err := s.openFiles(); err != nil {
		return err
	}
	if err := s.replay(); err != nil {
		return err
	}
	return s.settleIndex()
}

// Open opens the store in dir, created if need be. What the log holds beyond
// the files is replayed. Errors are a *LockedError, a *store.CorruptionError, or
// what the file system says.
func Open(fs vfs.FS, dir string, cfg Config, o Options) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("settings of the embedded store: %w", err)
	}
	s := newStore(fs, dir, cfg, o)
	if err := s.open(o); err != nil {
		return nil, errors.Join(err, s.undo())
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.background.Go(func() { every(s.ctx, settleInterval, func() { s.settleDoubts(s.ctx) }) })
	s.background.Go(func() { every(s.ctx, spaceInterval, s.lookAtSpace) })
	s.background.Go(func() { s.expirer(s.ctx) })
	s.background.Add(2)
	go s.checkpointer(s.ctx)
	go s.merger(s.ctx)
	s.askIfLarge()
	s.askMerge()
	return s, nil
}

// every calls f at each interval until ctx ends.
func every(ctx context.Context, interval time.Duration, f func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}

func newStore(fs vfs.FS, dir string, cfg Config, o Options) *Store {
	s := &Store{
		fs: fs, dir: dir, cfg: cfg, log: o.Logger, now: o.Now, registerer: o.Registerer, salvage: o.salvage, opening: o.Opening,
		cache:        blockfile.NewCache(int64(cfg.PageCacheBytes)),
		series:       registry.New(),
		index:        index.New(),
		full:         make(chan struct{}, 1),
		filesChanged: make(chan struct{}, 1),
		room:         gate.New(),
		values:       valueCount{maxKeys: maxValues, maxBytes: maxValueBytes},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.growth.begin(s.now())
	s.expiry.allowed, s.expiry.allowedAt = scanBurst, s.now()
	s.encoders.New = func() any { return &registry.Encoder{} }
	s.cursors.New = func() any { return &cursor{} }
	s.active.Store(head.New())
	s.current = &state{active: s.active.Load(), refs: 1}
	s.held = map[*state]struct{}{s.current: {}}
	s.metrics = newMetrics(s)
	s.disk = s.newDiskGuard()
	return s
}

// undo releases what a failed open has taken.
func (s *Store) undo() error {
	var errs []error
	for _, f := range s.current.files {
		errs = append(errs, f.Close())
	}
	if log := s.wal.Load(); log != nil {
		errs = append(errs, log.Close())
	}
	if s.catalogue != nil {
		errs = append(errs, s.catalogue.close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

func (s *Store) open(o Options) error {
	if err := s.openDir(); err != nil {
		return err
	}
	fresh, err := s.fresh()
	if err != nil {
		return err
	}
	s.catalogue, err = openCatalogue(s.fs, s.path(catalogueName), s.cfg, pebbleLog{s.log, o.Fatal}, fresh)
	if err != nil {
		return err
	}
	s.width = rowtime.Spec{Width: s.catalogue.spec.RowWidthMS}
	if want := s.cfg.RowWidth.Milliseconds(); want != s.width.Width {
		s.log.Warn("row_width differs from what the store was created with, which stays", "configured_ms", want, "store_ms", s.width.Width)
	}
	if err := s.openSeries(); err != nil {
		return err
	}
	if err := s.openFiles(); err != nil {
		return err
	}
	if err := s.replay(); err != nil {
		return err
	}
	log, err := s.openLog(s.catalogue.logFrom())
	if err != nil {
		return err
	}
	s.wal.Store(log)
	if err := s.metrics.register(o.Registerer); err != nil {
		return err
	}
	if err := s.settleIndex(); err != nil {
		return err
	}
	return s.removeOrphans()
}

// fresh reports whether there are neither block files nor a log.
func (s *Store) fresh() (bool, error) {
	blocks, err := s.fs.List(s.path(blocksName))
	if err != nil {
		return false, fmt.Errorf("list block files: %w", err)
	}
	segments, err := wal.Segments(s.fs, s.path(logName))
	return len(blocks) == 0 && len(segments) == 0, err
}

// openLog opens the log for appending, behind what is there, at the segment from
// or later.
func (s *Store) openLog(from wal.Segment) (*wal.Log, error) {
	return wal.Open(s.fs, s.path(logName), s.cfg.Log, wal.Options{
		Registerer: s.registerer, Logger: s.log, From: from,
	})
}

func (s *Store) path(name string) string { return s.fs.PathJoin(s.dir, name) }

func (s *Store) filePath(number uint64) string {
	return s.fs.PathJoin(s.dir, blocksName, fmt.Sprintf("%010d%s", number, blockSuffix))
}

func (s *Store) openDir() error {
	if err := s.fs.MkdirAll(s.path(blocksName), 0o755); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	lock, err := lockDir(s.fs, s.dir)
	if err != nil {
		return err
	}
	s.lock = lock
	for _, dir := range []string{s.dir, path.Dir(s.dir)} {
		if err := syncDir(s.fs, dir); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}

// syncBlocks makes the names of new block files durable.
func (s *Store) syncBlocks() error { return syncDir(s.fs, s.path(blocksName)) }

// openFiles opens what the manifest names.
func (s *Store) openFiles() error {
	manifest, err := s.catalogue.files()
	if err != nil {
		return err
	}
	numbers := make([]uint64, 0, len(manifest))
	for n := range manifest {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		f, err := blockfile.Open(s.fs, s.filePath(n), n, s.cache)
		if err != nil {
			return fmt.Errorf("file %d of the manifest: %w", n, err)
		}
		if want := manifest[n].Bytes; f.Bytes != want {
			f.Close()
			return &store.CorruptionError{File: f.Path, Offset: f.Bytes, Reason: fmt.Sprintf("expected a file of %d bytes, got %d", want, f.Bytes)}
		}
		if last := f.Series.Maximum(); last >= s.series.NextID() {
			f.Close()
			return &store.CorruptionError{File: catalogueName, Reason: fmt.Sprintf("block file %d has samples of series %d, but the catalogue has given out only %d: restore a backup", n, last, s.series.NextID())}
		}
		s.current.files = append(s.current.files, &openFile{File: f, refs: 1})
		s.nextFile.Store(max(s.nextFile.Load(), n, f.Sequence))
		s.order.deletions = max(s.order.deletions, f.Deletions)
	}
	sortFiles(s.current.files)
	s.order.deletions = max(s.order.deletions, s.catalogue.meta.Deletions)
	deletions, err := s.catalogue.deletions()
	s.current.setDeletions(deletions)
	if n := len(deletions); n > 0 { // by sequence
		s.savedDeletions = deletions[n-1].Sequence
		s.order.deletions = max(s.order.deletions, s.savedDeletions)
	}
	return err
}

// removeOrphans removes block files that a crash left behind. It comes last: as
// long as something does not fit, nothing is removed.
func (s *Store) removeOrphans() error {
	names, err := s.fs.List(s.path(blocksName))
	if err != nil {
		return fmt.Errorf("list block files: %w", err)
	}
	named := make(map[uint64]bool)
	for _, f := range s.current.files {
		named[f.Number] = true
	}
	for _, name := range names {
		n, ok := blockNumber(name)
		if !ok {
			s.log.Warn("file that is not ours in the directory of block files", "file", name)
			continue
		}
		s.nextFile.Store(max(s.nextFile.Load(), n))
		if named[n] {
			continue
		}
		s.log.Info("remove a block file that was never completed", "file", name)
		if err := s.fs.Remove(s.fs.PathJoin(s.path(blocksName), name)); err != nil {
			return fmt.Errorf("remove unfinished block file: %w", err)
		}
	}
	return nil
}

// pebbleLog passes the catalogue's messages on. Pebble calls Fatalf when it can
// not go on; so can't we.
type pebbleLog struct {
	log   *slog.Logger
	fatal func(reason string)
}

func (l pebbleLog) Infof(format string, args ...any) {
	l.log.Debug("catalogue: " + fmt.Sprintf(format, args...))
}

func (l pebbleLog) Errorf(format string, args ...any) {
	l.log.Error("catalogue: " + fmt.Sprintf(format, args...))
}

func (l pebbleLog) Fatalf(format string, args ...any) {
	reason := "the catalogue cannot be written: " + fmt.Sprintf(format, args...)
	if l.fatal != nil {
		l.fatal(reason)
	}
	panic(reason)
}

var _ io.Closer = (*Store)(nil)
