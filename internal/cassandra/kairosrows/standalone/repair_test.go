package standalone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows"
	"varve/internal/cassandra/kairosrows/kairosrowstest"
	"varve/internal/cassandra/kairosrows/remove"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/originals"
	"varve/internal/store"
)

// A repair goes on with what an earlier one of the same keyspace has left, and with nothing else.
func TestBegin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.state")
	var said bytes.Buffer
	for _, mistaken := range []*Repair{{State: path}, {State: path, DryRun: true}} {
		if err := mistaken.Begin("k", []string{"nosuch"}); err != nil {
			t.Fatal(err)
		}
	}
	j := &Repair{State: path, Stderr: &said}
	if err := j.Begin("k", []string{"a"}); err != nil {
		t.Fatal(err)
	}
	j.state.Report = &remove.RepairReport{Phase: "row keys", Rows: 7}
	if err := j.save(); err != nil {
		t.Fatal(err)
	}
	again := &Repair{State: path, Stderr: &said}
	if err := again.Begin("k", []string{"a"}); err != nil || again.state.Report.Rows != 7 || !strings.Contains(said.String(), "continuing the repair of ") {
		t.Errorf("%v, %+v, %s", err, again.state, &said)
	}
	for _, c := range []struct {
		j        *Repair
		keyspace string
		host     string
		want     string
	}{
		{&Repair{State: path}, "other", "a", "belongs to a repair of keyspace k of a, dry run false"},
		{&Repair{State: path}, "k", "b", "belongs to a repair of keyspace k of a"},
		{&Repair{State: path, DryRun: true}, "k", "a", "belongs to a repair of keyspace k of a"},
		{&Repair{State: filepath.Join(path, "nosuch")}, "k", "a", ""},
		{&Repair{State: path + ".none/x"}, "k", "a", "--state names another file"},
	} {
		if err := c.j.Begin(c.keyspace, []string{c.host}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c, err, c.want)
		}
	}
}

// A repair that is interrupted keeps its state; the next one goes on and removes it.
func TestRepair(t *testing.T) {
	config := cqltest.Config(originals.Cassandra(t))
	session := cqltest.Keyspace(t, config, cql.Options{})
	kairosrowstest.Load(t, session, "narrow")
	settings := kairosrows.DefaultSettings()
	k, err := Open(t.Context(), config, settings, schema.RoleAll, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	path := filepath.Join(t.TempDir(), "x.state")
	run := func(ctx context.Context) (remove.RepairReport, error) {
		t.Helper()
		j := &Repair{State: path, Stderr: io.Discard}
		if err := j.Begin(config.Keyspace, config.Hosts); err != nil {
			t.Fatal(err)
		}
		return j.Run(ctx, k, settings, "test", nil)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if report, err := run(t.Context()); err != nil || !report.Done || report.Rows == 0 {
		t.Errorf("%+v, %v", report, err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the state is left: %v", err)
	}
}

// A repair writes nothing while the clock of this machine differs from those of the nodes. A dry run
// does not need it.
func TestRepairWithWrongClock(t *testing.T) {
	config := cqltest.Config(originals.Cassandra(t))
	session := cqltest.Keyspace(t, config, cql.Options{})
	kairosrowstest.Load(t, session, "narrow")
	settings := kairosrows.DefaultSettings()
	k, err := Open(t.Context(), config, settings, schema.RoleAll, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	cqltest.Must(t, session, `TRUNCATE "`+config.Keyspace+`".row_keys`)
	repair := func(dry bool, ahead time.Duration) (remove.RepairReport, error) {
		t.Helper()
		j := &Repair{
			DryRun: dry, State: filepath.Join(t.TempDir(), "x.state"), Stderr: io.Discard,
			clocks: func(context.Context) ([]cql.Clock, error) { return []cql.Clock{{Up: true, Ahead: ahead}}, nil },
		}
		if err := j.Begin(config.Keyspace, config.Hosts); err != nil {
			t.Fatal(err)
		}
		return j.Run(t.Context(), k, settings, "test", nil)
	}
	for _, ahead := range []time.Duration{-time.Hour, time.Hour} {
		report, err := repair(false, ahead)
		if _, off := errors.AsType[*cql.ClockError](err); !off || report.Changes() > 0 {
			t.Errorf("nodes ahead by %v: %d changes, %v", ahead, report.Changes(), err)
		}
	}
	found, err := repair(true, time.Hour)
	if err != nil || found.Changes() == 0 {
		t.Errorf("the dry run finds %d changes, %v", found.Changes(), err)
	}
	if report, err := repair(false, 0); err != nil || report.Changes() == 0 {
		t.Errorf("once the clock is set: %d changes, %v", report.Changes(), err)
	}
}

// TestPasses: a repair waits while the cluster is away, and does not wait for an operator.
func TestPasses(t *testing.T) {
	away := &store.UnavailableError{Reason: "timeout"}
	lacks := &store.UnavailableError{Reason: "the user lacks a right", Err: &cql.RefusedError{Reason: cql.Unauthorized}}
	for _, c := range []struct {
		err  error
		want bool
	}{{away, true}, {fmt.Errorf("read: %w", away), true}, {lacks, false}, {errors.New("other"), false}} {
		if got := passes(c.err); got != c.want {
			t.Errorf("%v passes: %t", c.err, got)
		}
	}
}
