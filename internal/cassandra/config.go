package cassandra

import (
	"errors"
	"fmt"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows"
	"varve/internal/spool"
)

// Config holds the settings of the store.
type Config struct {
	Name string `yaml:"name" doc:"name of the cluster that is written to, in metrics, health and errors"`
	cql.Config
	ReadAhead   int                     `yaml:"read_ahead" doc:"series of a query that are read before they are asked for, so that the round trips overlap, 0 to 1024"`
	LimitPerRow bool                    `yaml:"limit_per_row" doc:"a query's limit counts again in each row of a series, as in KairosDB over Cassandra, which shows in sample_size and in what aggregators get; false counts per series, and reads less"`
	Schema      kairosrows.Config       `yaml:"schema" doc:"the keyspace and its tables, in KairosDB's layout"`
	Write       kairosrows.WriteConfig  `yaml:"write" doc:"rows that are written"`
	Read        kairosrows.ReadConfig   `yaml:"read" doc:"rows that are read, and what of them is kept in memory"`
	Delete      kairosrows.DeleteConfig `yaml:"delete" doc:"deletes and repairs"`
	Spool       spool.Config            `yaml:"spool" doc:"samples that were acknowledged and are on their way to Cassandra; they are in data_dir until then"`

	MetaCluster  MetaConfig    `yaml:"meta_cluster" doc:"A cluster of its own for metadata, roll-up tasks and what else KairosDB keeps in service_index. Without hosts the cluster that is written to has them."`
	ReadClusters []ReadCluster `yaml:"read_clusters" doc:"Further clusters, with old samples: a query asks them too, and nothing is written there but deletes. Limits and timeouts are those of cassandra."`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		Name:        "write_cluster",
		MetaCluster: defaultMetaConfig(),
		Config:      cql.DefaultConfig(),
		ReadAhead:   32,
		LimitPerRow: true,
		Schema:      kairosrows.DefaultConfig(),
		Write:       kairosrows.DefaultWriteConfig(),
		Read:        kairosrows.DefaultReadConfig(),
		Delete:      kairosrows.DefaultDeleteConfig(),
		Spool:       spool.DefaultConfig(),
	}
}

// Validate reports all settings that are out of range.
func (c Config) Validate() error {
	err := errors.Join(c.Config.Validate(), c.checkClusters())
	if c.ReadAhead < 0 || c.ReadAhead > 1024 {
		err = errors.Join(err, fmt.Errorf("read_ahead: %d: want 0 to 1024", c.ReadAhead))
	}
	return err
}
