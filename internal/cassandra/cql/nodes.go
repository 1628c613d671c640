package cql

import (
	"context"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

const nodeColumns = "host_id, data_center, rack, release_version, schema_version"

var readNodes = &Statement{Name: "read_nodes", Text: "SELECT broadcast_address, " + nodeColumns + " FROM system.local WHERE key = 'local'"}

const readPeers = "SELECT peer, " + nodeColumns + " FROM system.peers"

// Node is a node of the cluster.
type Node struct {
	Address, Datacenter, Rack, Version, Schema string

	ID string // host id, which never changes; empty if other nodes do not know it yet
}

// Nodes lists the nodes of the cluster as one of them sees it, that node first.
//
// A node is missing from its own system.peers, so both tables must be read from the same node.
// If two nodes answered, the second one would be missing: in a cluster of two nodes, each might
// be listed alone, as if there were two clusters.
func (s *Session) Nodes(ctx context.Context) (nodes []Node, err error) {
	err = s.do(ctx, call{st: readNodes, kind: reads, run: func(ctx context.Context, d *gocql.Session) (err error) {
		nodes, err = listNodes(ctx, d)
		return err
	}})
	for _, n := range nodes {
		s.roster.add(n.ID)
	}
	return nodes, err
}

// listNodes reads both tables from the node of the attempt.
func listNodes(ctx context.Context, d *gocql.Session) ([]Node, error) {
	nodes, err := appendNodes(ctx, nil, d.Query(readNodes.Text))
	if err != nil {
		return nil, err
	}
	peers := d.Query(readPeers)
	if a := attemptOf(ctx); a != nil {
		id, _ := a.node()
		peers = peers.SetHostID(id)
	}
	return appendNodes(ctx, nodes, peers)
}

func appendNodes(ctx context.Context, nodes []Node, q *gocql.Query) ([]Node, error) {
	rows := q.Consistency(gocql.One).Idempotent(true).DefaultTimestamp(false).IterContext(ctx)
	for {
		var n Node
		var id *UUID
		if !rows.Scan(&n.Address, &id, &n.Datacenter, &n.Rack, &n.Version, &n.Schema) {
			return nodes, rows.Close()
		}
		if id != nil {
			n.ID = id.String()
		}
		nodes = append(nodes, n)
	}
}
