package kairosrows

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
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
	modelRounds = flag.Int("kairosrows.rounds", 3, "rounds of TestEveryStoredRowIsFound")
	modelSeed   = flag.Uint64("kairosrows.modelseed", 0, "seed of TestEveryStoredRowIsFound, 0 = of the time")
	modelUnit   = flag.String("kairosrows.unit", "", "row_time_unit of TestEveryStoredRowIsFound; empty draws one")
)

// TestEveryStoredRowIsFound: two Varve nodes, whose clocks differ, and a
// KairosDB write into the same few rows and delete from them, all at once, with late
// samples, times to live, repairs, coverage passes, other tag rules, restarts and kills in the
// middle of a write. After each round every row that has samples is found, by its metric, by each
// of its tags and by its name; and samples that nobody deletes are there. The keyspace is of
// milliseconds, or of seconds, or one that KairosDB has marked LEGACY, with rows that only
// row_key_index knows. In some runs rows are so narrow that index rows expire. In some KairosDB
// deletes nothing: then caches may be so small that they forget most of what they know, and a
// killed node checks nothing. In some rounds index tables are emptied, which a repair undoes.
func TestEveryStoredRowIsFound(t *testing.T) {
	seed := *modelSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	m := newRowModel(t, seed)
	rounds := *modelRounds
	if testing.Short() {
		rounds = min(rounds, 2)
	}
	for round := range rounds {
		m.round(round)
		m.settle()
		m.check()
		if t.Failed() {
			t.Fatalf("round %d, seed %d, %v:\n%s", round, seed, m.KS.Spec.Unit, m.history())
		}
	}
}

const (
	modelMetrics = 3 // of which nobody deletes from the first
	modelHosts   = 2
	modelOps     = 8 // of each actor in a round
	modelCache   = 3 // row keys, where it is small
	modelWidth   = 4000

	// Much longer than a step takes.
	modelSkew = 400 * time.Millisecond
)

// A rowModel is a keyspace and who works on it.
type rowModel struct {
	*bench
	seed   uint64
	nodes  [2]*modelNode
	cached map[partRow]bool // what KairosDB believes to have written
	narrow bool             // rows are modelWidth wide
	gentle bool             // KairosDB deletes nothing

	// Other ones in each round, since each hides what others would find.
	kairosSkew    time.Duration // of KairosDB's clock
	deletes       int           // of 20 steps of a Varve node
	kairosDeletes int           // of 20 steps of KairosDB
	empties       bool          // index tables are emptied

	mu   sync.Mutex
	kept map[string]int // samples in rows that nobody deletes from, by key
	log  []string
}

// A modelNode is a Varve node.
type modelNode struct {
	skew    time.Duration
	rules   []string // of the tag index
	writer  *write.Writer
	deleter *remove.Deleter
	watch   *write.Watch
	reader  *read.Reader
	coverer *cover.Coverer
}

func newRowModel(t *testing.T, seed uint64) *rowModel {
	m := &rowModel{seed: seed, cached: map[partRow]bool{}, kept: map[string]int{}, narrow: seed/3%2 == 1, gentle: seed/6%3 == 1}
	m.bench = newUnitBench(t, seed, m.narrow)
	t.Logf("narrow rows: %v, KairosDB deletes nothing: %v", m.narrow, m.gentle)
	if m.KS.Spec.Unit == rowtime.Legacy {
		m.oldRows()
	}
	m.Counts.Before = func(name string) {
		// Statements of several actors come in all orders: most of all samples, between
		// a delete's look at their row and its removal of index rows.
		switch {
		case name == "insert_sample" || name == "insert_sample_ttl" || name == "delete_row_key":
			time.Sleep(time.Duration(rand.IntN(2)) * time.Duration(rand.IntN(120)) * time.Millisecond)
		case strings.HasPrefix(name, "insert") || strings.HasPrefix(name, "delete") || strings.Contains(name, "announce"):
			time.Sleep(time.Duration(rand.IntN(4)/3) * time.Duration(rand.IntN(40)) * time.Millisecond)
		}
	}
	for i, skew := range []time.Duration{modelSkew, -modelSkew} {
		m.nodes[i] = &modelNode{skew: skew}
		m.start(m.nodes[i])
		t.Cleanup(func() { m.nodes[i].stop() })
	}
	return m
}

