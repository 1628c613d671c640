package main

import (
	"context"
	"errors"
	"fmt"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows"
	"varve/internal/config"
)

// errPreflight makes the exit status of a preflight that has found something bad.
var errPreflight = errors.New("something has to be mended before a server starts on this keyspace")

// preflight looks at the cluster and the keyspace that a server is to work on.
func preflight(ctx context.Context, t terminal, c config.Config, role string) error {
	findings, err := preflightFindings(ctx, c, role)
	bad := false
	for _, f := range findings {
		bad = bad || f.Grade == kairosrows.Bad
		fmt.Fprintf(t.stdout, "%-4s  %-11s  %s\n", f.Grade, f.What, f.Text)
		if f.Do != "" {
			fmt.Fprintf(t.stdout, "%19s  %s\n", "do:", f.Do)
		}
	}
	if err == nil && bad {
		err = errPreflight
	}
	return err
}

func preflightFindings(ctx context.Context, c config.Config, role string) ([]kairosrows.Finding, error) {
	session, err := connect(ctx, c.Cassandra.Config)
	if err != nil {
		return unreachable(ctx, c.Cassandra.Config, err), nil
	}
	defer session.Close()
	schema := c.Cassandra.Schema
	schema.Role = role
	return kairosrows.Preflight(ctx, session, kairosrows.PreflightOptions{
		Session: c.Cassandra.Config, Schema: schema, CoverRate: c.Cassandra.Read.CoverRate,
	})
}

// connect opens a session that is connected.
func connect(ctx context.Context, c cql.Config) (*cql.Session, error) {
	session, err := cql.Open(c, cql.Options{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, keyspaceWait)
	defer cancel()
	if err := session.Wait(ctx); err != nil {
		session.Close()
		return nil, err
	}
	return session, nil
}

// unreachable tells why there is no connection: the cluster is away, or has no node in
// the data centre that is configured.
func unreachable(ctx context.Context, c cql.Config, cause error) []kairosrows.Finding {
	found := kairosrows.Finding{Grade: kairosrows.Bad, What: "connection", Text: cause.Error(),
		Do: "see whether Cassandra runs, and cassandra.hosts, username, password and tls"}
	if c.Datacenter == "" {
		return []kairosrows.Finding{found}
	}
	named := c.Datacenter
	c.Datacenter = ""
	session, err := connect(ctx, c)
	if err != nil {
		return []kairosrows.Finding{found}
	}
	defer session.Close()
	nodes, err := session.Nodes(ctx)
	if err != nil {
		return []kairosrows.Finding{found}
	}
	return []kairosrows.Finding{kairosrows.DatacenterFinding(named, nodes)}
}
