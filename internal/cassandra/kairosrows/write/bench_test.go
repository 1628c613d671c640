package write

import (
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/schema"
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
