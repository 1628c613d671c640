package carbon

import (
	"errors"
	"fmt"
	"time"

	"varve/internal/ingest/lines"
	"varve/internal/units"
)

// Config holds the limits of carbon's listeners.
type Config struct {
	MaxPickle      units.Bytes `yaml:"max_pickle" doc:"Length of a pickle; the connection of a longer one is closed. Carbon takes 1MiB."`
	MaxConnections int         `yaml:"max_connections" doc:"Connections at a time, of lines and of pickles each. At the limit, a new connection replaces the one that has sent nothing complete for longest."`

	// Constants; tests and benchmarks change them by --tune.

	// ReadBuffer is the size to which the buffer of a busy connection grows.
	ReadBuffer units.Bytes `tune:"read_buffer"`
	// RetryFor is how long samples are offered to a store that cannot take them. After
	// that they are counted as refused and the connection is closed.
	RetryFor time.Duration `tune:"retry_for"`
	MaxLine  units.Bytes   `tune:"max_line"` // longest line, at which carbon closes the connection; here only the line is lost
}

// DefaultConfig returns the limits of a server that was told nothing.
func DefaultConfig() Config {
	return Config{
		MaxLine:        16 * units.KiB,
		MaxPickle:      units.MiB,
		MaxConnections: 1000,
		ReadBuffer:     256 * units.KiB,
		RetryFor:       time.Minute,
	}
}

// Validate reports every value that makes no sense, by its key.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.MaxLine < 64 || c.MaxLine > 4*units.MiB {
		bad("max_line: is %s, must be between 64 and 4MiB", c.MaxLine)
	}
	if c.MaxPickle < units.KiB || c.MaxPickle > 64*units.MiB {
		bad("max_pickle: is %s, must be between 1KiB and 64MiB", c.MaxPickle)
	}
	if c.MaxConnections <= 0 {
		bad("max_connections: is %d, must be greater than 0", c.MaxConnections)
	}
	if c.ReadBuffer < lines.FirstBuffer || c.ReadBuffer > 4*units.MiB {
		bad("read_buffer: is %s, must be between %s and 4MiB", c.ReadBuffer, units.Bytes(lines.FirstBuffer))
	}
	if c.RetryFor <= 0 {
		bad("retry_for: is %s, must be greater than 0", c.RetryFor)
	}
	return errors.Join(errs...)
}
