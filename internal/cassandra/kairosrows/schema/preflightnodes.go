package schema

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"varve/internal/cassandra/cql"
)

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
			p.add(Bad, "keyspace", name+" is missing", "check the spelling of cassandra.keyspace. If the keyspace is to be new, create it with the replication that it needs, or set cassandra.schema.create to keyspace")
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
