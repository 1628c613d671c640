package embedded

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
	"varve/internal/wal"
)

// The catalogue is a Pebble database. The first byte of a key tells its table;
// integers in keys are big-endian so that they sort.
//
//	's' id u32         -> series key                 one row a series
//	'f' number u64     -> JSON fileMeta              the manifest: files that count
//	'd' sequence u64   -> deletion record            deletions that some file has not applied
//	'm' name           -> JSON                       "store": storeMeta; "spec": spec
//	'k' service 0 1 service key 0 1 key -> modified ms i64, text
//	'K' service 0 1 service key         -> modified ms i64
//
// In keys of 'k' and 'K' a zero byte inside a name is written 0 255.
const (
	tableSeries   = 's'
	tableFile     = 'f'
	tableDeletion = 'd'
	tableMeta     = 'm'
	tableValue    = 'k'
	tableModified = 'K'
)

// catalogueVersion is the version of the catalogue and of the directory that it
// describes.
const catalogueVersion = 1

// catalogueFormat is the version of Pebble's own files. It is raised only on
// purpose: with the newest version that a library knows, the first start after an
// upgrade would write files that the build before cannot open. verifyCatalogue
// reads the log and the list of tables of this version.
const catalogueFormat = pebble.FormatValueSeparation

// spec is what a store was created with.
type spec struct {
	Version     int    `json:"version"`
	RowWidthMS  int64  `json:"row_width_ms"`
	RowTimeUnit string `json:"row_time_unit"`
}

// storeMeta changes with every commit.
type storeMeta struct {
	LogFrom    uint64 `json:"log_from"`    // segments before this one are in files
	NextSeries uint32 `json:"next_series"` // ids below were given out
	Deletions  uint64 `json:"deletions"`   // sequence of the last deletion
}

// fileMeta repeats of a file what cannot be told from its samples, in case that
// its own properties cannot be read. Old stores have only the size.
type fileMeta struct {
	Bytes     int64  `json:"bytes"`
	Sequence  uint64 `json:"sequence,omitempty"`
	Deletions uint64 `json:"deletions,omitempty"`
}

type catalogue struct {
	db   *pebble.DB
	spec spec
	meta storeMeta

	failed atomic.Pointer[error] // see broken
}