// newUnitBench opens a keyspace of the unit that the flag names or the seed draws.
func newUnitBench(t *testing.T, seed uint64, narrow bool) *bench {
	t.Helper()
	unit := *modelUnit
	if unit == "" {
		unit = rowtime.Unit(seed % 3).String()
	}
	t.Logf("row_time_unit %s", unit)
	if unit != rowtime.Legacy.String() {
		config := keyspacetest.OwnKeyspace()
		config.RowTimeUnit = unit
		if narrow {
			config.RowWidth = modelWidth
		}
		return newBench(t, config, write.DefaultConfig(), "")
	}
	b := &bench{Bench: keyspacetest.Loaded(t, func(s *cql.Session) {
		cqltest.Must(t, s,
			"CREATE TABLE spec (spec_type text, name text, value text, PRIMARY KEY (spec_type, name))",
			"INSERT INTO spec (spec_type, name, value) VALUES ('cluster_config', 'row_time_unit', 'LEGACY') USING TIMESTAMP 1",
			fmt.Sprintf("INSERT INTO spec (spec_type, name, value) VALUES ('cluster_config', 'row_width', '%d') USING TIMESTAMP 1", rowtime.DefaultWidth))
	})}
	b.writer = b.newWriter(write.DefaultConfig(), time.Now)
	return b
}

// oldRows are of each series a row that KairosDB wrote before 0.9.4, with a long and a
// double, and one that it wrote before 1.2, both in the old row time.
func (m *rowModel) oldRows() {
	at := m.KS.Spec.RowTime(keyspacetest.SomeTime)
	for i := range modelMetrics {
		metric := m.Name(fmt.Sprint("m", i))
		m.Exec("INSERT INTO string_index (key, column1, value) VALUES (?, ?, ?)", []byte(schema.MetricNames), metric, []byte{0})
		for host := range modelHosts {
			tags := model.MustTags("host", fmt.Sprint("h", host), "dc", "d")
			m.oldRow(rowtime.Key{Metric: metric, RowTimeMS: at, Type: rowtime.TypeLegacy, Tags: tags}, 7<<1, 8<<1|1)
			m.oldRow(rowtime.Key{Metric: metric, RowTimeMS: at, Type: model.TypeLong, Tags: tags}, 9<<1)
		}
	}
}

func (m *rowModel) oldRow(k rowtime.Key, columns ...uint32) {
	key, err := k.Append(nil)
	if err != nil {
		m.T.Fatal(err)
	}
	m.Exec("INSERT INTO row_key_index (key, column1, value) VALUES (?, ?, ?)", []byte(k.Metric), key, []byte{0})
	for _, column := range columns {
		m.Exec("INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)", key, rowtime.ColumnBytes(column), []byte("\x01\x3f\xc0\x00\x00")[:1+4*(column&1)])
	}
	if k.Metric == m.Name("m0") {
		m.kept[string(key)]++
	}
}

func (n *modelNode) now() time.Time { return time.Now().Add(n.skew) }

func (m *rowModel) start(n *modelNode) {
	quiet := slog.New(slog.DiscardHandler)
	config := remove.DefaultConfig()
	config.KairosDBNodes = remove.NodesYes
	var err error
	written := write.DefaultConfig()
	if m.gentle && m.seed%2 == 0 {
		written.IndexCache = modelCache
	}
	written.TagIndex = n.rules
	if n.writer, err = write.New(m.KS, written, write.Options{Logger: quiet, Now: n.now}); err != nil {
		m.T.Fatal(err)
	}
	if n.reader, err = read.New(m.KS, readConfig(), read.Options{Now: n.now}); err != nil {
		m.T.Fatal(err)
	}
	if n.coverer, err = cover.New(m.KS, cover.Config{Interval: 24 * time.Hour}, n.reader, cover.Options{Logger: quiet, Now: n.now}); err != nil {
		m.T.Fatal(err)
	}
	if n.deleter, err = remove.New(m.KS, n.writer, config, remove.Options{Logger: quiet, Now: n.now, Node: fmt.Sprint(n.skew)}); err != nil {
		m.T.Fatal(err)
	}
	if n.watch, err = write.NewWatch(n.writer, nil, n.deleter.KairosDBRuns); err != nil {
		m.T.Fatal(err)
	}
}

func (n *modelNode) stop() {
	n.watch.Close()
	n.stopUnchecked()
}

