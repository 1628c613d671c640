package catalogue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/record"
)

const (
	// manySeries is the number of series from which on they are added as a table of their own.
	manySeries = 1024

	// NewSeries is the name of a table that is not in the database yet. If a crash leaves one,
	// the next start removes it.
	NewSeries = "new-series.sst"

	lowestLevel = 6
)

// defineMany adds series as a table, which Pebble ingests as it is. Through the log and a memtable
// they would be written three times and then rewritten by compactions again and again: each commit
// writes rows that sort before all series, new series sort after all others, and a table with both
// overlaps all tables of series.
func (c *Catalogue) defineMany(all []record.Definition) error {
	path := c.fs.PathJoin(c.dir, NewSeries)
	err := c.writeTable(path, all)
	if err == nil {
		err = c.db.Ingest(context.Background(), []string{path})
	}
	if err != nil {
		return errors.Join(err, removeLeft(c.fs, c.dir)) // in case the error was a lack of space
	}
	return nil
}

// writeTable writes the rows of series to a file, and syncs it.
func (c *Catalogue) writeTable(path string, all []record.Definition) error {
	file, err := c.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	options := pebble.Options{FormatMajorVersion: format}
	options.EnsureDefaults()
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(file), options.MakeWriterOptions(lowestLevel, c.db.TableFormat()))
	for _, d := range lastOfEach(all) {
		if err = w.Set(seriesKey(d.ID), []byte(d.Key)); err != nil {
			break
		}
	}
	return errors.Join(err, w.Close())
}

// removeLeft removes the table that a crash or an error left behind.
func removeLeft(fs vfs.FS, dir string) error {
	err := fs.Remove(fs.PathJoin(dir, NewSeries))
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("remove an incomplete table of series: %w", err)
}

// lastOfEach returns the last definition of each number, by number: a log that replaces a
// failed one introduces series again, and a start finds both definitions.
func lastOfEach(all []record.Definition) []record.Definition {
	all = slices.Clone(all)
	slices.Reverse(all)
	slices.SortStableFunc(all, func(a, b record.Definition) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(all, func(a, b record.Definition) bool { return a.ID == b.ID })
}
