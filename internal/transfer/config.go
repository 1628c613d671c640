package transfer

import (
	"varve/internal/units"
)

// Config are the settings of imports and exports.
type Config struct {

	// Constants; tests and benchmarks change them by --tune.

	// MaxLine is the longest line of an import. Over HTTP, a line may also have no more bytes than a
	// body of points, since MaxConcurrent imports hold a line each.
	MaxLine units.Bytes `tune:"max_line" default:"64MiB" want:"1 to 1GiB"`
	// MaxEmpty limits the lines of an import over HTTP that are blank or refused, entirely or in
	// part. Without a limit, a body of 1 MiB could hold its slot for hours with such lines.
	MaxEmpty int `tune:"max_empty" default:"1048576" want:"positive"`
	// MaxConcurrent limits the imports and exports over HTTP that run at once. A few saturate a
	// store, and a slow client loses its slot to a waiting request.
	MaxConcurrent int `tune:"max_concurrent" default:"4" want:"positive"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config { return units.Defaults[Config]() }

// Validate reports all invalid values.
func (c Config) Validate() error {
	return units.Bounds("", c)
}
