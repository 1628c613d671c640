package schema

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/layout"
)

// Names of tables.
const (
	DataPoints             = "data_points"
	rowKeyIndexTable       = "row_key_index"
	rowKeyTimeIndexTable   = "row_key_time_index"
	rowKeysTable           = "row_keys"
	tagIndexedRowKeysTable = "tag_indexed_row_keys"
	stringIndexTable       = "string_index"
	serviceIndexTable      = "service_index"
	specTable              = "spec"

	varveSpecTable     = "varve_spec"
	varveRowIndexTable = "varve_row_index"
	varveRowStateTable = "varve_row_state"
)

const tagsType = "frozen<map<text, text>>"

// A definition is a table of a keyspace.
type definition struct {
	cql.Definition
	part part
}

// part says what a table is needed for.
type part uint8

const (
	partSamples  part = iota // KairosDB's tables of samples and their index
	partOptional             // KairosDB's tables that reading and writing can do without
	partMetadata
	partOwn
)

// definitions are in the order in which tables are created: tables that describe the keyspace
// come before tables that would be misinterpreted without them.
var definitions = []definition{
	{part: partSamples, Definition: cql.Definition{Name: specTable, Columns: []cql.Column{cql.KeyColumn("spec_type", "text"), cql.OrderColumn("name", "text"), cql.PlainColumn("value", "text")}}},
	{part: partOwn, Definition: cql.Definition{Name: varveSpecTable, Columns: []cql.Column{cql.KeyColumn("name", "text"), cql.PlainColumn("value", "text")}}},
	{part: partSamples, Definition: cql.Definition{Name: DataPoints, Columns: []cql.Column{cql.KeyColumn("key", "blob"), cql.OrderColumn("column1", "blob"), cql.PlainColumn("value", "blob")}}},
	{part: partOptional, Definition: cql.Definition{Name: rowKeyIndexTable, Columns: []cql.Column{cql.KeyColumn("key", "blob"), cql.OrderColumn("column1", "blob"), cql.PlainColumn("value", "blob")}}},
	{part: partSamples, Definition: cql.Definition{Name: stringIndexTable, Also: map[string]string{"column1": "blob"}, Columns: []cql.Column{cql.KeyColumn("key", "blob"), cql.OrderColumn("column1", "text"), cql.PlainColumn("value", "blob")}}},
	{part: partSamples, Definition: cql.Definition{Name: rowKeysTable, Columns: []cql.Column{
		cql.KeyColumn("metric", "text"), cql.KeyColumn("table_name", "text"), cql.KeyColumn("row_time", "timestamp"),
		cql.OrderColumn("data_type", "text"), cql.OrderColumn("tags", tagsType), cql.StaticColumn("mtime", "timeuuid"), cql.PlainColumn("value", "text")}}},
	{part: partOptional, Definition: cql.Definition{Name: tagIndexedRowKeysTable, Columns: []cql.Column{
		cql.KeyColumn("metric", "text"), cql.KeyColumn("table_name", "text"), cql.KeyColumn("row_time", "timestamp"), cql.KeyColumn("single_tag_pair", "text"),
		cql.OrderColumn("data_type", "text"), cql.OrderColumn("tag_collection_hash", "int"), cql.OrderColumn("tags", tagsType),
		cql.StaticColumn("mtime", "timeuuid"), cql.PlainColumn("value", "text")}}},
	{part: partSamples, Definition: cql.Definition{Name: rowKeyTimeIndexTable, Columns: []cql.Column{
		cql.KeyColumn("metric", "text"), cql.OrderColumn("table_name", "text"), cql.OrderColumn("row_time", "timestamp"), cql.PlainColumn("value", "text")}}},
	{part: partMetadata, Definition: cql.Definition{Name: serviceIndexTable, Columns: []cql.Column{
		cql.KeyColumn("service", "text"), cql.KeyColumn("service_key", "text"), cql.OrderColumn("key", "text"), cql.StaticColumn("mtime", "timeuuid"), cql.PlainColumn("value", "text")}}},
	{part: partOwn, Definition: cql.Definition{Name: varveRowIndexTable, Columns: []cql.Column{
		cql.KeyColumn("metric", "text"), cql.KeyColumn("row_time", "timestamp"), cql.KeyColumn("tag", "text"), cql.KeyColumn("value", "text"), cql.KeyColumn("shard", "int"),
		cql.OrderColumn("data_type", "text"), cql.OrderColumn("tags", tagsType)}}},
	{part: partOwn, Definition: cql.Definition{Name: varveRowStateTable, Columns: []cql.Column{
		cql.KeyColumn("metric", "text"), cql.OrderColumn("row_time", "timestamp"), cql.PlainColumn("kairos_mtime", "timeuuid"), cql.PlainColumn("changed", "timeuuid"), cql.PlainColumn("expires", "bigint")}}},
}

