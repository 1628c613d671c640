package remove

import (
	"testing"
	"time"

	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
)

// A bench is a keyspace on the shared node, with what writes there.
type bench struct {
	*keyspacetest.Bench
	writer *write.Writer
}

func newBench(t testing.TB, c schema.Config, w write.Config, keyspace string) *bench {
	t.Helper()
	b := &bench{Bench: keyspacetest.New(t, c, keyspace)}
	b.writer = b.newWriter(w, time.Now)
	return b
}

func (b *bench) newWriter(c write.Config, now func() time.Time) *write.Writer {
	b.T.Helper()
	w, err := write.New(b.KS, c, write.Options{Now: now})
	if err != nil {
		b.T.Fatal(err)
	}
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
