package kairosrows

import (
	"context"
	"encoding/hex"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/originals"
)

// counted counts statements by name.
type counted struct {
	mu     sync.Mutex
	n      map[string]int
	before func(name string) // of each statement; may be nil
}

func (c *counted) observe(name string) {
	if c.before != nil {
		c.before(name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name]++
}

// take returns the counts since the last call.
func (c *counted) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n = nil
	return n
}

// A bench is a keyspace of its own on the shared node, with what writes there.
type bench struct {
	t      testing.TB
	ctx    context.Context
	ks     *schema.Keyspace
	metric string // beginning of the names of all metrics of this test
	counts *counted
	writer *Writer
	stamp  int64
	wrote  [][]byte
	mu     sync.Mutex
}

// shared is the keyspace of all tests that want nothing special: making one
// takes seconds on a busy machine. Tests use metrics of their own in it.
var shared struct {
	sync.Mutex
	name string
}

// newBench opens the shared keyspace, or one of its own if c is not the default
// configuration, or the one that is named, which somebody else has made.
func newBench(t testing.TB, c schema.Config, w WriteConfig, keyspace string) *bench {
	t.Helper()
	address := originals.Cassandra(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	b := &bench{t: t, ctx: ctx, counts: &counted{}, stamp: time.Now().UnixMilli(), metric: fmt.Sprintf("%s.%d.", t.Name(), rand.Uint32())}
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
	session := cql.DefaultConfig()
	session.Hosts, session.Keyspace = []string{address}, keyspace
	session.Attempts, session.ScanTimeout = 20, time.Minute
	s, err := cql.Open(session, cql.Options{Observe: b.counts.observe})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c.Create = schema.CreateKeyspace
	if b.ks, err = schema.Open(ctx, s, c); err != nil {
		t.Fatal(err)
	}
	b.writer = b.newWriter(w, time.Now)
	return b
}

// name returns a metric of this test.
func (b *bench) name(suffix string) string { return b.metric + suffix }

func (b *bench) newWriter(c WriteConfig, now func() time.Time) *Writer {
	b.t.Helper()
	w, err := NewWriter(b.ks, c, WriterOptions{Logger: slog.New(slog.DiscardHandler), Now: now, Wrote: func(key []byte) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.wrote = append(b.wrote, slices.Clone(key))
	}})
	if err != nil {
		b.t.Fatal(err)
	}
	return w
}

// write writes samples as the next generation of the spool.
func (b *bench) write(src *memory) {
	b.t.Helper()
	b.stamp = max(b.stamp+1, time.Now().UnixMilli())
	if err := b.writer.write(b.ctx, b.stamp, src); err != nil {
		b.t.Fatal(err)
	}
}

// rows runs a query and returns its rows of this test, as hex. One of its
// columns has to hold the metric's name.
func (b *bench) rows(text string, columns int, args ...any) []string {
	b.t.Helper()
	var all []string
	rows := b.ks.Session.Query(b.ctx, &cql.Statement{Name: "test", Text: text, Scan: true}, args...)
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
		if line := fmt.Sprintf("%x", values); strings.Contains(line, hex.EncodeToString([]byte(b.metric))) {
			all = append(all, line)
		}
	}
	if err := rows.Close(); err != nil {
		b.t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// count returns how many rows of a table are of metrics of this test. Rows with
// static cells only do not count.
func (b *bench) count(table string) int {
	b.t.Helper()
	column := map[string]string{"data_points": "key, column1", "row_keys": "metric, data_type", "tag_indexed_row_keys": "metric, data_type",
		"row_key_time_index": "metric, row_time", "string_index": "column1, key", "varve_row_index": "metric, data_type", "varve_row_state": "metric, row_time",
		"row_key_index": "key, column1"}[table]
	n := 0
	for _, line := range b.rows("SELECT "+column+" FROM "+table, 2) {
		// The metric comes first: KairosDB's own metrics have it in a tag.
		if strings.HasPrefix(line, "["+hex.EncodeToString([]byte(b.metric))) && !strings.HasSuffix(line, " ]") {
			n++
		}
	}
	return n
}

// memory is a source of samples.
type memory struct {
	series []model.Series
	cols   []model.Columns
}

func (m *memory) add(s model.Series, cols model.Columns) *memory {
	m.series, m.cols = append(m.series, s), append(m.cols, cols)
	return m
}

// doubles adds a series of doubles: the values are those of the times.
func (m *memory) doubles(s model.Series, ttl uint32, times ...int64) *memory {
	var c model.Columns
	for _, ms := range times {
		c.AppendFixed(ms, uint64(ms), ttl)
	}
	return m.add(s, c)
}

func (m *memory) longs(s model.Series, ttl uint32, times ...int64) *memory {
	return m.doubles(s, ttl, times...)
}

func (m *memory) Series() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for i := range m.series {
			if !yield(uint32(i)) {
				return
			}
		}
	}
}

func (m *memory) SeriesOf(id uint32) (model.Series, bool) { return m.series[id], true }

func (m *memory) Snapshot(id uint32, _ model.TimeRange, run *head.Run) (bool, error) {
	run.Kind = m.series[id].Type.Kind()
	run.Fragments = run.Fragments[:0]
	run.Open.Reset()
	for i := range m.cols[id].Times {
		run.Open.AppendFrom(run.Kind, &m.cols[id], i)
	}
	return m.cols[id].Len() > 0, nil
}

func longSeries(metric string, tags ...string) model.Series {
	return model.Series{Metric: metric, Tags: model.MustTags(tags...), Type: model.TypeLong}
}
