package write

import (
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/read"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/store"
)

// A bench is a keyspace on the shared node, with what writes there.
type bench struct {
	*keyspacetest.Bench
	writer *Writer
	mu     sync.Mutex
	wrote  [][]byte // keys of rows
}

func newBench(t testing.TB, c schema.Config, w Config, keyspace string) *bench {
	t.Helper()
	b := &bench{Bench: keyspacetest.New(t, c, keyspace)}
	b.writer = b.newWriter(w, time.Now)
	return b
}

func (b *bench) newWriter(c Config, now func() time.Time) *Writer {
	b.T.Helper()
	w, err := New(b.KS, c, Options{Logger: slog.New(slog.DiscardHandler), Now: now, Wrote: func(key []byte) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.wrote = append(b.wrote, slices.Clone(key))
	}})
	if err != nil {
		b.T.Fatal(err)
	}
	w.probeEvery = 24 * time.Hour // what statements a write costs does not depend on the time
	return w
}

// write writes samples as the next generation of the spool.
func (b *bench) write(src *keyspacetest.Memory) {
	b.T.Helper()
	b.Stamp = max(b.Stamp+1, time.Now().UnixMilli())
	if err := b.writer.WriteSource(b.Ctx, b.Stamp, src); err != nil {
		b.T.Fatal(err)
	}
}

// reader is a Reader that believes in one clock.
func (b *bench) reader() *read.Reader {
	b.T.Helper()
	c := read.DefaultConfig()
	c.Settle = 0
	r, err := read.New(b.KS, c, read.Options{})
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(r.Close)
	return r
}

// found returns the series of a metric that a reader with cold caches finds.
func (b *bench) found(metric string, matchers ...model.Matcher) []read.SeriesRows {
	b.T.Helper()
	found, err := b.reader().Look().Lookup(b.Ctx, store.Selection{Metric: metric, Range: model.AllTime, Matchers: matchers})
	if err != nil {
		b.T.Fatal(err)
	}
	return found
}
