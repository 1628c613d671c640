// Package offline checks, repairs and inspects the data directory of an embedded store by
// its files, and reports what uses the space. A running store lends its open files for a
// check. The package does not import package embedded.
package offline

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/datadir"
	"varve/internal/rowtime"
	"varve/internal/safefile"
	"varve/internal/store"
	"varve/internal/wal"
)

// A Directory is a store's data directory, opened for inspection while no server uses it.
// Nothing in it is changed.
type Directory struct {
	fs   vfs.FS
	path string
	lock io.Closer

	catalogue *catalogue.Catalogue // nil if fault is not
	fault     error                // why the catalogue cannot be read
}

// ErrNoStore means that a directory holds no store.
var ErrNoStore = errors.New("holds no store")

// Open opens the store in path. It takes the lock that a server holds, but neither
// creates nor changes the lock file, and returns a *datadir.LockedError if a server has
// the lock. A catalogue that cannot be read is not an error here: a check reports it.
func Open(fs vfs.FS, path string) (*Directory, error) {
	d := &Directory{fs: fs, path: path}
	switch _, err := fs.Stat(fs.PathJoin(path, datadir.Catalogue)); {
	case errors.Is(err, os.ErrPermission):
		return nil, err
	case errors.Is(err, os.ErrNotExist) && d.lacksCatalogue(): // a server also treats this as damage
	case err != nil:
		return nil, fmt.Errorf("%s %w: %w", path, ErrNoStore, err)
	}
	lock, err := datadir.LockToRead(fs, path)
	if err != nil {
		return nil, err
	}
	d.lock = lock
	d.fault = catalogue.Verify(fs, fs.PathJoin(path, datadir.Catalogue))
	if d.fault == nil {
		d.catalogue, d.fault = catalogue.OpenToRead(fs, fs.PathJoin(path, datadir.Catalogue))
	}
	if errors.Is(d.fault, os.ErrPermission) { // not damage: nobody should restore a backup because of it
		return nil, errors.Join(d.fault, lock.Close())
	}
	return d, nil
}

// lacksCatalogue reports whether the directory has block files or a log, which need a catalogue.
func (d *Directory) lacksCatalogue() bool {
	blocks, err := safefile.List(d.fs, d.fs.PathJoin(d.path, datadir.Blocks))
	segments, unread := wal.Segments(d.fs, d.fs.PathJoin(d.path, datadir.Log))
	return len(blocks) > 0 || len(segments) > 0 || unread != nil || err != nil
}

// Close releases the directory.
func (d *Directory) Close() error {
	var errs []error
	if d.catalogue != nil {
		errs = append(errs, d.catalogue.Close())
	}
	return errors.Join(append(errs, d.lock.Close())...)
}

func (d *Directory) width() rowtime.Spec { return rowtime.Spec{Width: d.catalogue.Spec.RowWidthMS} }

func (d *Directory) blockPath(number uint64) string {
	return datadir.BlockPath(d.fs, d.path, number)
}

// readable returns why the catalogue cannot be read, and what to do.
func (d *Directory) readable() error {
	if d.fault == nil {
		return nil
	}
	return fmt.Errorf("the catalogue cannot be read: %w; varve check reports details", d.fault)
}

// manifest returns the numbers of the files in the manifest, ascending, and
// their properties.
func (d *Directory) manifest() ([]uint64, map[uint64]catalogue.File, error) {
	files, err := d.catalogue.Files()
	if err != nil {
		return nil, nil, err
	}
	return slices.Sorted(maps.Keys(files)), files, nil
}

// isDamage reports whether err says that stored bytes are not what was written.
func isDamage(err error) bool {
	return errors.As(err, new(*store.CorruptionError)) || errors.Is(err, pebble.ErrCorruption)
}
