package catalogue

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// OpenPebbleToRead opens a database of Pebble without changing it. Nothing can be written to it.
func OpenPebbleToRead(fs vfs.FS, dir string) (*Pebble, error) {
	db, err := pebble.Open(dir, &pebble.Options{
		FS:       readOnly{fs},
		ReadOnly: true, ErrorIfNotExists: true,
		FormatMajorVersion: format,
		Logger:             Quiet{},
		EventListener:      &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}},
	})
	if err != nil {
		return nil, err
	}
	return &Pebble{DB: db}, nil
}

// OpenToRead opens the catalogue without changing it.
func OpenToRead(fs vfs.FS, dir string) (*Catalogue, error) {
	db, err := OpenPebbleToRead(fs, dir)
	if errors.Is(err, pebble.ErrDBDoesNotExist) {
		err = errGone
	}
	if err != nil {
		return nil, fmt.Errorf("open catalogue: %w", err)
	}
	c := &Catalogue{db: db}
	switch err = c.getJSON(MetaKey("spec"), &c.Spec); {
	case errors.Is(err, pebble.ErrNotFound):
		err = errGone
	case err == nil:
		err = c.getMeta(&c.Meta)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read catalogue: %w", err), db.Close())
	}
	if c.Spec.Version != Version {
		return nil, errors.Join(fmt.Errorf("the store has format version %d, this build knows %d: use a newer build", c.Spec.Version, Version), db.Close())
	}
	return c, nil
}

// readOnly is the file system as Pebble sees it while it only reads. It leaves out
// Pebble's lock, which would write a file; the store's own lock protects both.
type readOnly struct{ vfs.FS }

// Lock implements [vfs.FS].
func (readOnly) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// Unwrap implements [vfs.FS].
func (fs readOnly) Unwrap() vfs.FS { return fs.FS }

// Reader gives access to the rows as they are at each read.
func (c *Catalogue) Reader() pebble.Reader { return c.db }

// Snapshot gives access to the rows as they are now, until it is closed.
func (c *Catalogue) Snapshot() *pebble.Snapshot { return c.db.NewSnapshot() }

// SavedMeta reads what the last commit has saved.
func (c *Catalogue) SavedMeta() (m Meta, err error) {
	err = c.getMeta(&m)
	return m, err
}

// DiskSpace is the disk space of the catalogue, in bytes.
func (c *Catalogue) DiskSpace() uint64 { return c.db.Metrics().DiskSpaceUsage() }

// LiveTables returns the names of the tables that the catalogue consists of. A crash may
// leave others, not completed or no longer needed.
func (c *Catalogue) LiveTables() (map[string]bool, error) {
	levels, err := c.db.SSTables()
	if err != nil {
		return nil, fmt.Errorf("list tables of the catalogue: %w", err)
	}
	live := make(map[string]bool)
	for _, level := range levels {
		for _, table := range level {
			live[fmt.Sprintf("%06d.sst", uint64(table.BackingSSTNum))] = true
		}
	}
	return live, nil
}

// CopyTo makes a copy in a directory that does not exist.
func (c *Catalogue) CopyTo(dir string) error { return c.db.CopyTo(dir) }
