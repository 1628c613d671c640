package embedded

import (
	"errors"
	"fmt"
	"time"

	"varve/internal/head"
	"varve/internal/units"
	"varve/internal/wal"
)

// Config holds the settings of the embedded store.
type Config struct {
	RowWidth time.Duration `yaml:"row_width" doc:"span of time of one row and one partition; chosen when a store is created, kept in it, and never changed after"`

	Log wal.Config `yaml:"log" doc:"write-ahead log"`

	HeadBytes          units.Bytes   `yaml:"head_bytes" doc:"samples in memory, and names of new series, beyond this size are written to files; byte strings count with their full length"`
	HeadBytesMax       units.Bytes   `yaml:"head_bytes_max" doc:"samples in memory, and names of new series, at which writers and deletes wait until files are written, at most 2GiB"`
	CheckpointSamples  int64         `yaml:"checkpoint_samples" doc:"samples in memory beyond this number are written to files; bounds what is replayed after a crash"`
	CheckpointInterval time.Duration `yaml:"checkpoint_interval" doc:"samples are written to files at least this often"`

	MergeFiles          int           `yaml:"merge_files" doc:"number of files of similar size at which they are merged: those of a partition with each other, and those with few samples with each other"`
	MaintenanceInterval time.Duration `yaml:"maintenance_interval" doc:"how often the store looks for expired files and files to merge"`

	MinFreeBytes units.Bytes `yaml:"min_free_bytes" doc:"free disk space below which the store takes no more writes, so that what it has taken can still be put in order; writing resumes at a quarter more; 0 = do not look"`

	BackupDir string `yaml:"backup_dir" doc:"directory that backups are made in, and nowhere else; best on the disk of the data directory, where it costs no space at first; empty = backups in the data directory"`

	PageCacheBytes      units.Bytes `yaml:"page_cache_bytes" doc:"memory for pages of block files, and for the indexes of pages that are read again"`
	CatalogueCacheBytes units.Bytes `yaml:"catalogue_cache_bytes" doc:"memory for blocks of the catalogue"`
}

// DefaultConfig returns the settings of a small server.
func DefaultConfig() Config {
	return Config{
		RowWidth:            3 * 7 * 24 * time.Hour,
		Log:                 wal.DefaultConfig(),
		HeadBytes:           48 * units.MiB,
		HeadBytesMax:        160 * units.MiB,
		CheckpointSamples:   6_000_000,
		CheckpointInterval:  10 * time.Minute,
		MergeFiles:          6,
		MaintenanceInterval: 15 * time.Second,
		MinFreeBytes:        256 * units.MiB,
		PageCacheBytes:      32 * units.MiB,
		CatalogueCacheBytes: 8 * units.MiB,
	}
}

// Validate reports every setting that cannot be used.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, key, want string, got any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: want %s, got %v", key, want, got))
		}
	}
	check(c.RowWidth >= time.Minute && c.RowWidth <= (1<<31-1)*time.Millisecond && c.RowWidth%time.Millisecond == 0,
		"row_width", "whole milliseconds from 1m to 596h31m23.647s", c.RowWidth)
	check(c.HeadBytes >= units.MiB, "head_bytes", "at least 1MiB", c.HeadBytes)
	check(c.HeadBytes <= c.HeadBytesMax/2 && c.HeadBytesMax <= head.MaxBytes, "head_bytes_max", "at least twice head_bytes, at most 2GiB", c.HeadBytesMax)
	check(c.CheckpointSamples >= 1, "checkpoint_samples", "at least 1", c.CheckpointSamples)
	check(c.CheckpointInterval >= time.Second, "checkpoint_interval", "at least 1s", c.CheckpointInterval)
	check(c.MergeFiles >= 2, "merge_files", "at least 2", c.MergeFiles)
	check(c.MaintenanceInterval >= 10*time.Millisecond, "maintenance_interval", "at least 10ms", c.MaintenanceInterval)
	check(c.MinFreeBytes >= 0, "min_free_bytes", "0 or more", c.MinFreeBytes)
	check(c.PageCacheBytes >= 0, "page_cache_bytes", "0 or more", c.PageCacheBytes)
	check(c.CatalogueCacheBytes >= 0, "catalogue_cache_bytes", "0 or more", c.CatalogueCacheBytes)
	if err := c.Log.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("log: %w", err))
	}
	return errors.Join(errs...)
}
