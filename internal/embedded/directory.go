package embedded

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/rowtime"
	"varve/internal/store"
)

// A Directory is a store's data directory opened for looking at it while no
// server uses it. Nothing in it is changed.
type Directory struct {
	fs   vfs.FS
	path string
	lock io.Closer

	catalogue *catalogue // nil if fault is not
	fault     error      // why the catalogue cannot be read
}

// OpenDirectory opens the store in path. It takes the lock that a server holds, but
// does not make or change it, and returns a *LockedError if a server has it. A
// catalogue that cannot be read is no
// error here: a check reports it.
func OpenDirectory(fs vfs.FS, path string) (*Directory, error) {
	d := &Directory{fs: fs, path: path}
	if _, err := fs.Stat(fs.PathJoin(path, catalogueName)); err != nil {
		return nil, fmt.Errorf("%s holds no store: %w", path, err)
	}
	lock, err := lockToRead(fs, path)
	if err != nil {
		return nil, err
	}
	d.lock = lock
	d.fault = verifyCatalogue(fs, fs.PathJoin(path, catalogueName))
	if d.fault == nil {
		d.catalogue, d.fault = openCatalogueToRead(fs, fs.PathJoin(path, catalogueName))
	}
	return d, nil
}

// Close gives the directory back.
func (d *Directory) Close() error {
	var errs []error
	if d.catalogue != nil {
		errs = append(errs, d.catalogue.close())
	}
	return errors.Join(append(errs, d.lock.Close())...)
}

func (d *Directory) width() rowtime.Spec { return rowtime.Spec{Width: d.catalogue.spec.RowWidthMS} }

func blockName(number uint64) string { return fmt.Sprintf("%010d%s", number, blockSuffix) }

func (d *Directory) blockPath(number uint64) string {
	return d.fs.PathJoin(d.path, blocksName, blockName(number))
}

// blockNumber is the inverse of blockName.
func blockNumber(name string) (uint64, bool) {
	base, ok := strings.CutSuffix(name, blockSuffix)
	n, err := strconv.ParseUint(base, 10, 64)
	return n, ok && err == nil
}

// readable returns why the catalogue cannot be read, and the way out.
func (d *Directory) readable() error {
	if d.fault == nil {
		return nil
	}
	return fmt.Errorf("the catalogue cannot be read: %w; varve check says more", d.fault)
}

// openCatalogueToRead opens the catalogue without changing it.
func openCatalogueToRead(fs vfs.FS, dir string) (*catalogue, error) {
	db, err := pebble.Open(dir, &pebble.Options{
		FS:       catalogueToRead{fs},
		ReadOnly: true, ErrorIfNotExists: true,
		FormatMajorVersion: catalogueFormat,
		Logger:             quietLog{},
		EventListener:      &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}},
	})
	if err != nil {
		return nil, fmt.Errorf("open catalogue: %w", err)
	}
	c := &catalogue{db: db}
	if err = c.getJSON(metaKey("spec"), &c.spec); err == nil {
		err = c.getJSON(metaKey("store"), &c.meta)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read catalogue: %w", err), db.Close())
	}
	if c.spec.Version != catalogueVersion {
		return nil, errors.Join(fmt.Errorf("the store has format version %d, this build knows %d: use a newer build", c.spec.Version, catalogueVersion), db.Close())
	}
	return c, nil
}

// catalogueToRead is the file system as Pebble sees it while it only reads. It
// leaves out Pebble's lock, which would write: the store's own stands for both.
type catalogueToRead struct{ vfs.FS }

// Lock implements [vfs.FS].
func (catalogueToRead) Lock(string) (io.Closer, error) { return nopCloser{}, nil }

// Unwrap implements [vfs.FS].
func (fs catalogueToRead) Unwrap() vfs.FS { return fs.FS }

// quietLog drops the catalogue's messages. What counts comes back as an error.
type quietLog struct{}

func (quietLog) Infof(string, ...any)              {}
func (quietLog) Errorf(string, ...any)             {}
func (quietLog) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// scanRows calls fn for each row of a table. Keys come without the table's byte.
func scanRows(r pebble.Reader, table byte, fn func(key, value []byte) error) error {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: []byte{table}, UpperBound: []byte{table + 1}})
	if err != nil {
		return fmt.Errorf("read catalogue: %w", err)
	}
	for it.First(); it.Valid() && err == nil; it.Next() {
		var v []byte
		if v, err = it.ValueAndErr(); err == nil {
			err = fn(it.Key()[1:], v)
		}
	}
	if closeErr := it.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("read catalogue: %w", closeErr)
	}
	return err
}

// seriesName says which series an id is, for people.
func seriesName(r pebble.Reader, id uint32) string {
	v, closer, err := r.Get(seriesKey(id))
	if err != nil {
		return fmt.Sprintf("series %d", id)
	}
	defer closer.Close()
	s, err := model.ParseKey(string(v))
	if err != nil {
		return fmt.Sprintf("series %d", id)
	}
	return s.String()
}

// readDefinition parses a row of the table of series.
func readDefinition(key, value []byte) (record.Definition, model.Series, error) {
	if len(key) != 4 {
		return record.Definition{}, model.Series{}, fmt.Errorf("row of a series has a key of %d bytes, expected 4: %x", len(key), key)
	}
	d := record.Definition{ID: binary.BigEndian.Uint32(key), Key: string(value)}
	s, err := model.ParseKey(d.Key)
	if err != nil {
		return d, s, fmt.Errorf("series %d: %w", d.ID, err)
	}
	return d, s, nil
}

// readManifest parses a row of the manifest.
func readManifest(key, value []byte) (uint64, fileMeta, error) {
	var m fileMeta
	if len(key) != 8 {
		return 0, m, fmt.Errorf("row of a file has a key of %d bytes, expected 8: %x", len(key), key)
	}
	n := binary.BigEndian.Uint64(key)
	if err := json.Unmarshal(value, &m); err != nil {
		return n, m, fmt.Errorf("row of file %d: %w", n, err)
	}
	return n, m, nil
}

// manifest returns the numbers of the files that count, ascending, and sizes.
func (d *Directory) manifest() ([]uint64, map[uint64]fileMeta, error) {
	files, err := d.catalogue.files()
	if err != nil {
		return nil, nil, err
	}
	numbers := make([]uint64, 0, len(files))
	for n := range files {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers, files, nil
}

// isDamage reports whether err says that stored bytes are not what was written.
func isDamage(err error) bool {
	corruption := (*store.CorruptionError)(nil)
	return errors.As(err, &corruption) || errors.Is(err, pebble.ErrCorruption)
}
