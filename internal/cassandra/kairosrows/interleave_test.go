package kairosrows

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/cover"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/read"
	"varve/internal/cassandra/kairosrows/remove"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
)

var (
	interleaveSteps = flag.Int("kairosrows.steps", 60, "steps of TestInterleavings")
	interleaveSeed  = flag.Uint64("kairosrows.seed", 0, "seed of TestInterleavings, 0 = of the time")
)

// interleaving is a keyspace into which Varve and KairosDB write and delete, and
// what must be in it.
type interleaving struct {
	*readBench
	rng      *rand.Rand
	clock    atomic.Int64 // ms: the time that tick returned last
	writer   *write.Writer
	deleter  *remove.Deleter
	watch    *write.Watch
	readers  []*read.Reader
	coverers []*cover.Coverer
	want     map[rowkey.Partition]map[rowkey.Key]bool
	log      []string
}

const interleavedMetrics, interleavedRows = 2, 2

// TestInterleavings: whatever Varve and KairosDB write and delete in turn, with
// passes in between, two readers with warm caches find all of it and no more:
// one in the process that writes, one that sees changes in Cassandra only.
func TestInterleavings(t *testing.T) {
	for _, beside := range []bool{false, true} {
		t.Run(fmt.Sprintf("kairosdb_deletes=%v", beside), func(t *testing.T) {
			seed := *interleaveSeed
			if seed == 0 {
				seed = uint64(time.Now().UnixNano())
			}
			config := readConfig()
			if beside {
				config.PostingsCacheAge = 0 // KairosDB does not say when it deletes
			}
			v := newInterleaving(t, config, seed)
			for range *interleaveSteps {
				v.step(beside)
				v.check()
				if t.Failed() {
					t.Fatalf("seed %d:\n%s", seed, v.history())
				}
			}
		})
	}
}

func newInterleaving(t *testing.T, config read.Config, seed uint64) *interleaving {
	v := &interleaving{readBench: newReadBench(t, config), rng: rand.New(rand.NewPCG(seed, 1)), want: map[rowkey.Partition]map[rowkey.Key]bool{}}
	now := func() time.Time { return time.UnixMilli(v.tick()) }
	quiet := slog.New(slog.DiscardHandler)
	for range 2 {
		r, err := read.New(v.KS, config, read.Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		c, err := cover.New(v.KS, cover.Config{Interval: 24 * time.Hour}, r, cover.Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		v.readers, v.coverers = append(v.readers, r), append(v.coverers, c)
	}
	v.reader = v.readers[0]
	rows := write.DefaultConfig()
	var err error
	if v.writer, err = write.New(v.KS, rows, write.Options{Logger: quiet, Now: now, Wrote: v.reader.RowChanged}); err != nil {
		t.Fatal(err)
	}
	deletes := remove.DefaultConfig()
	deletes.KairosDBNodes = remove.NodesNo
	v.deleter, err = remove.New(v.KS, v.writer, deletes, remove.Options{Logger: quiet, Now: now, Node: "test", Deleted: v.reader.RowChanged})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.deleter.Close)
	if v.watch, err = write.NewWatch(v.writer, nil, func(context.Context) (bool, error) { return true, nil }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.watch.Close)
	return v
}

// tick returns the time in milliseconds, each only once: every step has a time of its own. On a fast
// machine it waits for the next one: a clock that is ahead of Cassandra's, which dates KairosDB's rows,
// does not see what they change.
func (v *interleaving) tick() int64 {
	for {
		now, last := time.Now().UnixMilli(), v.clock.Load()
		if now > last && v.clock.CompareAndSwap(last, now) {
			return now
		}
		runtime.Gosched()
	}
}

func (v *interleaving) history() string {
	text := ""
	for _, line := range v.log {
		text += line + "\n"
	}
	return text
}

func (v *interleaving) partition() rowkey.Partition {
	return rowkey.Partition{Metric: v.Name(fmt.Sprint("metric", v.rng.IntN(interleavedMetrics))), TimeMS: rowtime.Default.RowTime(1_500_508_800_000) + int64(v.rng.IntN(interleavedRows))*rowtime.DefaultWidth}
}

func (v *interleaving) key() rowkey.Key {
	k := rowkey.Key{Type: model.TypeLong, Tags: model.MustTags("a", fmt.Sprint(v.rng.IntN(3)), "b", fmt.Sprint(v.rng.IntN(5)))}
	if v.rng.IntN(4) == 0 {
		k.Type = model.TypeDouble
	}
	if v.rng.IntN(10) == 0 {
		k.Tags = model.MustTags("c", "x")
	}
	return k
}

func (v *interleaving) step(beside bool) {
	p := v.partition()
	switch n := v.rng.IntN(12); {
	case n < 4:
		v.varveInsert(p)
	case n < 7:
		v.kairosInsert(p)
	case n < 8:
		v.varveDelete(p)
	case n < 9 && beside:
		v.kairosDelete(p)
	default:
		covered, err := v.coverers[v.rng.IntN(2)].Cover(v.T.Context(), p)
		if err != nil {
			v.T.Fatal(err)
		}
		v.log = append(v.log, fmt.Sprintf("cover %v: %v", p, covered))
		if len(v.want[p]) > 0 && !covered {
			v.T.Errorf("%v is not covered after a pass", p)
		}
	}
}

func (v *interleaving) expect(p rowkey.Partition, k rowkey.Key) {
	if v.want[p] == nil {
		v.want[p] = map[rowkey.Key]bool{}
	}
	v.want[p][k] = true
}

func (v *interleaving) varveInsert(p rowkey.Partition) {
	src := &keyspacetest.Memory{}
	for range 1 + v.rng.IntN(4) {
		k := v.key()
		s := p.Series(k)
		if !slices.Contains(src.All, s) {
			src.Doubles(s, 0, p.TimeMS+int64(v.rng.IntN(1000)))
		}
		v.expect(p, k)
	}
	v.log = append(v.log, fmt.Sprintf("varve inserts %v: %v", p, src.All))
	if err := v.writer.WriteSource(v.T.Context(), v.tick(), src); err != nil {
		v.T.Fatal(err)
	}
	v.watch.Look(v.T.Context(), 0) // as is done from time to time
}

// kairosInsert writes a sample and its index rows as KairosDB does.
func (v *interleaving) kairosInsert(p rowkey.Partition) {
	k := v.key()
	v.expect(p, k)
	v.log = append(v.log, fmt.Sprintf("kairosdb inserts %v: %v", p, k))
	stamp := v.tick()
	v.ExecAt(stamp, "INSERT INTO string_index (key, column1, value) VALUES (?, ?, ?)", []byte(schema.MetricNames), p.Metric, []byte{0})
	v.ExecAt(stamp, "INSERT INTO row_keys (metric, table_name, row_time, data_type, tags, mtime) VALUES (?, ?, ?, ?, ?, now())",
		p.Metric, schema.DataPoints, p.TimeMS, string(k.Type), cql.TagMap{Tags: k.Tags})
	v.ExecAt(stamp, "INSERT INTO row_key_time_index (metric, table_name, row_time) VALUES (?, ?, ?)", p.Metric, schema.DataPoints, p.TimeMS)
	v.ExecAt(stamp, "INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)", v.dataKey(p, k), []byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 0, 0, 0})
}

