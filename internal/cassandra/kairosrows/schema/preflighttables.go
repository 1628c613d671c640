package schema

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"varve/internal/cassandra/cql"
)

// lookAtTables opens the keyspace in the role read, which creates nothing.
func (p *preflight) lookAtTables(ctx context.Context) error {
	config := p.o.Schema
	config.Create = CreateNothing
	if !p.meta() {
		config.Role = RoleRead
	}
	ks, err := Open(ctx, p.session, config, nil)
	if schema, ok := errors.AsType[*cql.TableError](err); ok {
		p.add(Bad, "tables", schema.Problem+tableOf(schema), schema.WayOut)
		return nil
	}
	if err != nil {
		return err
	}
	if p.meta() {
		return nil
	}
	if err := p.lookAtRows(ctx, ks); err != nil {
		return err
	}
	for _, note := range ks.Notes {
		p.add(Dubious, "tables", note, "see docs/migrating-from-kairosdb.md, pitfalls")
	}
	return nil
}

// lookAtRows reports the row unit and width that a server would use.
func (p *preflight) lookAtRows(ctx context.Context, ks *Keyspace) error {
	lost, err := p.specIsLost(ctx, ks)
	switch emptied, ok := errors.AsType[*cql.TableError](err); {
	case ok:
		p.add(Bad, "rows", emptied.Problem+tableOf(emptied), emptied.WayOut)
	case err != nil:
		return err
	case lost:
		p.add(Dubious, "rows", "table spec has no row_time_unit although there are metrics: the first start marks the keyspace LEGACY, as one that was created before KairosDB 1.3",
			"if KairosDB 1.3 created the keyspace and spec was lost, for example in a restore: "+rightSpec)
	default:
		p.add(Good, "rows", fmt.Sprintf("unit %s, width %d: %s each", ks.Spec.Unit, ks.Spec.Width, LengthOfRow(ks.Spec)), "")
	}
	return nil
}

// specIsLost reports whether the keyspace has a table spec without a unit, and metrics.
// KairosDB 1.3 never leaves a keyspace in that state. The error is an *cql.TableError if a server would
// refuse the keyspace for this reason.
func (p *preflight) specIsLost(ctx context.Context, ks *Keyspace) (bool, error) {
	if p.reads() || !ks.Tables.Spec || !ks.Tables.StringIndex {
		return false, nil
	}
	found, err := ks.readSpec(ctx)
	if err != nil || found.unit != "" {
		return false, err
	}
	if unit, err := ks.copied(ctx, specUnit, ""); err != nil || unit != "" {
		return false, err
	}
	if lost, err := ks.hasMetrics(ctx); err != nil || !lost {
		return false, err
	}
	return true, ks.checkEmptied(ctx)
}

// meta reports whether the keyspace is for metadata only, and reads whether nothing may be
// written there except deletes.
func (p *preflight) meta() bool  { return p.o.Schema.Role == RoleMeta }
func (p *preflight) reads() bool { return p.o.Schema.Role == RoleRead }

func tableOf(e *cql.TableError) string {
	if e.Table == "" {
		return ""
	}
	return ", table " + e.Table
}

// missing lists the tables that a start would create.
func (p *preflight) missing() (names []string) {
	for _, d := range definitions {
		if _, ok := p.tables[d.Name]; !ok && (!p.meta() || d.part == partMetadata) {
			names = append(names, d.Name)
		}
	}
	return names
}

