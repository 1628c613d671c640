package remove

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/model"
	"varve/internal/originals"
	"varve/internal/store"
)

// Which rows have samples is found with a statement for several of them, and with one for each
// if a node refuses that: for a guardrail, or because one of the rows has too many tombstones,
// which then counts as not empty.
func TestHaveSamples(t *testing.T) {
	node := cqltest.NewFailingNode(t, originals.Cassandra(t))
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	metric, at := b.Name("m"), keyspacetest.CityTime(0)
	const rows = 23
	fillCities(b, metric, 100)
	var keys [][]byte
	for i, k := range keyspacetest.CityKeys(0, 100)[:rows] {
		key, err := rowkey.Partition{Metric: metric, TimeMS: at}.DataKey(k)
		if err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			b.ExecNow("DELETE FROM data_points WHERE key = ?", key)
		}
		keys = append(keys, key)
	}
	keys[7] = nil
	b.Bench = b.NewAt(node.Address, 2)
	b.writer = b.newWriter(write.DefaultConfig(), time.Now)
	d := b.deleter(noNodes(), time.Now)
	full := string(keys[3]) // the row with tombstones
	for name, c := range map[string]struct {
		rule       func(text string, asked string) *cqltest.Trouble
		statements int
		full       bool
	}{
		"all answered": {func(string, string) *cqltest.Trouble { return nil }, 3, false},
		"guardrail": {func(text, _ string) *cqltest.Trouble {
			if !strings.Contains(text, " IN ?") {
				return nil
			}
			return &cqltest.Trouble{Error: true, Code: cqltest.OtherGuardrail.Code,
				Message: "Guardrail partition_keys_in_select violated: Aborting query for too many partitions, this exceeds fail threshold of 5."}
		}, 3 + rows - 1, false},
		"tombstones": {func(_, asked string) *cqltest.Trouble {
			if !strings.Contains(asked, full) {
				return nil
			}
			return cqltest.Tombstones
		}, 3 + 8, true},
	} {
		var statements atomic.Int64
		node.Fail(func(r cqltest.Request) *cqltest.Trouble {
			s := r.Statements[0]
			if !strings.Contains(s.Text, "data_points") {
				return nil
			}
			statements.Add(1)
			return c.rule(s.Text, string(s.Values[0]))
		})
		have, err := d.haveSamples(b.Ctx, 2, 8, keys, func(context.Context) {})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i := range keys {
			if want := i != 7 && (i%3 != 0 || c.full && i == 3); have[i] != want {
				t.Errorf("%s: row %d has samples: %v", name, i, have[i])
			}
		}
		if n := int(statements.Load()); n != c.statements {
			t.Errorf("%s: %d statements, want %d", name, n, c.statements)
		}
	}
}

// A delete rests while this process writes samples, and only then. Cancelling it
// does not wait for the rest to end.
func TestDeleteRests(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	var ahead atomic.Int64
	began := time.Now()
	b.writer = b.newWriter(write.DefaultConfig(), func() time.Time { return began.Add(time.Duration(ahead.Load())) })
	d := b.deleter(noNodes(), time.Now)
	pace := restingPace(d.cfg.Parallel)
	pace.worked = paceRestless
	metric := b.Name("m")
	fillCities(b, metric, 300)
	delete := func(ctx context.Context) (rested float64, err error) {
		var rows []rowDelete
		for _, k := range keyspacetest.CityKeys(0, 300) {
			rows = append(rows, rowDelete{key: k, whole: true})
		}
		before := valueOf(t, d.metrics.rested)
		err = d.run(ctx, store.Deletion{Metric: metric, Range: model.AllTime}, time.Now().UnixMilli(), pace, context.Background(),
			[]rowTimeDelete{{rowTimeMS: keyspacetest.CityTime(0), rows: rows}}, func(int64, int) error { return nil })
		return valueOf(t, d.metrics.rested) - before, err
	}
	if rested, err := delete(b.Ctx); rested != 0 || err != nil {
		t.Errorf("nothing was written: %v s of rest, %v", rested, err)
	}
	b.write(new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(b.Name("other"), "k", "v"), 0, keyspacetest.SomeTime))
	if rested, err := delete(b.Ctx); rested == 0 || err != nil {
		t.Errorf("samples are written: %v s of rest, %v", rested, err)
	}
	pace.rests = int(time.Second / time.Microsecond) // each rest is the longest
	ctx, cancel := context.WithTimeout(b.Ctx, time.Second)
	defer cancel()
	stopped := make(chan time.Time, 1)
	defer context.AfterFunc(ctx, func() { stopped <- time.Now() })()
	if _, err := delete(ctx); err == nil {
		t.Error("a delete that is stopped while it rests reaches its end")
	} else if late := time.Since(<-stopped); late > paceRestMost/2 {
		t.Errorf("a delete that is stopped while it rests ends %v later: %v", late, err)
	}
	ahead.Store(int64(busyFor))
	if rested, err := delete(b.Ctx); rested != 0 || err != nil {
		t.Errorf("the last samples were written long ago: %v s of rest, %v", rested, err)
	}
}

func valueOf(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.Counter.GetValue()
}