// stopUnchecked leaves the watch running.
func (n *modelNode) stopUnchecked() {
	n.deleter.Close()
	n.coverer.Close()
	n.reader.Close()
	n.writer.Close()
}

func (m *rowModel) history() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.log, "\n")
}

func (m *rowModel) note(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = append(m.log, fmt.Sprintf(time.Now().Format("05.000 ")+format, args...))
}

// round lets all actors work at once.
func (m *rowModel) round(round int) {
	var actors sync.WaitGroup
	rng := rand.New(rand.NewPCG(m.seed, uint64(round)<<32))
	m.kairosSkew = []time.Duration{-modelSkew, 0, 2 * modelSkew}[rng.IntN(3)]
	m.deletes, m.kairosDeletes = []int{0, 2, 8}[rng.IntN(3)], []int{1, 10, 15}[rng.IntN(3)]
	if m.gentle {
		m.kairosDeletes = 0
	}
	m.empties = rng.IntN(8) == 0
	m.note("round %d: %d of 20 steps delete, %d of KairosDB's, whose clock is %v ahead", round, m.deletes, m.kairosDeletes, m.kairosSkew)
	if m.empties {
		actors.Go(func() { m.empty(rng) })
	}
	for i := range 3 {
		rng := rand.New(rand.NewPCG(m.seed, uint64(3*round+i)))
		actors.Go(func() {
			for range modelOps {
				time.Sleep(time.Duration(rng.IntN(120)) * time.Millisecond)
				if i == 2 {
					m.kairosDB(rng)
				} else {
					m.varve(rng, m.nodes[i])
				}
			}
		})
	}
	actors.Wait()
}

func (m *rowModel) metricOf(rng *rand.Rand, from int) string {
	if rng.IntN(4) > 0 {
		return m.Name("m1") // so that they meet
	}
	return m.Name(fmt.Sprint("m", from+rng.IntN(modelMetrics-from)))
}

func (m *rowModel) series(rng *rand.Rand, metric string) model.Series {
	s := keyspacetest.LongSeries(metric, "host", fmt.Sprint("h", rng.IntN(modelHosts)), "dc", "d")
	if rng.IntN(4) == 0 {
		s.Type = model.TypeString // in a row of its own
	}
	return s
}

// empty empties some of the index tables.
func (m *rowModel) empty(rng *rand.Rand) {
	for _, table := range []string{"row_keys", "row_key_time_index", "varve_row_index", "string_index"} {
		time.Sleep(time.Duration(rng.IntN(120)) * time.Millisecond)
		if rng.IntN(2) == 0 {
			m.note("%s is emptied", table)
			m.Exec("TRUNCATE " + table)
		}
	}
}

// rowTime is of the present row, into which KairosDB writes too, or of an old one.
func (m *rowModel) rowTime(rng *rand.Rand) int64 {
	if rng.IntN(2) == 0 {
		return m.KS.Spec.RowTime(time.Now().UnixMilli())
	}
	return m.KS.Spec.RowTime(keyspacetest.SomeTime)
}

// varve is one step of a Varve node.
func (m *rowModel) varve(rng *rand.Rand, n *modelNode) {
	switch k := rng.IntN(20); {
	case k < m.deletes:
		m.varveDeletes(rng, n)
	case k < 17:
		m.varveWrites(rng, n)
	case k < 18 && rng.IntN(3) == 0:
		r, err := n.deleter.Repair(m.Ctx, remove.RepairOptions{})
		m.note("%v repairs: %+v, %v", n.skew, r, err)
		if err != nil {
			m.T.Error(err)
		}
	case k < 18 && rng.IntN(2) == 0:
		n.rules = [][]string{nil, {"include all"}, {"include all tags=host"}}[rng.IntN(3)]
		m.note("%v has tag rules %q", n.skew, n.rules)
		if err := n.writer.SetTagIndex(n.rules); err != nil {
			m.T.Error(err)
		}
	case k < 19:
		p := rowkey.Partition{Metric: m.metricOf(rng, 0), TimeMS: m.rowTime(rng)}
		covered, err := n.coverer.Cover(m.Ctx, p)
		m.note("%v covers %v: %v, %v", n.skew, p, covered, err)
		if err != nil {
			m.T.Error(err)
		}
	default:
		m.restart(n)
	}
}

