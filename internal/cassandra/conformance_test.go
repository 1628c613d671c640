package cassandra

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cockroachdb/pebble/v2/vfs"
	"varve/internal/cassandra/cql/cqltest"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/diskfs/crashfs"
	"varve/internal/model"
	"varve/internal/originals"
	"varve/internal/rowtime"
	"varve/internal/store"
	"varve/internal/store/storetest"
)

func TestMain(m *testing.M) {
	cqltest.VerifyTestMain(m)
}

var everyVariation = flag.Bool("cassandra.conformance", false, "run all stories of the contract in every variation, some minutes; else the shorter ones with all samples in Cassandra")

// TestConformance leaves out, unless asked, the variations of a story in which
// its samples stay in the spool, whose own tests have them, the stories that
// write 100,000 rows, which take a minute together, and two of three others.
func TestConformance(t *testing.T) {
	storetest.Run(t, newPlace(t).harness)
}

// TestConformanceOfKeyspaces runs the same over two keyspaces, each with about half of
// the metrics.
func TestConformanceOfKeyspaces(t *testing.T) {
	p := newPlace(t)
	p.cfg.Keyspaces = []KeyspaceConfig{{
		Name: "second", Metrics: []string{"regex=.*[aeioust1-5]", "regex=(?s).*[^a-z0-9]"}, ClusterConfig: ClusterConfig{Keyspace: p.cfg.Keyspace + "_2"},
	}}
	second := &place{cfg: settings{p.cfg.store(p.cfg.Keyspaces[0]), p.cfg.Settings}}
	second.session = second.connect(t)
	storetest.Run(t, func(tb testing.TB) *storetest.Harness {
		second.empty(tb)
		return p.harness(tb)
	})
}

// keyspaces counts those of this process.
var keyspaces atomic.Int64

// A place is a keyspace of its own on the tests' node.
type place struct {
	cfg     settings
	session *cql.Session
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{cfg: defaultSettings()}
	p.cfg.Hosts = []string{originals.Cassandra(t)}
	p.cfg.Keyspace = fmt.Sprintf("store_%d_%d", os.Getpid(), keyspaces.Add(1))
	p.cfg.Schema.Create = schema.CreateKeyspace
	p.cfg.Write.KairosDBOnly = false // values of every kind and all bits
	p.cfg.Spool.Linger = time.Hour   // drained when a test says so
	p.cfg.LimitPerRow = false        // as the contract has it
	p.session = p.connect(t)
	return p
}

// connect opens a session; the keyspace is removed when the test has ended.
func (p *place) connect(t *testing.T) *cql.Session {
	t.Helper()
	session, err := cql.Open(p.cfg.Config.Config, cql.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.change(t, "DROP KEYSPACE IF EXISTS "+p.cfg.Keyspace)
		session.Close()
	})
	if err := session.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return session
}

// change executes a statement that is not one of the store's.
func (p *place) change(tb testing.TB, text string) {
	ctx, cancel := context.WithTimeout(context.Background(), cqltest.Patience)
	defer cancel()
	if err := p.session.Change(ctx, &cql.Statement{Name: "test", Text: text}); err != nil {
		tb.Errorf("%s: %v", text, err)
	}
}

// harness empties the keyspace and runs a store over it.
func (p *place) harness(tb testing.TB) *storetest.Harness {
	story, variation := path.Split(tb.Name())
	long := variation == "plain" || variation == "reopened" || variation == "crashed" ||
		strings.HasSuffix(story, "/100000-series/") || strings.HasSuffix(story, "/many-rows/")
	name := fnv.New32a()
	name.Write([]byte(story))
	if (long || name.Sum32()%6 != 0) && !*everyVariation {
		tb.Skip("run with -cassandra.conformance")
	}
	p.empty(tb)
	fs := crashfs.New()
	h := &storetest.Harness{LazyNames: true, MaxText: rowtime.MaxStringBytes, CannotHold: cannotHold}
	var open flushable
	h.Open = func(tb testing.TB) store.Store {
		open = p.openAny(tb, fs)
		return open
	}
	h.Flush = func(tb testing.TB, s store.Store) {
		if err := s.(flushable).Flush(context.Background()); err != nil {
			tb.Errorf("flush: %v", err)
		}
	}
	h.Crash = func(tb testing.TB, s store.Store) {
		crashed := fs.CrashClone(vfs.CrashCloneCfg{})
		s.Close()
		fs = crashed
	}
	tb.Cleanup(func() {
		if open != nil {
			open.Close()
		}
	})
	return h
}

// A flushable is a store over one keyspace or several.
type flushable interface {
	store.Store
	Flush(context.Context, ...string) error
	WaitReady(context.Context) error
}

// openAny opens a store over the keyspaces that the place has.
func (p *place) openAny(tb testing.TB, fs vfs.FS) flushable {
	tb.Helper()
	if len(p.cfg.Keyspaces) == 0 {
		return p.open(tb, fs)
	}
	s, err := p.cfg.openAll(fs, Options{})
	if err != nil {
		tb.Fatalf("open store: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), cqltest.Patience)
	defer cancel()
	if err := s.WaitReady(ctx); err != nil {
		s.Close()
		tb.Fatalf("open keyspaces: %v", err)
	}
	return s
}

// cannotHold: KairosDB keeps texts as Java writes them, in which NUL takes two bytes
// and a character beyond 16 bits six, and knows no row time below all times.
func cannotHold(k model.Kind, ms int64, _ uint64, data string) bool {
	java := len(data)
	for _, r := range data {
		if r == 0 {
			java++
		} else if r > 0xffff {
			java += 2
		}
	}
	text := k == model.String && (!utf8.ValidString(data) || java > rowtime.MaxStringBytes)
	return text || k == model.Custom && len(data) > rowtime.MaxStringBytes || ms < math.MinInt64+rowtime.MaxWidth
}

func (p *place) open(tb testing.TB, fs vfs.FS) *Store {
	tb.Helper()
	s, err := p.cfg.open(fs, Options{})
	if err != nil {
		tb.Fatalf("open store: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), cqltest.Patience)
	defer cancel()
	if err := s.WaitReady(ctx); err != nil {
		s.Close()
		tb.Fatalf("open keyspace: %v", err)
	}
	return s
}

// empty removes all rows that tests leave behind.
func (p *place) empty(tb testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), cqltest.Patience)
	defer cancel()
	tables, err := p.session.Tables(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	for name, table := range tables {
		if name == "spec" || name == "varve_spec" {
			continue
		}
		rows := p.session.Query(ctx, &cql.Statement{Name: "test", Scan: true, Text: "SELECT " + table.Columns[0].Name + " FROM " + name + " LIMIT 1"})
		found := rows.Scan(nil)
		if err := rows.Close(); err != nil {
			tb.Fatal(err)
		}
		if found {
			p.change(tb, "TRUNCATE "+p.cfg.Keyspace+"."+name)
		}
	}
}
