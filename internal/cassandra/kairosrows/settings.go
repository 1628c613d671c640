package kairosrows

import "varve/internal/cassandra/kairosrows/schema"

// Settings are those of the layout.
type Settings struct {
	Schema schema.Config `yaml:"schema" doc:"the keyspace and its tables, in KairosDB's layout"`
	Write  WriteConfig   `yaml:"write" doc:"rows that are written"`
	Read   ReadConfig    `yaml:"read" doc:"rows that are read, and what of them is kept in memory"`
	Delete DeleteConfig  `yaml:"delete" doc:"deletes and repairs"`
}

// DefaultSettings returns the defaults.
func DefaultSettings() Settings {
	return Settings{Schema: schema.DefaultConfig(), Write: DefaultWriteConfig(), Read: DefaultReadConfig(), Delete: DefaultDeleteConfig()}
}
