package transfer

import (
	"errors"
	"fmt"

	"varve/internal/units"
)

// Config are the settings of imports and exports.
type Config struct {

	// Constants; tests and benchmarks change them by --tune.

	MaxLine units.Bytes `tune:"max_line"` // longest line of an import
	// MaxConcurrent bounds the imports and exports over HTTP that run at once. A few use all of
	// a store, and one whose client is slow gives its place away.
	MaxConcurrent int `tune:"max_concurrent"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config { return Config{MaxLine: 64 * units.MiB, MaxConcurrent: 4} }

// Validate reports all values that make no sense.
func (c Config) Validate() error {
	var errs []error
	if c.MaxLine <= 0 || c.MaxLine > units.GiB {
		errs = append(errs, fmt.Errorf("max_line: is %s, must be more than 0 and at most 1GiB", c.MaxLine))
	}
	if c.MaxConcurrent <= 0 {
		errs = append(errs, fmt.Errorf("max_concurrent: %d is not greater than 0", c.MaxConcurrent))
	}
	return errors.Join(errs...)
}
