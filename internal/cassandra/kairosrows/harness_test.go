package kairosrows

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/originals"
)

// counted counts statements by name.
type counted struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counted) observe(name string) {
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
	ks     *Keyspace
	counts *counted
	writer *Writer
	stamp  int64
	wrote  [][]byte
	mu     sync.Mutex
}

// newBench makes a keyspace. A keyspace name that is given has been made by
// somebody else.
func newBench(t testing.TB, c Config, w WriteConfig, keyspace string) *bench {
	t.Helper()
	address := originals.Cassandra(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	b := &bench{t: t, ctx: ctx, counts: &counted{}, stamp: time.Now().UnixMilli()}
	session := cql.DefaultConfig()
	session.Hosts, session.Keyspace = []string{address}, keyspace
	if keyspace == "" {
		session.Keyspace = fmt.Sprintf("k2_%d_%d", os.Getpid(), rand.Uint32())
	}
	s, err := cql.Open(session, cql.Options{Observe: b.counts.observe})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c.Create = CreateKeyspace
	if b.ks, err = Open(ctx, s, c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if keyspace == "" {
			if err := s.Change(ctx, &cql.Statement{Name: "drop", Text: "DROP KEYSPACE " + b.ks.Name}); err != nil {
				t.Error(err)
			}
		}
	})
	b.writer = b.newWriter(w, time.Now)
	return b
}

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

// rows runs a query and returns its rows, each value in the form of %v.
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
		all = append(all, fmt.Sprintf("%x", values))
	}
	if err := rows.Close(); err != nil {
		b.t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// count returns how many rows of a table have regular or clustering values.
func (b *bench) count(table, column string) int {
	b.t.Helper()
	n := 0
	rows := b.ks.Session.Query(b.ctx, &cql.Statement{Name: "test", Text: "SELECT " + column + " FROM " + table, Scan: true})
	defer rows.Close()
	var raw cql.Raw
	for rows.Scan(&raw) {
		if raw != nil {
			n++
		}
	}
	if err := rows.Close(); err != nil {
		b.t.Fatal(err)
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
