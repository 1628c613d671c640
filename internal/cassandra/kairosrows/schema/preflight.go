package schema

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"varve/internal/cassandra/cql"
)

// A Finding is one result of the preflight, for operators.
type Finding struct {
	Grade Grade
	What  string // what was checked
	Text  string // what was found
	Do    string // what to do, if it is not Good
}

// A Grade is the severity of a finding.
type Grade string

const (
	Good    Grade = "ok"
	Dubious Grade = "warn" // it works, but may be unexpected
	Bad     Grade = "bad"  // a server cannot work, or data is at risk
)

// PreflightOptions are the settings of a preflight.
type PreflightOptions struct {
	Session   cql.Config
	Schema    Config
	CoverRate int // of the reader
}

// A preflight collects findings.
type preflight struct {
	session  *cql.Session
	o        PreflightOptions
	findings []Finding
	nodes    []cql.Node
	tables   map[string]cql.Table
}

// Preflight connects to a cluster, and checks it and the keyspace that a server will use. It
// writes nothing and creates nothing.
func Preflight(ctx context.Context, o PreflightOptions) ([]Finding, error) {
	session, err := connect(ctx, o.Session)
	if err != nil {
		return unreachable(ctx, o.Session, err), nil
	}
	defer session.Close()
	p := &preflight{session: session, o: o}
	for _, look := range []func(context.Context) error{p.lookAtNodes, p.lookAtClocks, p.lookAtKeyspace} {
		if err := look(ctx); err != nil {
			return p.findings, err
		}
	}
	if len(p.tables) == 0 {
		return p.findings, nil
	}
	for _, look := range []func(context.Context) error{p.lookAtTables, p.lookAtRights, p.lookAtKairosDB, p.lookAtSize} {
		if err := look(ctx); err != nil {
			return p.findings, err
		}
	}
	return p.findings, nil
}

// connectWait is how long a preflight waits for a connection.
const connectWait = 20 * time.Second

// connect opens a session and waits until it is connected.
func connect(ctx context.Context, c cql.Config) (*cql.Session, error) {
	session, err := cql.Open(c, cql.Options{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectWait)
	defer cancel()
	if err := session.Wait(ctx); err != nil {
		session.Close()
		return nil, err
	}
	return session, nil
}

// unreachable explains why there is no connection: the cluster is down, or has no node in the
// configured data centre.
func unreachable(ctx context.Context, c cql.Config, cause error) []Finding {
	found := Finding{Grade: Bad, What: "connection", Text: cause.Error(),
		Do: "check that Cassandra runs, and check cassandra.hosts, username, password and tls"}
	if c.Datacenter == "" {
		return []Finding{found}
	}
	named := c.Datacenter
	c.Datacenter = ""
	session, err := connect(ctx, c)
	if err != nil {
		return []Finding{found}
	}
	defer session.Close()
	nodes, err := session.Nodes(ctx)
	if err != nil {
		return []Finding{found}
	}
	return []Finding{DatacenterFinding(named, nodes)}
}

func (p *preflight) add(grade Grade, what, text, do string) {
	p.findings = append(p.findings, Finding{grade, what, text, do})
}

// lookAtNodes checks releases, data centres and schemas.
func (p *preflight) lookAtNodes(ctx context.Context) (err error) {
	if p.nodes, err = p.session.Nodes(ctx); err != nil {
		return err
	}
	versions, schemas := map[string]int{}, map[string]int{}
	for _, n := range p.nodes {
		versions[n.Version]++
		schemas[n.Schema]++
	}
	p.add(Good, "nodes", strconv.Itoa(len(p.nodes)), "")
	known := func(v string) bool { return strings.HasPrefix(v, "4.1.") || strings.HasPrefix(v, "5.0.") }
	switch {
	case len(versions) > 1:
		p.add(Dubious, "release", "nodes run different releases: "+counts(versions), "finish the upgrade of Cassandra first")
	case !known(p.nodes[0].Version):
		p.add(Dubious, "release", "Cassandra "+p.nodes[0].Version+", with which Varve was not tested", "use 4.1 or 5.0")
	default:
		p.add(Good, "release", "Cassandra "+p.nodes[0].Version, "")
	}
	if len(schemas) > 1 {
		p.add(Bad, "schema", fmt.Sprintf("nodes have %d different schemas", len(schemas)), "wait until nodetool describecluster shows one; restart a node that keeps another")
	}
	p.findings = append(p.findings, DatacenterFinding(p.o.Session.Datacenter, p.nodes))
	return nil
}

// datacentersOf counts nodes by data centre.
func datacentersOf(nodes []cql.Node) map[string]int {
	n := map[string]int{}
	for _, node := range nodes {
		n[node.Datacenter]++
	}
	return n
}

// DatacenterFinding checks whether the configured data centre, "" if none is, matches the
// nodes.
func DatacenterFinding(own string, nodes []cql.Node) Finding {
	all := datacentersOf(nodes)
	switch {
	case own != "" && all[own] == 0:
		return Finding{Bad, "data centre", fmt.Sprintf("no node is in %s; the cluster has %s", own, counts(all)), "set cassandra.datacenter to one of them"}
	case own == "" && len(all) > 1:
		return Finding{Bad, "data centre", "cassandra.datacenter is empty and the cluster has " + counts(all) + ": LOCAL_QUORUM may be counted in one for a write and in the other for a read",
			"set cassandra.datacenter; Varve nodes that must see each other's writes at once need the same"}
	}
	return Finding{Good, "data centre", counts(all), ""}
}

// counts renders numbers by name.
func counts(n map[string]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(n)) {
		all = append(all, fmt.Sprintf("%s (%d)", name, n[name]))
	}
	return strings.Join(all, ", ")
}