// restart stops a node, or kills it where nothing depends on its last check, and starts it again.
func (m *rowModel) restart(n *modelNode) {
	m.note("%v restarts", n.skew)
	if m.gentle {
		m.T.Cleanup(n.watch.Close)
		n.stopUnchecked()
	} else {
		n.stop()
	}
	m.start(n)
}

func (m *rowModel) varveWrites(rng *rand.Rand, n *modelNode) {
	src := new(keyspacetest.Memory)
	ttl := []uint32{0, 1000, 100_000}[rng.IntN(3)]
	if m.narrow {
		ttl = []uint32{0, 1, 3}[rng.IntN(3)]
	}
	for range 1 + rng.IntN(4) {
		s := m.series(rng, m.metricOf(rng, 0))
		if slices.Contains(src.All, s) {
			continue
		}
		at := m.rowTime(rng)
		ms := at + rng.Int64N(min(1_000_000, m.KS.Spec.Width))
		if now := m.KS.Spec.RowTime(time.Now().UnixMilli()); at == now {
			ms = time.Now().UnixMilli() - rng.Int64N(1000) // so that a time to live is to come
		}
		life := ttl
		if s.Metric == m.Name("m0") && s.Type == model.TypeLong || m.narrow && at != m.KS.Spec.RowTime(keyspacetest.SomeTime) {
			life = 0 // an overwritten sample is not kept; and KairosDB, whose clock differs, writes the row time without a TTL
		}
		if at == m.KS.Spec.RowTime(keyspacetest.SomeTime) && life > 0 {
			life += uint32((time.Now().UnixMilli() - ms) / 1000)
		}
		src.Add(s, sampleOf(s, ms, life))
	}
	stamp := n.now().UnixMilli()
	if rng.IntN(4) == 0 {
		stamp -= 3_600_000 // has waited in a spool
	}
	m.note("%v writes %v, ttl %d, stamp %d", n.skew, src.All, ttl, stamp)
	if rng.IntN(5) == 0 {
		ctx, cancel := context.WithTimeout(m.Ctx, time.Duration(rng.IntN(200))*time.Millisecond)
		err := n.writer.WriteSource(ctx, stamp, src)
		cancel()
		m.note("%v is killed while it writes: %v", n.skew, err)
		m.restart(n)
	}
	if err := n.writer.WriteSource(m.Ctx, stamp, src); err != nil {
		m.T.Error(err)
		return
	}
	m.note("%v has written %v", n.skew, src.All)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, s := range src.All {
		if s.Metric == m.Name("m0") && s.Type == model.TypeLong {
			m.kept[m.rowKeyOf(s, m.KS.Spec.RowTime(src.Cols[i].Times[0]))]++
		}
	}
}

// sampleOf is a sample of a series.
func sampleOf(s model.Series, ms int64, ttl uint32) (c model.Columns) {
	if s.Type == model.TypeString {
		c.AppendBytes(ms, []byte("text"), ttl)
		return c
	}
	c.AppendFixed(ms, uint64(ms), ttl)
	return c
}

func (m *rowModel) rowKeyOf(s model.Series, rowTimeMS int64) string {
	key, err := rowkey.Partition{Metric: s.Metric, TimeMS: rowTimeMS}.DataKey(rowkey.Of(s))
	if err != nil {
		m.T.Error(err)
	}
	return string(key)
}

func (m *rowModel) varveDeletes(rng *rand.Rand, n *modelNode) {
	del := store.Deletion{Metric: m.metricOf(rng, 1), Range: model.AllTime}
	if rng.IntN(3) > 0 {
		del.Matchers = append(del.Matchers, keyspacetest.OneOf("host", fmt.Sprint("h", rng.IntN(modelHosts))))
	}
	if rng.IntN(2) == 0 {
		at := m.rowTime(rng)
		del.Range = model.TimeRange{StartMS: at, EndMS: at + m.KS.Spec.Width - 1}
	}
	m.note("%v deletes %s %v", n.skew, fmt.Sprintf("%+v", del), del.Range)
	if rng.IntN(4) == 0 {
		s := m.series(rng, del.Metric)
		del.Only = &s
	}
	stamp := n.now().UnixMilli()
	if rng.IntN(4) == 0 {
		ctx, cancel := context.WithTimeout(m.Ctx, time.Duration(rng.IntN(200))*time.Millisecond)
		err := n.deleter.Delete(ctx, stamp, del)
		cancel()
		m.note("%v has begun to delete: %v", n.skew, err)
		if rng.IntN(2) == 0 {
			return
		}
	}
	if err := n.deleter.Delete(m.Ctx, stamp, del); err != nil {
		m.T.Error(err)
	}
	m.note("%v has deleted %s", n.skew, fmt.Sprintf("%+v", del))
}

