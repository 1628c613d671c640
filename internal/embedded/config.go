package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"varve/internal/head"
	"varve/internal/units"
	"varve/internal/wal"
)

// Config holds the settings of the embedded store.
type Config struct {
	RowWidth time.Duration `yaml:"row_width" default:"504h" doc:"Time span of a row and of a partition, 1m to 596h (24 days). Fixed when a store is created."`

	Log wal.Config `yaml:"log" doc:"write-ahead log"`

	HeadBytesMax units.Bytes `yaml:"head_bytes_max" want:"2MiB to 2GiB, or 0" doc:"Memory for recent samples and the names of new series, 2MiB to 2GiB. 0 means 160MiB, or a tenth of the memory of the machine or its control group if that is less; with more than 250,000 active series it grows by 1KiB per series, up to the lesser of a sixteenth of that memory and half of the free disk space above min_free_bytes. At 30 % of the limit, samples are written to files. At 100 %, writes and deletes wait until that is done. Byte strings, and samples of series that arrive out of order, count with their full length."`

	MinFreeBytes units.Bytes `yaml:"min_free_bytes" default:"256MiB" want:"not negative" doc:"Free disk space below which writes are refused, so that samples in memory can still be written to files. Writes resume at 1.25 times as much. A value below head_bytes_max may not leave enough space for that. 0 turns the check off."`

	BackupDir string `yaml:"backup_dir" doc:"Directory for backups. If it is on the same disk as the data directory, a backup takes no space at first. It must be outside the data directory, or be its subdirectory backups or a directory below that. Empty: backups in the data directory."`

	PageCacheBytes units.Bytes `yaml:"page_cache_bytes" default:"32MiB" want:"not negative" doc:"Memory for pages of block files. Pages that are read repeatedly also have an index there."`

	// Constants; tests and benchmarks change them by --tune.

	// HeadBytes is the size of samples in memory beyond which they are written to files. 0
	// means that headBytes computes the size.
	HeadBytes units.Bytes `tune:"head_bytes"`
	// Samples in memory are written to files beyond this number, which bounds what is
	// replayed after a crash, and at least this often.
	CheckpointSamples  int64         `tune:"checkpoint_samples" default:"6000000" want:"at least 1"`
	CheckpointInterval time.Duration `tune:"checkpoint_interval" default:"10m" want:"at least 1s"`
	// MergeFiles is how many files of similar size are merged: those of a partition with
	// each other, and those with few samples with each other.
	MergeFiles          int           `tune:"merge_files" default:"6" want:"at least 2"`
	MaintenanceInterval time.Duration `tune:"maintenance_interval" default:"15s" want:"at least 10ms"`  // between searches for expired files and files to merge
	LateHold            time.Duration `tune:"late_hold" default:"24h" want:"not negative"`              // see heldBack; 0 = none
	CatalogueCacheBytes units.Bytes   `tune:"catalogue_cache_bytes" default:"8MiB" want:"not negative"` // memory for blocks of the catalogue
}

// DefaultConfig returns the settings of a small server.
func DefaultConfig() Config { return units.Defaults[Config]() }

// If head_bytes_max is 0, recent samples may take headBytesLeast (on a small machine, 1/smallShare of its
// memory), plus headBytesSeries for each series beyond usualSeries. A series with 8 samples in memory takes
// 160 bytes, with 16 samples 264. If a checkpoint began at the same size with a million series as with a
// thousand, it would find one or two samples of each, and write a chunk for these.
const (
	headBytesLeast  = 160 * units.MiB
	headBytesSeries = units.KiB
	usualSeries     = 250_000
	headShare       = 16 // recent samples take at most 1/headShare of the machine's memory
	smallShare      = 10
	headBytesTiny   = 2 * units.MiB // the smallest that can be set

	// Recent samples may take 1/roomShare of the free disk space above min_free_bytes. A batch is in the
	// log before it is in memory. So when recent samples take half of that space, at least the other half
	// is left for the files to which they are written.
	roomShare = 2
)

// means are the memory and the disk space of a machine for recent samples.
type means struct {
	memory int64 // 0 if it is not known
	room   int64 // free disk space above min_free_bytes; math.MaxInt64 if it does not count
}

// headBytesMax is the most memory that recent samples of this number of series
// may take.
func (c *Config) headBytesMax(series int64, has means) units.Bytes {
	if c.HeadBytesMax != 0 {
		return c.HeadBytesMax
	}
	least := headBytesLeast
	if has.memory > 0 {
		least = min(least, max(units.Bytes(has.memory/smallShare), headBytesTiny))
	}
	wanted := least + units.Bytes(max(0, series-usualSeries))*headBytesSeries
	return min(wanted, max(least, units.Bytes(min(has.memory/headShare, has.room/roomShare))), head.MaxBytes)
}

// headBytes is the part of headBytesMax at which a checkpoint begins. It leaves room for samples
// that arrive while files are written: writers wait only if writing the files takes longer than
// gathering their samples.
func (c *Config) headBytes(series int64, has means) units.Bytes {
	return cmp.Or(c.HeadBytes, c.headBytesMax(series, has)*3/10)
}

// LargestHead returns the most that recent samples may take with any number of series on a machine with this
// much memory (0: unknown).
func (c *Config) LargestHead(memory int64) units.Bytes {
	return c.headBytesMax(1<<32, means{memory, math.MaxInt64})
}

// Validate reports every setting that cannot be used.
func (c Config) Validate() error {
	errs := []error{
		units.Bounds("", c),
		units.Check(c.RowWidth >= time.Minute && c.RowWidth <= (1<<31-1)*time.Millisecond && c.RowWidth%time.Millisecond == 0,
			"row_width", "whole milliseconds from 1m to 596h31m23.647s", c.RowWidth),
		units.Check(c.HeadBytes == 0 || c.HeadBytes >= units.MiB && c.HeadBytes <= c.headBytesMax(0, means{})/2, "head_bytes", "1MiB to half of head_bytes_max, or 0", c.HeadBytes),
	}
	if err := c.Log.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("log: %w", err))
	}
	return errors.Join(errs...)
}
