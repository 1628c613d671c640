// Package catalogue is the part of an embedded store that is kept in Pebble: series, the
// manifest of block files, deletions, the settings that the store was created with, and
// key-values. docs/formats/catalogue.md describes the rows.
package catalogue

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/embedded/datadir"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/safefile"
	"varve/internal/store"
	"varve/internal/units"
	"varve/internal/wal"
)

// The catalogue is a Pebble database. The first byte of a key tells its table;
// integers in keys are big-endian so that they sort.
//
//	's' id u32         -> series key                 one row a series
//	'f' number u64     -> JSON File                  the manifest: files that count
//	'd' sequence u64   -> deletion record            deletions that some file has not applied
//	'm' name           -> JSON                       "store": Meta; "spec": Spec
//	'k' service 0 1 service key 0 1 key -> modified ms i64, text
//	'K' service 0 1 service key         -> modified ms i64
//
// In keys of 'k' and 'K' a zero byte inside a name is written 0 255.
const (
	TableSeries   = 's'
	TableFile     = 'f'
	TableDeletion = 'd'
	tableMeta     = 'm'
	TableValue    = 'k'
	TableModified = 'K'
)

// Version is the version of the catalogue and of the directory that it
// describes.
const Version = 1

// format is the version of Pebble's own files. It is pinned: with the newest version of
// the library, the first start after an upgrade would write files that the previous build
// cannot open. Verify reads the log and the list of tables of this version.
const format = pebble.FormatValueSeparation

// Spec has the settings that a store was created with.
type Spec struct {
	Version     int    `json:"version"`
	RowWidthMS  int64  `json:"row_width_ms"`
	RowTimeUnit string `json:"row_time_unit"`
}

// Meta changes with every commit.
type Meta struct {
	LogFrom    uint64             `json:"log_from"`            // segments before this one are in files
	LogBegun   bool               `json:"log_begun,omitempty"` // segment log_from was durable before this was saved
	NextSeries model.SeriesNumber `json:"next_series"`         // ids below were given out
	Deletions  uint64             `json:"deletions"`           // sequence of the last deletion
	Timelines  bool               `json:"timelines,omitempty"` // a store of timelines exists beside this one
}

// File repeats the properties of a block file that cannot be derived from its samples,
// in case the file's own properties cannot be read. Old stores have only the size.
type File struct {
	Bytes     int64  `json:"bytes"`
	Sequence  uint64 `json:"sequence,omitempty"`
	Deletions uint64 `json:"deletions,omitempty"`
}

// A Catalogue is an open catalogue.
type Catalogue struct {
	db   *Pebble
	fs   vfs.FS
	dir  string
	Spec Spec
	Meta Meta

	failed atomic.Pointer[error] // see broken
}