func TableNames() []string {
	names := make([]string, len(definitions))
	for i, d := range definitions {
		names[i] = d.Name
	}
	return names
}

// Tables says which tables a keyspace has, and in which form.
type Tables struct {
	StringIndexBlob bool // string_index.column1 is a blob, not text, and must be bound and scanned as bytes

	RowKeyIndex       bool // pre-1.2; never written
	RowKeyTimeIndex   bool
	RowKeys           bool
	TagIndexedRowKeys bool
	StringIndex       bool
	ServiceIndex      bool
	Spec              bool
	Own               bool // all of varve_spec, varve_row_index and varve_row_state
}

// NameColumn is the name of a metric as string_index has it.
func (t Tables) NameColumn(name string) any {
	if t.StringIndexBlob {
		return []byte(name)
	}
	return name
}

func tablesOf(found map[string]cql.Table) Tables {
	has := func(name string) bool { _, ok := found[name]; return ok }
	column1, _ := found[stringIndexTable].Column("column1")
	return Tables{
		StringIndexBlob:   column1.Type == "blob",
		RowKeyIndex:       has(rowKeyIndexTable),
		RowKeyTimeIndex:   has(rowKeyTimeIndexTable),
		RowKeys:           has(rowKeysTable),
		TagIndexedRowKeys: has(tagIndexedRowKeysTable),
		StringIndex:       has(stringIndexTable),
		ServiceIndex:      has(serviceIndexTable),
		Spec:              has(specTable),
		Own:               has(varveSpecTable) && has(varveRowIndexTable) && has(varveRowStateTable),
	}
}

// checkTables refuses tables that differ in shape from those of KairosDB 1.2.0 and later.
func (ks *Keyspace) checkTables(found map[string]cql.Table) error {
	var errs []error
	for _, d := range definitions {
		t, ok := found[d.Name]
		if !ok || !ks.uses(d) {
			continue
		}
		if problem := d.Check(t); problem != "" {
			errs = append(errs, &cql.TableError{Keyspace: ks.Name, Table: d.Name, Problem: problem, WayOut: wayOut(d.Name, t)})
		}
	}
	return errors.Join(errs...)
}

// wayOut says what to do with a table of an unknown shape. Betas of KairosDB 1.2.0 created
// three tables without table_name, which no later version reads.
func wayOut(name string, t cql.Table) string {
	_, named := t.Column("table_name")
	_, timed := t.Column("mtime")
	beta := (name == rowKeysTable || name == rowKeyTimeIndexTable) && !named || name == serviceIndexTable && !timed
	switch {
	case beta && name == serviceIndexTable:
		return "a beta of KairosDB 1.2.0 created it; export its rows, drop it, and let it be created again"
	case beta:
		return "a beta of KairosDB 1.2.0 created it; drop row_keys and row_key_time_index, let them be created again, and run `varve repair`, which finds the rows of data_points"
	case strings.HasPrefix(name, "varve_"):
		return "it is not a table of this version of Varve; rename or drop it"
	}
	return "it is not KairosDB's table of that name; name another keyspace"
}

// checkDropped refuses a table of which a column was dropped, and added again. Cassandra hides all
// values of such a column that have a write timestamp before the drop. It takes write timestamps for
// microseconds, and those of KairosDB's tables are milliseconds: whatever is written to the column
// would be acknowledged, and lost.
func (ks *Keyspace) checkDropped(ctx context.Context) error {
	dropped, err := ks.Session.DroppedColumns(ctx)
	if err != nil {
		return err
	}
	for _, c := range dropped {
		i := slices.IndexFunc(definitions, func(d definition) bool { return d.Name == c.Table })
		if i < 0 || !ks.uses(definitions[i]) || !definitions[i].needs(c.Name) || c.At.UnixMicro() < ks.now().UnixMilli() {
			continue
		}
		return &cql.TableError{Keyspace: ks.Name, Table: c.Table,
			Problem: fmt.Sprintf("its column %s was dropped at %s, and Cassandra hides what is written to a column of that name since then, because write timestamps are milliseconds here", c.Name, c.At.UTC().Format(time.RFC3339)),
			WayOut:  "drop the whole table, and create it as docs/formats/kairosdb-cassandra.md says, or restart a server that may create tables; then run varve repair"}
	}
	return nil
}

// needs reports whether values of a column are read that have write timestamps in milliseconds.
func (d definition) needs(column string) bool {
	switch d.Name {
	case rowKeysTable:
		return column == "mtime"
	case DataPoints, specTable, serviceIndexTable, varveRowStateTable:
		return slices.ContainsFunc(d.Columns, func(c cql.Column) bool { return c.Name == column })
	}
	return false // the other index tables, and varve_spec, which lightweight transactions write
}

