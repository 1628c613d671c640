package telnet

import (
	"errors"
	"fmt"
	"time"

	"varve/internal/ingest/lines"
	"varve/internal/units"
)

// Config holds the limits of the telnet listener.
type Config struct {
	MaxLine        units.Bytes `yaml:"max_line" doc:"Longest line. A longer one is discarded to its end and counted."`
	MaxConnections int         `yaml:"max_connections" doc:"Open connections. At the limit, a new connection replaces the one that has sent no line for longest."`

	// Constants; tests and benchmarks change them by --tune.

	// ReadBuffer is the size to which the buffer of a busy connection grows. One buffer of
	// lines is stored at once.
	ReadBuffer units.Bytes `tune:"read_buffer"`
	// RetryFor is how long a block of lines is offered to a store that cannot take it. After
	// that the lines are counted as refused and the connection is closed.
	RetryFor time.Duration `tune:"retry_for"`
}

// DefaultConfig returns the limits of a server that was told nothing.
func DefaultConfig() Config {
	return Config{
		MaxLine:        64 * units.KiB,
		MaxConnections: 1000,
		ReadBuffer:     256 * units.KiB,
		RetryFor:       time.Minute,
	}
}

// Validate reports every value that makes no sense, by its key.
func (c Config) Validate() error {
	var errs []error
	if c.MaxLine < 64 || c.MaxLine > 4*units.MiB {
		errs = append(errs, fmt.Errorf("max_line: is %s, must be between 64 and 4MiB", c.MaxLine))
	}
	if c.MaxConnections <= 0 {
		errs = append(errs, fmt.Errorf("max_connections: is %d, must be greater than 0", c.MaxConnections))
	}
	if c.ReadBuffer < lines.FirstBuffer || c.ReadBuffer > 4*units.MiB {
		errs = append(errs, fmt.Errorf("read_buffer: is %s, must be between %s and 4MiB", c.ReadBuffer, units.Bytes(lines.FirstBuffer)))
	}
	if c.RetryFor <= 0 {
		errs = append(errs, fmt.Errorf("retry_for: is %s, must be greater than 0", c.RetryFor))
	}
	return errors.Join(errs...)
}
