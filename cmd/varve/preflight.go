package main

import (
	"context"
	"errors"
	"fmt"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/config"
)

// errPreflight makes the exit status of a preflight that has found something bad.
var errPreflight = errors.New("fix what is reported before a server starts on this keyspace")

// preflight looks at the cluster and the keyspace that a server is to work on.
func preflight(ctx context.Context, t terminal, c config.Config, role string) error {
	findings, err := preflightFindings(ctx, c, role)
	bad := false
	for _, f := range findings {
		bad = bad || f.Grade == schema.Bad
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

func preflightFindings(ctx context.Context, c config.Config, role string) ([]schema.Finding, error) {
	session, err := connect(ctx, c.Cassandra.Config.Config)
	if err != nil {
		return unreachable(ctx, c.Cassandra.Config.Config, err), nil
	}
	defer session.Close()
	settings := c.Cassandra.Schema
	settings.Role = role
	return schema.Preflight(ctx, session, schema.PreflightOptions{
		Session: c.Cassandra.Config.Config, Schema: settings, CoverRate: c.Cassandra.Read.CoverRate,
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
func unreachable(ctx context.Context, c cql.Config, cause error) []schema.Finding {
	found := schema.Finding{Grade: schema.Bad, What: "connection", Text: cause.Error(),
		Do: "check that Cassandra runs, and check cassandra.hosts, username, password and tls"}
	if c.Datacenter == "" {
		return []schema.Finding{found}
	}
	named := c.Datacenter
	c.Datacenter = ""
	session, err := connect(ctx, c)
	if err != nil {
		return []schema.Finding{found}
	}
	defer session.Close()
	nodes, err := session.Nodes(ctx)
	if err != nil {
		return []schema.Finding{found}
	}
	return []schema.Finding{schema.DatacenterFinding(named, nodes)}
}
