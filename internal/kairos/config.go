package kairos

import (
	"errors"
	"time"

	"varve/internal/units"
)

// Config bounds requests and answers.
type Config struct {
	MaxQuerySize    units.Bytes   `yaml:"max_query_size" doc:"Largest JSON text of a query or delete request."`
	ResponseBuffer  units.Bytes   `yaml:"response_buffer" doc:"Most bytes of an answer that are held back until it is complete; a larger one is sent while it is computed, and a failure then breaks the connection."`
	MaxValueSize    units.Bytes   `yaml:"max_value_size" doc:"Largest text that the metadata API stores under one key."`
	QueryCache      units.Bytes   `yaml:"query_cache" doc:"Memory for answers to queries with a cache_time; 0 turns the cache off, which then has no effect, as in KairosDB by default."`
	SlowQuery       time.Duration `yaml:"slow_query" doc:"A query that takes this long is logged and kept for /admin/slowqueries; 0 turns that off."`
	SlowQueriesKept int           `yaml:"slow_queries_kept" doc:"Number of latest slow queries that are kept to be looked at."`
	ServerType      string        `yaml:"server_type" doc:"Which methods are served: ALL, or a list of INGEST, QUERY and DELETE, separated by commas; the others are answered 403. Telnet is not concerned."`
	RegexPrefix     string        `yaml:"regex_prefix" doc:"Tag filter values that begin with this are regular expressions; empty turns them off."`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{MaxQuerySize: units.MiB, MaxValueSize: units.MiB,
		SlowQuery: 10 * time.Second, SlowQueriesKept: 100, ResponseBuffer: 16 * units.MiB, ServerType: "ALL", RegexPrefix: "regex:"}
}

// Validate reports all values that make no sense.
func (c Config) Validate() error {
	_, serverType := serverClasses(c.ServerType)
	return errors.Join(
		units.Positive("kairos.max_query_size", c.MaxQuerySize),
		units.NotNegative("kairos.query_cache", c.QueryCache),
		units.NotNegative("kairos.slow_query", c.SlowQuery),
		units.NotNegative("kairos.slow_queries_kept", c.SlowQueriesKept),
		serverType,
		units.Positive("kairos.max_value_size", c.MaxValueSize),
		units.NotNegative("kairos.response_buffer", c.ResponseBuffer),
	)
}
