package schema

import (
	"context"
	"strings"
	"time"

	"varve/internal/cassandra/cql"
)

var readHosts = &cql.Statement{Name: "read_hosts", Level: cql.Quorum,
	Text: "SELECT key, value, WRITETIME(value) FROM service_index WHERE service = ? AND service_key = ?"}

const (
	// HostLife is how old the entry of a running KairosDB node may be. Nodes renew their
	// entries every 20 or 30 s, by their own clocks. The limit is generous because a running
	// node that is taken for a stopped one loses index rows that it will not write again.
	HostLife = 10 * time.Minute

	// ownHosts is the prefix of the keys of Varve servers, which are in that list so that they
	// are given roll-up tasks.
	ownHosts = "varve-"
)

// KairosDBNodes reports whether a KairosDB node is in the list of nodes in service_index. It
// ignores Varve servers in that list.
func (ks *Keyspace) KairosDBNodes(ctx context.Context, now time.Time) (run bool, err error) {
	err = eachHost(ctx, ks.Session, now, func(string, time.Duration) { run = true })
	return run, err
}

// eachHost calls f with the KairosDB nodes in that list, and how long ago each has renewed its
// entry.
func eachHost(ctx context.Context, session *cql.Session, now time.Time, f func(host string, age time.Duration)) error {
	rows := session.Query(ctx, readHosts, "_Hosts", "Active")
	defer rows.Close()
	var key, host *string
	var writtenMS *int64
	for rows.Scan(&key, &host, &writtenMS) {
		if key == nil || host == nil || writtenMS == nil || strings.HasPrefix(*key, ownHosts) {
			continue
		}
		if age := now.Sub(time.UnixMilli(*writtenMS)); age < HostLife {
			f(*host, age)
		}
	}
	return rows.Close()
}
