package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"path"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/blockfile"
	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/datadir"
	"varve/internal/embedded/folding"
	"varve/internal/embedded/partition"
	"varve/internal/index"
	"varve/internal/machine"
	"varve/internal/model"
	"varve/internal/notify"
	"varve/internal/registry"
	"varve/internal/rowtime"
	"varve/internal/safefile"
	"varve/internal/store"
	"varve/internal/wal"
)

// OpenToRead opens the store in dir for reading only, while no server uses it. It
// changes nothing there, so that the directory may be a snapshot or belong to another
// user. The log is replayed into memory.
func OpenToRead(disk vfs.FS, dir string, cfg Config, o Options) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("settings of the embedded store: %w", err)
	}
	s := newStore(disk, dir, cfg, o)
	s.log.ReadOnly("the store was opened for reading only")
	s.opened = time.Time{} // nothing is removed, so openedHold does not apply, and expired series need not be listed
	if err := s.openToRead(); err != nil {
		return nil, errors.Join(catalogue.Damage(err, s.path(datadir.Catalogue)), s.undo())
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

func (s *Store) openToRead() (err error) {
	if s.lock, err = datadir.LockToRead(s.fs, s.dir); err != nil {
		return err
	}
	if err := catalogue.Verify(s.fs, s.path(datadir.Catalogue)); err != nil {
		return fmt.Errorf("open catalogue: %w", err)
	}
	if s.catalogue, err = catalogue.OpenToRead(s.fs, s.path(datadir.Catalogue)); err != nil {
		return err
	}
	s.useCatalogue()
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

// Open opens the store in dir, and creates it if necessary. It replays the records of
// the log that are not in files yet. It returns a *LockedError, a
// *store.CorruptionError, or an error of the file system.
func Open(fs vfs.FS, dir string, cfg Config, o Options) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("settings of the embedded store: %w", err)
	}
	s := newStore(fs, dir, cfg, o)
	if err := s.open(o); err != nil {
		return nil, errors.Join(catalogue.Damage(err, s.path(datadir.Catalogue)), s.undo())
	}
	s.lookAtRoom()
	if o.held {
		s.merging.Lock()
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.background.Go(func() { every(s.ctx, settleInterval, func() { s.settleDoubts(s.ctx) }) })
	s.background.Go(func() { every(s.ctx, spaceInterval, s.lookAtSpace) })
	s.background.Go(func() { s.expirer(s.ctx) })
	s.background.Go(func() { s.checkpointer(s.ctx) })
	s.background.Go(func() { s.merger(s.ctx) })
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
		fs: fs, dir: dir, cfg: cfg, section: o.Section, logger: o.Logger, now: o.Now, salvage: o.salvage, opening: o.Opening,
		cache:        blockfile.NewCache(int64(cfg.PageCacheBytes)),
		series:       registry.New(),
		index:        index.New(),
		full:         make(chan struct{}, 1),
		filesChanged: make(chan struct{}, 1),
		room:         notify.New(),
		holds:        folding.NewHolds(),
	}
	s.logger = cmp.Or(s.logger, slog.New(slog.DiscardHandler))
	if s.now == nil {
		s.now = time.Now
	}
	s.policies.shelf, s.policies.unknown = o.Book, o.RulesUnknown
	s.opened = s.now()
	s.rulesSeen, s.rulesChangedMS = s.book(), s.opened.UnixMilli() // the rules may have been different in the last run
	s.growth.Begin(s.now())
	s.memory = machine.Memory()
	s.diskRoom.Store(math.MaxInt64)
	s.active.Store(s.newHead())
	s.current = &state{active: s.active.Load(), refs: 1}
	s.layOut(s.current)
	s.held = map[*state]struct{}{s.current: {}}
	s.metrics = newMetrics(s)
	s.newLog(o)
	return s
}

// useCatalogue takes over what the open catalogue says about the store.
func (s *Store) useCatalogue() {
	s.width = rowtime.Spec{Width: s.catalogue.Spec.RowWidthMS}
	s.place = partition.Place{FS: s.fs, Width: s.width, Cache: s.cache, Next: s.nextPath, Sync: s.syncBlocks, Space: s.spaceForMore}
	s.values = catalogue.NewValues(s.catalogue, catalogue.ValueOptions{Check: s.log.CheckOpen, Writable: s.log.Durable, Now: s.now})
}

