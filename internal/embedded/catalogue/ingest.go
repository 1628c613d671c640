package catalogue

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/record"
)

const (
	// manySeries is from how many on series are added as a table.
	manySeries = 1024

	// newSeriesName is a table that is not in the database yet. What a crash leaves is
	// overwritten by the next one.
	newSeriesName = "new-series.sst"

	lowestLevel = 6
)

// defineMany adds series as a table of their own, which Pebble takes as it is. By its log and a
// memtable they would be written three times, and then again and again: each commit writes
// rows that sort before all series, new series sort behind the others, and a table with both
// reaches over all series there are, as far as compactions are concerned.
func (c *Catalogue) defineMany(all []record.Definition) error {
	path := c.fs.PathJoin(c.dir, newSeriesName)
	if err := c.writeTable(path, all); err != nil {
		return err
	}
	return c.db.Ingest(context.Background(), []string{path})
}

// writeTable writes the rows of series to a file, and syncs it.
func (c *Catalogue) writeTable(path string, all []record.Definition) error {
	all = slices.SortedFunc(slices.Values(all), func(a, b record.Definition) int { return cmp.Compare(a.ID, b.ID) })
	file, err := c.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	options := pebble.Options{FormatMajorVersion: format}
	options.EnsureDefaults()
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(file), options.MakeWriterOptions(lowestLevel, c.db.TableFormat()))
	for _, d := range all {
		err = errors.Join(err, w.Set(seriesKey(d.ID), []byte(d.Key)))
	}
	return errors.Join(err, w.Close())
}
