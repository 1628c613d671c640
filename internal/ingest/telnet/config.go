package telnet

import (
	"time"

	"varve/internal/units"
)

// Config holds the limits of the telnet listener.
type Config struct {
	MaxLine        units.Bytes `yaml:"max_line" default:"64KiB" want:"64 to 4MiB" doc:"Longest line, 64 to 4MiB. A longer one is discarded to its end and counted."`
	MaxConnections int         `yaml:"max_connections" default:"1000" want:"positive" doc:"Most open connections. At the limit, a new connection replaces a connection of the address that has the most: the one that has gone longest without sending a line."`

	// Constants; tests and benchmarks change them by --tune.

	// ReadBuffer is the size to which the buffer of a busy connection grows. One buffer of
	// lines is stored at once.
	ReadBuffer units.Bytes `tune:"read_buffer" default:"256KiB" want:"16KiB to 4MiB"`
	// RetryFor is how long a block of lines is offered to a store that cannot accept it. After that
	// the lines are counted as refused and the connection is closed.
	RetryFor time.Duration `tune:"retry_for" default:"1m" want:"positive"`
}

// DefaultConfig returns the limits without any configuration.
func DefaultConfig() Config { return units.Defaults[Config]() }

// Validate reports every value that makes no sense, by its key.
func (c Config) Validate() error {
	return units.Bounds("", c)
}
