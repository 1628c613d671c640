package schema

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strconv"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/layout"
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

// OwnService is the service of Varve's own keys in service_index.
const OwnService = "_Varve"

// MetricNames is the partition of string_index that holds the names of metrics.
const MetricNames = "metric_names"

var (
	// The results decide where all samples of the keyspace are stored, so a stale replica must
	// not answer alone.
	readSpec       = &cql.Statement{Name: "read_spec", Level: cql.Quorum, Text: readSpecText}
	readOwnSpecRow = &cql.Statement{Name: "read_varve_spec", Level: cql.Quorum, Text: readOwnSpecText}
	anyMetricName  = &cql.Statement{Name: "any_metric_name", Level: cql.Quorum, Text: "SELECT value FROM string_index WHERE key = ? LIMIT 1"}

	writeSpec     = &cql.Statement{Name: "write_spec", Level: cql.Quorum, Text: "INSERT INTO spec (spec_type, name, value) VALUES (?, ?, ?) USING TTL 0"}
	decideOwnSpec = &cql.Statement{Name: "decide_varve_spec", Text: "INSERT INTO varve_spec (name, value) VALUES (?, ?) IF NOT EXISTS USING TTL 0"}

	// Nothing depends on the results of these alone.
	peekSpec       = &cql.Statement{Name: "peek_spec", Text: readSpecText}
	peekOwnSpecRow = &cql.Statement{Name: "peek_varve_spec", Text: readOwnSpecText}
)

const (
	readSpecText    = "SELECT name, value FROM spec WHERE spec_type = ?"
	readOwnSpecText = "SELECT value FROM varve_spec WHERE name = ?"
)

// specRows are the rows of spec, as text, "" if missing.
type specRows struct{ unit, width string }

// readSpec reads spec, at a quorum unless the keyspace is read-only, in which nothing is
// decided.
func (ks *Keyspace) readSpec(ctx context.Context) (specRows, error) {
	if ks.config.Role == RoleRead {
		return ks.specBy(ctx, peekSpec)
	}
	return ks.specBy(ctx, readSpec)
}

func (ks *Keyspace) specBy(ctx context.Context, read *cql.Statement) (specRows, error) {
	var found specRows
	rows := ks.Session.Query(ctx, read, clusterConfig)
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

// settleSpec finds the row arithmetic of the keyspace, and stores it if it is missing. As in
// KairosDB, each of the two rows of spec is treated separately, and a keyspace with metric
// names but no unit is LEGACY. Unlike KairosDB, such a keyspace gets the width that all
// versions without a spec used, whatever is configured: with another width its rows would not
// be found.
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
		return &cql.TableError{Keyspace: ks.Name, Table: specTable, Problem: "its rows are invalid", Err: err, WayOut: rightSpec}
	}
	ks.settled = found
	return ks.copySpec(ctx, found)
}

// rightSpec tells an operator what spec must contain.
const rightSpec = "set them to what the rows of data_points were written with; KairosDB's defaults are row_time_unit MILLISECONDS with row_width 1814400000, " +
	"or LEGACY with 1814400000 for keyspaces made before 1.3"

// copySpec keeps a copy of spec in varve_spec. If only spec is emptied, or it is emptied while
// no server runs, the existing metrics would otherwise make the keyspace LEGACY at the next
// start, and all times would be read wrong.
func (ks *Keyspace) copySpec(ctx context.Context, found specRows) error {
	if !ks.Tables.Own || ks.config.Role == RoleRead {
		return nil
	}
	for name, value := range found.each() {
		kept, err := ks.decideOwn(ctx, name, value)
		if refused, ok := errors.AsType[*cql.RefusedError](err); ok && refused.Reason != cql.NoSuchTable { // spec exists, so samples can be served
			ks.note("a copy of spec cannot be kept in varve_spec: %v", err)
			return nil
		}
		if err != nil {
			return err
		}
		if kept != value {
			return &cql.TableError{Keyspace: ks.Name, Table: specTable, Problem: fmt.Sprintf("%s is %s, and %s has %s, which a server stored when it first opened the keyspace: "+
				"spec may have been emptied and refilled", name, value, varveSpecTable, kept),
				WayOut: fmt.Sprintf("set it to what the rows of data_points were written with. If that is %s, DELETE FROM %s WHERE name = '%s'", value, varveSpecTable, name)}
		}
	}
	return nil
}

// each yields the rows by name.
func (r specRows) each() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		if yield(specUnit, r.unit) {
			yield(specWidth, r.width)
		}
	}
}

