package offline

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/datadir"
)

const timelinesRemedy = "these events are stored nowhere else: restore the directory from the last backup; to continue without them, put an empty directory in its place"

// timelines verifies the checksums of the timelines' tables and, if no server is running,
// of their log.
func (c *checker) timelines(running bool) error {
	dir := c.fs.PathJoin(c.dir, datadir.Timelines)
	names, err := c.fs.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if c.meta.Timelines {
			c.timelinesDamaged(dir, errors.New("expected the store of timelines, got no such directory"), "all events: the server does not start")
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("list timelines: %w", err)
	}
	if !running {
		fault := catalogue.Verify(c.fs, dir)
		if fault == nil {
			fault = opens(c.fs, dir)
		}
		if errors.Is(fault, fs.ErrPermission) { // not damage: nobody should restore a backup, or give up events, because of it
			return fmt.Errorf("open timelines: %w", fault)
		}
		if fault != nil {
			c.timelinesDamaged(dir, fault, "the newest events, or all events: the server does not start")
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, ".sst") })
	slices.Sort(names)
	for _, name := range names {
		if info, err := c.fs.Stat(c.fs.PathJoin(dir, name)); err == nil {
			c.progress.Total += info.Size()
		}
	}
	for _, name := range names {
		path := c.fs.PathJoin(dir, name)
		size, fault, err := c.table(path)
		if running && (errors.Is(err, fs.ErrNotExist) || fault != nil && !c.exists(path)) {
			continue // compaction removed it meanwhile
		}
		if err != nil {
			return err
		}
		if err := c.read("timelines", size); err != nil {
			return err
		}
		if fault != nil {
			c.timelinesDamaged(path, fault, "events of timelines: reading them fails")
		}
	}
	return nil
}

// opens returns why a database of Pebble does not open, for example because a table is missing. A
// directory without a database is fine: a start creates one.
func opens(disk vfs.FS, dir string) error {
	db, err := catalogue.OpenPebbleToRead(disk, dir)
	if errors.Is(err, pebble.ErrDBDoesNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return db.Close()
}

func (c *checker) exists(path string) bool {
	_, err := c.fs.Stat(path)
	return err == nil
}

func (c *checker) timelinesDamaged(path string, fault error, cost string) {
	c.find(Finding{File: path, Offset: -1, part: partTimelines, Problem: catalogue.FirstLine(fault), Cost: cost, Remedy: timelinesRemedy})
}
