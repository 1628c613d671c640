package tenant

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"

	"varve/internal/principal"
	"varve/internal/units"
)

// Config is a tenant and its limits. Every limit is finite. By default they are those of a tenant that shares a
// small machine with some others.
type Config struct {
	Name     string `yaml:"name" doc:"Name in tokens, rules and paths: a lower-case letter, then up to 31 letters, digits and underscores. Its data is in data_dir/tenants/NAME."`
	Keyspace string `yaml:"keyspace" doc:"With store: cassandra, the keyspace of the tenant. Empty is cassandra.keyspace, an underscore and the name."`

	SamplesPerSecond   int         `yaml:"samples_per_second" default:"100000" want:"positive" doc:"As ingest.samples_per_second."`
	NewSeriesPerSecond int         `yaml:"new_series_per_second" default:"5000" want:"positive" doc:"As ingest.new_series_per_second, but with bursts of ten times as many."`
	MaxSeries          int         `yaml:"max_series" default:"500000" want:"positive" doc:"As ingest.max_series."`
	MaxSeriesMemory    units.Bytes `yaml:"max_series_memory" default:"256MiB" want:"positive" doc:"As ingest.max_series_memory."`
	QueryMemory        units.Bytes `yaml:"query_memory" default:"256MiB" want:"positive" doc:"As query.total_memory; one query may hold half of it."`
	MaxConcurrent      int         `yaml:"max_concurrent" want:"not negative" doc:"As query.max_concurrent. 0 means half of the processors, at least one, so that one tenant's queries leave room for those of others."`
	MaxConnections     int         `yaml:"max_connections" default:"200" want:"positive" doc:"Most telnet connections, most carbon line connections and most carbon pickle connections; further connections are closed. Also the most concurrent HTTP requests; further requests get 503. Half of the requests may follow timelines."`
}

// SeriesBurst is the most new series at once.
func (c Config) SeriesBurst() int { return 10 * c.NewSeriesPerSecond }

// Processors is how many processors the queries of a tenant use: half of them, at least
// one.
func Processors() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// Concurrent is the most queries that compute at once.
func (c Config) Concurrent() int { return cmp.Or(c.MaxConcurrent, Processors()) }

// maxTenants bounds the tenants of a server, each of which has a store of its own.
const maxTenants = 100

// Validate reports all errors in the list of tenants.
func Validate(list []Config) error {
	var errs []error
	if len(list) > maxTenants {
		errs = append(errs, fmt.Errorf("tenants: %d of them; a server has at most %d, each with a store of its own", len(list), maxTenants))
	}
	seen := map[string]int{}
	for i, c := range list {
		key := fmt.Sprintf("tenants[%d].", i)
		if first, again := seen[c.Name]; again {
			errs = append(errs, fmt.Errorf("%sname: %q is tenants[%d] already", key, c.Name, first))
		}
		seen[c.Name] = i
		errs = append(errs, c.validate(key))
	}
	return errors.Join(errs...)
}

func (c Config) validate(key string) error {
	var errs []error
	switch {
	case c.Name == principal.Default:
		errs = append(errs, fmt.Errorf("%sname: %q always exists: it is the tenant of requests that name no other; ingest and query set its limits", key, c.Name))
	default:
		if err := principal.CheckTenant(c.Name); err != nil {
			errs = append(errs, fmt.Errorf("%sname: %w", key, err))
		}
	}
	return errors.Join(append(errs, units.Bounds(key, c))...)
}
