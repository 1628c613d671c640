package transfer

import (
	"errors"
	"fmt"

	"varve/internal/units"
)

// Config are the settings of imports and exports.
type Config struct {
	MaxConcurrent int `yaml:"max_concurrent" doc:"Most imports and exports over HTTP that run at once. Further ones are answered 503."`

	// Constants; tests and benchmarks change them by --tune.

	MaxLine units.Bytes `tune:"max_line"` // longest line of an import
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
