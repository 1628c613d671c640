package main

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/config"
	"varve/internal/embedded"
	"varve/internal/embedded/offline"
)

func repairCommand() command {
	return command{
		name:     "repair",
		synopsis: "put what is damaged aside and keep the rest",
		usage:    "[--data-dir DIR] [--dry-run] | --store=cassandra [SETTINGS] [--dry-run] [--rate N] [--state FILE]",
		help: `Checks an embedded store whose server is stopped, says what it will do, and does it:

  a damaged block file   what can be read of it goes to a new file, the damaged one
                         to the directory quarantine
  a damaged log          every record that can be read goes to block files, a copy of
                         the damaged segment to quarantine
  a missing block file   is taken off the list
  damaged timelines      are left as they are; it says what to do

A text beside each file in quarantine says what was found. What is not damaged is left
as it is. A damaged catalogue cannot be repaired: nothing is changed, and a backup is
needed. An interrupted repair can be run again. Copy the data directory first if you
can: what cannot be read today may be readable with more effort.

` + repairCassandraHelp + "\n" + offlineFlags + `  --dry-run        only say what would be done
`,
		run: repair,
	}
}

func repair(t terminal, args []string) error {
	c, l, err := parseSettings(t, args, "dry-run?", "rate", "state")
	if err != nil {
		return err
	}
	if err := l.noWords(); err != nil {
		return err
	}
	if c.Store == config.Cassandra {
		return repairKeyspace(t, c, l)
	}
	for _, name := range []string{"rate", "state"} {
		if _, ok := l.flags[name]; ok {
			return &usageError{fmt.Errorf("flag --%s: is for --store=cassandra", name)}
		}
	}
	dry := l.flags["dry-run"] == "true"
	report, err := embedded.Repair(context.Background(), vfs.Default, c.DataDir, offline.RepairOptions{
		DryRun: dry,
		Say:    func(text string) { fmt.Fprintln(t.stdout, text) },
	})
	if err != nil {
		return inUse(err)
	}
	if dry && !report.Clean() {
		fmt.Fprintln(t.stdout, "nothing was done (--dry-run)")
		return errDamaged
	}
	if err := report.WriteText(t.stdout); err != nil {
		return err
	}
	if !report.Clean() {
		return errDamaged
	}
	return nil
}