// completeSpec inserts the missing rows, and returns all of them.
func (ks *Keyspace) completeSpec(ctx context.Context, found specRows) (specRows, error) {
	wanted := ks.config.spec()
	old, err := ks.oldKeyspace(ctx)
	if err != nil {
		return found, err
	}
	if old && found.unit == "" && ks.config.Role != RoleRead {
		if err := ks.checkEmptied(ctx); err != nil {
			return found, err
		}
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
			if *row.found, err = ks.copied(ctx, row.name, row.wanted); err != nil {
				return found, err
			}
			continue
		}
		if ks.Tables.Own {
			// Two nodes that start at once with different settings must agree.
			if *row.found, err = ks.decideOwn(ctx, row.name, row.wanted); err != nil {
				return found, err
			}
		}
		if err := ks.Session.Exec(ctx, writeSpec, ks.now().UnixMilli(), clusterConfig, row.name, *row.found); err != nil {
			return found, err
		}
	}
	if ks.config.Role == RoleRead {
		ks.note("spec has no rows; taken as %s, row_width %s", found.unit, found.width)
		return found, nil
	}
	switch {
	case found.unit == rowtime.Legacy.String():
		ks.note("spec had no row_time_unit although there are metrics: the keyspace was created before KairosDB 1.3 and is now marked LEGACY")
	case old:
		ks.note("spec lacked rows although there are metrics; it has row_time_unit %s, row_width %s now", found.unit, found.width)
	}
	return ks.readSpec(ctx)
}

// copied returns the copy of a row of spec in varve_spec, otherwise if there is none.
func (ks *Keyspace) copied(ctx context.Context, name, otherwise string) (string, error) {
	if !ks.Tables.Own {
		return otherwise, nil
	}
	if kept, err := ks.ownText(ctx, name); err != nil || kept != "" {
		return kept, err
	}
	return otherwise, nil
}

// checkEmptied refuses a keyspace with metrics whose spec lacks its unit, if a server has
// opened it before and left no copy: such a keyspace was not made before KairosDB 1.3.
func (ks *Keyspace) checkEmptied(ctx context.Context) error {
	if !ks.Tables.Own {
		return nil
	}
	opened, err := ks.ownText(ctx, ownVersion)
	if err != nil || opened == "" {
		return err
	}
	kept, err := ks.ownText(ctx, specUnit)
	if err != nil || kept != "" {
		return err
	}
	return &cql.TableError{Keyspace: ks.Name, Table: specTable, Problem: "its rows are gone: they existed when a server last opened the keyspace", WayOut: rightSpec}
}

// oldKeyspace reports whether the keyspace was created before KairosDB 1.3. A read-only
// keyspace counts as old only if it has no table spec, which KairosDB 1.3 always creates; like
// KairosDB, the server does not check it for metric names.
func (ks *Keyspace) oldKeyspace(ctx context.Context) (bool, error) {
	if ks.config.Role == RoleRead {
		return !ks.Tables.Spec, nil
	}
	if !ks.Tables.StringIndex {
		return false, nil
	}
	return ks.hasMetrics(ctx)
}

func (ks *Keyspace) hasMetrics(ctx context.Context) (bool, error) {
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

// settleOwn reads or decides the parameters of Varve's own tables.
func (ks *Keyspace) settleOwn(ctx context.Context) error {
	if !ks.Tables.Own {
		return nil
	}
	version, err := ks.ownValue(ctx, ownVersion, currentVersion)
	if err != nil {
		return err
	}
	if version != currentVersion {
		return &cql.TableError{Keyspace: ks.Name, Table: varveSpecTable, Problem: fmt.Sprintf("its tables are of version %d, this program knows %d", version, currentVersion),
			WayOut: "use a newer Varve"}
	}
	ks.IndexShards, err = ks.ownValue(ctx, ownShards, ks.config.IndexShards)
	if err == nil && (ks.IndexShards < 1 || ks.IndexShards > 1024) {
		err = &cql.TableError{Keyspace: ks.Name, Table: varveSpecTable, Problem: fmt.Sprintf("index_shards is %d", ks.IndexShards),
			WayOut: "set it to the number that varve_row_index was filled with"}
	}
	return err
}

// ownValue reads a number from varve_spec. If it is missing, the first process to ask stores
// its own.
func (ks *Keyspace) ownValue(ctx context.Context, name string, wanted int) (int, error) {
	if ks.config.Role == RoleRead {
		if text, err := ks.ownText(ctx, name); err != nil || text == "" {
			return wanted, err
		}
	}
	text, err := ks.decideOwn(ctx, name, strconv.Itoa(wanted))
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, &cql.TableError{Keyspace: ks.Name, Table: varveSpecTable, Problem: fmt.Sprintf("%s is %q, not a number", name, text), WayOut: "put the right number back"}
	}
	return n, nil
}

// ownText reads a row of varve_spec, "" if there is none, as readSpec does.
func (ks *Keyspace) ownText(ctx context.Context, name string) (string, error) {
	if ks.config.Role == RoleRead {
		return ks.ownTextBy(ctx, peekOwnSpecRow, name)
	}
	return ks.ownTextBy(ctx, readOwnSpecRow, name)
}

