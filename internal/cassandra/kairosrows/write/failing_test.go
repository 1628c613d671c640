package write

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/keyspacetest/lookup"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/originals"
	"varve/internal/spool"
)

// newFailingBench is newBench over a node that fails on command.
func newFailingBench(t testing.TB) (*cqltest.FailingNode, *bench) {
	t.Helper()
	node := cqltest.NewFailingNode(t, originals.Cassandra(t))
	b := newBench(t, schema.DefaultConfig(), DefaultConfig(), "")
	b.Bench = b.NewAt(node.Address, 2)
	b.writer = b.newWriter(DefaultConfig(), b.writer.now)
	return node, b
}

// refuseIndexRowsOf refuses what is written to row_keys of a tag value.
func refuseIndexRowsOf(value string) func(cqltest.Request) *cqltest.Trouble {
	return func(r cqltest.Request) *cqltest.Trouble {
		for _, st := range r.Statements {
			if strings.Contains(st.Text, "INSERT INTO") && strings.Contains(st.Text, ".row_keys") && bytes.Contains(bytes.Join(st.Values, nil), []byte(value)) {
				return cqltest.KeyTooLong
			}
		}
		return nil
	}
}

// TestWatchFails: what could not be checked for a while is checked later, even if it nearly fills
// the cache.
func TestWatchFails(t *testing.T) {
	node, b := newFailingBench(t)
	c := DefaultConfig()
	c.IndexCache = 1000
	b.writer = b.newWriter(c, time.Now)
	watch, err := NewWatch(b.writer, nil, func(context.Context) (bool, error) { return true, nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Close)
	metrics := []string{b.Name("a"), b.Name("b"), b.Name("c")}
	for _, metric := range metrics {
		b.write(keyspacetest.ManySeries(metric, 300))
	}
	node.Fail(func(r cqltest.Request) *cqltest.Trouble {
		for _, st := range r.Statements {
			if strings.Contains(st.Text, "SELECT row_time FROM") {
				return cqltest.Unavailable
			}
		}
		return nil
	})
	watch.Look(b.Ctx, 0)
	if n := keyspacetest.Value(t, watch.failures); n != 3 {
		t.Fatalf("%v checks failed", n)
	}
	node.Fail(nil)
	keyspacetest.NextMillisecond()
	row := b.KS.Spec.RowTime(keyspacetest.SomeTime)
	for _, metric := range metrics {
		b.ExecNow("DELETE FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND data_type >= ?", metric, schema.DataPoints, row, "")
	}
	watch.Look(b.Ctx, 0)
	for _, metric := range metrics {
		if found := lookup.Series(b.Bench, metric); len(found) != 300 {
			t.Errorf("%d of 300 series are found", len(found))
		}
	}
	if n := b.writer.known.missed(); n != 0 {
		t.Errorf("%d row keys are not checked any more", n)
	}
}

// TestWatchFailsAtTheEnd: a check that fails when a server stops is repeated.
func TestWatchFailsAtTheEnd(t *testing.T) {
	node, b := newFailingBench(t)
	watch, err := NewWatch(b.writer, nil, func(context.Context) (bool, error) { return true, nil })
	if err != nil {
		t.Fatal(err)
	}
	metric := b.Name("m")
	b.write(keyspacetest.ManySeries(metric, 3))
	keyspacetest.NextMillisecond()
	b.ExecNow("DELETE FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND data_type >= ?",
		metric, schema.DataPoints, b.KS.Spec.RowTime(keyspacetest.SomeTime), "")
	var failed atomic.Int32
	node.Fail(func(r cqltest.Request) *cqltest.Trouble {
		for _, st := range r.Statements {
			if strings.Contains(st.Text, "SELECT row_time FROM") && failed.Add(1) <= 3 {
				return cqltest.Unavailable
			}
		}
		return nil
	})
	watch.Close()
	if found := lookup.Series(b.Bench, metric); len(found) != 3 || failed.Load() < 3 {
		t.Errorf("%d of 3 series are found, after %d attempts", len(found), failed.Load())
	}
}

// TestOneTagPartitionAway: an unavailable partition of the inverted index costs the row keys
// that have a row there one attempt, and does not affect others.
func TestOneTagPartitionAway(t *testing.T) {
	node, b := newFailingBench(t)
	node.Fail(func(r cqltest.Request) *cqltest.Trouble {
		for _, st := range r.Statements {
			if strings.Contains(st.Text, "INSERT INTO") && strings.Contains(st.Text, ".varve_row_index") && string(st.Values[3]) == "gone" {
				return cqltest.Unavailable
			}
		}
		return nil
	})
	metric := b.Name("m")
	src := new(keyspacetest.Memory)
	for i := range 400 {
		src.Longs(keyspacetest.LongSeries(metric, "dc", "a", "host", fmt.Sprintf("h%05d", i)), 0, keyspacetest.SomeTime)
	}
	src.Longs(keyspacetest.LongSeries(metric, "dc", "a", "host", "gone"), 0, keyspacetest.SomeTime)
	var partial *spool.PartialError
	for attempt, most := range []uint64{3 * rowkey.BatchPartitions, 1, 1} {
		err := b.writer.WriteSource(b.Ctx, time.Now().UnixMilli(), src)
		if !errors.As(err, &partial) || partial.Series.GetCardinality() > most || !partial.Series.Contains(400) {
			t.Fatalf("attempt %d: %v", attempt+1, err)
		}
		if n := b.Count("data_points"); n < 401-int(most) {
			t.Errorf("attempt %d: %d of 401 samples are written", attempt+1, n)
		}
	}
	if got := len(lookup.Series(b.Bench, metric)); got != 400 {
		t.Errorf("%d of 400 series are found", got)
	}
	node.Mend()
	if err := b.writer.WriteSource(b.Ctx, time.Now().UnixMilli(), src); err != nil {
		t.Fatal(err)
	}
	if got := len(lookup.Series(b.Bench, metric)); got != 401 {
		t.Errorf("%d of 401 series are found at the end", got)
	}
}

// TestHangUp: a node that hangs up on what is written of one series does not keep the others of
// the metric from being written, although their statements are lost with its connections.
func TestHangUp(t *testing.T) {
	for _, table := range []string{".row_keys", ".varve_row_index", ".data_points"} {
		node, b := newFailingBench(t)
		metric := b.Name("m")
		node.Fail(func(r cqltest.Request) (trouble *cqltest.Trouble) {
			for _, st := range r.Statements {
				values := bytes.Join(st.Values, nil)
				switch {
				case !strings.Contains(st.Text, "INSERT INTO") || !strings.Contains(st.Text, table) || !bytes.Contains(values, []byte(metric)):
				case bytes.Contains(values, []byte("at-fault")):
					return cqltest.HangUp
				default:
					trouble = cqltest.Late(100 * time.Millisecond) // all connections are lost by then
				}
			}
			return trouble
		})
		const good = 5
		src := new(keyspacetest.Memory)
		src.Longs(keyspacetest.LongSeries(metric, "host", "at-fault"), 0, keyspacetest.SomeTime)
		for i := range good {
			src.Longs(keyspacetest.LongSeries(metric, "host", fmt.Sprint("good-", i)), 0, keyspacetest.SomeTime)
		}
		for attempt := 1; ; attempt++ {
			err := b.writer.WriteSource(b.Ctx, time.Now().UnixMilli(), src)
			partial := new(spool.PartialError)
			if !errors.As(err, &partial) || !partial.Series.Contains(0) {
				t.Fatalf("%s: attempt %d: %v", table, attempt, err)
			}
			left := partial.Series.GetCardinality()
			t.Logf("%s: attempt %d: %d series are left", table, attempt, left)
			if left == 1 {
				break
			}
			if attempt == 20 { // on a busy machine a connection may be lost by chance too
				t.Fatalf("%s: %d series are left after attempt %d: %v", table, left, attempt, err)
			}
			b.reconnected(t)
		}
		node.Mend()
		b.reconnected(t)
		if err := b.writer.WriteSource(b.Ctx, time.Now().UnixMilli(), src); err != nil {
			t.Fatalf("%s: %v", table, err)
		}
		if got := len(lookup.Series(b.Bench, metric)); got != good+1 {
			t.Errorf("%s: %d of %d series are found at the end", table, got, good+1)
		}
	}
}

// reconnected waits until a node answers.
func (b *bench) reconnected(t *testing.T) {
	t.Helper()
	if err := b.KS.Session.Wait(b.Ctx); err != nil {
		t.Fatal(err)
	}
}
