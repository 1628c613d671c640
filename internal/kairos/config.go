package kairos

import (
	"errors"

	"varve/internal/units"
)

// Config bounds requests and answers.
type Config struct {
	QueryCache  units.Bytes `yaml:"query_cache" want:"not negative" doc:"Memory for answers to queries with a cache_time. 0 turns the cache off, which is also KairosDB's default."`
	ServerType  string      `yaml:"server_type" default:"ALL" doc:"Kinds of requests that are served: ALL, or a list of INGEST, QUERY and DELETE, separated by commas. Others get 403. Telnet is always served."`
	RegexPrefix string      `yaml:"regex_prefix" default:"regex:" doc:"Prefix that makes a tag filter value a regular expression. Empty turns regular expressions off."`

	// Constants, which tests and benchmarks change with --tune.

	MaxValueSize units.Bytes `tune:"max_value_size" default:"1MiB" want:"positive"` // longest text that the metadata API stores under one key
	MaxQuerySize units.Bytes `tune:"max_query_size" default:"1MiB" want:"positive"` // longest JSON text of a query or delete; room for 50,000 tag values
	// ResponseBuffer is how many bytes of an answer are held back until it is complete.
	// A larger answer is sent while it is computed, and a failure then closes the
	// connection. A larger buffer would take memory of query.total_memory from queries.
	ResponseBuffer units.Bytes `tune:"response_buffer" default:"16MiB" want:"not negative"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config { return units.Defaults[Config]() }

// Validate reports all invalid values.
func (c Config) Validate() error {
	_, serverType := serverClasses(c.ServerType)
	return errors.Join(units.Bounds("kairos.", c), serverType)
}
