package schema

import (
	"context"
	"strings"
	"time"

	"varve/internal/cassandra/cql"
)

var readHosts = &cql.Statement{Name: "read_hosts", Level: cql.Quorum,
	Text: "SELECT key, WRITETIME(value) FROM service_index WHERE service = ? AND service_key = ?"}

const (
	// HostLife is how old an entry of a KairosDB node may be. They renew it each 20
	// or 30 s, with their own clocks, and what was taken for a node that has ended
	// loses index rows that it will not write again.
	HostLife = 10 * time.Minute

	// ownHosts begins the keys of Varve servers in that list: they are there to be given
	// roll-up tasks.
	ownHosts = "varve-"
)

// KairosDBNodes reports whether a KairosDB node is in the list that they keep in
// service_index. Varve servers may be there, too.
func (ks *Keyspace) KairosDBNodes(ctx context.Context, now time.Time) (run bool, err error) {
	rows := ks.Session.Query(ctx, readHosts, "_Hosts", "Active")
	defer rows.Close()
	var key *string
	var writtenMS *int64
	for rows.Scan(&key, &writtenMS) {
		run = run || key != nil && writtenMS != nil && !strings.HasPrefix(*key, ownHosts) && now.UnixMilli()-*writtenMS < HostLife.Milliseconds()
	}
	return run, rows.Close()
}
