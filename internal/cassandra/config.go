package cassandra

import (
	"errors"
	"fmt"

	"varve/internal/cassandra/cql"
	"varve/internal/spool"
	"varve/internal/units"
)

// Config holds the settings of the store, except those of its layout.
type Config struct {
	cql.Config
	LimitPerRow bool         `yaml:"limit_per_row" default:"true" doc:"Applies the limit of a query to each row of a series, as KairosDB over Cassandra does. This affects sample_size and the input of aggregators. If false, the limit applies to each series, and less is read."`
	Spool       spool.Config `yaml:"spool" doc:"Samples that are acknowledged but not in Cassandra yet. Until then they are in data_dir."`

	MetaCluster  MetaConfig    `yaml:"meta_cluster" doc:"A separate cluster for metadata, roll-up tasks and everything else that KairosDB keeps in service_index. Without hosts, these are in the cluster that samples are written to."`
	ReadClusters []ReadCluster `yaml:"read_clusters" doc:"Further clusters with old samples. Queries read them too. Varve writes only deletes there. Limits and timeouts are those of cassandra."`

	Keyspaces []KeyspaceConfig `yaml:"keyspaces" doc:"Further keyspaces that samples are written to. The first one whose metrics match stores a sample; cassandra.keyspace stores the rest. Limits, timeouts, schema, caches and spool are as in cassandra, separately for each keyspace. Empty consistencies are also as in cassandra. Without hosts, the cluster, its user and TLS are as in cassandra too."`

	// Constants; tests and benchmarks change them by --tune.

	// ReadAhead is how many series of a query are read before the reader requests them, so that
	// round trips overlap, 0 to 1024.
	ReadAhead int `tune:"read_ahead" default:"32"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config { return units.Defaults[Config]() }

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