// lookAtRights tries what a server does: reading, conditionally deleting a row that does not
// exist, and creating a table that exists.
func (p *preflight) lookAtRights(ctx context.Context) error {
	refused := map[string][]string{}
	for _, d := range definitions {
		t, ok := p.tables[d.Name]
		if !ok || d.Check(t) != "" {
			continue
		}
		for right, try := range map[string]func(context.Context, cql.Table) error{"SELECT": p.tryRead, "MODIFY": p.tryWrite} {
			err := try(ctx, t)
			switch {
			case cql.IsRefused(err, cql.Unauthorized):
				refused[right] = append(refused[right], d.Name)
			case err != nil && ctx.Err() != nil:
				return err
			case err != nil:
				p.add(Bad, "rights", fmt.Sprintf("%s on %s could not be tested: %v", right, d.Name, err), "check that all replicas are up, then try again")
			}
		}
	}
	user := cmp.Or(p.o.Session.Username, "the user")
	for _, right := range slices.Sorted(maps.Keys(refused)) {
		tables := refused[right]
		slices.Sort(tables)
		if right == "MODIFY" && p.reads() {
			p.add(Dubious, "rights", user+" lacks MODIFY: deletes that touch this read cluster are refused", fmt.Sprintf("GRANT MODIFY ON KEYSPACE %s TO %s, if points may be deleted there", p.session.KeyspaceName(), user))
			continue
		}
		p.add(Bad, "rights", fmt.Sprintf("%s lacks %s on %s", user, right, strings.Join(tables, ", ")), fmt.Sprintf("GRANT %s ON KEYSPACE %s TO %s", right, p.session.KeyspaceName(), user))
	}
	if len(refused) == 0 {
		p.add(Good, "rights", user+" may read and write all tables that are there", "")
	}
	return p.tryCreate(ctx, user)
}

func (p *preflight) tryRead(ctx context.Context, t cql.Table) error {
	where, args := keyOfNothing(t)
	st := &cql.Statement{Name: "preflight_read", Text: "SELECT " + t.Columns[0].Name + " FROM " + t.Name + where}
	rows := p.session.Query(ctx, st, args...)
	return rows.Close()
}

func (p *preflight) tryWrite(ctx context.Context, t cql.Table) error {
	where, args := keyOfNothing(t)
	return p.session.Exec(ctx, &cql.Statement{Name: "preflight_write", Text: "DELETE FROM " + t.Name + where + " IF EXISTS"}, 0, args...)
}

// keyOfNothing returns a condition on the whole primary key that matches no row.
func keyOfNothing(t cql.Table) (where string, args []any) {
	nothing := "varve-preflight-" + rand.Text()
	for _, c := range t.Columns {
		if c.Kind != "partition_key" && c.Kind != "clustering" {
			continue
		}
		word := " AND "
		if where == "" {
			word = " WHERE "
		}
		where += word + c.Name + " = ?"
		switch c.Type {
		case "blob":
			args = append(args, []byte(nothing))
		case "text":
			args = append(args, nothing)
		case "int":
			args = append(args, 0)
		case "timestamp":
			args = append(args, time.UnixMilli(0))
		default: // tags
			args = append(args, map[string]string{"varve": nothing})
		}
	}
	return where, args
}

// tryCreate finds out whether the missing tables can be created.
func (p *preflight) tryCreate(ctx context.Context, user string) error {
	missing := p.missing()
	if len(missing) == 0 {
		return nil
	}
	if p.reads() {
		if slices.Contains(missing, varveRowIndexTable) {
			p.add(Dubious, "tables", "there is no inverted index, and none is created in a read cluster: selective queries may read all row keys of a metric", "see docs/cassandra.md, selective queries")
		}
		return nil
	}
	text := "missing: " + strings.Join(missing, ", ")
	i := slices.IndexFunc(definitions, func(d definition) bool { _, ok := p.tables[d.Name]; return ok })
	if i < 0 {
		p.add(Bad, "tables", "KairosDB's tables are missing", "check the spelling of cassandra.keyspace; if the keyspace is the right one, the first start creates them")
		return nil
	}
	if p.o.Schema.Create == CreateNothing {
		p.add(Dubious, "tables", text+"; cassandra.schema.create is nothing, so they stay missing", "selective queries are slower without varve_*; set it to tables")
		return nil
	}
	err := p.session.Change(ctx, definitions[i].Create("")) // IF NOT EXISTS
	switch {
	case cql.IsRefused(err, cql.Unauthorized):
		p.add(Dubious, "tables", text+fmt.Sprintf("; %s lacks CREATE, so they stay missing. Selective queries are slower without varve_*", user),
			fmt.Sprintf("GRANT CREATE ON KEYSPACE %s TO %s, or let an administrator start varve once", p.session.KeyspaceName(), user))
	case err != nil:
		p.add(Bad, "tables", text+": "+err.Error(), "fix that; the first start creates tables")
	default:
		p.add(Good, "tables", text+"; the first start creates them", "")
	}
	return nil
}
