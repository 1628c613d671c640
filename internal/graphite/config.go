package graphite

import (
	"fmt"
	"log/slog"

	"varve/internal/retention"
	"varve/internal/safefile"
	"varve/internal/units"
)

// Config has the paths of Graphite's storage rules, and the limits of events.
type Config struct {
	StorageSchemas     string `yaml:"storage_schemas" doc:"Path of an unchanged storage-schemas.conf of carbon. It sets the step at which Graphite's API reads a path, and how far back. Without it, the step is one minute. All samples are kept regardless, unless retention.enforce is set. A reload reads the file again."`
	StorageAggregation string `yaml:"storage_aggregation" doc:"Path of an unchanged storage-aggregation.conf of carbon. It sets how points are aggregated to a wider step. Without it, they are averaged if at least half of them exist. A reload reads the file again."`

	// Constants; tests and benchmarks change them by --tune.

	MaxEventSize units.Bytes `tune:"max_event_size" default:"64KiB" want:"positive"` // longest JSON text of a new event
	MaxEvents    int         `tune:"max_events" default:"10000" want:"positive"`     // most events in an answer
	// MaxEventsPerDay limits the events of a day (UTC), which are read together. Servers that
	// share a Cassandra cluster may exceed it together.
	MaxEventsPerDay int `tune:"max_events_per_day" default:"10000" want:"positive"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config { return units.Defaults[Config]() }

// Validate reports all invalid values.
func (c Config) Validate() error {
	return units.Bounds("graphite.", c)
}

// Book reads the storage rules.
func (c Config) Book(log *slog.Logger) (*retention.Book, error) {
	b := &retention.Book{}
	err := readRules(c.StorageSchemas, "graphite.storage_schemas", log, func(text string) (warnings []string, err error) {
		b.Rules, warnings, err = retention.ParseSchemas(text)
		return warnings, err
	})
	if err != nil {
		return nil, err
	}
	return b, readRules(c.StorageAggregation, "graphite.storage_aggregation", log, func(text string) (warnings []string, err error) {
		b.Aggregations, warnings, err = retention.ParseAggregations(text)
		return warnings, err
	})
}

func readRules(path, key string, log *slog.Logger, parse func(text string) ([]string, error)) error {
	if path == "" {
		return nil
	}
	text, err := safefile.ReadRegular(path, retention.MaxFile)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	warnings, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %s: %w", key, path, err)
	}
	for _, w := range warnings {
		log.Warn("ignoring a rule", "file", path, "why", w)
	}
	return nil
}