// Bounds of the difference between clocks. If a delete and a write are closer in time than that
// difference, the earlier one may win.
const (
	clockDubious = 200 * time.Millisecond
	clockBad     = 5 * time.Second
)

func (p *preflight) lookAtClocks(ctx context.Context) error {
	clocks, err := p.session.Clocks(ctx)
	p.findings = append(p.findings, clockFindings(clocks)...)
	return err
}

func clockFindings(clocks []cql.Clock) (findings []Finding) {
	worst := cql.Clock{}
	for _, c := range clocks {
		switch {
		case !c.Up:
			findings = append(findings, Finding{Dubious, "node", c.Address + " is down, or cannot be reached from here", "bring it back; open its port for this machine"})
		case c.Err != nil:
			findings = append(findings, Finding{Dubious, "node", c.Address + " does not answer: " + c.Err.Error(), "look at the node's log"})
		case worst.Address == "" || c.Ahead.Abs() > worst.Ahead.Abs():
			worst = c
		}
	}
	if worst.Address == "" {
		return findings
	}
	text := fmt.Sprintf("of %d nodes, %s has the clock that differs most from this machine's: by", len(clocks), worst.Address)
	if len(clocks) == 1 {
		text = fmt.Sprintf("the clock of %s differs from this machine's by", worst.Address)
	}
	f := Finding{Grade: Good, What: "clocks", Text: fmt.Sprintf("%s %v (+- %v)", text, worst.Ahead.Round(time.Millisecond), worst.Error.Round(time.Millisecond))}
	least := worst.Ahead.Abs() - worst.Error
	if least > clockDubious {
		f.Grade, f.Do = Dubious, "run NTP on all nodes and here; writes and deletes of a clock that is ahead win over later ones"
	}
	if least > clockBad {
		f.Grade = Bad
	}
	return append(findings, f)
}

var readReplication = &cql.Statement{Name: "read_replication", Text: "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?"}

// lookAtKeyspace checks whether the keyspace exists, and its replication.
func (p *preflight) lookAtKeyspace(ctx context.Context) error {
	name := p.session.KeyspaceName()
	var replication map[string]string
	found, err := p.session.One(ctx, readReplication, []any{name}, &replication)
	if err != nil {
		return err
	}
	if !found {
		if p.o.Schema.Create == CreateKeyspace {
			p.add(Dubious, "keyspace", name+" is missing; the first start creates it, if the user may (CREATE on ALL KEYSPACES)", "check the spelling of cassandra.keyspace if there should be points")
		} else {
			p.add(Bad, "keyspace", name+" is missing", "create it with the replication that it needs, or set cassandra.schema.create to keyspace; check the spelling of cassandra.keyspace")
		}
		return nil
	}
	p.add(Good, "keyspace", name+", replication "+replicationText(replication), "")
	p.findings = append(p.findings, replicationFindings(replication, datacentersOf(p.nodes), p.o.Session)...)
	p.tables, err = p.session.Tables(ctx)
	if err == nil && len(p.tables) == 0 {
		p.add(Good, "tables", "none; the first start creates them, if the user may (CREATE on the keyspace)", "")
	}
	return err
}

