package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"varve/internal/cassandra"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/layout"
	"varve/internal/config"
	"varve/internal/doctor"
	"varve/internal/units"
)

var doctorCommand = command{
	name:     "doctor",
	synopsis: "check whether a server would run well on this machine",
	usage:    "[--json] [FLAGS]",
	help: `Checks everything that a server needs: its settings, Graphite's rules, the limit of open
files, data directory, file system, disk space, memory, clock, ports and, with
--store=cassandra, the cluster and its keyspace. It takes the same flags as serve. Run it
as the server's user, before the first start, after a change of the settings, or while
the server runs:

  sudo -u varve varve doctor --config /etc/varve/varve.yaml

Each check reports ok, warning (it works, but may surprise you) or fault (it does not
work, or data is at risk), and what to do. Nothing is changed. The exit status is 1
if there is a fault, else 0.

Flags:
  --json      print the findings as JSON
`,
	run: diagnose,
}

// errUnfit sets the exit status of a doctor that has found a fault.
var errUnfit = errors.New("there are faults to fix")

// A diagnosis is what doctor prints with --json.
type diagnosis struct {
	Findings []doctor.Finding `json:"findings"`
	Warnings int              `json:"warnings"`
	Faults   int              `json:"faults"`
}

func diagnose(t terminal, args []string) error {
	settings, l, err := splitLine(args, "json?")
	if err := cmp.Or(err, l.noWords()); err != nil {
		return err
	}
	var d diagnosis
	if d.Findings, err = findings(t, settings); err != nil {
		return err
	}
	for _, f := range d.Findings {
		switch f.Grade {
		case doctor.Warning:
			d.Warnings++
		case doctor.Fault:
			d.Faults++
		}
	}
	if l.flags["json"] != "" {
		err = json.NewEncoder(t.stdout).Encode(d)
	} else {
		err = d.write(t.stdout)
	}
	if err == nil && d.Faults > 0 {
		err = errUnfit
	}
	return err
}

// findings runs all checks. If the settings cannot be loaded, there is nothing to check.
func findings(t terminal, args []string) ([]doctor.Finding, error) {
	loaded, err := load(t, args)
	if errors.Is(err, config.ErrHelp) {
		return nil, err
	}
	if err != nil {
		var found []doctor.Finding
		for line := range strings.Lines(err.Error()) {
			found = append(found, doctor.Finding{Check: "configuration", Grade: doctor.Fault, Text: strings.TrimSpace(line), Do: "fix it; the server does not start"})
		}
		return found, nil
	}
	found := doctor.Machine(loaded)
	if loaded.Config.Store != config.Cassandra {
		return found, nil
	}
	more, err := firstFindings(loaded.Config)
	found = append(found, ofKeyspace("Cassandra", more, err)...)
	for _, k := range loaded.Config.Cassandra.Keyspaces {
		more, err := furtherFindings(loaded.Config, k)
		found = append(found, ofKeyspace("Cassandra, keyspace "+k.Name, more, err)...)
	}
	return found, nil
}

// firstFindings are those of the preflight of cassandra.keyspace.
func firstFindings(c config.Config) ([]schema.Finding, error) {
	if err := c.Cassandra.CheckLayout(); err != nil {
		return []schema.Finding{{Grade: schema.Bad, What: "layout", Text: err.Error(), Do: "name a keyspace of KairosDB's tables in cassandra.keyspace"}}, nil
	}
	return preflightFindings(context.Background(), c, c.Cassandra.Schema.Role)
}

// furtherFindings are those of the preflight of one of cassandra.keyspaces.
func furtherFindings(c config.Config, k cassandra.KeyspaceConfig) (findings []schema.Finding, err error) {
	if tables := c.Cassandra.LayoutOf(k.Name); tables != layout.Default {
		return []schema.Finding{{Grade: schema.Dubious, What: "layout", Text: fmt.Sprintf("the tables have layout %s, which is not checked here", tables)}}, nil
	}
	if c.Cassandra.Config.Config, _, err = c.Cassandra.Cluster(k.Name); err != nil {
		return nil, err
	}
	c.Cassandra.Schema.Replication = cmp.Or(k.Replication, c.Cassandra.Schema.Replication)
	return preflightFindings(context.Background(), c, c.Cassandra.Schema.Role)
}

// ofKeyspace converts the findings of a keyspace's preflight to findings of the
// doctor.
func ofKeyspace(check string, more []schema.Finding, err error) []doctor.Finding {
	var found []doctor.Finding
	for _, f := range more {
		found = append(found, ofPreflight(check, f))
	}
	if err != nil {
		found = append(found, doctor.Finding{Check: check, Grade: doctor.Fault, Text: err.Error(), Do: "check that Cassandra is healthy, then try again"})
	}
	return found
}

// ofPreflight converts a finding of the preflight to a finding of the doctor.
func ofPreflight(check string, f schema.Finding) doctor.Finding {
	grades := map[schema.Grade]doctor.Grade{schema.Good: doctor.OK, schema.Dubious: doctor.Warning, schema.Bad: doctor.Fault}
	return doctor.Finding{Check: check + ": " + f.What, Grade: grades[f.Grade], Text: f.Text, Do: f.Do}
}

// write prints the findings for people.
func (d diagnosis) write(w io.Writer) error {
	var b strings.Builder
	for _, f := range d.Findings {
		fmt.Fprintf(&b, "%-8s  %s: %s\n", f.Grade, f.Check, f.Text)
		if f.Do != "" {
			fmt.Fprintf(&b, "%8s  do: %s\n", "", f.Do)
		}
	}
	fmt.Fprintf(&b, "\n%s, %s, %s\n", units.Count(len(d.Findings), "finding"), units.Count(d.Warnings, "warning"), units.Count(d.Faults, "fault"))
	_, err := io.WriteString(w, b.String())
	return err
}
