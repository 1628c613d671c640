package query

import (
	"time"

	"varve/internal/units"
)

// Config bounds what queries may use.
type Config struct {
	MaxSeries     int           `yaml:"max_series" default:"1000000" want:"positive" doc:"Most series that one metric of a query may select."`
	MaxSamples    int64         `yaml:"max_samples" default:"1000000000" want:"positive" doc:"Most samples that one query may read."`
	MaxMemory     units.Bytes   `yaml:"max_memory" default:"512MiB" want:"positive" doc:"Most memory that one query may hold in blocks, buckets and buffered points."`
	TotalMemory   units.Bytes   `yaml:"total_memory" want:"not negative" doc:"Most memory that all queries, the texts of their requests and unsent answers may hold together. A query that waits for memory longer than max_wait is refused as overload. 0 means a quarter of the memory of the machine or its control group."`
	Timeout       time.Duration `yaml:"timeout" default:"2m" want:"positive" doc:"Longest time that one query may take, not counting the wait for a free slot."`
	MaxConcurrent int           `yaml:"max_concurrent" default:"16" want:"positive" doc:"Most queries that compute at once. A query that has computed for a while lets others begin. A query also gives up its slot while it waits for Cassandra, or for a client that does not read its answer."`
	MaxWait       time.Duration `yaml:"max_wait" default:"10s" want:"positive" doc:"Longest wait of a query until it is parsed, of a parsed query for a free slot, or of a delete for other deletes. A request that waits longer is refused as overload."`
	Slow          time.Duration `yaml:"slow" default:"10s" want:"not negative" doc:"Queries that take at least this long are logged and listed by /admin/slowqueries, whatever API they came through. 0 turns that off."`

	// Constants; tests and benchmarks change them by --tune.

	Workers int `tune:"workers" default:"8" want:"positive"` // goroutines that read series for one query; at most one per processor is used
	// MaxQueued bounds the queries that wait for a free slot, and the deletes that wait for
	// others to end. Further ones are refused as overload. It can be large, since each waiter
	// holds little memory and MaxWait ends each wait.
	MaxQueued int `tune:"max_queued" default:"256" want:"not negative"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config { return units.Defaults[Config]() }

// ActiveSlots returns the number of queries that an ActiveFile names: those that have a
// slot, and as many as may wait, since queries that have begun may wait as well.
func (c Config) ActiveSlots() int { return c.MaxConcurrent + c.MaxQueued }

// Validate reports all invalid values.
func (c Config) Validate() error {
	return units.Bounds("query.", c)
}
