package schema

import (
	"context"
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
