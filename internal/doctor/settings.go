package doctor

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"

	"varve/internal/config"
	"varve/internal/units"
)

// settings finds settings that are valid but have no effect, and constants that only
// tests should change.
func settings(loaded *config.Loaded) (found []Finding) {
	const check = "configuration"
	idle := map[string]string{config.Embedded: "cassandra.", config.Cassandra: "embedded."}[loaded.Config.Store]
	for _, s := range loaded.Set() {
		if strings.HasPrefix(s.Key, idle) {
			found = append(found, Finding{check, Warning, fmt.Sprintf("%s: %s has no effect with store: %s", s.Origin, s.Key, loaded.Config.Store), "remove it, or change store"})
		}
	}
	if c := loaded.Config; c.Retention.Enforce && c.Graphite.StorageSchemas == "" && len(c.Retention.Policies) == 0 {
		found = append(found, Finding{check, Warning, "retention.enforce is set, but retention.policies and graphite.storage_schemas are not: there are no rules to apply", "write policies, name the file with the rules, or remove retention.enforce"})
	}
	if tuned := loaded.Tuned(); len(tuned) > 0 {
		found = append(found, Finding{check, Warning, "constants are changed by --tune: " + strings.Join(tuned, ", "), "remove --tune; it is for tests"})
	}
	for _, f := range loaded.Foreign {
		for _, w := range f.Warnings {
			found = append(found, Finding{check, Warning, fmt.Sprintf("%s: %s: %s", f.Path, strings.Join(w.Keys, " "), w.Why), "varve config shows the effective settings; set those that you need in a configuration file of Varve"})
		}
	}
	if len(found) == 0 {
		found = append(found, ok(check, "valid, %s set", units.Count(len(loaded.Set()), "setting")))
	}
	return found
}

// rules checks the storage-schemas.conf and storage-aggregation.conf of Graphite.
func rules(c config.Config) []Finding {
	const check = "Graphite's rules"
	if c.Graphite.StorageSchemas == "" && c.Graphite.StorageAggregation == "" {
		return nil
	}
	var log bytes.Buffer
	book, err := c.Book(slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		return []Finding{{check, Fault, err.Error(), "fix the file; the server does not start with it"}}
	}
	if n := bytes.Count(log.Bytes(), []byte("\n")); n > 0 {
		return []Finding{{check, Warning, fmt.Sprintf("%d rules are not used", n), "varve policies names them, with the reason"}}
	}
	return []Finding{ok(check, "%d of stages, %d of aggregation", len(book.Rules), len(book.Aggregations))}
}