// undo releases the resources of a failed open.
func (s *Store) undo() error {
	var errs []error
	for _, f := range s.current.files {
		errs = append(errs, f.Close())
	}
	errs = append(errs, s.log.Close())
	if s.catalogue != nil {
		errs = append(errs, s.catalogue.Close())
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
	s.catalogue, err = catalogue.Open(s.fs, s.path(datadir.Catalogue), catalogue.Options{
		CacheBytes: s.cfg.CatalogueCacheBytes, Logger: catalogue.Logger{Log: s.logger, Fatal: o.Fatal, EndWhenFull: o.EndWhenFull, Failed: o.Opening.failed}, Fresh: fresh, RowWidth: s.cfg.RowWidth,
	})
	if err != nil {
		return err
	}
	s.useCatalogue()
	if want := s.cfg.RowWidth.Milliseconds(); want != s.width.Width {
		s.logger.Warn("row_width differs from that of the existing store; the store keeps its own", "configured_ms", want, "store_ms", s.width.Width)
	}
	if err := s.openSeries(); err != nil {
		return err
	}
	if err := s.openFiles(); err != nil {
		return err
	}
	if err := s.openJournal(); err != nil {
		return err
	}
	if err := s.replay(); err != nil {
		return err
	}
	if err := s.log.Open(s.catalogue.LogFrom()); err != nil {
		return err
	}
	if fresh {
		if err := s.saveLogBegun(); err != nil {
			return err
		}
	}
	if _, err := s.metrics.Register(o.Registerer); err != nil {
		return err
	}
	if err := s.settleIndex(); err != nil {
		return err
	}
	return s.removeOrphans()
}

// saveLogBegun saves where the log of a new store begins, so that a copy of the directory
// without the log is not taken for a store without samples. Later, checkpoints save
// it.
func (s *Store) saveLogBegun() error {
	first, err := s.log.Current().Rotate() // the log is still empty, so it begins with this segment
	if err != nil {
		return err
	}
	return s.catalogue.Commit(catalogue.Change{Meta: func(m *catalogue.Meta) {
		m.LogFrom, m.LogBegun = uint64(first), true
	}})
}

// fresh reports whether there are neither block files nor a log.
func (s *Store) fresh() (bool, error) {
	blocks, err := s.fs.List(s.path(datadir.Blocks))
	if err != nil {
		return false, fmt.Errorf("list block files: %w", err)
	}
	segments, err := wal.Segments(s.fs, s.path(datadir.Log))
	return len(blocks) == 0 && len(segments) == 0, err
}

func (s *Store) path(name string) string { return s.fs.PathJoin(s.dir, name) }

// nextPath names a new block file.
func (s *Store) nextPath() (number uint64, path string) {
	number = s.nextFile.Add(1)
	return number, s.filePath(number)
}

func (s *Store) filePath(number uint64) string { return datadir.BlockPath(s.fs, s.dir, number) }

func (s *Store) openDir() error {
	if err := s.fs.MkdirAll(s.path(datadir.Blocks), 0o750); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	lock, err := datadir.Lock(s.fs, s.dir)
	if err != nil {
		return err
	}
	s.lock = lock
	for _, dir := range []string{s.dir, path.Dir(s.dir)} {
		if err := safefile.SyncDir(s.fs, dir); err != nil {
			return err
		}
	}
	return nil
}

// syncBlocks makes the names of new block files durable.
func (s *Store) syncBlocks() error { return safefile.SyncDir(s.fs, s.path(datadir.Blocks)) }

// openFiles opens the files that the manifest names.
func (s *Store) openFiles() error {
	manifest, err := s.catalogue.Files()
	if err != nil {
		return err
	}
	for _, n := range slices.Sorted(maps.Keys(manifest)) {
		f, err := blockfile.Open(s.fs, s.filePath(n), n, s.cache)
		if errors.Is(err, fs.ErrNotExist) {
			return &store.CorruptionError{File: s.filePath(n), Offset: -1, Reason: fmt.Sprintf("expected a file of %d bytes, got no such file", manifest[n].Bytes)}
		}
		if err != nil {
			return fmt.Errorf("file %d of the manifest: %w", n, err)
		}
		if want := manifest[n].Bytes; f.Bytes != want {
			f.Close()
			return &store.CorruptionError{File: f.Path, Offset: f.Bytes, Reason: fmt.Sprintf("expected a file of %d bytes, got %d", want, f.Bytes)}
		}
		if last := model.SeriesNumber(f.Series.Maximum()); last >= s.series.NextID() {
			f.Close()
			return &store.CorruptionError{File: datadir.Catalogue, Reason: fmt.Sprintf("block file %d has samples of series %d, but the catalogue has assigned only %d ids: restore a backup", n, last, s.series.NextID())}
		}
		s.current.files = append(s.current.files, &openFile{File: f, refs: 1})
		s.current.buckets = s.current.buckets || f.StepMS != 0
		s.nextFile.Store(max(s.nextFile.Load(), n, f.Sequence))
		s.order.deletions = max(s.order.deletions, f.Deletions)
	}
	sortFiles(s.current.files)
	s.layOut(s.current)
	s.order.deletions = max(s.order.deletions, s.catalogue.Meta.Deletions)
	deletions, err := s.catalogue.Deletions()
	s.current.setDeletions(deletions)
	if n := len(deletions); n > 0 { // by sequence
		s.savedDeletions = deletions[n-1].Sequence
		s.order.deletions = max(s.order.deletions, s.savedDeletions)
	}
	return err
}

// removeOrphans removes block files that a crash left behind. It comes last: while anything is
// inconsistent, nothing is removed.
func (s *Store) removeOrphans() error {
	names, err := s.fs.List(s.path(datadir.Blocks))
	if err != nil {
		return fmt.Errorf("list block files: %w", err)
	}
	named := make(map[uint64]bool)
	for _, f := range s.current.files {
		named[f.Number] = true
	}
	for _, name := range names {
		n, ok := datadir.BlockNumber(name)
		if !ok {
			s.logger.Warn("ignoring an unknown file in the directory of block files", "file", name)
			continue
		}
		s.nextFile.Store(max(s.nextFile.Load(), n))
		if named[n] {
			continue
		}
		s.logger.Info("removing a block file that was never completed", "file", name)
		if err := s.fs.Remove(s.fs.PathJoin(s.path(datadir.Blocks), name)); err != nil {
			return fmt.Errorf("remove unfinished block file: %w", err)
		}
	}
	return nil
}

var _ io.Closer = (*Store)(nil)