func (v *interleaving) dataKey(p rowkey.Partition, k rowkey.Key) []byte {
	key, err := p.DataKey(k)
	if err != nil {
		v.T.Fatal(err)
	}
	return key
}

// kairosDelete removes a whole row as KairosDB does when there is a tag filter.
func (v *interleaving) kairosDelete(p rowkey.Partition) {
	for k := range v.want[p] {
		v.log = append(v.log, fmt.Sprintf("kairosdb deletes %v: %v", p, k))
		stamp := v.tick()
		v.ExecAt(stamp, "DELETE FROM data_points WHERE key = ?", v.dataKey(p, k))
		v.ExecAt(stamp, "DELETE FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? AND data_type = ? AND tags = ?",
			p.Metric, schema.DataPoints, p.TimeMS, string(k.Type), cql.TagMap{Tags: k.Tags})
		delete(v.want[p], k)
		if v.rng.IntN(2) == 0 {
			v.watch.Look(v.T.Context(), 0) // as is done from time to time
		}
		return
	}
}

func (v *interleaving) varveDelete(p rowkey.Partition) {
	m := v.matchers()
	v.log = append(v.log, fmt.Sprintf("varve deletes %v: %v", p, m))
	del := store.Deletion{Metric: p.Metric, Matchers: m, Range: model.TimeRange{StartMS: p.TimeMS, EndMS: p.TimeMS + rowtime.DefaultWidth - 1}}
	if err := v.deleter.Delete(v.T.Context(), v.tick(), del); err != nil {
		v.T.Fatal(err)
	}
	for k := range v.want[p] {
		if model.MatchesAll(m, k.Tags) {
			delete(v.want[p], k)
		}
	}
}

func (v *interleaving) matchers() []model.Matcher {
	var m []model.Matcher
	if v.rng.IntN(2) == 0 {
		m = append(m, keyspacetest.OneOf("a", fmt.Sprint(v.rng.IntN(3))))
	}
	if v.rng.IntN(3) > 0 {
		m = append(m, keyspacetest.OneOf("b", fmt.Sprint(v.rng.IntN(5)), fmt.Sprint(v.rng.IntN(5))))
	}
	return m
}

// check compares what a reader finds with what must be there.
func (v *interleaving) check() {
	v.T.Helper()
	for range 2 {
		metric := v.partition().Metric
		m := v.matchers()
		i := v.rng.IntN(2)
		found, err := v.readers[i].Look().Lookup(v.T.Context(), store.Selection{Metric: metric, Matchers: m, Range: model.AllTime})
		if err != nil {
			v.T.Fatal(err)
		}
		got := map[string]bool{}
		for _, s := range found {
			for _, r := range s.Rows {
				got[fmt.Sprint(r.TimeMS, s.Series)] = true
			}
		}
		for p, keys := range v.want {
			for k := range keys {
				name := fmt.Sprint(p.TimeMS, p.Series(k))
				if p.Metric == metric && model.MatchesAll(m, k.Tags) && !got[name] {
					v.T.Errorf("reader %d, %s %v: %s is missing", i, metric, m, name)
				}
				delete(got, name)
			}
		}
		for name := range got {
			v.T.Errorf("reader %d, %s %v: %s is not there", i, metric, m, name)
		}
		v.log = append(v.log, fmt.Sprintf("reader %d looked for %s %v", i, metric, m))
	}
}