// uses reports whether the role of the keyspace needs the table.
func (ks *Keyspace) uses(d definition) bool {
	if ks.config.Role == RoleMeta {
		return d.part == partMetadata
	}
	return true
}

// createTables creates the missing tables that only selects, and updates found to the tables
// that exist afterwards. Without the right to create Varve's own tables, the server reads and
// writes without them, only more slowly.
func (ks *Keyspace) createTables(ctx context.Context, found map[string]cql.Table, only func(definition) bool) error {
	if !ks.MayCreate() {
		return nil
	}
	options, err := ks.config.tableOptions()
	if err != nil {
		return err
	}
	for _, d := range definitions {
		if _, ok := found[d.Name]; ok || !ks.uses(d) || !only(d) {
			continue
		}
		ks.progress("creating table " + d.Name + " in keyspace " + ks.Name)
		err := ks.Session.Change(ctx, d.Create(options[d.Name]))
		refused := errors.As(err, new(*cql.RefusedError))
		if refused && d.part == partOwn {
			ks.note("table %s cannot be created, so selective queries read whole index partitions: %v", d.Name, err)
			continue
		}
		if refused {
			return &cql.TableError{Keyspace: ks.Name, Table: d.Name, Problem: "it is missing and cannot be created", Err: err,
				WayOut: "create it by hand as docs/formats/kairosdb-cassandra.md says, or grant the user the right to create it"}
		}
		if err != nil {
			return err
		}
	}
	again, err := ks.Session.Tables(ctx)
	if err != nil {
		return err
	}
	clear(found)
	maps.Copy(found, again)
	return nil
}

// checkMissing refuses a keyspace that lacks tables that its role needs.
func (ks *Keyspace) checkMissing(found map[string]cql.Table) error {
	var missing []string
	for _, d := range definitions {
		if _, ok := found[d.Name]; ok || !ks.uses(d) {
			continue
		}
		needed := d.part == partSamples || d.part == partMetadata && ks.config.Role == RoleMeta
		if ks.ReadOnly() {
			needed = d.Name == DataPoints
		}
		if needed {
			missing = append(missing, d.Name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	wayOut := "set cassandra.schema.create to tables, or create them by hand as docs/formats/kairosdb-cassandra.md says"
	if ks.ReadOnly() {
		wayOut = "this is not a keyspace of KairosDB; name the right one"
	}
	return &cql.TableError{Keyspace: ks.Name, Problem: "tables are missing: " + strings.Join(missing, ", "), WayOut: wayOut}
}

// lacking returns the tables of samples and their index that are not in found. A keyspace of KairosDB
// before 1.2 or 1.3 lacks some, and is read without them.
func lacking(found map[string]cql.Table) (names []string) {
	for _, d := range definitions {
		if _, ok := found[d.Name]; !ok && (d.part == partSamples || d.part == partOptional) {
			names = append(names, d.Name)
		}
	}
	return names
}

// checkAdded refuses a keyspace that has got tables which it lacked when it was opened. No query asks
// them, so samples that only they name would silently be missing. This happens if the keyspace was
// opened while it was being created or restored, or if KairosDB has been updated there.
func (ks *Keyspace) checkAdded(ctx context.Context) error {
	if len(ks.lacked) == 0 {
		return nil
	}
	found, err := ks.Session.Tables(ctx)
	if err != nil {
		return err
	}
	left := lacking(found)
	added := slices.DeleteFunc(slices.Clone(ks.lacked), func(name string) bool { return slices.Contains(left, name) })
	if len(added) == 0 {
		return nil
	}
	return &layout.ChangedError{Reason: fmt.Sprintf("keyspace %s: tables were added since the server opened the keyspace, and it does not read them: %s. Restart the server", ks.Name, strings.Join(added, ", "))}
}

// noteOptions notes table options that harm the keyspace.
func (ks *Keyspace) noteOptions(found map[string]cql.Table) {
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if !slices.ContainsFunc(definitions, func(d definition) bool { return d.Name == name }) {
			continue
		}
		if sec := found[name].DefaultTTLSec; sec > 0 {
			ks.note("table %s has default_time_to_live = %d, which applies to rows of other programs only: Varve writes each row with its own time to live, or with none", name, sec)
		}
		c := found[name].Compaction
		if strings.HasSuffix(c["class"], "TimeWindowCompactionStrategy") && c["timestamp_resolution"] != "MILLISECONDS" {
			ks.note("table %s is compacted by time windows of the wrong unit, because its timestamps are milliseconds: ALTER TABLE %s.%s WITH compaction = {..., 'timestamp_resolution': 'MILLISECONDS'}", name, ks.Name, name)
		}
	}
}
