package wal

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"varve/internal/units"
)

// Values of Config.Durability.
const (
	Fsync    = "fsync"
	Interval = "interval"
)

// Config are the settings of a log. Zero means the default, except for RecycleSegments.
type Config struct {
	Durability string `yaml:"durability" default:"fsync" doc:"When a write is acknowledged: \"fsync\" after it is synced to disk, \"interval\" after it is passed to the operating system. With interval, the log is synced every 100ms."`

	// Constants, which tests and benchmarks change with --tune.

	// SyncInterval is the longest time between a write and its sync with
	// durability interval. A power cut loses at most the writes of this time. Ten syncs
	// a second are a light load for any disk.
	SyncInterval    time.Duration `tune:"sync_interval" default:"100ms" want:"1ms to 1m"`
	SegmentBytes    units.Bytes   `tune:"segment_bytes" default:"16MiB" want:"4KiB to 1GiB"` // size at which a new log file is begun
	BufferBytes     units.Bytes   `tune:"buffer_bytes" default:"16MiB" want:"4KiB to 1GiB"`  // bytes that may be queued before writers wait; a larger record waits until nothing is queued
	RecycleSegments int           `tune:"recycle_segments" default:"2" want:"0 to 64"`       // log files kept for reuse
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config { return units.Defaults[Config]() }

func (c Config) withDefaults() Config {
	d := DefaultConfig()
	c.Durability = cmp.Or(c.Durability, d.Durability)
	c.SyncInterval = cmp.Or(c.SyncInterval, d.SyncInterval)
	c.SegmentBytes = cmp.Or(c.SegmentBytes, d.SegmentBytes)
	c.BufferBytes = cmp.Or(c.BufferBytes, d.BufferBytes)
	return c
}

// Validate reports all settings that are out of range.
func (c Config) Validate() error {
	c = c.withDefaults()
	return errors.Join(
		units.Bounds("", c),
		units.Check(c.Durability == Fsync || c.Durability == Interval, "durability", fmt.Sprintf("%q or %q", Fsync, Interval), c.Durability),
	)
}
