package carbon

import (
	"time"

	"varve/internal/units"
)

// Config holds the limits of carbon's listeners.
type Config struct {
	MaxPickle      units.Bytes `yaml:"max_pickle" default:"1MiB" want:"1KiB to 64MiB" doc:"Longest pickle, 1KiB to 64MiB. Varve closes a connection that sends a longer one. Carbon's limit is 1MiB."`
	MaxConnections int         `yaml:"max_connections" default:"1000" want:"positive" doc:"Most open connections, separately for lines and for pickles. At the limit, a new connection replaces a connection of the address that has the most: the one that has gone longest without sending a complete line or pickle."`

	// Constants; tests and benchmarks change them by --tune.

	// ReadBuffer is the size to which the buffer of a busy connection grows.
	ReadBuffer units.Bytes `tune:"read_buffer" default:"256KiB" want:"16KiB to 4MiB"`
	// RetryFor is how long samples are offered to a store that cannot take them. After
	// that they are counted as refused and the connection is closed.
	RetryFor time.Duration `tune:"retry_for" default:"1m" want:"positive"`
	MaxLine  units.Bytes   `tune:"max_line" default:"16KiB" want:"64 to 4MiB"` // longest line; carbon closes the connection on a longer one, here only the line is lost
}

// DefaultConfig returns the limits without any configuration.
func DefaultConfig() Config { return units.Defaults[Config]() }

// Validate reports every value that makes no sense, by its key.
func (c Config) Validate() error {
	return units.Bounds("", c)
}
