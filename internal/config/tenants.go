package config

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"varve/internal/cassandra"
	"varve/internal/embedded/datadir"
	"varve/internal/tenant"
	"varve/internal/units"
)

// tenantHead is the most memory that recent samples of a tenant take.
const tenantHead = 64 * units.MiB

// Of returns the configuration of a tenant: c with a data directory, a keyspace and
// limits of its own. Memory that each tenant takes is smaller, because there may be
// many tenants.
func (c Config) Of(t tenant.Config) Config {
	c.Tenants = nil
	c.DataDir = TenantDir(c.DataDir, t.Name)
	c.Cassandra.Keyspace = c.KeyspaceOf(t)
	c.Cassandra.ReadClusters, c.Cassandra.Keyspaces = nil, nil // they hold the default tenant's data
	c.Cassandra.MetaCluster = cassandra.DefaultConfig().MetaCluster
	if !c.Cassandra.TLS.Enabled { // the certificates are for the clusters removed above
		c.Cassandra.TLS = cassandra.DefaultConfig().TLS
	}
	if c.Embedded.BackupDir != "" {
		c.Embedded.BackupDir = TenantDir(c.Embedded.BackupDir, t.Name)
	}
	c.Embedded.HeadBytes = min(c.Embedded.HeadBytes, 16*units.MiB)
	c.Embedded.HeadBytesMax = min(cmp.Or(c.Embedded.HeadBytesMax, tenantHead), tenantHead)
	c.Embedded.PageCacheBytes = min(c.Embedded.PageCacheBytes, 8*units.MiB)
	c.Embedded.CatalogueCacheBytes = min(c.Embedded.CatalogueCacheBytes, 2*units.MiB)

	c.Ingest.SamplesPerSecond = t.SamplesPerSecond
	c.Ingest.MaxSamplesInFlight = min(c.Ingest.MaxSamplesInFlight, 100_000)
	c.Ingest.NewSeriesPerSecond, c.Ingest.NewSeriesBurst = t.NewSeriesPerSecond, t.SeriesBurst()
	c.Ingest.MaxSeries, c.Ingest.MaxSeriesMemory = t.MaxSeries, t.MaxSeriesMemory
	c.Ingest.BodyMemory = min(c.Ingest.Bodies(), 64*units.MiB)
	c.Ingest.AliasCache = 16 * units.MiB

	c.Query.TotalMemory = t.QueryMemory
	c.Query.MaxMemory = min(c.Query.MaxMemory, t.QueryMemory/2)
	c.Query.MaxConcurrent = t.Concurrent()
	c.Query.Workers = min(c.Query.Workers, tenant.Processors())
	c.Query.MaxQueued = min(c.Query.MaxQueued, 32)
	c.Timeline.TailsMax = min(c.Timeline.TailsMax, max(1, t.MaxConnections/2))
	c.Kairos.QueryCache = min(c.Kairos.QueryCache, 8*units.MiB)
	return c
}

// KeyspaceOf is the keyspace of a tenant.
func (c Config) KeyspaceOf(t tenant.Config) string {
	return cmp.Or(t.Keyspace, c.Cassandra.Keyspace+"_"+t.Name)
}

// TenantDir is the directory of a tenant's data below dir.
func TenantDir(dir, name string) string { return filepath.Join(dir, datadir.Tenants, name) }

// checkKeyspaces reports tenants that would share a keyspace with others.
func (c Config) checkKeyspaces() error {
	if c.Store != Cassandra {
		return nil
	}
	var errs []error
	taken := map[string]string{strings.ToLower(c.Cassandra.Keyspace): "cassandra.keyspace"}
	for key, keyspace := range c.Cassandra.Beside() {
		taken[strings.ToLower(keyspace)] = "cassandra." + key + ".keyspace"
	}
	for i, t := range c.Tenants {
		key, keyspace := fmt.Sprintf("tenants[%d].keyspace", i), strings.ToLower(c.KeyspaceOf(t))
		if err := c.Of(t).Cassandra.Config.Validate(); err != nil && c.Cassandra.Config.Validate() == nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
		if by, is := taken[keyspace]; is {
			errs = append(errs, fmt.Errorf("%s: %q already belongs to %s; each tenant has a keyspace of its own", key, keyspace, by))
		}
		taken[keyspace] = key
	}
	return errors.Join(errs...)
}
