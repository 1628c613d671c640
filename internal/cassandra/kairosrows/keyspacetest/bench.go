// Package keyspacetest gives the tests of a layout's parts a keyspace on a shared node, and
// rows as Varve and KairosDB write them.
package keyspacetest

import (
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/originals"
	"varve/internal/store"
)

// Long enables tests that take long, or start nodes of their own.
var Long = flag.Bool("cassandra.long", false, "run tests that start Cassandra nodes of their own")

// A Counter counts statements by name.
type Counter struct {
	mu     sync.Mutex
	n      map[string]int
	Before func(name string) // is called before each statement; may be nil
}

func (c *Counter) observe(name string) {
	if c.Before != nil {
		c.Before(name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name]++
}

// Take returns the counts since the last call.
func (c *Counter) Take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n = nil
	return n
}

// Total is how many statements were counted.
func Total(counts map[string]int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}

// CountsOf are counts by name.
func CountsOf(counts []store.Count) map[string]int64 {
	of := map[string]int64{}
	for _, c := range counts {
		of[c.Name] = c.N
	}
	return of
}

// Value is that of a counter.
func Value(t testing.TB, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// A Bench is an open keyspace on the shared node.
type Bench struct {
	T      testing.TB
	Ctx    context.Context
	KS     *schema.Keyspace
	Counts *Counter // of statements
	Stamp  int64    // write timestamp of the last statement of Exec

	prefix string // of the names of all metrics of this test
}

// shared is the keyspace of all tests without special requirements, since creating one takes
// seconds on a busy machine. Each test uses metrics of its own in it.
var shared struct {
	sync.Mutex
	name string
}

// New opens the named keyspace, which must exist; without a name, the shared keyspace or, if c
// is not the default configuration, a new one.
func New(t testing.TB, c schema.Config, keyspace string) *Bench {
	t.Helper()
	if keyspace == "" {
		shared.Lock()
		defer shared.Unlock()
		keyspace = shared.name
		own := !reflect.DeepEqual(c, schema.DefaultConfig())
		if keyspace == "" || own {
			keyspace = fmt.Sprintf("rows_%d_%d", os.Getpid(), rand.Uint32())
		}
		if !own {
			shared.name = keyspace
		}
	}
	c.Create = schema.CreateKeyspace
	return open(t, c, keyspace, originals.Cassandra(t))
}

// NewAt is New for an open keyspace, through another address, and with the given number of
// attempts.
func (b *Bench) NewAt(address string, attempts int) *Bench {
	b.T.Helper()
	session := cqltest.Config(address)
	session.Keyspace, session.Attempts = b.KS.Name, attempts
	again := *b
	again.use(cqltest.Open(b.T, session, cql.Options{Logger: quiet, Observe: b.Counts.observe}), schema.DefaultConfig())
	return &again
}

// Loaded opens a keyspace of its own that load has filled.
func Loaded(t testing.TB, load func(*cql.Session)) *Bench {
	t.Helper()
	b := newBench(t)
	s := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{Logger: quiet, Observe: b.Counts.observe})
	load(s)
	b.use(s, schema.DefaultConfig())
	return b
}

var quiet = slog.New(slog.DiscardHandler)

func newBench(t testing.TB) *Bench {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return &Bench{T: t, Ctx: ctx, Counts: &Counter{}, Stamp: time.Now().UnixMilli(), prefix: fmt.Sprintf("%s.%d.", t.Name(), rand.Uint32())}
}

func open(t testing.TB, c schema.Config, keyspace, address string) *Bench {
	t.Helper()
	b := newBench(t)
	session := cqltest.Config(address)
	session.Keyspace, session.Attempts = keyspace, 20
	s, err := cql.Open(session, cql.Options{Logger: quiet, Observe: b.Counts.observe})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	b.use(s, c)
	return b
}

func (b *Bench) use(s *cql.Session, c schema.Config) {
	b.T.Helper()
	var err error
	if b.KS, err = schema.Open(b.Ctx, s, c, nil); err != nil {
		b.T.Fatal(err)
	}
}

// Name returns a metric that no other test uses.
func (b *Bench) Name(suffix string) string { return b.prefix + suffix }

// Exec executes a statement with the next write timestamp.
func (b *Bench) Exec(text string, args ...any) {
	b.T.Helper()
	b.Stamp++
	b.ExecAt(b.Stamp, text, args...)
}

// ExecNow executes a statement with the present time as its write timestamp.
func (b *Bench) ExecNow(text string, args ...any) {
	b.T.Helper()
	b.ExecAt(time.Now().UnixMilli(), text, args...)
}

// ExecAt executes a statement with a write timestamp.
func (b *Bench) ExecAt(stampMS int64, text string, args ...any) {
	b.T.Helper()
	if err := b.KS.Session.Exec(b.Ctx, &cql.Statement{Name: "test", Text: text}, stampMS, args...); err != nil {
		b.T.Fatal(err)
	}
}

// Rows runs a query and returns its rows of this test, as hex. One of its columns must be the
// metric's name.
func (b *Bench) Rows(text string, columns int, args ...any) []string {
	b.T.Helper()
	var all []string
	rows := b.KS.Session.Query(b.Ctx, &cql.Statement{Name: "test", Text: text, Scan: true}, args...)
	defer rows.Close()
	for {
		values := make([]cql.Raw, columns)
		dest := make([]any, columns)
		for i := range values {
			dest[i] = &values[i]
		}
		if !rows.Scan(dest...) {
			break
		}
		if line := fmt.Sprintf("%x", values); strings.Contains(line, hex.EncodeToString([]byte(b.prefix))) {
			all = append(all, line)
		}
	}
	if err := rows.Close(); err != nil {
		b.T.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// Count returns how many rows of a table are of metrics of this test. Rows with
// static cells only do not count.
func (b *Bench) Count(table string) int {
	b.T.Helper()
	column := map[string]string{"data_points": "key, column1", "row_keys": "metric, data_type", "tag_indexed_row_keys": "metric, data_type",
		"row_key_time_index": "metric, row_time", "string_index": "column1, key", "varve_row_index": "metric, data_type", "varve_row_state": "metric, row_time",
		"row_key_index": "key, column1"}[table]
	n := 0
	for _, line := range b.Rows("SELECT "+column+" FROM "+table, 2) {
		// The metric comes first: KairosDB's own metrics have it in a tag.
		if strings.HasPrefix(line, "["+hex.EncodeToString([]byte(b.prefix))) && !strings.HasSuffix(line, " ]") {
			n++
		}
	}
	return n
}

// Tables are those of samples and of their indexes, in the order of TableCounts.
var Tables = []string{"data_points", "row_keys", "row_key_time_index", "string_index", "tag_indexed_row_keys", "varve_row_index"}

// TableCounts is how many rows Tables have of metrics of this test.
func (b *Bench) TableCounts() string {
	b.T.Helper()
	var n []string
	for _, table := range Tables {
		n = append(n, fmt.Sprint(b.Count(table)))
	}
	return strings.Join(n, " ")
}

// OwnKeyspace returns the configuration of a new keyspace that no other test uses.
func OwnKeyspace() schema.Config {
	c := schema.DefaultConfig()
	c.IndexShards = 2
	return c
}
