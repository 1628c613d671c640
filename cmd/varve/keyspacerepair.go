package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"varve/internal/cassandra/kairosrows/remove"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/cluster"
	"varve/internal/config"
	"varve/internal/store"
)

const repairCassandraHelp = `Of a keyspace, with --store=cassandra and the settings of varve serve that lead there, it
walks over all tables and puts the index right, while servers of Varve and KairosDB go on:

  rows without index       their index rows are added
  index rows without rows  are removed: row keys, tags, row times, names of metrics. Those that
                           a running KairosDB node may still use are left and counted

Nothing is taken from data_points. It waits for Cassandra for two minutes if it is away. To
continue an interrupted repair, run the same command again: until the repair is complete, the
file of --state (without it varve-repair-KEYSPACE.state in the current directory) says how far
it has come. --dry-run only counts; --rate N looks at no more than N rows and row keys per
second. The exit status is 1 if a dry run finds something.
`

// errUnrepaired makes the exit status of a dry run that has found something.
var errUnrepaired = errors.New("the index does not agree with the rows; nothing was done (--dry-run)")

// repairKeyspace puts the index tables of a keyspace right.
func repairKeyspace(t terminal, c config.Config, l line) error {
	rate := 0
	if text, ok := l.flags["rate"]; ok {
		var err error
		if rate, err = strconv.Atoi(text); err != nil || rate < 0 {
			return &usageError{fmt.Errorf("flag --rate: %q: want rows per second, 0 for no limit", text)}
		}
	}
	job := &repairJob{t: t, dry: l.flags["dry-run"] == "true", rate: rate, path: l.flags["state"]}
	if job.path == "" {
		job.path = "varve-repair-" + c.Cassandra.Keyspace + ".state"
	}
	job.state = repairState{Keyspace: c.Cassandra.Keyspace, Hosts: c.Cassandra.Hosts, DryRun: job.dry, Begun: time.Now().UTC()}
	if err := job.resume(); err != nil {
		return err
	}
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer restore()
	role := schema.RoleAll
	if job.dry {
		role = schema.RoleRead // which does not complete the table spec either
	}
	k, err := openKeyspace(ctx, t, c, role)
	if err != nil {
		return err
	}
	defer k.Close()
	w, err := write.New(k.ks, c.Cassandra.Write, write.Options{})
	if err != nil {
		return err
	}
	defer w.Close()
	services, stop, err := openServices(ctx, t, c)
	if err != nil {
		return err
	}
	defer stop()
	d, err := remove.New(k.ks, w, c.Cassandra.Delete, remove.Options{
		Node: cluster.ToolID(c.DataDir), Services: services,
	})
	if err != nil {
		return err
	}
	defer d.Close()
	return job.run(ctx, d)
}

// A repairState is what the file of a repair holds that is not complete.
type repairState struct {
	Keyspace string    `json:"keyspace"`
	Hosts    []string  `json:"hosts"`
	DryRun   bool      `json:"dry_run"`
	Begun    time.Time `json:"begun"`

	Report *remove.RepairReport `json:"report"`
}

// A repairJob is one run of the command.
type repairJob struct {
	t     terminal
	dry   bool
	rate  int
	path  string
	state repairState
	saved time.Time
}

const (
	// repairSave is how often it is written down how far a repair has come.
	repairSave = time.Second

	// repairPause is the time until Cassandra is tried again.
	repairPause = 2 * time.Second
)

// resume reads what an interrupted repair of the same keyspace has left.
func (j *repairJob) resume() error {
	text, err := os.ReadFile(j.path)
	if errors.Is(err, os.ErrNotExist) {
		return j.save() // better now than after an hour, if it cannot be written
	}
	if err != nil {
		return err
	}
	var before repairState
	if err := json.Unmarshal(text, &before); err != nil {
		return fmt.Errorf("%s is no state of a repair; remove it, or name another file with --state: %w", j.path, err)
	}
	if before.Keyspace != j.state.Keyspace || !slices.Equal(before.Hosts, j.state.Hosts) || before.DryRun != j.state.DryRun {
		return fmt.Errorf("%s is of a repair of keyspace %s of %s, dry run %t; remove it to begin again, or name another file with --state",
			j.path, before.Keyspace, strings.Join(before.Hosts, ","), before.DryRun)
	}
	j.state = before
	if r := before.Report; r != nil {
		fmt.Fprintf(j.t.stderr, "going on with the repair of %s: %s, %.1f%%\n", before.Begun.Format(time.RFC3339), r.Phase, 100*r.Share())
	}
	return nil
}

