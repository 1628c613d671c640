package transfer

import (
	"errors"

	"varve/internal/units"
)

// Config are the settings of imports and exports.
type Config struct {

	// Constants; tests and benchmarks change them by --tune.

	MaxLine units.Bytes `tune:"max_line"` // longest line of an import
	// MaxEmpty limits the lines of an import over HTTP that are blank or refused, entirely or in
	// part. Without a limit, a body of 1 MiB could hold its slot for hours with such lines.
	MaxEmpty int `tune:"max_empty"`
	// MaxConcurrent limits the imports and exports over HTTP that run at once. A few saturate a
	// store, and a slow client loses its slot to a waiting request.
	MaxConcurrent int `tune:"max_concurrent"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{MaxLine: 64 * units.MiB, MaxEmpty: 1 << 20, MaxConcurrent: 4}
}

// Validate reports all invalid values.
func (c Config) Validate() error {
	return errors.Join(
		units.Range("max_line", c.MaxLine, 1, units.GiB),
		units.Positive("max_empty", c.MaxEmpty),
		units.Positive("max_concurrent", c.MaxConcurrent),
	)
}
