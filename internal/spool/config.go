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
	Acknowledge string        `yaml:"acknowledge" doc:"when a write is acknowledged: \"spool\" once it is in the local log, \"store\" once the remote store has it"`
	Linger      time.Duration `yaml:"linger" doc:"How long samples are collected before they are written to the remote store, at most 1h. With a longer time, more samples of a series are written together, and each costs less. Samples are durable and visible on this server at once."`

	MaxMemory    units.Bytes `yaml:"max_memory" doc:"Memory for samples that the remote store does not have yet. Older samples are kept in files. Once samples take a third of it, they are written to the remote store without waiting for linger. A series takes about 230 bytes, a sample 3 to 17. Choose a value that holds the samples of one linger."`
	MaxBytes     units.Bytes `yaml:"max_bytes" doc:"Disk space for samples that the remote store does not have yet. At the limit, writes are refused."`
	MinFreeBytes units.Bytes `yaml:"min_free_bytes" doc:"Free disk space below which writes are refused. 0 turns the check off."`

	Log wal.Config `yaml:"log" doc:"write-ahead log"`

	// Constants; tests and benchmarks change them by --tune.

	// GenerationBytes is the size of samples in memory beyond which they are handed to the remote
	// store at once, 64KiB to 1GiB. While it is 0, see generationBytes.
	GenerationBytes   units.Bytes   `tune:"generation_bytes"`
	StoreLinger       time.Duration `tune:"store_linger"`       // Linger with acknowledge store, where a client waits for it
	GenerationSamples int64         `tune:"generation_samples"` // samples in memory beyond this number are handed to the remote store at once
	MaxIdleSeries     int           `tune:"max_idle_series"`    // series without samples here that are kept in memory, since they will probably get samples again
	// AcknowledgeTimeout is the longest time, 10ms to 1h, that a write waits for the remote
	// store if acknowledge is "store". The default is as long as writes over HTTP wait for a
	// store. The samples may still arrive after it.
	AcknowledgeTimeout time.Duration `tune:"acknowledge_timeout"`
}

// DefaultConfig returns the settings of a small server.
func DefaultConfig() Config {
	return Config{
		Acknowledge:        AcknowledgeSpool,
		AcknowledgeTimeout: 30 * time.Second,
		Linger:             30 * time.Second,
		StoreLinger:        20 * time.Millisecond,
		GenerationSamples:  3_000_000,
		MaxMemory:          144 * units.MiB,
		MaxBytes:           8 * units.GiB,
		MinFreeBytes:       256 * units.MiB,
		MaxIdleSeries:      250_000,
		Log:                wal.DefaultConfig(),
	}
}

// Validate reports every setting that cannot be used.
func (c Config) Validate() error {
	errs := []error{
		units.Check(c.Acknowledge == AcknowledgeSpool || c.Acknowledge == AcknowledgeStore, "acknowledge", "\"spool\" or \"store\"", c.Acknowledge),
		units.Range("acknowledge_timeout", c.AcknowledgeTimeout, 10*time.Millisecond, time.Hour),
		units.Range("linger", c.Linger, 0, time.Hour),
		units.Range("store_linger", c.StoreLinger, 0, time.Minute),
		units.Check(c.GenerationBytes == 0 || c.GenerationBytes >= 64*units.KiB && c.GenerationBytes <= units.GiB, "generation_bytes", "64KiB to 1GiB, or 0", c.GenerationBytes),
		units.Range("generation_samples", c.GenerationSamples, 1, 1<<30),
		units.Check(c.MaxMemory >= max(2*c.GenerationBytes, 128*units.KiB), "max_memory", "at least 128KiB and twice generation_bytes", c.MaxMemory),
		units.AtLeast("max_bytes", c.MaxBytes, units.MiB),
		units.NotNegative("min_free_bytes", c.MinFreeBytes),
		units.NotNegative("max_idle_series", c.MaxIdleSeries),
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
