package main

import (
	"context"
	"fmt"

	"varve/internal/config"
	"varve/internal/diskfs"
	"varve/internal/embedded"
	"varve/internal/embedded/offline"
)

var repairCommand = command{
	name:     "repair",
	synopsis: "set damaged files aside and keep the rest",
	usage:    "[--data-dir DIR] [--dry-run] | --store=cassandra [SETTINGS] [--dry-run] [--rate N] [--state FILE]",
	help: `Checks an embedded store whose server is stopped, says what it will do, and does it:

  a damaged block file   its readable chunks go to a new file, the damaged file goes to
                         the directory quarantine
  a damaged log          every readable record goes to block files, a copy of the
                         damaged segment to quarantine
  a missing block file   is removed from the list
  damaged timelines      are left as they are; repair says what to do

A text beside each file in quarantine says what was found. Undamaged files are left as
they are. A damaged catalogue cannot be repaired: nothing is changed, and you need a
backup. You can run an interrupted repair again. Copy the data directory first if you
can: more data may be recoverable from it with more effort.

` + repairCassandraHelp + "\n" + offlineFlags + `  --dry-run        only report what would be done
`,
	run: repair,
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
	report, err := embedded.Repair(context.Background(), diskfs.Data, c.DataDir, offline.RepairOptions{
		DryRun: dry,
		Say:    func(text string) { fmt.Fprintln(t.stdout, text) },
		Fatal:  fatal(t),
	})
	if err != nil {
		return notPermitted(wayOut(err), c.DataDir)
	}
	if dry && !report.Clean() {
		fmt.Fprintln(t.stdout, "nothing was changed (--dry-run)")
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
