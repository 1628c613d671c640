package kairos

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/cassandra"
	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows"
	"varve/internal/cassandra/kairosrows/kairosrowstest"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/layout"
	"varve/internal/originals"
	"varve/internal/query"
	"varve/internal/store"
)

// openCassandra opens a store over the keyspace of a session, which ends with
// the test. Samples go to Cassandra when a test says so.
func openCassandra(t *testing.T, keyspace string, config cql.Config, change ...func(*cassandra.Config)) *cassandra.Store {
	t.Helper()
	c, rows := cassandra.DefaultConfig(), kairosrows.DefaultSettings()
	c.Config = config
	c.Keyspace = keyspace
	rows.Schema.Create = schema.CreateKeyspace
	c.Spool.Linger = time.Hour
	for _, f := range change {
		f(&c)
	}
	s, err := cassandra.Open(vfs.NewMem(), "spool", c, cassandra.Options{Layouts: layout.Layouts{layout.Default: kairosrows.NewLayout(rows)}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), cqltest.Patience)
	defer cancel()
	if err := s.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestGoldenCassandra runs the cases of TestGolden over a keyspace, each in a room of
// its own. A case's writes are in Cassandra before it continues.
func TestGoldenCassandra(t *testing.T) {
	config := cqltest.Config(originals.Cassandra(t))
	session := cqltest.Open(t, config, cql.Options{})
	cqltest.Drop(t, session)
	whole := openCassandra(t, config.Keyspace, config)
	rooms := new(atomic.Int64)
	open := func(testing.TB) store.Store {
		return &room{Store: whole, prefix: fmt.Sprintf("room%03d.", rooms.Add(1))}
	}
	settle := func(store.Store) error { return whole.Flush(context.Background()) }
	// The cases end before the store is closed.
	t.Run("cases", func(t *testing.T) {
		goldenRun{where: "cassandra", open: open, settle: settle, parallel: true}.all(t)
	})
}

// recordedPrefix begins what differing.txt says about recorded keyspaces.
const recordedPrefix = "recorded:"

// TestRecordedKeyspaces opens keyspaces that KairosDB wrote in place, and repeats the
// queries that KairosDB was sent.
func TestRecordedKeyspaces(t *testing.T) {
	address := originals.Cassandra(t)
	for _, name := range kairosrowstest.Names {
		t.Run(name, func(t *testing.T) {
			session := cqltest.Keyspace(t, cqltest.Config(address), cql.Options{})
			kairosrowstest.Load(t, session, name)
			st := openCassandra(t, session.KeyspaceName(), cqltest.Config(address))
			s := startServerWith(t, leftOpen{st}, query.DefaultConfig(), DefaultConfig())
			askRecorded(t, s, kairosrowstest.Files(name))
		})
	}
}

// TestRecordedKeyspacesAreReadBeside repeats the same queries while the keyspace that
// KairosDB wrote is a read-only one and the one for metadata, next to an empty one.
func TestRecordedKeyspacesAreReadBeside(t *testing.T) {
	address := originals.Cassandra(t)
	for _, name := range kairosrowstest.Names {
		t.Run(name, func(t *testing.T) {
			session := cqltest.Keyspace(t, cqltest.Config(address), cql.Options{})
			kairosrowstest.Load(t, session, name)
			config := cqltest.Config(address)
			cqltest.Drop(t, cqltest.Open(t, config, cql.Options{}))
			st := openCassandra(t, config.Keyspace, config, func(c *cassandra.Config) {
				old := cassandra.ReadCluster{}
				old.SetDefaults()
				old.Name, old.Hosts, old.Keyspace = "old", []string{address}, session.KeyspaceName()
				c.ReadClusters = append(c.ReadClusters, old)
				c.MetaCluster.Hosts, c.MetaCluster.Keyspace = old.Hosts, old.Keyspace
			})
			s := startServerWith(t, leftOpen{st}, query.DefaultConfig(), DefaultConfig())
			askRecorded(t, s, kairosrowstest.Files(name))
		})
	}
}

// leftOpen is a store that another test closes.
type leftOpen struct{ store.Store }

func (leftOpen) Close() error { return nil }

// askRecorded asks the questions of a recorded keyspace.
func askRecorded(t *testing.T, s *testServer, recorded fs.FS) {
	files, err := fs.Glob(recorded, "cases/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d cases, %v", len(files), err)
	}
	differing := readList(t, "testdata/differing.txt")
	dir := t.TempDir()
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		reason := differing[recordedPrefix+name]
		text, err := fs.ReadFile(recorded, file)
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(copied, text, 0o600); err != nil {
			t.Fatal(err)
		}
		steps, err := loadCase(copied)
		if err != nil {
			t.Fatal(err)
		}
		for i := range steps {
			switch err := s.step(&steps[i]); {
			case err != nil && reason == "":
				t.Errorf("%s, step %d: %v", name, i, err)
			case err == nil && reason != "":
				t.Errorf("%s passes, but is listed: %s", name, reason)
			}
		}
	}
}