// kairosDB is one step of a KairosDB node. It writes index rows once, and forgets what
// it has written when it deletes.
func (m *rowModel) kairosDB(rng *rand.Rand) {
	s := m.series(rng, m.metricOf(rng, 0))
	p := rowkey.Partition{Metric: s.Metric, TimeMS: m.KS.Spec.RowTime(time.Now().UnixMilli())}
	k := rowkey.Key{Type: s.Type, Tags: s.Tags}
	if rng.IntN(20) < m.kairosDeletes && s.Metric != m.Name("m0") {
		if rng.IntN(4) == 0 {
			m.kairosDeletesAll(p, rng.IntN(2) == 0 && m.KS.Spec.Unit != rowtime.Legacy)
			return
		}
		m.note("kairosdb deletes %v of %v", s, p.TimeMS)
		m.execKairos("DELETE FROM data_points WHERE key = ?", []byte(m.rowKeyOf(s, p.TimeMS)))
		m.execKairos(removeRowKey, p.Metric, schema.DataPoints, p.TimeMS, string(k.Type), cql.TagMap{Tags: k.Tags})
		m.cached = map[partRow]bool{}
		return
	}
	m.note("kairosdb writes %v at %v", s, p.TimeMS)
	if row := (partRow{p, k}); !m.cached[row] {
		m.execKairos("INSERT INTO string_index (key, column1, value) VALUES (?, ?, ?)", []byte(schema.MetricNames), p.Metric, []byte{0})
		m.execKairos("INSERT INTO row_keys (metric, table_name, row_time, data_type, tags, mtime) VALUES (?, ?, ?, ?, ?, now())",
			p.Metric, schema.DataPoints, p.TimeMS, string(k.Type), cql.TagMap{Tags: k.Tags})
		m.execKairos("INSERT INTO row_key_time_index (metric, table_name, row_time) VALUES (?, ?, ?)", p.Metric, schema.DataPoints, p.TimeMS)
		m.cached[row] = true
	}
	m.execKairos("INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)", []byte(m.rowKeyOf(s, p.TimeMS)), rowtime.ColumnBytes(m.KS.Spec.Column(0, rng.Int64N(1000))), []byte{2})
}

// kairosDeletesAll deletes all series of a row time, or of the metric, as KairosDB does, and ends it:
// otherwise it would not write the row time and the name again.
func (m *rowModel) kairosDeletesAll(p rowkey.Partition, metric bool) {
	rowTimes := []int64{p.TimeMS}
	if metric {
		rowTimes = m.rowTimes(p.Metric)
	}
	m.note("kairosdb deletes all of %s at %v, and its name: %v", p.Metric, rowTimes, metric)
	for _, p.TimeMS = range rowTimes {
		var keys []rowkey.Key
		err := rowkey.Each(m.Ctx, m.KS.Session, rowkey.ListRowKeys, p.Args(), func(k rowkey.Key) error {
			keys = append(keys, k)
			return nil
		})
		if err != nil {
			m.T.Error(err)
		}
		for _, k := range keys {
			m.execKairos("DELETE FROM data_points WHERE key = ?", []byte(m.rowKeyOf(p.Series(k), p.TimeMS)))
			m.execKairos(removeRowKey, p.Metric, schema.DataPoints, p.TimeMS, string(k.Type), cql.TagMap{Tags: k.Tags})
			m.execKairos("DELETE FROM row_key_time_index WHERE metric = ? AND table_name = ? AND row_time = ?", p.Metric, schema.DataPoints, p.TimeMS)
		}
	}
	if metric {
		m.execKairos("DELETE FROM string_index WHERE key = ? AND column1 = ?", []byte(schema.MetricNames), p.Metric)
	}
	m.cached = map[partRow]bool{}
}

