package kairosrows

import (
	"testing"
	"time"

	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/read"
	"varve/internal/cassandra/kairosrows/remove"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/store"
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

// watch is a watch by itself, which looks when it is told to.
func (b *bench) watch(d *remove.Deleter) *write.Watch {
	b.T.Helper()
	w, err := write.NewWatch(b.writer, nil, d.KairosDBRuns)
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(w.Close)
	return w
}

// deleter returns a Deleter that finds rows as queries do.
func (b *bench) deleter(c remove.Config, now func() time.Time) *remove.Deleter {
	b.T.Helper()
	d, err := remove.New(b.KS, b.writer, c, remove.Options{Node: "test", Now: now})
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(d.Close)
	return d
}

func (b *bench) delete(d *remove.Deleter, del store.Deletion) {
	b.T.Helper()
	b.Stamp = max(b.Stamp+1, time.Now().UnixMilli())
	if err := d.Delete(b.Ctx, b.Stamp, del); err != nil {
		b.T.Fatal(err)
	}
}

func noNodes() remove.Config {
	c := remove.DefaultConfig()
	c.KairosDBNodes = remove.NodesNo
	return c
}

// A readBench is a keyspace on the shared node, and a Reader of it.
type readBench struct {
	*keyspacetest.Bench
	reader *read.Reader
}

// readConfig has no work in the background, and believes in one clock.
func readConfig() read.Config {
	c := read.DefaultConfig()
	c.CoverInterval = 24 * time.Hour
	c.Settle = 0
	return c
}

// newReadBench opens the shared keyspace. Its statements have write timestamps of long ago.
func newReadBench(t testing.TB, config read.Config) *readBench {
	t.Helper()
	b := &readBench{Bench: keyspacetest.New(t, schema.DefaultConfig(), "")}
	b.Stamp = 1_700_000_000_000
	var err error
	if b.reader, err = read.New(b.KS, config, read.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.reader.Close)
	return b
}
