package spool

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"varve/internal/units"
	"varve/internal/wal"
)

// Values of Config.Acknowledge.
const (
	AcknowledgeSpool = "spool"
	AcknowledgeStore = "store"
)

// Config holds the settings of a spool.
type Config struct {
	Acknowledge string        `yaml:"acknowledge" default:"spool" doc:"when a write is acknowledged: \"spool\" once it is in the local log, \"store\" once the remote store has it"`
	Linger      time.Duration `yaml:"linger" default:"30s" want:"0s to 1h" doc:"How long samples are collected before they are written to the remote store, at most 1h. With a longer time, more samples of a series are written together, and each costs less. Samples are durable and visible on this server at once."`

	MaxMemory    units.Bytes `yaml:"max_memory" default:"144MiB" doc:"Memory for samples that the remote store does not have yet. Older samples are kept in files. Once samples take a third of it, they are written to the remote store without waiting for linger. A series takes about 230 bytes, a sample 3 to 17. Choose a value that holds the samples of one linger."`
	MaxBytes     units.Bytes `yaml:"max_bytes" default:"8GiB" want:"at least 1MiB" doc:"Disk space for samples that the remote store does not have yet. At the limit, writes are refused."`
	MinFreeBytes units.Bytes `yaml:"min_free_bytes" default:"256MiB" want:"not negative" doc:"Free disk space below which writes are refused. 0 turns the check off."`

	Log wal.Config `yaml:"log" doc:"write-ahead log"`

	// Constants; tests and benchmarks change them by --tune.

	// GenerationBytes is the size of samples in memory beyond which they are handed to the remote
	// store at once. While it is 0, see generationBytes.
	GenerationBytes   units.Bytes   `tune:"generation_bytes" want:"64KiB to 1GiB, or 0"`
	StoreLinger       time.Duration `tune:"store_linger" default:"20ms" want:"0s to 1m"`                 // Linger with acknowledge store, where a client waits for it
	GenerationSamples int64         `tune:"generation_samples" default:"3000000" want:"1 to 1073741824"` // samples in memory beyond this number are handed to the remote store at once
	MaxIdleSeries     int           `tune:"max_idle_series" default:"250000" want:"not negative"`        // series without samples here that are kept in memory, since they will probably get samples again
	// AcknowledgeTimeout is the longest time that a write waits for the remote
	// store if acknowledge is "store". The default is as long as writes over HTTP wait for a
	// store. The samples may still arrive after it.
	AcknowledgeTimeout time.Duration `tune:"acknowledge_timeout" default:"30s" want:"10ms to 1h"`
}

// DefaultConfig returns the settings of a small server.
func DefaultConfig() Config { return units.Defaults[Config]() }

// Validate reports every setting that cannot be used.
func (c Config) Validate() error {
	leastMemory := max(2*c.GenerationBytes, 128*units.KiB)
	errs := []error{
		units.Bounds("", c),
		units.Check(c.Acknowledge == AcknowledgeSpool || c.Acknowledge == AcknowledgeStore, "acknowledge", "\"spool\" or \"store\"", c.Acknowledge),
		units.Check(c.MaxMemory >= leastMemory, "max_memory", "at least "+leastMemory.String(), c.MaxMemory),
	}
	if err := c.Log.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("log: %w", err))
	}
	return errors.Join(errs...)
}

// generationBytes is a third of the memory: one generation collects samples, one is written to
// the remote store, and one is written to files if the remote store is unavailable.
func (c *Config) generationBytes() units.Bytes {
	return cmp.Or(c.GenerationBytes, min(c.MaxMemory/3, units.GiB))
}

// linger is how long samples are collected.
func (c Config) linger() time.Duration {
	if c.Acknowledge == AcknowledgeStore {
		return c.StoreLinger
	}
	return c.Linger
}
