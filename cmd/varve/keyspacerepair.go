package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/standalone"
	"varve/internal/cassandra/layout"
	"varve/internal/cluster"
	"varve/internal/config"
)

const repairCassandraHelp = `With --store=cassandra and the settings of varve serve for a keyspace, it reads all tables
and corrects the index, while servers of Varve and KairosDB keep running:

  rows without index       their index rows are added
  index rows without rows  are removed: row keys, tags, row times, names of metrics. Those that
                           a running KairosDB node may still use are left and counted

Nothing is removed from data_points. Nothing is changed if the clock of this machine differs by
more than two minutes from those of most Cassandra nodes. If Cassandra is down, repair waits
for two minutes. To continue an interrupted repair, run the same command again: until the
repair is complete, the file of --state (by default varve-repair-KEYSPACE.state in the current
directory) records its progress. --dry-run only counts; --rate N reads at most N rows and row
keys per second. The exit status is 1 if a dry run finds something.
`

// errUnrepaired sets the exit status of a dry run that has found something.
var errUnrepaired = errors.New("the index differs from the rows; nothing was changed (--dry-run)")

// repairKeyspace repairs the index tables of a keyspace.
func repairKeyspace(t terminal, c config.Config, l line) error {
	job := &standalone.Repair{DryRun: l.flags["dry-run"] == "true", Stderr: t.stderr,
		State: cmp.Or(l.flags["state"], "varve-repair-"+c.Cassandra.Keyspace+".state")}
	if err := l.number("rate", &job.Rate, 0, math.MaxInt); err != nil {
		return err
	}
	if err := checkLayout(c); err != nil {
		return err
	}
	for _, note := range unrepaired(c) {
		fmt.Fprintln(t.stderr, note)
	}
	if err := job.Begin(c.Cassandra.Keyspace, c.Cassandra.Hosts); err != nil {
		return err
	}
	ctx, restore := interruptible()
	defer restore()
	role := schema.RoleAll
	if job.DryRun {
		role = schema.RoleRead // this role does not change the table spec, either
	}
	k, err := openKeyspace(ctx, t, c, role)
	if err != nil {
		return err
	}
	defer k.Close()
	services, stop, err := openServices(ctx, t, c)
	if err != nil {
		return err
	}
	defer stop()
	report, err := job.Run(ctx, k, c.Cassandra.Settings, cluster.ToolID(c.DataDir), services)
	if err = interrupted(ctx, err); err != nil {
		err = fmt.Errorf("%w; to continue, run the same command again", err)
	}
	report.WriteText(t.stdout, job.DryRun)
	if err == nil && job.DryRun && report.Changes() > 0 {
		err = errUnrepaired
	}
	return err
}

// unrepaired names the other keyspaces to which the settings write; a repair leaves them out.
func unrepaired(c config.Config) (notes []string) {
	for _, k := range c.Cassandra.Keyspaces {
		switch tables := c.Cassandra.LayoutOf(k.Name); tables {
		case layout.Default:
			notes = append(notes, fmt.Sprintf("keyspace %s of cassandra.keyspaces is not repaired with this one; repair it with its own --cassandra-hosts and --cassandra-keyspace", k.Name))
		default:
			notes = append(notes, fmt.Sprintf("keyspace %s of cassandra.keyspaces is not repaired: its tables have layout %s, and varve repair knows layout %s only", k.Name, tables, layout.Default))
		}
	}
	return notes
}