func (ks *Keyspace) ownTextBy(ctx context.Context, read *cql.Statement, name string) (text string, err error) {
	_, err = ks.Session.One(ctx, read, []any{name}, &text)
	return text, err
}

// decideOwn returns a row of varve_spec. If it is missing, the first process to ask stores its
// own value.
func (ks *Keyspace) decideOwn(ctx context.Context, name, mine string) (string, error) {
	text, err := ks.ownText(ctx, name)
	if err != nil || text != "" {
		return text, err
	}
	return ks.Session.Decide(ctx, decideOwnSpec, "value", mine, name, mine)
}

// Confirm checks that spec is still as it was when the keyspace was opened: someone may empty
// its tables, or drop and create the keyspace again, while the process runs. Confirm restores
// missing rows, before metrics without them make the keyspace LEGACY; in a read-only keyspace
// it treats missing rows as unchanged. If a row has changed, the error is a
// *layout.ChangedError; likewise if a column was dropped or tables were added, see checkDropped and
// checkAdded.
//
// Usually Confirm makes two reads at the configured consistency, and one of the schema, or
// two if tables were missing when the keyspace was opened. If the two
// find a difference, it reads again at a quorum, since the replica that answered may be stale.
func (ks *Keyspace) Confirm(ctx context.Context) error {
	err := ks.checkDropped(ctx)
	if fault, ok := errors.AsType[*cql.TableError](err); ok {
		return &layout.ChangedError{Reason: fault.Error()}
	}
	if err != nil {
		return err
	}
	if err := ks.checkAdded(ctx); err != nil {
		return err
	}
	if same, err := ks.looksSame(ctx); err != nil || same {
		return err
	}
	found, err := ks.readSpec(ctx)
	if err != nil {
		return err
	}
	is := maps.Collect(found.each())
	for name, opened := range ks.settled.each() {
		if is[name] == "" {
			if is[name], err = ks.restore(ctx, name, opened); err != nil {
				return err
			}
		}
		if is[name] != opened {
			return ks.changed(specTable, name, opened, is[name])
		}
	}
	return ks.confirmShards(ctx)
}

// changed is the error of a setting that had another value when the keyspace was opened.
func (ks *Keyspace) changed(table, name, opened, is string) error {
	return &layout.ChangedError{Reason: fmt.Sprintf("keyspace %s, table %s: %s is %s, and was %s when the server opened the keyspace: the keyspace was created again, or the table was changed. "+
		"If the new value is right, restart the server: it then writes the waiting samples by it. Otherwise restore the old value", ks.Name, table, name, is, opened)}
}

func (ks *Keyspace) looksSame(ctx context.Context) (bool, error) {
	if !ks.Tables.Spec { // read-only; checkAdded notices when it is there
		return true, nil
	}
	found, err := ks.specBy(ctx, peekSpec)
	if err != nil || found != ks.settled {
		return false, err
	}
	if !ks.Tables.Own {
		return true, nil
	}
	shards, err := ks.ownTextBy(ctx, peekOwnSpecRow, ownShards)
	return shards == strconv.Itoa(ks.IndexShards), err
}

// restore writes a row of spec again, unless another process is creating the keyspace with
// another value. It returns the value that is in effect.
func (ks *Keyspace) restore(ctx context.Context, name, opened string) (is string, err error) {
	if ks.ReadOnly() {
		return opened, nil
	}
	if ks.Tables.Own {
		is, err = ks.decideOwn(ctx, name, opened)
		if err != nil || is != opened {
			return is, err
		}
	}
	return opened, ks.Session.Exec(ctx, writeSpec, ks.now().UnixMilli(), clusterConfig, name, opened)
}

// confirmShards is Confirm for varve_spec.
func (ks *Keyspace) confirmShards(ctx context.Context) error {
	if !ks.Tables.Own {
		return nil
	}
	opened := strconv.Itoa(ks.IndexShards)
	is, err := ks.ownText(ctx, ownShards)
	if err == nil && is == "" && ks.ReadOnly() {
		is = opened
	}
	if err == nil && is == "" {
		if is, err = ks.decideOwn(ctx, ownShards, opened); err == nil {
			_, err = ks.decideOwn(ctx, ownVersion, strconv.Itoa(currentVersion))
		}
	}
	if err == nil && is != opened {
		err = ks.changed(varveSpecTable, ownShards, opened, is)
	}
	return err
}

// LengthOfRow is the actual length of rows: in keyspaces with the unit seconds, a thousandth of
// what KairosDB's documentation says.
func LengthOfRow(s rowtime.Spec) time.Duration { return time.Duration(s.Width) * time.Millisecond }
