package kairosrows

import (
	"errors"
	"fmt"
	"time"

	"varve/internal/units"
)

// ReadConfig are the settings of reading.
type ReadConfig struct {
	PostingsCacheBytes units.Bytes   `yaml:"postings_cache_bytes" doc:"memory for row keys that queries found; they are asked for again only if Cassandra says that they changed"`
	PostingsCacheAge   time.Duration `yaml:"postings_cache_age" doc:"time after which row keys are asked for again in any case: what KairosDB nodes delete is seen this late in names and tags"`
	ChunkCacheBytes    units.Bytes   `yaml:"chunk_cache_bytes" doc:"memory for samples of finished rows that were asked for twice, packed; 0 keeps none"`
	ChunkCacheAge      time.Duration `yaml:"chunk_cache_age" doc:"most time for which samples of finished rows are answered from memory, and never longer than nothing had been written among them before they were read: what other nodes write or delete there is seen this late"`
	FinishedAfter      time.Duration `yaml:"finished_after" doc:"time after the end of a row when it counts as finished"`
	IndexReads         int           `yaml:"index_reads" doc:"reads of index partitions that one query makes at once, 1 to 256"`
	Settle             time.Duration `yaml:"settle" doc:"most that clocks of nodes may differ, plus the time a write may be under way; an index that changed later than that is read again"`
	KairosDBLag        time.Duration `yaml:"kairosdb_lag" doc:"how late questions may see row keys that KairosDB nodes add: those in memory answer for so long although Cassandra says that there are more. 0: at once. More saves whole reads of row keys where KairosDB nodes keep adding some"`
	CoverRate          int           `yaml:"cover_rate" doc:"row keys written by KairosDB that are added to the inverted index per second, in the background; 0 adds none"`
	CoverInterval      time.Duration `yaml:"cover_interval" doc:"how often all metrics are looked through for row keys that the inverted index lacks"`
}

// DefaultReadConfig returns the defaults.
func DefaultReadConfig() ReadConfig {
	return ReadConfig{
		PostingsCacheBytes: 64 * units.MiB,
		PostingsCacheAge:   5 * time.Minute,
		ChunkCacheBytes:    32 * units.MiB,
		ChunkCacheAge:      5 * time.Minute,
		FinishedAfter:      time.Hour,
		IndexReads:         16,
		Settle:             time.Minute,
		CoverRate:          2000,
		CoverInterval:      time.Hour,
	}
}

// Validate reports all settings that cannot be.
func (c ReadConfig) Validate() error {
	var errs []error
	check := func(ok bool, key, want string, got any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: want %s, got %v", key, want, got))
		}
	}
	check(c.PostingsCacheBytes >= 0, "postings_cache_bytes", "0 or more", c.PostingsCacheBytes)
	check(c.PostingsCacheAge >= 0, "postings_cache_age", "0 or more", c.PostingsCacheAge)
	check(c.ChunkCacheBytes >= 0, "chunk_cache_bytes", "0 or more", c.ChunkCacheBytes)
	check(c.ChunkCacheAge >= 0, "chunk_cache_age", "0 or more", c.ChunkCacheAge)
	check(c.FinishedAfter >= 0, "finished_after", "0 or more", c.FinishedAfter)
	check(c.IndexReads >= 1 && c.IndexReads <= 256, "index_reads", "1 to 256", c.IndexReads)
	check(c.Settle >= 0, "settle", "0 or more", c.Settle)
	check(c.KairosDBLag >= 0 && c.KairosDBLag <= time.Hour, "kairosdb_lag", "0 to 1h", c.KairosDBLag)
	check(c.CoverRate >= 0 && c.CoverRate <= 1_000_000, "cover_rate", "0 to 1000000", c.CoverRate)
	check(c.CoverInterval >= time.Second, "cover_interval", "at least 1s", c.CoverInterval)
	return errors.Join(errs...)
}
