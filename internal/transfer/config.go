package transfer

import (
	"errors"

	"varve/internal/units"
)

// Config are the settings of imports and exports.
type Config struct {

	// Constants; tests and benchmarks change them by --tune.

	MaxLine units.Bytes `tune:"max_line"` // longest line of an import
	// MaxEmpty bounds the lines of an import over HTTP that are blank or of which something is
	// refused. An import with many of them keeps its slot for hours, for a body of a MiB.
	MaxEmpty int `tune:"max_empty"`
	// MaxConcurrent bounds the imports and exports over HTTP that run at once. A few use all of
	// a store, and one whose client is slow gives its slot away.
	MaxConcurrent int `tune:"max_concurrent"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{MaxLine: 64 * units.MiB, MaxEmpty: 1 << 20, MaxConcurrent: 4}
}

// Validate reports all values that make no sense.
func (c Config) Validate() error {
	return errors.Join(
		units.Range("max_line", c.MaxLine, 1, units.GiB),
		units.Positive("max_empty", c.MaxEmpty),
		units.Positive("max_concurrent", c.MaxConcurrent),
	)
}
