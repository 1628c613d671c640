package cassandra

import (
	"errors"
	"fmt"

	"varve/internal/cassandra/cql"
	"varve/internal/spool"
)

// Config holds the settings of the store, beside those of its layout.
type Config struct {
	cql.Config
	LimitPerRow bool         `yaml:"limit_per_row" doc:"a query's limit counts again in each row of a series, as in KairosDB over Cassandra, which shows in sample_size and in what aggregators get; false counts per series, and reads less"`
	Spool       spool.Config `yaml:"spool" doc:"samples that were acknowledged and are on their way to Cassandra; they are in data_dir until then"`

	MetaCluster  MetaConfig    `yaml:"meta_cluster" doc:"A cluster of its own for metadata, roll-up tasks and what else KairosDB keeps in service_index. Without hosts the cluster that is written to has them."`
	ReadClusters []ReadCluster `yaml:"read_clusters" doc:"Further clusters, with old samples: a query asks them too, and nothing is written there but deletes. Limits and timeouts are those of cassandra."`

	Keyspaces []KeyspaceConfig `yaml:"keyspaces" doc:"Further keyspaces that samples are written to, and which metrics each keeps: the first whose metrics match. All others are kept in cassandra.keyspace. Limits, timeouts, schema, caches and spool are as in cassandra, for each its own. So are consistencies that are empty and, without hosts, the cluster with its user and TLS."`

	// Constants; tests and benchmarks change them by --tune.

	// ReadAhead is how many series of a query are read before they are asked for, so that
	// the round trips overlap, 0 to 1024.
	ReadAhead int `tune:"read_ahead"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		MetaCluster: defaultMetaConfig(),
		Config:      cql.DefaultConfig(),
		ReadAhead:   32,
		LimitPerRow: true,
		Spool:       spool.DefaultConfig(),
	}
}

// Validate reports all settings that are out of range.
func (c Config) Validate() error {
	err := errors.Join(c.Config.Validate(), c.checkClusters(), c.checkKeyspaces())
	if !c.furtherTLS() {
		err = errors.Join(err, c.TLS.Unused())
	}
	if c.ReadAhead < 0 || c.ReadAhead > 1024 {
		err = errors.Join(err, fmt.Errorf("read_ahead: %d: want 0 to 1024", c.ReadAhead))
	}
	return err
}
