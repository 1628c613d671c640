package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"varve/internal/cassandra"
	kairosread "varve/internal/cassandra/kairosrows/read"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/standalone"
	"varve/internal/cassandra/layout"
	"varve/internal/config"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
)

// openKeyspace opens the keyspace that the configuration names, in a role.
func openKeyspace(ctx context.Context, t terminal, c config.Config, role string) (*standalone.Keyspace, error) {
	log := slog.New(slog.NewTextHandler(t.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return standalone.Open(ctx, c.Cassandra.Config.Config, c.Cassandra.Settings, role, log)
}

// openServices opens the keyspace for metadata if it is in a cluster of its own;
// otherwise services is nil.
func openServices(ctx context.Context, t terminal, c config.Config) (services func() (*schema.Keyspace, error), stop func(), err error) {
	if !c.Cassandra.MetaCluster.Used() {
		return nil, func() {}, nil
	}
	role := ""
	if c.Cassandra.Config.Config, role, err = c.Cassandra.Cluster(cassandra.MetaClusterName); err != nil {
		return nil, nil, err
	}
	k, err := openKeyspace(ctx, t, c, role)
	if err != nil {
		return nil, nil, err
	}
	return func() (*schema.Keyspace, error) { return k.Rows, nil }, k.Close, nil
}

const inspectCassandraHelp = `Shows parts of a keyspace, with the settings of varve serve for it; servers may run:

  varve inspect --store=cassandra                           row arithmetic, tables, oddities
  varve inspect --store=cassandra metrics [PREFIX]          names, with their row times
  varve inspect --store=cassandra rows METRIC [TAG=VALUE..] rows, their keys, and first cells
  varve inspect --store=cassandra index METRIC              row keys of each row time, who wrote
                                                            them, what the inverted index knows
  varve inspect --store=cassandra service [SERVICE]         metadata, roll-ups, hosts, jobs
  varve inspect --store=cassandra --preflight               what to fix before a server starts:
                                                            nodes, clocks, replication, rights,
                                                            KairosDB's nodes, how long coverage and
                                                            repair take. Exit status 1: something is
                                                            bad
  varve inspect decode HEX                                  a key, column or value of data_points,
                                                            without a cluster

Flags of these, beside the settings (--cassandra-hosts, --cassandra-keyspace, --kairosdb-conf
and so on):
  --start TIME, --end TIME  of rows and index: milliseconds since 1970 or 2026-01-31T12:00:00Z
  --cluster NAME            show this cluster of the settings, for example one of
                            cassandra.read_clusters, instead of the one that is written to
  --cells N                 of rows: cells shown of each row (10)
  --row-time TIME           of decode: time of the row that contains the column
  --unit UNIT               of decode: MILLISECONDS, SECONDS or LEGACY, the keyspace's row_time_unit
`

// keyspaceFlags are the flags of inspect over Cassandra.
var keyspaceFlags = []string{"start", "end", "cells", "row-time", "unit", "cluster", "preflight?"}

// inspectKeyspace shows the content of a keyspace.
func inspectKeyspace(t terminal, c config.Config, l line) error {
	show, err := keyspaceInspection(l)
	if err != nil {
		return err
	}
	ctx := context.Background()
	role := schema.RoleRead
	name, named := l.flags["cluster"]
	if !named {
		if err := checkLayout(c); err != nil {
			return err
		}
	}
	if named {
		if c.Cassandra.Config.Config, role, err = c.Cassandra.Cluster(name); err != nil {
			return &usageError{fmt.Errorf("flag --cluster: %w", err)}
		}
		if tables := c.Cassandra.LayoutOf(name); tables != layout.Default {
			return &usageError{fmt.Errorf("flag --cluster: %s has tables of layout %s; varve inspect reads those of layout %s only", name, tables, layout.Default)}
		}
		if role == schema.RoleMeta && len(l.words) > 0 && l.words[0] != "service" {
			return &usageError{fmt.Errorf("inspect %s: cluster %s has metadata only; want service [SERVICE], or no argument", l.words[0], name)}
		}
	}
	if l.flags["preflight"] == "true" {
		if len(l.words) > 0 {
			return &usageError{fmt.Errorf("inspect --preflight: unexpected argument %q", l.words[0])}
		}
		if !named {
			role = schema.RoleAll
		}
		return preflight(ctx, t, c, role)
	}
	k, err := openKeyspace(ctx, t, c, role)
	if err != nil {
		return err
	}
	defer k.Close()
	return show(ctx, kairosread.NewInspector(k.Reader, t.stdout))
}

// checkLayout refuses settings by which the keyspace does not have KairosDB's
// tables.
func checkLayout(c config.Config) error {
	if err := c.Cassandra.CheckLayout(); err != nil {
		return &usageError{err}
	}
	return nil
}

type keyspaceShow func(context.Context, *kairosread.Inspector) error

// keyspaceInspection returns the function that the words select.
func keyspaceInspection(l line) (keyspaceShow, error) {
	cells := 10
	within, err := l.timeRange()
	if err = cmp.Or(err, l.number("cells", &cells, 0, 1_000_000)); err != nil {
		return nil, err
	}
	what, rest := "", []string(nil)
	if len(l.words) > 0 {
		what, rest = l.words[0], l.words[1:]
	}
	first := ""
	if len(rest) > 0 {
		first = rest[0]
	}
	switch {
	case what == "":
		return func(ctx context.Context, in *kairosread.Inspector) error { return in.Overview(ctx) }, nil
	case what == "metrics" && len(rest) <= 1:
		return func(ctx context.Context, in *kairosread.Inspector) error { return in.Metrics(ctx, first) }, nil
	case what == "index" && len(rest) == 1:
		return func(ctx context.Context, in *kairosread.Inspector) error { return in.Index(ctx, first, within) }, nil
	case what == "service" && len(rest) <= 1:
		return func(ctx context.Context, in *kairosread.Inspector) error { return in.Services(ctx, first) }, nil
	case what == "rows" && len(rest) > 0:
		tags, err := parseTags(rest[1:])
		sel := store.Selection{Metric: first, Range: within}
		for _, tag := range tags {
			sel.Matchers = append(sel.Matchers, model.Matcher{Tag: tag.Name, Values: []string{tag.Value}})
		}
		return func(ctx context.Context, in *kairosread.Inspector) error { return in.Rows(ctx, sel, cells) }, err
	}
	return nil, &usageError{errors.New("inspect --store=cassandra: want metrics [PREFIX], rows METRIC [TAG=VALUE..], index METRIC, service [SERVICE], or no argument; see varve help inspect")}
}

// decode explains bytes of data_points.
func decode(t terminal, l line) error {
	if len(l.words) != 2 {
		return &usageError{errors.New("inspect decode: want one word of hexadecimal digits")}
	}
	spec, rowTime := rowtime.Default, int64(0)
	unit := l.value("unit", func(text string) (err error) { spec.Unit, err = rowtime.ParseUnit(text); return err })
	if err := cmp.Or(unit, l.time("row-time", &rowTime)); err != nil {
		return err
	}
	if err := kairosread.Decode(t.stdout, l.words[1], spec, rowTime); err != nil {
		return &usageError{fmt.Errorf("inspect decode: %w", err)}
	}
	return nil
}

// errPreflight sets the exit status of a preflight that has found something bad.
var errPreflight = errors.New("fix the reported faults before a server starts on this keyspace")

// preflight checks the cluster and the keyspace that a server will use.
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
	settings := c.Cassandra.Schema
	settings.Role = role
	return schema.Preflight(ctx, schema.PreflightOptions{Session: c.Cassandra.Config.Config, Schema: settings, CoverRate: c.Cassandra.Read.CoverRate})
}
