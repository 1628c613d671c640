package offline

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/datadir"
	"varve/internal/record"
)

const catalogueRemedy = "only the catalogue has this data: restore the last backup; keep a copy of this directory, because its block files and log are not affected"

// catalogueLost reports a catalogue that cannot be opened.
func (c *checker) catalogueLost(fault error) {
	c.findRow(catalogue.FirstLine(fault), "the names of all series: no sample can be assigned to its series, and the server does not start")
}

// tables verifies the checksum of every block of every live table of the
// catalogue, also of those parts that no row is read from. nil = every table that the
// catalogue may have.
func (c *checker) tables(live map[string]bool) error {
	dir := c.fs.PathJoin(c.dir, datadir.Catalogue)
	names, err := c.list(datadir.Catalogue)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		if name == catalogue.NewSeries || live != nil && !live[name] {
			c.note("%s/%s is not in use: a crash left it, and the next start removes it", datadir.Catalogue, name)
			continue
		}
		path := c.fs.PathJoin(dir, name)
		size, fault, err := c.table(path)
		if err != nil {
			return err
		}
		if err := c.read("catalogue", size); err != nil {
			return err
		}
		if fault != nil {
			c.find(Finding{
				File: path, Offset: -1, part: partCatalogue, Problem: catalogue.FirstLine(fault),
				Cost:   "rows of the catalogue: names of series, the list of block files, or deletions",
				Remedy: catalogueRemedy,
			})
		}
	}
	return nil
}

func (c *checker) table(path string) (size int64, fault, err error) {
	f, err := c.fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return 0, nil, fmt.Errorf("open table of the catalogue: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return 0, nil, errors.Join(fmt.Errorf("size of %s: %w", path, err), f.Close())
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return 0, nil, errors.Join(fmt.Errorf("read %s: %w", path, err), f.Close())
	}
	o := &pebble.Options{}
	o.EnsureDefaults()
	r, err := sstable.NewReader(context.Background(), readable, o.MakeReaderOptions())
	if err != nil {
		return info.Size(), errors.Join(err, readable.Close()), nil
	}
	return info.Size(), errors.Join(r.ValidateBlockChecksums(), r.Close()), nil
}

// readRows reads every row of the catalogue, and keeps the data that the other
// checks need.
func (c *checker) readRows() error {
	c.metaRows()
	for _, t := range []struct {
		table byte
		what  string
		cost  string
		row   func(key, value []byte) error
	}{
		{catalogue.TableSeries, "series", "the names of series: their samples cannot be found", c.seriesRow},
		{catalogue.TableFile, "block files", "the list of block files: their samples cannot be found", func(key, value []byte) error {
			_, _, err := catalogue.ParseFile(key, value)
			return err
		}},
		{catalogue.TableDeletion, "deletions", "deletions: deleted samples may reappear", c.deletionRow},
		{catalogue.TableValue, "key-values", "key-values (KairosDB's metadata)", catalogue.CheckValue},
		{catalogue.TableModified, "key-values", "modification times of key-values", catalogue.CheckModified},
	} {
		err := catalogue.Scan(c.rows, t.table, func(key, value []byte) error {
			c.report.Rows++
			if err := t.row(key, value); err != nil {
				c.findRow(err.Error(), t.cost)
			}
			if c.report.Rows%4096 == 0 {
				return c.ctx.Err()
			}
			return nil
		})
		if c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		if err != nil {
			c.findRow(fmt.Sprintf("table of %s: %v", t.what, err), t.cost)
		}
	}
	if c.uncounted > 0 {
		// Series are added before the commit that counts them. If that commit never came,
		// the log has them too.
		c.note("%d series were added by a checkpoint that a crash interrupted; the log has them too", c.uncounted)
	}
	return nil
}

func (c *checker) findRow(problem, cost string) {
	c.find(Finding{
		File: c.fs.PathJoin(c.dir, datadir.Catalogue), Offset: -1, part: partCatalogue,
		Problem: problem, Cost: cost, Remedy: catalogueRemedy,
	})
}

func (c *checker) metaRows() {
	for name, into := range map[string]any{"spec": &catalogue.Spec{}, "store": &c.meta} {
		raw, closer, err := c.rows.Get(catalogue.MetaKey(name))
		if err == nil {
			c.report.Rows++
			err = json.Unmarshal(raw, into)
			closer.Close()
		}
		if err != nil {
			c.findRow(fmt.Sprintf("row %q: %v", name, err), "the settings that the store was created with, or where its log begins: the server does not start")
		}
	}
}

func (c *checker) seriesRow(key, value []byte) error {
	d, s, err := catalogue.ParseSeries(key, value)
	if err != nil {
		return err
	}
	if d.ID >= c.meta.NextSeries {
		c.uncounted++
	}
	c.report.Series++
	c.define(d.ID, s.Type.Kind())
	return nil
}

func (c *checker) deletionRow(key, value []byte) error {
	d, err := record.ParseDeletion(value)
	if err != nil {
		return err
	}
	if len(key) != 8 || binary.BigEndian.Uint64(key) != d.Sequence {
		return fmt.Errorf("deletion %d has the key %x", d.Sequence, key)
	}
	c.deletions = append(c.deletions, &d)
	return nil
}

// blocksWithoutCatalogue checks all existing block files, each on its own.
func (c *checker) blocksWithoutCatalogue() error {
	names, err := c.list(datadir.Blocks)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := c.fs.PathJoin(c.dir, datadir.Blocks, name)
		n, ok := datadir.BlockNumber(name)
		if !ok {
			continue
		}
		f, err := blockfile.Open(c.fs, path, n, blockfile.NewCache(0))
		if err == nil {
			c.report.Files++
			c.report.Bytes += f.Bytes
			err = f.Scan(c.ctx, func(e *chunk.Entry) { c.report.Chunks++; c.report.Samples += int64(e.Count) })
			err = errors.Join(err, f.Close())
		}
		if errors.Is(err, io.EOF) || isDamage(err) {
			c.note("%v", err)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