// save writes down how far the repair has come. The file is replaced, so that
// there is always a whole one.
func (j *repairJob) save() error {
	text, err := json.Marshal(&j.state)
	if err != nil {
		return err
	}
	fresh := j.path + ".new"
	if err := os.WriteFile(fresh, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write down how far the repair has come; --state names another file: %w", err)
	}
	return os.Rename(fresh, j.path)
}

// run repairs until all is done, the command is interrupted, or Cassandra is
// away for longer than patience.
func (j *repairJob) run(ctx context.Context, d *remove.Deleter) error {
	bar := newProgress(j.t.stderr)
	phase, before := "", int64(0)
	alive := time.Now()
	o := remove.RepairOptions{
		DryRun: j.dry, Rate: j.rate,
		Progress: func(r remove.RepairReport) {
			alive = time.Now()
			done := int64(r.Share() * 1000)
			if r.Phase != phase {
				bar.began, phase, before = time.Now(), r.Phase, done
			}
			bar.update(before, done, 1000, fmt.Sprintf("%s, %d found", r.Phase, r.Changes()))
		},
		Keep: func(r remove.RepairReport) {
			j.state.Report = &r
			if time.Since(j.saved) >= repairSave {
				j.saved = time.Now()
				if err := j.save(); err != nil {
					bar.clear()
					fmt.Fprintln(j.t.stderr, err)
				}
			}
		},
	}
	for {
		o.From = j.state.Report
		report, err := d.Repair(ctx, o)
		bar.clear()
		var away *store.UnavailableError
		if errors.As(err, &away) && ctx.Err() == nil && time.Since(alive) < patience {
			fmt.Fprintf(j.t.stderr, "%v; it is tried again\n", err)
			select {
			case <-time.After(repairPause):
				continue
			case <-ctx.Done():
			}
		}
		if err == nil {
			err = os.Remove(j.path)
		} else {
			if ctx.Err() != nil {
				err = errInterrupted
			}
			err = errors.Join(fmt.Errorf("%w; to continue, run the same command again", err), j.save())
		}
		writeRepair(j.t, report, j.dry)
		if err == nil && j.dry && report.Changes() > 0 {
			err = errUnrepaired
		}
		return err
	}
}

func writeRepair(t terminal, r remove.RepairReport, dry bool) {
	added, removed := "added", "removed"
	if dry {
		added, removed = "would be added", "would be removed"
	}
	for _, row := range []struct {
		what string
		n    int64
		then string
	}{
		{"rows of data_points", r.Rows, ""},
		{"row keys", r.RowKeys, ""},
		{"rows of the inverted index", r.TagRows, ""},
		{"row times", r.RowTimes, ""},
		{"names of metrics", r.Names, ""},
		{"rows without index", r.Unindexed, added},
		{"row keys without samples", r.DeadRowKeys, removed},
		{"rows of the inverted index without row key", r.DeadTagRows, removed},
		{"row times without row keys", r.DeadRowTimes, removed},
		{"names of metrics without rows", r.DeadNames, removed},
		{"row keys without samples that KairosDB may use", r.Kept, "left"},
		{"keys of data_points that cannot be read", r.Unreadable, "left"},
	} {
		fmt.Fprintf(t.stdout, "%12d  %s", row.n, row.what)
		if row.then != "" && row.n > 0 {
			fmt.Fprintf(t.stdout, ": %s", row.then)
		}
		fmt.Fprintln(t.stdout)
	}
}