// replicationText writes a replication as cassandra.schema.replication takes it.
func replicationText(replication map[string]string) string {
	text := "{'class': '" + strings.TrimPrefix(replication["class"], "org.apache.cassandra.locator.") + "'"
	for _, key := range slices.Sorted(maps.Keys(replication)) {
		if key != "class" {
			text += ", '" + key + "': '" + replication[key] + "'"
		}
	}
	return text + "}"
}

// copies are numbers of replicas of a keyspace.
type copies struct{ local, all int }

// copiesOf parses a replication. local counts the replicas in the data centre in use.
func copiesOf(replication map[string]string, datacenters map[string]int, own string) (c copies) {
	if own == "" && len(datacenters) == 1 {
		for name := range datacenters {
			own = name
		}
	}
	class := replication["class"]
	for name, text := range replication {
		if name == "class" {
			continue
		}
		number, _, _ := strings.Cut(text, "/")
		n, err := strconv.Atoi(number)
		if err != nil {
			continue
		}
		c.all += n
		if name == own || strings.HasSuffix(class, "SimpleStrategy") && len(datacenters) == 1 {
			c.local += n
		}
	}
	return c
}

// needs returns how many replicas a consistency level waits for.
func (c copies) needs(consistency string) (n int, local bool) {
	switch consistency {
	case "TWO":
		return 2, false
	case "THREE":
		return 3, false
	case "QUORUM", "EACH_QUORUM":
		return c.all/2 + 1, false
	case "LOCAL_QUORUM":
		return c.local/2 + 1, true
	case "ALL":
		return c.all, false
	case "LOCAL_ONE":
		return 1, true
	}
	return 1, false // ONE, ANY
}

// replicationFindings checks whether the replication and the configured consistency fit
// together.
func replicationFindings(replication map[string]string, datacenters map[string]int, session cql.Config) (findings []Finding) {
	add := func(grade Grade, text, do string) {
		findings = append(findings, Finding{grade, "replication", text, do})
	}
	c := copiesOf(replication, datacenters, session.Datacenter)
	simple := strings.HasSuffix(replication["class"], "SimpleStrategy")
	if simple && len(datacenters) > 1 {
		add(Bad, "SimpleStrategy ignores data centres, and there are "+counts(datacenters),
			"ALTER KEYSPACE ... WITH replication = {'class': 'NetworkTopologyStrategy', ...}, then nodetool repair -full on each node")
		return findings
	}
	reads, readsLocal := c.needs(session.ReadConsistency)
	writes, writesLocal := c.needs(session.WriteConsistency)
	if (readsLocal || writesLocal) && c.local == 0 {
		add(Bad, fmt.Sprintf("no replica is in data centre %s, and consistency %s needs one there", session.Datacenter, session.ReadConsistency),
			"set cassandra.datacenter to one that the replication names, or change the replication and run nodetool repair -full")
		return findings
	}
	for _, use := range []struct {
		key, consistency string
		n                int
		local            bool
	}{{"read_consistency", session.ReadConsistency, reads, readsLocal}, {"write_consistency", session.WriteConsistency, writes, writesLocal}} {
		if there := c.within(use.local); use.n > there {
			add(Bad, fmt.Sprintf("cassandra.%s %s needs %d replicas, but there are only %d", use.key, use.consistency, use.n, there), "use LOCAL_QUORUM")
		}
	}
	together := c.within(readsLocal && writesLocal)
	if reads+writes <= together {
		add(Dubious, fmt.Sprintf("%d replicas: a read at %s (%d) may miss what was written at %s (%d) a moment before", together, session.ReadConsistency, reads, session.WriteConsistency, writes),
			"set cassandra.read_consistency and write_consistency to LOCAL_QUORUM")
	}
	if here := c.within(readsLocal || writesLocal); here == 1 {
		add(Dubious, "one replica: while a node is down, its part can be neither read nor written, and a lost disk is lost data",
			"ALTER KEYSPACE with 3 replicas, then nodetool repair -full, unless this is a test")
	} else if here == 2 && (reads == 2 || writes == 2) {
		add(Dubious, "two replicas: a quorum needs both, so one node that is down stops reads or writes", "use 3 replicas")
	}
	nodes := 0
	for name, n := range datacenters {
		if simple || replication[name] != "" {
			nodes += n
		}
	}
	if nodes < c.all {
		add(Bad, fmt.Sprintf("%d replicas are configured; nodes for them: %d", c.all, nodes), "add nodes, or lower the replication factor")
	}
	if len(findings) == 0 {
		add(Good, fmt.Sprintf("%d replicas; reads at %s and writes at %s overlap", together, session.ReadConsistency, session.WriteConsistency), "")
	}
	return findings
}