// Broken returns the error of the commit that failed, nil if none did. After a failure
// the content of the disk is unknown, so no other commit is attempted.
func (c *Catalogue) Broken() error {
	if err := c.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Options say how a catalogue is opened.
type Options struct {
	CacheBytes units.Bytes   // memory for blocks
	Logger     pebble.Logger // takes Pebble's messages
	Fresh      bool          // the rest of the store is new too: create the catalogue if it does not exist
	RowWidth   time.Duration // of a catalogue that is created
}

// Open opens the catalogue in dir. It creates a catalogue only if the rest of the store
// is fresh too: a new catalogue beside old files would make the files look incomplete.
func Open(fs vfs.FS, dir string, o Options) (*Catalogue, error) {
	cache := pebble.NewCache(int64(o.CacheBytes))
	defer cache.Unref()
	opened, err := OpenPebble(fs, dir, o.Fresh, &pebble.Options{
		Cache:        cache,
		MemTableSize: 1 << 20,
		Logger:       o.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("open catalogue: %w", err)
	}
	c := &Catalogue{db: opened, fs: fs, dir: dir}
	err = c.readMeta(o)
	if err == nil {
		err = removeLeft(fs, dir)
	}
	if err != nil {
		opened.Close()
		return nil, err
	}
	return c, nil
}

// errGone means that the catalogue is missing or empty, although there are files that
// need it.
var errGone = &store.CorruptionError{
	File: datadir.Catalogue, Offset: -1, Reason: "expected a catalogue beside the block files and the log, got none: put it back, or restore a backup",
}

// createPebble creates an empty database unless there is one. The first log of a database
// has an old format, which does not say what was synced (see Verify). So the first log is
// left empty.
func createPebble(dir string, o *pebble.Options, fresh bool) error {
	if d, err := pebble.Peek(dir, o.FS); err == nil && d.Exists {
		return nil
	}
	if !fresh {
		return errGone
	}
	// Pebble would create a directory that all users of the machine can read.
	err := o.FS.MkdirAll(dir, 0o750)
	if err == nil {
		err = safefile.SyncDir(o.FS, o.FS.PathDir(dir))
	}
	if err != nil {
		return err
	}
	db, err := pebble.Open(dir, o)
	if err != nil {
		return err
	}
	return db.Close()
}

func (c *Catalogue) readMeta(o Options) error {
	switch err := c.getJSON(MetaKey("spec"), &c.Spec); {
	case errors.Is(err, pebble.ErrNotFound) && !o.Fresh:
		return errGone
	case errors.Is(err, pebble.ErrNotFound):
		c.Spec = Spec{Version, o.RowWidth.Milliseconds(), "MILLISECONDS"}
		return c.create()
	case err != nil:
		return err
	}
	if c.Spec.Version != Version {
		return fmt.Errorf("the store has format version %d, this build knows %d: use a newer build", c.Spec.Version, Version)
	}
	return c.getMeta(&c.Meta)
}

// getMeta reads what the last commit has saved. A catalogue with a Spec has it.
func (c *Catalogue) getMeta(m *Meta) error {
	err := c.getJSON(MetaKey("store"), m)
	if errors.Is(err, pebble.ErrNotFound) {
		return &store.CorruptionError{File: datadir.Catalogue, Reason: "expected the state of the store, got none: restore a backup"}
	}
	return err
}

func (c *Catalogue) create() error {
	b := c.db.NewBatch()
	defer b.Close()
	if err := setJSON(b, MetaKey("spec"), c.Spec); err != nil {
		return err
	}
	if err := setJSON(b, MetaKey("store"), c.Meta); err != nil {
		return err
	}
	return c.apply(b, "create catalogue")
}

func (c *Catalogue) apply(b *pebble.Batch, what string) error {
	if err := b.Commit(pebble.Sync); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := c.db.MarkSynced(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Close closes the catalogue. What was committed is durable.
func (c *Catalogue) Close() error { return c.db.Close() }

// MetaKey is the key of a row of JSON: "store" is a Meta, "spec" a Spec.
func MetaKey(name string) []byte { return append([]byte{tableMeta}, name...) }

func seriesKey(id model.SeriesNumber) []byte {
	return binary.BigEndian.AppendUint32([]byte{TableSeries}, uint32(id))
}

func numberKey(table byte, n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{table}, n) }

func (c *Catalogue) getJSON(key []byte, into any) error {
	v, closer, err := c.db.Get(key)
	if err != nil {
		return err
	}
	defer closer.Close()
	if err := json.Unmarshal(v, into); err != nil {
		return &store.CorruptionError{File: datadir.Catalogue, Reason: fmt.Sprintf("value of %q: %v", key[1:], err)}
	}
	return nil
}

func setJSON(b *pebble.Batch, key []byte, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return b.Set(key, text, nil)
}

// scan calls fn for each row of a table. An error of fn is reported as damage to the row.
func (c *Catalogue) scan(table byte, fn func(key, value []byte) error) error {
	return Scan(c.db, table, func(key, value []byte) error {
		if err := fn(key, value); err != nil {
			return &store.CorruptionError{File: datadir.Catalogue, Reason: err.Error()}
		}
		return nil
	})
}

// Series calls fn for each series, by id.
func (c *Catalogue) Series(fn func(record.Definition, model.Series)) error {
	return c.scan(TableSeries, func(key, value []byte) error {
		d, s, err := ParseSeries(key, value)
		if err == nil {
			fn(d, s)
		}
		return err
	})
}

// Files returns the manifest: the block files that count, by number.
func (c *Catalogue) Files() (map[uint64]File, error) {
	files := make(map[uint64]File)
	err := c.scan(TableFile, func(key, value []byte) error {
		n, m, err := ParseFile(key, value)
		files[n] = m
		return err
	})
	return files, err
}

// Deletions returns the deletions that some file has not applied, by sequence.
func (c *Catalogue) Deletions() (ds []*record.Deletion, err error) {
	err = c.scan(TableDeletion, func(_, value []byte) error {
		d, err := record.ParseDeletion(value)
		ds = append(ds, &d)
		return err
	})
	return ds, err
}

// Change is one atomic step of the store from one set of files to the next.
type Change struct {
	AddFiles      map[uint64]File
	DropFiles     []uint64
	Define        []record.Definition
	Forget        []model.SeriesNumber
	AddDeletions  []*record.Deletion
	DropDeletions []uint64
	Meta          func(*Meta) // nil = unchanged
}

// Commit applies ch durably, all or nothing, except for definitions, which it stores
// first, in batches of their own. If only definitions were stored, they do no harm,
// because the log defines the same series again. A single batch with a million series
// would leave a log file of that size behind. So a commit that fails before all
// definitions are stored has changed nothing, and may be retried: Broken then returns
// nil. Callers take turns.
func (c *Catalogue) Commit(ch Change) error {
	if err := c.Broken(); err != nil {
		return err
	}
	if err := c.defineAll(ch.Define); err != nil {
		return fmt.Errorf("add series to catalogue: %w", err)
	}
	err := c.commit(ch)
	if err != nil {
		c.failed.Store(&err)
	}
	return err
}

// commit is the rest of Commit.
func (c *Catalogue) commit(ch Change) error {
	b := c.db.NewBatch()
	defer b.Close()
	if err := fill(b, ch); err != nil {
		return fmt.Errorf("encode catalogue change: %w", err)
	}
	meta := c.Meta
	if ch.Meta != nil {
		ch.Meta(&meta)
		if err := setJSON(b, MetaKey("store"), meta); err != nil {
			return fmt.Errorf("encode catalogue change: %w", err)
		}
	}
	if err := c.apply(b, "commit to catalogue"); err != nil {
		return err
	}
	c.Meta = meta
	return nil
}

// defineAll adds series. They are durable with the next synced commit at the latest.
func (c *Catalogue) defineAll(all []record.Definition) error {
	if len(all) >= manySeries {
		return c.defineMany(all)
	}
	for len(all) > 0 {
		b := c.db.NewBatch()
		n := record.Fit(all)
		for _, d := range all[:n] {
			if err := b.Set(seriesKey(d.ID), []byte(d.Key), nil); err != nil {
				return errors.Join(err, b.Close())
			}
		}
		if err := errors.Join(b.Commit(pebble.NoSync), b.Close()); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

func fill(b *pebble.Batch, ch Change) error {
	var errs []error
	for n, m := range ch.AddFiles {
		errs = append(errs, setJSON(b, numberKey(TableFile, n), m))
	}
	for _, n := range ch.DropFiles {
		errs = append(errs, b.Delete(numberKey(TableFile, n), nil))
	}
	for _, id := range ch.Forget {
		errs = append(errs, b.Delete(seriesKey(id), nil))
	}
	for _, d := range ch.AddDeletions {
		v, err := record.AppendDeletion(nil, *d)
		errs = append(errs, err, b.Set(numberKey(TableDeletion, d.Sequence), v, nil))
	}
	for _, n := range ch.DropDeletions {
		errs = append(errs, b.Delete(numberKey(TableDeletion, n), nil))
	}
	return errors.Join(errs...)
}

// LogFrom is the first log segment whose records are not all in files.
func (c *Catalogue) LogFrom() wal.Segment { return wal.Segment(c.Meta.LogFrom) }

// Log returns the part of the log that is not in files. For a new catalogue, that is the whole
// log from segment 1: if the log begins later, the catalogue has lost its rows.
func (m Meta) Log() wal.ReplayOptions {
	return wal.ReplayOptions{From: wal.Segment(max(m.LogFrom, 1)), Begun: m.LogBegun}
}
