package read

import (
	"time"

	"varve/internal/units"
)

// Config holds the settings of a Reader.
type Config struct {
	PostingsCacheBytes units.Bytes   `yaml:"postings_cache_bytes" default:"64MiB" want:"not negative" doc:"Memory for row keys that queries have read. They are read again only if Cassandra shows that they have changed."`
	ChunkCacheBytes    units.Bytes   `yaml:"chunk_cache_bytes" default:"32MiB" want:"not negative" doc:"Memory for compressed samples of finished rows that queries have read twice. 0 turns the cache off."`
	KairosDBLag        time.Duration `yaml:"kairosdb_lag" want:"0s to 1h" doc:"How long queries may miss data that KairosDB nodes have just written: new series, and late points and deletes in finished rows. At most 1h; with 0, queries miss nothing. With a longer time, row keys and finished rows are reread less often. Applies while KairosDB nodes run."`
	CoverRate          int           `yaml:"cover_rate" default:"2000" want:"0 to 1000000" doc:"Row keys written by KairosDB that Varve adds to its inverted index per second, in the background, at most 1000000. 0 adds none."`

	// Constants; tests and benchmarks change them by --tune.

	// PostingsCacheAge is the time after which row keys are read again in any case.
	// Deletes by KairosDB nodes become visible in names and tags after at most this time.
	PostingsCacheAge time.Duration `tune:"postings_cache_age" default:"5m" want:"not negative"`
	// ChunkCacheAge is for how long samples of finished rows are served from memory. A row
	// stays cached for at most as long as it had been unchanged when it was read. Writes and
	// deletes by other servers become visible there after at most this time, and those by
	// KairosDB nodes after KairosDBLag.
	ChunkCacheAge time.Duration `tune:"chunk_cache_age" default:"5m" want:"not negative"`
	FinishedAfter time.Duration `tune:"finished_after" default:"1h" want:"not negative"` // time after the end of a row until it counts as finished
	IndexReads    int           `tune:"index_reads" default:"16" want:"1 to 256"`        // concurrent reads of index partitions by one query
	// Settle is how far clocks of nodes may differ, plus the longest duration of a write. An
	// index that changed less than that ago is read again.
	Settle        time.Duration `tune:"settle" default:"1m" want:"not negative"`
	CoverInterval time.Duration `tune:"cover_interval" default:"1h" want:"at least 1s"` // between scans of all metrics for row keys that the inverted index lacks
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config { return units.Defaults[Config]() }

// Validate reports all invalid settings.
func (c Config) Validate() error {
	return units.Bounds("", c)
}
