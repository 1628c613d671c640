package kairosrows

import (
	"varve/internal/cassandra/kairosrows/read"
	"varve/internal/cassandra/kairosrows/remove"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/units"
)

// Settings are the settings of the layout.
type Settings struct {
	Schema schema.Config `yaml:"schema" doc:"the keyspace and its tables, in KairosDB's layout"`
	Write  write.Config  `yaml:"write" doc:"rows that are written"`
	Read   read.Config   `yaml:"read" doc:"Reading of rows, and their caches."`
	Delete remove.Config `yaml:"delete" doc:"deletes and repairs"`
}

// DefaultSettings returns the defaults.
func DefaultSettings() Settings {
	return units.Defaults[Settings]()
}
