package schema

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"varve/internal/cassandra/layout"
	"varve/internal/rowtime"
	"varve/internal/units"
)

// Values of Config.Create.
const (
	CreateNothing  = "nothing"
	CreateTables   = "tables"
	CreateKeyspace = "keyspace"
)

// Values of Config.Role.
const (
	RoleAll  = layout.RoleAll
	RoleRead = layout.RoleRead
	RoleMeta = layout.RoleMeta
)

// Config holds the settings of a keyspace.
type Config struct {
	Create       string   `yaml:"create" default:"keyspace" doc:"What is created if it is missing: \"nothing\", \"tables\" in an existing keyspace, or \"keyspace\", which creates keyspace and tables as KairosDB does."`
	Replication  string   `yaml:"replication" doc:"replication of a new keyspace, as a map in CQL; if empty, the server chooses one copy per node of the data centre, at most 3, and logs its choice"`
	TableOptions []string `yaml:"table_options" doc:"options of new tables, each \"TABLE: OPTIONS\" with options as after WITH in CQL, for example data_points: gc_grace_seconds = 86400"`
	RowTimeUnit  string   `yaml:"row_time_unit" default:"MILLISECONDS" doc:"Time unit of rows in a new keyspace: MILLISECONDS or SECONDS. An existing keyspace keeps its unit."`
	RowWidth     int64    `yaml:"row_width" doc:"Length of a row in a new keyspace, in row_time_unit, 1 to 2147483648. 0 means three weeks."`

	// Constants; tests and benchmarks change them by --tune.

	IndexShards int `tune:"index_shards" default:"4"` // parts that the index of each tag of a new keyspace is split into, 1 to 64
	// Role is what the keyspace is for: "all", "read" (only reads and deletes of samples; nothing
	// is created) or "meta" (only metadata). Read clusters, the meta cluster and commands set it.
	Role string `tune:"role" default:"all"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config { return units.Defaults[Config]() }

// Validate reports all invalid settings.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !slices.Contains([]string{RoleAll, RoleRead, RoleMeta}, c.Role) {
		bad("role: %q, want %s, %s or %s", c.Role, RoleAll, RoleRead, RoleMeta)
	}
	if !slices.Contains([]string{CreateNothing, CreateTables, CreateKeyspace}, c.Create) {
		bad("create: %q, want %s, %s or %s", c.Create, CreateNothing, CreateTables, CreateKeyspace)
	}
	if r := strings.TrimSpace(c.Replication); r != "" && c.Create == CreateKeyspace && (!strings.HasPrefix(r, "{") || !strings.HasSuffix(r, "}") || strings.Contains(r, ";")) {
		bad("replication: %q, want a map such as {'class': 'NetworkTopologyStrategy', 'dc1': '3'}", c.Replication)
	}
	if _, err := c.tableOptions(); err != nil {
		errs = append(errs, err)
	}
	if c.RowTimeUnit != rowtime.Milliseconds.String() && c.RowTimeUnit != rowtime.Seconds.String() {
		bad("row_time_unit: %q, want MILLISECONDS or SECONDS", c.RowTimeUnit)
	} else if err := c.spec().Validate(); err != nil {
		errs = append(errs, err)
	}
	if c.IndexShards < 1 || c.IndexShards > 64 {
		bad("index_shards: %d, want 1 to 64", c.IndexShards)
	}
	return errors.Join(errs...)
}

// spec is the row arithmetic of a new keyspace.
func (c Config) spec() rowtime.Spec {
	unit, _ := rowtime.ParseUnit(c.RowTimeUnit)
	s := rowtime.Spec{Unit: unit, Width: c.RowWidth}
	if s.Width == 0 {
		s.Width = rowtime.DefaultWidth
		if unit == rowtime.Seconds {
			s.Width /= 1000
		}
	}
	return s
}

// tableOptions parses TableOptions: options by table.
func (c Config) tableOptions() (map[string]string, error) {
	options := make(map[string]string)
	var errs []error
	bad := func(line, format string, args ...any) {
		errs = append(errs, fmt.Errorf("table_options: "+strconv.Quote(line)+": "+format, args...))
	}
	for _, line := range c.TableOptions {
		table, o, ok := strings.Cut(line, ":")
		table = strings.TrimSpace(table)
		o = strings.TrimSpace(strings.TrimRight(strings.TrimSpace(o), ";"))
		if rest, with := cutWord(o, "WITH"); with {
			o = rest
		}
		lower := strings.ToLower(o)
		switch {
		case !ok || !slices.ContainsFunc(definitions, func(d definition) bool { return d.Name == table }):
			bad(line, "want one of the tables %s, then a colon", strings.Join(TableNames(), ", "))
		case o == "":
		case strings.Contains(o, ";"):
			bad(line, "holds a semicolon")
		case strings.Contains(lower, "compact storage"):
			bad(line, "COMPACT STORAGE is not used for new tables; leave it out, KairosDB reads both")
		case strings.Contains(lower, "timewindowcompactionstrategy") && !strings.Contains(lower, "milliseconds"):
			bad(line, "write timestamps are milliseconds in this keyspace: add 'timestamp_resolution': 'MILLISECONDS' to compaction")
		case options[table] != "":
			bad(line, "a second line for this table; join them with AND")
		default:
			options[table] = o
		}
	}
	return options, errors.Join(errs...)
}

func cutWord(s, word string) (rest string, ok bool) {
	if len(s) > len(word) && strings.EqualFold(s[:len(word)], word) && s[len(word)] == ' ' {
		return strings.TrimSpace(s[len(word):]), true
	}
	return s, false
}