// broken returns the error of the commit that failed, nil if none did. After a
// failure it is unknown what is on disk, so no other commit is tried.
func (c *catalogue) broken() error {
	if err := c.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// openCatalogue opens the catalogue in dir. It creates it only if the rest of
// the store is fresh too: a new catalogue beside old files would make these
// look as if they had never been completed.
func openCatalogue(fs vfs.FS, dir string, cfg Config, log pebble.Logger, fresh bool) (*catalogue, error) {
	if err := verifyCatalogue(fs, dir); err != nil {
		return nil, fmt.Errorf("open catalogue: %w", err)
	}
	cache := pebble.NewCache(int64(cfg.CatalogueCacheBytes))
	defer cache.Unref()
	o := &pebble.Options{
		FS:                 catalogueFS{fs, dir, log},
		Cache:              cache,
		MemTableSize:       1 << 20, // the log of this size is preallocated
		FormatMajorVersion: catalogueFormat,
		Logger:             log,
		EventListener:      (&backgroundErrors{log: log}).listener(),
	}
	if err := createPebble(dir, o, fresh); err != nil {
		return nil, fmt.Errorf("create catalogue: %w", err)
	}
	db, err := pebble.Open(dir, o)
	if err != nil {
		return nil, fmt.Errorf("open catalogue: %w", err)
	}
	c := &catalogue{db: db}
	if err := c.readMeta(cfg, fresh); err != nil {
		db.Close()
		return nil, err
	}
	return c, nil
}

// errCatalogueGone means that there is no catalogue, or an empty one, beside
// files that need one.
var errCatalogueGone = &store.CorruptionError{
	File: catalogueName, Reason: "expected the catalogue of the block files and the log beside it, got none: put it back, or restore a backup",
}

// createPebble makes an empty database unless there is one. The first log of a
// database is in an old format, which does not say what was synced (see
// verifyCatalogue). So the first log is left empty.
func createPebble(dir string, o *pebble.Options, fresh bool) error {
	if d, err := pebble.Peek(dir, o.FS); err == nil && d.Exists {
		return nil
	}
	if !fresh {
		return errCatalogueGone
	}
	db, err := pebble.Open(dir, o)
	if err != nil {
		return err
	}
	return db.Close()
}

func (c *catalogue) readMeta(cfg Config, fresh bool) error {
	switch err := c.getJSON(metaKey("spec"), &c.spec); {
	case errors.Is(err, pebble.ErrNotFound) && !fresh:
		return errCatalogueGone
	case errors.Is(err, pebble.ErrNotFound):
		c.spec = spec{catalogueVersion, cfg.RowWidth.Milliseconds(), "MILLISECONDS"}
		return c.create()
	case err != nil:
		return err
	}
	if c.spec.Version != catalogueVersion {
		return fmt.Errorf("the store has format version %d, this build knows %d: use a newer build", c.spec.Version, catalogueVersion)
	}
	return c.getJSON(metaKey("store"), &c.meta)
}

func (c *catalogue) create() error {
	b := c.db.NewBatch()
	defer b.Close()
	if err := setJSON(b, metaKey("spec"), c.spec); err != nil {
		return err
	}
	if err := setJSON(b, metaKey("store"), c.meta); err != nil {
		return err
	}
	return c.apply(b, "create catalogue")
}

func (c *catalogue) apply(b *pebble.Batch, what string) error {
	if err := b.Commit(pebble.Sync); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	// An empty record behind it says that it was durable. Without that, damage
	// to the last batch looks like a write that a crash cut off, and Pebble
	// would quietly go back to the one before.
	if err := c.db.LogData(nil, pebble.NoSync); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (c *catalogue) close() error { return c.db.Close() }

func metaKey(name string) []byte { return append([]byte{tableMeta}, name...) }

func seriesKey(id uint32) []byte { return binary.BigEndian.AppendUint32([]byte{tableSeries}, id) }

func numberKey(table byte, n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{table}, n) }

func (c *catalogue) getJSON(key []byte, into any) error {
	v, closer, err := c.db.Get(key)
	if err != nil {
		return err
	}
	defer closer.Close()
	if err := json.Unmarshal(v, into); err != nil {
		return &store.CorruptionError{File: "catalogue", Reason: fmt.Sprintf("value of %q: %v", key, err)}
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

// scan calls fn for each row of a table.
func (c *catalogue) scan(table byte, fn func(key, value []byte) error) error {
	it, err := c.db.NewIter(&pebble.IterOptions{LowerBound: []byte{table}, UpperBound: []byte{table + 1}})
	if err != nil {
		return fmt.Errorf("read catalogue: %w", err)
	}
	for it.First(); it.Valid(); it.Next() {
		v, err := it.ValueAndErr()
		if err == nil {
			err = fn(it.Key()[1:], v)
		}
		if err != nil {
			it.Close()
			return err
		}
	}
	if err := it.Close(); err != nil {
		return fmt.Errorf("read catalogue: %w", err)
	}
	return nil
}

// series calls fn for each series, by id.
func (c *catalogue) series(fn func(record.Definition, model.Series)) error {
	return c.scan(tableSeries, func(key, value []byte) error {
		if len(key) != 4 {
			return &store.CorruptionError{File: "catalogue", Reason: fmt.Sprintf("series row with key %x", key)}
		}
		d := record.Definition{ID: binary.BigEndian.Uint32(key), Key: string(value)}
		s, err := model.ParseKey(d.Key)
		if err != nil {
			return &store.CorruptionError{File: "catalogue", Reason: fmt.Sprintf("series %d: %v", d.ID, err)}
		}
		fn(d, s)
		return nil
	})
}

// files returns the numbers of the files that count and their sizes.
func (c *catalogue) files() (map[uint64]fileMeta, error) {
	files := make(map[uint64]fileMeta)
	err := c.scan(tableFile, func(key, value []byte) error {
		var m fileMeta
		if len(key) != 8 || json.Unmarshal(value, &m) != nil {
			return &store.CorruptionError{File: "catalogue", Reason: fmt.Sprintf("file row %x", key)}
		}
		files[binary.BigEndian.Uint64(key)] = m
		return nil
	})
	return files, err
}

func (c *catalogue) deletions() ([]*record.Deletion, error) {
	var ds []*record.Deletion
	err := c.scan(tableDeletion, func(key, value []byte) error {
		d, err := record.ParseDeletion(value)
		if err != nil {
			return &store.CorruptionError{File: "catalogue", Reason: err.Error()}
		}
		ds = append(ds, &d)
		return nil
	})
	return ds, err
}

// change is one atomic step of the store from one set of files to the next.
type change struct {
	addFiles      map[uint64]fileMeta
	dropFiles     []uint64
	define        []record.Definition
	forget        []uint32
	addDeletions  []*record.Deletion
	dropDeletions []uint64
	meta          func(*storeMeta) // nil = as it is
}

// commit applies ch durably, all or nothing, but for definitions: those go
// first, in batches of their own. A series that nothing refers to does no harm,
// the log defines it again, and a batch of a million series would leave a log
// file of that size behind. Callers take turns.
func (c *catalogue) commit(ch change) (err error) {
	if err := c.broken(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			c.failed.Store(&err)
		}
	}()
	if err := c.defineAll(ch.define); err != nil {
		return fmt.Errorf("add series to catalogue: %w", err)
	}
	b := c.db.NewBatch()
	defer b.Close()
	if err := fill(b, ch); err != nil {
		return fmt.Errorf("encode catalogue change: %w", err)
	}
	meta := c.meta
	if ch.meta != nil {
		ch.meta(&meta)
		if err := setJSON(b, metaKey("store"), meta); err != nil {
			return fmt.Errorf("encode catalogue change: %w", err)
		}
	}
	if err := c.apply(b, "commit to catalogue"); err != nil {
		return err
	}
	c.meta = meta
	return nil
}

// defineAll adds series. The next synced commit makes them durable too.
func (c *catalogue) defineAll(all []record.Definition) error {
	for len(all) > 0 {
		b := c.db.NewBatch()
		n := min(record.Fit(all), 2048)
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

func fill(b *pebble.Batch, ch change) error {
	var errs []error
	for n, m := range ch.addFiles {
		errs = append(errs, setJSON(b, numberKey(tableFile, n), m))
	}
	for _, n := range ch.dropFiles {
		errs = append(errs, b.Delete(numberKey(tableFile, n), nil))
	}
	for _, id := range ch.forget {
		errs = append(errs, b.Delete(seriesKey(id), nil))
	}
	for _, d := range ch.addDeletions {
		v, err := record.AppendDeletion(nil, *d)
		errs = append(errs, err, b.Set(numberKey(tableDeletion, d.Sequence), v, nil))
	}
	for _, n := range ch.dropDeletions {
		errs = append(errs, b.Delete(numberKey(tableDeletion, n), nil))
	}
	return errors.Join(errs...)
}

// logFrom is the first log segment that files do not cover.
func (c *catalogue) logFrom() wal.Segment { return wal.Segment(c.meta.LogFrom) }