func (m *rowModel) rowTimes(metric string) (all []int64) {
	rows := m.KS.Session.Query(m.Ctx, &cql.Statement{Name: "test", Text: "SELECT row_time FROM row_key_time_index WHERE metric = ? AND table_name = ?"}, metric, schema.DataPoints)
	defer rows.Close()
	var at int64
	for rows.Scan(&at) {
		all = append(all, at)
	}
	if err := rows.Close(); err != nil {
		m.T.Error(err)
	}
	return all
}

// A partRow names a row.
type partRow struct {
	rowkey.Partition
	rowkey.Key
}

// execKairos executes a statement of KairosDB.
func (m *rowModel) execKairos(text string, args ...any) {
	stamp := time.Now().Add(m.kairosSkew).UnixMilli()
	if err := m.KS.Session.Exec(m.Ctx, &cql.Statement{Name: "test", Text: text}, stamp, args...); err != nil {
		m.T.Error(err)
	}
}

// settle waits for what is done in the background.
func (m *rowModel) settle() {
	for end := time.Now().Add(4 * modelSkew); time.Now().Before(end); {
		time.Sleep(modelSkew)
		for _, n := range m.nodes {
			n.watch.Look(m.Ctx, 0)
		}
	}
	if m.empties { // see probe: nothing else finds rows that get no more samples
		m.cached = map[partRow]bool{}
		if _, err := m.nodes[0].deleter.Repair(m.Ctx, remove.RepairOptions{}); err != nil {
			m.T.Error(err)
		}
	}
}

// check looks for all rows that have samples, as a node that has just started.
func (m *rowModel) check() {
	m.T.Helper()
	reader, err := read.New(m.KS, readConfig(), read.Options{})
	if err != nil {
		m.T.Fatal(err)
	}
	defer reader.Close()
	names, err := reader.Metrics(m.Ctx)
	if err != nil {
		m.T.Fatal(err)
	}
	rows := m.stored()
	for _, key := range rows {
		s := model.Series{Metric: key.Metric, Tags: key.Tags, Type: key.Type}
		if key.Type == rowtime.TypeLegacy {
			s.Type = model.TypeDouble // no other row of the metric is one
		}
		if !slices.Contains(names, key.Metric) && m.hasSamples(key) {
			m.T.Errorf("%s has samples, and is not listed", key.Metric)
		}
		by := []model.Matcher{}
		for name, value := range key.Tags.All() {
			by = append(by, keyspacetest.OneOf(name, value))
		}
		for _, matchers := range [][]model.Matcher{nil, by[:1], by[1:], by} {
			if !finds(m.Ctx, m.T, reader, s, key.RowTimeMS, matchers) && m.hasSamples(key) {
				m.T.Errorf("%s at %d has samples, and is not found by %v", s, key.RowTimeMS, matchers)
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	there := map[string]bool{}
	for _, key := range rows {
		bytes, _ := key.Append(nil)
		there[string(bytes)] = true
	}
	for key := range m.kept {
		if !there[key] {
			m.T.Errorf("row %q was written, never deleted, and is not there", key)
		}
	}
}

// hasSamples reports whether a row still has samples, which may have expired.
func (m *rowModel) hasSamples(k rowtime.Key) bool {
	key, err := k.Append(nil)
	if err != nil {
		m.T.Fatal(err)
	}
	has, err := rowkey.HasSamples(m.Ctx, m.KS.Session, key)
	if err != nil {
		m.T.Fatal(err)
	}
	return has
}

func finds(ctx context.Context, t testing.TB, reader *read.Reader, s model.Series, rowTimeMS int64, matchers []model.Matcher) bool {
	found, err := reader.Look().Lookup(ctx, store.Selection{Metric: s.Metric, Matchers: matchers, Range: model.AllTime})
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(found, func(f read.SeriesRows) bool {
		return f.Series == s && slices.ContainsFunc(f.Rows, func(r read.Row) bool { return r.TimeMS == rowTimeMS })
	})
}

// stored returns the keys of all rows that have samples.
func (m *rowModel) stored() (keys []rowtime.Key) {
	rows := m.KS.Session.Query(m.Ctx, &cql.Statement{Name: "test", Scan: true, Text: "SELECT DISTINCT key FROM data_points"})
	defer rows.Close()
	var raw cql.Raw
	for rows.Scan(&raw) {
		key, err := rowtime.ParseKey(string(raw))
		if err != nil {
			m.T.Fatal(err)
		}
		keys = append(keys, key)
	}
	if err := rows.Close(); err != nil {
		m.T.Fatal(err)
	}
	return keys
}