func (c copies) within(local bool) int {
	if local {
		return c.local
	}
	return c.all
}

// lookAtTables opens the keyspace in the role read, which creates nothing.
func (p *preflight) lookAtTables(ctx context.Context) error {
	config := p.o.Schema
	config.Create = CreateNothing
	if !p.meta() {
		config.Role = RoleRead
	}
	ks, err := Open(ctx, p.session, config, nil)
	if schema, ok := errors.AsType[*Error](err); ok {
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
		p.add(Dubious, "tables", note, "see docs/cassandra.md")
	}
	return nil
}

// lookAtRows reports the row unit and width that a server would use.
func (p *preflight) lookAtRows(ctx context.Context, ks *Keyspace) error {
	lost, err := p.specIsLost(ctx, ks)
	var emptied *Error
	switch {
	case errors.As(err, &emptied):
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
// KairosDB 1.3 never leaves a keyspace in that state. The error is an *Error if a server would
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

func tableOf(e *Error) string {
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
			var no *cql.RefusedError
			switch {
			case errors.As(err, &no) && no.Reason == cql.Unauthorized:
				refused[right] = append(refused[right], d.Name)
			case err != nil && ctx.Err() != nil:
				return err
			case err != nil:
				p.add(Bad, "rights", fmt.Sprintf("%s on %s could not be tested: %v", right, d.Name, err), "check that all replicas are up, then try again")
			}
		}
	}
	user := p.o.Session.Username
	if user == "" {
		user = "the user"
	}
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
	var no *cql.RefusedError
	switch {
	case errors.As(err, &no) && no.Reason == cql.Unauthorized:
		p.add(Dubious, "tables", text+fmt.Sprintf("; %s lacks CREATE, so they stay missing. Selective queries are slower without varve_*", user),
			fmt.Sprintf("GRANT CREATE ON KEYSPACE %s TO %s, or let an administrator start varve once", p.session.KeyspaceName(), user))
	case err != nil:
		p.add(Bad, "tables", text+": "+err.Error(), "fix that; the first start creates tables")
	default:
		p.add(Good, "tables", text+"; the first start creates them", "")
	}
	return nil
}

// maxHosts is how many KairosDB nodes are named.
const maxHosts = 10

// lookAtKairosDB lists the KairosDB nodes that use the keyspace.
func (p *preflight) lookAtKairosDB(ctx context.Context) error {
	if _, ok := p.tables[serviceIndexTable]; !ok {
		p.add(Dubious, "KairosDB", "there is no table service_index, in which its nodes are listed", "set cassandra.delete.kairosdb_nodes to yes while KairosDB runs here")
		return nil
	}
	var alive []string
	err := eachHost(ctx, p.session, time.Now(), func(host string, age time.Duration) {
		if len(alive) < maxHosts {
			alive = append(alive, fmt.Sprintf("%s (%d s ago)", host, max(0, int(age.Seconds()))))
		}
	})
	if err != nil {
		return err
	}
	if len(alive) == 0 {
		p.add(Good, "KairosDB", fmt.Sprintf("no node was listed in the last %v (service_index, _Hosts)", HostLife), "")
		return nil
	}
	p.add(Good, "KairosDB", "nodes: "+strings.Join(alive, ", ")+"; roll-ups are left to them for a minute, and deletes keep index rows that they may use", "")
	return nil
}

