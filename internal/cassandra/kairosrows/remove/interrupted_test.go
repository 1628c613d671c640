package remove

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/model"
	"varve/internal/store"
)

// A delete that ends at any of the statements that remove index rows, because its server ends,
// leaves nothing behind that the same delete would not remove when it is requested again.
func TestDeleteInterrupted(t *testing.T) {
	odd, err := model.NewPattern("[1-9]")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		matchers []model.Matcher
		left     int // series of each metric that are not deleted
	}{
		"metric":   {nil, 0},
		"literal":  {[]model.Matcher{{Tag: "dc", Values: []string{"east"}}}, 1},
		"all tags": {[]model.Matcher{{Tag: "dc", Values: []string{"east", "west"}}}, 0},
		"pattern":  {[]model.Matcher{{Tag: "host", Patterns: []*model.Pattern{odd}}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
			d := b.deleter(noNodes(), time.Now)
			statements := 0
			for done := false; !done; {
				statements++
				del := store.Deletion{Metric: b.Name(fmt.Sprint(statements)), Matchers: c.matchers, Range: model.AllTime}
				src := new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(del.Metric, "host", "0", "dc", "west"), 0, keyspacetest.SomeTime)
				for i := 1; i < 10; i++ {
					src.Longs(keyspacetest.LongSeries(del.Metric, "host", fmt.Sprint(i), "dc", "east"), 0, keyspacetest.SomeTime)
				}
				b.write(src)
				var sent atomic.Int64
				ctx, cancel := context.WithCancel(b.Ctx)
				b.Counts.Before = func(name string) {
					unindexes := strings.HasPrefix(name, "delete_") && name != "delete_row"
					if (unindexes || sent.Load() > 0) && sent.Add(1) == int64(statements) {
						cancel()
					}
				}
				plans, err := d.plan(ctx, []store.Deletion{del})
				if err != nil {
					t.Fatal(err)
				}
				err = d.run(ctx, del, b.Stamp, newPace(d.cfg.Parallel), context.Background(), plans[0].steps, func(int64, int) error { return nil })
				if done = err == nil; !done && !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				b.Counts.Before = nil
				cancel()
				b.delete(d, del)
			}
			n := statements * c.left
			if got, want := b.TableCounts(), fmt.Sprintf("%d %d %d %d 0 %d", n, n, n, n, 2*n); statements < 5 || got != want {
				t.Errorf("interrupted at one of %d statements and requested again: rows of %s: %s, want %s", statements, keyspacetest.Tables, got, want)
			}
		})
	}
}

// A delete whose client has gone removes the index rows of the rows that it has emptied. So a
// client that waits too briefly for the whole delete reaches its end by repeating it.
func TestDeleteRepeatedInPieces(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	c := noNodes()
	c.Parallel = 1
	d := b.deleter(c, time.Now)
	const rows, piece = 200, 60
	metric := b.Name("m")
	fillCities(b, metric, rows)
	keyspacetest.NextMillisecond()
	for left := rows; left > 0; {
		ctx, cancel := context.WithCancel(b.Ctx)
		erased := 0
		d.forget = func([]byte) {
			if erased++; erased == piece {
				cancel()
			}
		}
		err := d.Delete(ctx, time.Now().UnixMilli(), store.Deletion{Metric: metric, Range: model.AllTime})
		cancel()
		if erased >= piece != errors.Is(err, context.Canceled) {
			t.Fatalf("%d rows were erased: %v", erased, err)
		}
		now := b.Count("row_keys")
		if now > max(0, left-piece/2) {
			t.Fatalf("a delete that was interrupted after %d rows leaves %d row keys of %d", erased, now, left)
		}
		left = now
	}
	if got := b.TableCounts(); got != "0 0 0 0 0 0" {
		t.Errorf("rows of %s: %s", keyspacetest.Tables, got)
	}
}

// A delete whose client goes while index rows are removed removes the rest of them without rests.
// Otherwise it would leave the index rows by which it finds rows, which are removed last, and a
// client that repeats it would begin again with the same rows.
func TestClientGoesWhileUnindexing(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	now := time.Now()
	b.writer = b.newWriter(write.DefaultConfig(), func() time.Time { return now }) // samples were always written just now
	d := b.deleter(noNodes(), time.Now)
	metric := b.Name("m")
	fillCities(b, metric, 100)
	b.write(new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(b.Name("other"), "k", "v"), 0, keyspacetest.SomeTime))
	others := b.Count("row_keys") - 100
	del := store.Deletion{Metric: metric, Range: model.AllTime}
	plans, err := d.plan(b.Ctx, []store.Deletion{del})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Ctx)
	defer cancel()
	var gone atomic.Pointer[time.Time]
	b.Counts.Before = func(name string) {
		if now := time.Now(); (name == deleteTagRow.Name || name == deleteTagRows.Name) && gone.CompareAndSwap(nil, &now) {
			cancel()
		}
	}
	pace := restingPace(d.cfg.Parallel)
	pace.rests, pace.worked = 1_000_000, paceRestless // each rest is the longest
	err = d.run(ctx, del, b.Stamp, pace, context.Background(), plans[0].steps, nil)
	took := time.Since(*gone.Load())
	b.Counts.Before = nil
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	if n := b.Count("row_keys") - others; n != 0 {
		t.Errorf("%d row keys of 100 are left", n)
	}
	if took > paceRestMost {
		t.Errorf("it rests although its client has gone: it ended %v later", took)
	}
}

// A delete removes the name of a metric without rows, as it is left when all of them have
// expired, unless a KairosDB node may rely on it.
func TestDeleteUnusedName(t *testing.T) {
	for nodes, want := range map[string]int{NodesNo: 0, NodesYes: 1} {
		b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
		c := DefaultConfig()
		c.KairosDBNodes = nodes
		d := b.deleter(c, time.Now)
		metric := b.Name("m")
		if err := rowkey.AddName(b.Ctx, b.KS, b.Stamp, metric); err != nil {
			t.Fatal(err)
		}
		b.delete(d, store.Deletion{Metric: metric, Range: model.AllTime})
		if n := b.Count("string_index"); n != want {
			t.Errorf("KairosDB nodes %s: %d names are left, want %d", nodes, n, want)
		}
	}
}
