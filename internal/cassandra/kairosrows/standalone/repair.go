package standalone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows"
	"varve/internal/cassandra/kairosrows/remove"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/console"
	"varve/internal/statefile"
	"varve/internal/store"
	"varve/internal/work"
)

// A Repair corrects the index tables of a keyspace. It waits while the cluster is unavailable,
// and continues an interrupted repair of the same keyspace.
type Repair struct {
	DryRun bool
	Rate   int       // rows and row keys a second at most; 0: no limit
	State  string    // the state file
	Stderr io.Writer // for the progress

	clocks func(context.Context) ([]cql.Clock, error) // nil: those of the nodes

	state repairState
	saved time.Time
}

// A repairState is the content of the state file of an incomplete repair.
type repairState struct {
	Keyspace string    `json:"keyspace"`
	Hosts    []string  `json:"hosts"`
	DryRun   bool      `json:"dry_run"`
	Begun    time.Time `json:"begun"`

	Report *remove.RepairReport `json:"report"`
}

const (
	// saveEvery is how often the progress is stored.
	saveEvery = time.Second

	// retryPause is the time between attempts to reach Cassandra, and patience how long to keep
	// trying.
	retryPause = 2 * time.Second
	patience   = 2 * time.Minute
)

// Begin reads the state of an interrupted repair of the same keyspace. It fails if the state
// cannot be written, because failing now is better than after an hour.
func (j *Repair) Begin(keyspace string, hosts []string) error {
	j.state = repairState{Keyspace: keyspace, Hosts: hosts, DryRun: j.DryRun, Begun: time.Now().UTC()}
	var before repairState
	found, err := statefile.Read(j.State, &before)
	if err != nil {
		return err
	}
	if !found || before.Report == nil { // it has done nothing, for example because it reached no node
		return j.save()
	}
	if before.Keyspace != keyspace || !slices.Equal(before.Hosts, hosts) || before.DryRun != j.DryRun {
		return fmt.Errorf("%s belongs to a repair of keyspace %s of %s, dry run %t; remove it to begin again, or name another file with --state",
			j.State, before.Keyspace, strings.Join(before.Hosts, ","), before.DryRun)
	}
	j.state = before
	fmt.Fprintf(j.Stderr, "continuing the repair of %s: %s, %.1f%%\n", before.Begun.Format(time.RFC3339), before.Report.Phase, 100*before.Report.Share())
	return nil
}

// save stores the progress of the repair.
func (j *Repair) save() error {
	if err := statefile.Write(j.State, &j.state); err != nil {
		return fmt.Errorf("record the progress of the repair; --state names another file: %w", err)
	}
	return nil
}

// Run repairs until the repair is complete, ctx ends, or Cassandra has been unavailable for
// longer than patience. Before it changes anything it compares the clock of this machine, which
// makes the write timestamps, with those of the nodes. services is as in [remove.Options].
func (j *Repair) Run(ctx context.Context, k *Keyspace, settings kairosrows.Settings, node string, services func() (*schema.Keyspace, error)) (report remove.RepairReport, err error) {
	w, err := write.New(k.Rows, settings.Write, write.Options{})
	if err != nil {
		return report, err
	}
	defer w.Close()
	d, err := remove.New(k.Rows, w, settings.Delete, remove.Options{Node: node, Services: services})
	if err != nil {
		return report, err
	}
	defer d.Close()
	bar := console.NewProgress(j.Stderr, time.Now)
	phase, before := "", int64(0)
	alive := time.Now()
	o := remove.RepairOptions{
		DryRun: j.DryRun, Rate: j.Rate,
		Progress: func(r remove.RepairReport) {
			alive = time.Now()
			done := int64(r.Share() * 1000)
			if r.Phase != phase {
				phase, before = r.Phase, done
				bar.Restart()
			}
			bar.Update(before, done, 1000, fmt.Sprintf("%s, %d found", r.Phase, r.Changes()))
		},
		Keep: func(r remove.RepairReport) {
			j.state.Report = &r
			if time.Since(j.saved) >= saveEvery {
				j.saved = time.Now()
				if err := j.save(); err != nil {
					bar.Clear()
					fmt.Fprintln(j.Stderr, err)
				}
			}
		},
	}
	for {
		o.From = j.state.Report
		if err = j.checkClock(ctx, k); err == nil {
			report, err = d.Repair(ctx, o)
		}
		bar.Clear()
		if !passes(err) || ctx.Err() != nil || time.Since(alive) >= patience {
			break
		}
		fmt.Fprintf(j.Stderr, "%v; will retry\n", err)
		if work.Pause(ctx, retryPause) != nil {
			break
		}
	}
	if err == nil {
		return report, os.Remove(j.State)
	}
	return report, errors.Join(err, j.save())
}

// passes reports whether the cluster is away for a while. A missing right or table is unavailability,
// too, but waiting for an operator is not for a command.
func passes(err error) bool {
	return errors.As(err, new(*store.UnavailableError)) && !errors.As(err, new(*cql.RefusedError))
}

// checkClock returns an error if the repair must change nothing, because the clock of this machine
// is wrong or cannot be compared: index rows written by a clock that is ahead could not be removed
// until its time, and removals would hide what servers write meanwhile.
func (j *Repair) checkClock(ctx context.Context, k *Keyspace) error {
	if j.DryRun {
		return nil
	}
	clocks := j.clocks
	if clocks == nil {
		clocks = k.session.Clocks
	}
	err := cql.CompareClocks(clocks(ctx))
	if _, off := errors.AsType[*cql.ClockError](err); off {
		return fmt.Errorf("%w; set the clock first: until then nothing is changed", err)
	}
	if err != nil {
		return &store.UnavailableError{Reason: "nothing is changed before the clock of this machine is confirmed", Err: err}
	}
	return nil
}