// The duration of a repair, as TestRepairStatements of package remove measured it with one node
// and Varve on the same two cores: 30,000 row keys with two tags took 5.9 s in one partition of
// row_keys, and 31 s in 3000 partitions; 10,000 row keys in 10,000 partitions took 73 s.
const (
	repairRow       = 200 * time.Microsecond // a row and its row key
	repairPartition = 7 * time.Millisecond   // a partition of row_keys: a metric and row time
)

// repairTime estimates how long a repair takes.
func repairTime(rows, partitions int64) time.Duration {
	return time.Duration(rows)*repairRow + time.Duration(partitions)*repairPartition
}

// lookAtSize estimates the number of rows, and how long coverage and repair take.
func (p *preflight) lookAtSize(ctx context.Context) error {
	if _, ok := p.tables[DataPoints]; !ok {
		return nil
	}
	n, exact, err := p.countPartitions(ctx, sampleRows)
	if err != nil {
		return err
	}
	about := "about "
	if exact {
		about = ""
	}
	p.add(Good, "size", fmt.Sprintf("%s%d rows; one holds a series for a row's width", about, n), "")
	if p.reads() {
		return nil
	}
	if rate := p.o.CoverRate; rate > 0 {
		p.add(Good, "coverage", fmt.Sprintf("at most %s until selective queries are quick everywhere: each row key is added to the inverted index once, %d a second (read.cover_rate)", seconds(n/int64(rate)), rate), "")
	}
	return p.forecastRepair(ctx, n)
}

// forecastRepair reports how long a repair of that many rows takes.
func (p *preflight) forecastRepair(ctx context.Context, rows int64) error {
	var partitions int64
	if _, ok := p.tables[rowKeysTable]; ok {
		var err error
		if partitions, _, err = p.countPartitions(ctx, sampleRowKeys); err != nil {
			return err
		}
	}
	took := repairTime(rows, partitions)
	p.add(Good, "repair", fmt.Sprintf("varve repair takes some %s: %v for each row, and %v for each of about %d metrics and row times, as measured with one node and Varve on two cores",
		seconds(int64(took/time.Second)), repairRow, repairPartition, partitions), "")
	return nil
}

// seconds formats a duration of n seconds, rounded up so that it is never 0.
func seconds(n int64) string { return (time.Duration(n+1) * time.Second).String() }

// Statements that list the partitions of a table from a token onwards. The token is the last
// column.
var (
	sampleRows    = &cql.Statement{Name: "preflight_sample", PageSize: samplePage, Text: "SELECT DISTINCT key, token(key) FROM data_points WHERE token(key) >= ? LIMIT ?"}
	sampleRowKeys = &cql.Statement{Name: "preflight_sample_row_keys", PageSize: samplePage, Text: "SELECT DISTINCT metric, table_name, row_time, token(metric, table_name, row_time) " +
		"FROM row_keys WHERE token(metric, table_name, row_time) >= ? LIMIT ?"}
)

// skipped is how many columns before the token of these statements are ignored.
var skipped = map[*cql.Statement]int{sampleRows: 1, sampleRowKeys: 3}

const (
	samplePage = 500
	samples    = 16 // tokens of the ring at which partitions are sampled
	sampleRow  = 300
)

// countPartitions counts the partitions of a table, exactly if they are few. Otherwise it
// estimates their number from samples at some tokens of the ring, since tokens are evenly
// distributed.
func (p *preflight) countPartitions(ctx context.Context, list *cql.Statement) (n int64, exact bool, err error) {
	n, _, err = p.sample(ctx, list, math.MinInt64, samples*sampleRow)
	if err != nil || n < samples*sampleRow {
		return n, true, err
	}
	var seen int64
	var span float64
	for i := range int64(samples) {
		from := math.MinInt64 + int64(uint64(i)<<60)
		found, last, err := p.sample(ctx, list, from, sampleRow)
		if err != nil {
			return 0, false, err
		}
		if found < sampleRow {
			last = math.MaxInt64
		}
		seen += found
		span += float64(last) - float64(from)
	}
	return int64(float64(seen) * math.Exp2(64) / span), false, nil
}

// sample counts the partitions from a token onwards, up to a limit.
func (p *preflight) sample(ctx context.Context, list *cql.Statement, from int64, limit int) (n, last int64, err error) {
	rows := p.session.Query(ctx, list, from, limit)
	columns := append(make([]any, skipped[list]), &last)
	for rows.Scan(columns...) {
		n++
	}
	return n, last, rows.Close()
}
