package schema

import (
	"time"

	"context"
	"fmt"
	"strconv"

	"varve/internal/cassandra/cql"
	"varve/internal/rowtime"
)

// Rows of the table spec.
const (
	clusterConfig = "cluster_config"
	specUnit      = "row_time_unit"
	specWidth     = "row_width"
)

// Rows of the table varve_spec.
const (
	ownVersion = "version"
	ownShards  = "index_shards"

	currentVersion = 1
)

// OwnService is the service of service_index that Varve's own keys have.
const OwnService = "_Varve"

// MetricNames is the partition of string_index that holds the names of metrics.
const MetricNames = "metric_names"

var (
	readSpec       = &cql.Statement{Name: "read_spec", Text: "SELECT name, value FROM spec WHERE spec_type = ?"}
	writeSpec      = &cql.Statement{Name: "write_spec", Text: "INSERT INTO spec (spec_type, name, value) VALUES (?, ?, ?)"}
	anyMetricName  = &cql.Statement{Name: "any_metric_name", Text: "SELECT value FROM string_index WHERE key = ? LIMIT 1"}
	decideOwnSpec  = &cql.Statement{Name: "decide_varve_spec", Text: "INSERT INTO varve_spec (name, value) VALUES (?, ?) IF NOT EXISTS"}
	readOwnSpecRow = &cql.Statement{Name: "read_varve_spec", Text: "SELECT value FROM varve_spec WHERE name = ?"}
)

// specRows are the rows of spec, as text, "" if missing.
type specRows struct{ unit, width string }

func (ks *Keyspace) readSpec(ctx context.Context) (specRows, error) {
	var found specRows
	rows := ks.Session.Query(ctx, readSpec, clusterConfig)
	var name, value string
	for rows.Scan(&name, &value) {
		switch name {
		case specUnit:
			found.unit = value
		case specWidth:
			found.width = value
		}
	}
	return found, rows.Close()
}

// settleSpec finds the row arithmetic of the keyspace, and writes it down if it
// was not. As KairosDB does, each of the two rows is looked at by itself, and a
// keyspace without a unit that has metric names is LEGACY. Unlike KairosDB, such
// a keyspace is given the width that all versions without a spec had, whatever
// the configuration says: with another one its rows are not found.
func (ks *Keyspace) settleSpec(ctx context.Context) error {
	found := specRows{}
	var err error
	if ks.Tables.Spec {
		if found, err = ks.readSpec(ctx); err != nil {
			return err
		}
	}
	if found.unit == "" || found.width == "" {
		if found, err = ks.completeSpec(ctx, found); err != nil {
			return err
		}
	}
	ks.Spec, err = parseSpec(found)
	if err != nil {
		return &Error{Keyspace: ks.Name, Table: specTable, Problem: "its rows cannot be", Err: err,
			WayOut: "set them to what the rows of data_points were written with; KairosDB's defaults are row_time_unit MILLISECONDS with row_width 1814400000, or LEGACY with 1814400000 for keyspaces made before 1.3"}
	}
	return nil
}

// completeSpec returns what stands for the rows that are missing, and inserts
// them.
func (ks *Keyspace) completeSpec(ctx context.Context, found specRows) (specRows, error) {
	wanted := ks.config.spec()
	old, err := ks.oldKeyspace(ctx)
	if err != nil {
		return found, err
	}
	if found.unit == "" && old {
		wanted = rowtime.Spec{Unit: rowtime.Legacy, Width: rowtime.DefaultWidth}
	}
	for _, row := range []struct {
		name, wanted string
		found        *string
	}{
		{specUnit, wanted.Unit.String(), &found.unit},
		{specWidth, strconv.FormatInt(wanted.Width, 10), &found.width},
	} {
		if *row.found != "" {
			continue
		}
		*row.found = row.wanted
		if ks.config.Role == RoleRead {
			continue
		}
		if ks.Tables.Own {
			// Two nodes that start at once with different settings must agree.
			if *row.found, err = ks.Session.Decide(ctx, decideOwnSpec, "value", row.wanted, row.name, row.wanted); err != nil {
				return found, err
			}
		}
		if err := ks.Session.Exec(ctx, writeSpec, ks.Stamp(), clusterConfig, row.name, *row.found); err != nil {
			return found, err
		}
	}
	if ks.config.Role == RoleRead {
		ks.note("spec has no rows; taken as %s, row_width %s", found.unit, found.width)
		return found, nil
	}
	if found.unit == rowtime.Legacy.String() {
		ks.note("spec had no row_time_unit although there are metrics: the keyspace was made before KairosDB 1.3, now marked LEGACY")
	}
	return ks.readSpec(ctx)
}

// oldKeyspace says that the keyspace was made before KairosDB 1.3. One that is
// only read follows KairosDB in not looking, unless it has no table spec, where
// KairosDB would not start: 1.3 always makes it.
func (ks *Keyspace) oldKeyspace(ctx context.Context) (bool, error) {
	if ks.config.Role == RoleRead {
		return !ks.Tables.Spec, nil
	}
	if !ks.Tables.StringIndex {
		return false, nil
	}
	return ks.Session.One(ctx, anyMetricName, []any{[]byte(MetricNames)}, nil)
}

func parseSpec(found specRows) (rowtime.Spec, error) {
	unit, err := rowtime.ParseUnit(found.unit)
	if err != nil {
		return rowtime.Spec{}, err
	}
	width, err := strconv.ParseInt(found.width, 10, 64)
	if err != nil {
		return rowtime.Spec{}, fmt.Errorf("row_width %q: want a whole number", found.width)
	}
	s := rowtime.Spec{Unit: unit, Width: width}
	return s, s.Validate()
}

// settleOwn reads or decides what our own tables need.
func (ks *Keyspace) settleOwn(ctx context.Context) error {
	if !ks.Tables.Own {
		return nil
	}
	version, err := ks.ownValue(ctx, ownVersion, currentVersion)
	if err != nil {
		return err
	}
	if version != currentVersion {
		return &Error{Keyspace: ks.Name, Table: varveSpecTable, Problem: fmt.Sprintf("its tables are of version %d, this program knows %d", version, currentVersion),
			WayOut: "use a newer Varve"}
	}
	ks.IndexShards, err = ks.ownValue(ctx, ownShards, ks.config.IndexShards)
	if err == nil && (ks.IndexShards < 1 || ks.IndexShards > 1024) {
		err = &Error{Keyspace: ks.Name, Table: varveSpecTable, Problem: fmt.Sprintf("index_shards is %d", ks.IndexShards),
			WayOut: "set it to the number that varve_row_index was filled with"}
	}
	return err
}

// ownValue reads a number from varve_spec; the first to ask for it decides it.
func (ks *Keyspace) ownValue(ctx context.Context, name string, wanted int) (int, error) {
	text := ""
	ok, err := ks.Session.One(ctx, readOwnSpecRow, []any{name}, &text)
	if err == nil && !ok {
		if ks.config.Role == RoleRead {
			return wanted, nil
		}
		mine := strconv.Itoa(wanted)
		text, err = ks.Session.Decide(ctx, decideOwnSpec, "value", mine, name, mine)
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, &Error{Keyspace: ks.Name, Table: varveSpecTable, Problem: fmt.Sprintf("%s is %q, not a number", name, text), WayOut: "put the right number back"}
	}
	return n, nil
}

// LengthOfRow is how long rows are in truth: in keyspaces of seconds, a
// thousandth of what KairosDB's documentation says.
func LengthOfRow(s rowtime.Spec) time.Duration { return time.Duration(s.Width) * time.Millisecond }
