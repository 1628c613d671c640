package cassandra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows"
	"varve/internal/cassandra/kairosrows/kairosrowstest"
	"varve/internal/cassandra/kairosrows/remove"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/layout"
	"varve/internal/model"
	"varve/internal/originals"
	"varve/internal/store"
	"varve/internal/store/storetest"
)

// Tests of several clusters use one node: each keyspace stands for one.

// settings are those of a store and of its layout.
type settings struct {
	Config
	kairosrows.Settings
}

func defaultSettings() settings { return settings{DefaultConfig(), kairosrows.DefaultSettings()} }

// open opens a store with KairosDB's layout.
func (c settings) open(fsys vfs.FS, o Options) (*Store, error) {
	c.layouts(&o)
	return Open(fsys, "spool", c.Config, o)
}

// layouts gives a store KairosDB's layout, beside those that a test has given it.
func (c settings) layouts(o *Options) {
	all := layout.Layouts{layout.Default: kairosrows.NewLayout(c.Settings)}
	maps.Copy(all, o.Layouts)
	o.Layouts = all
}

// openAll opens a store over several keyspaces.
func (c settings) openAll(fsys vfs.FS, o Options) (*Keyspaces, error) {
	c.layouts(&o)
	return OpenKeyspaces(fsys, "", c.Config, o)
}

// clustersConfig is a store over new keyspaces on the tests' node.
func clustersConfig(t *testing.T, read ...string) settings {
	t.Helper()
	c := defaultSettings()
	c.Config.Config = cqltest.Config(originals.Cassandra(t))
	c.Schema.Create = schema.CreateKeyspace
	c.Schema.IndexShards = 1
	c.Spool.Linger = time.Hour
	c.LimitPerRow = false
	for _, name := range read {
		r := ReadCluster{}
		r.SetDefaults()
		r.Name, r.Hosts, r.Keyspace = name, c.Hosts, cqltest.Name()
		c.ReadClusters = append(c.ReadClusters, r)
	}
	return c
}

// alone is the store of which a read cluster is the keyspace.
func (c ReadCluster) alone(base settings) settings {
	base.Config.Config, base.ReadClusters, base.MetaCluster = c.over(base.Config.Config), nil, defaultMetaConfig()
	return base
}

func openStore(t *testing.T, c settings, o Options) *Store {
	t.Helper()
	s, err := c.open(vfs.NewMem(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

// dropAfter removes the keyspaces when the test has ended.
func dropAfter(t *testing.T, c settings) {
	t.Helper()
	for _, keyspace := range append([]ReadCluster{{ClusterConfig: ClusterConfig{Keyspace: c.Keyspace}}}, c.ReadClusters...) {
		config := c.Config.Config
		config.Keyspace = keyspace.Keyspace
		cqltest.Drop(t, cqltest.Open(t, config, cql.Options{}))
	}
}

func ready[S flushable](t *testing.T, s S) S {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cqltest.Patience)
	defer cancel()
	if err := s.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// put appends longs to the series host=... of a metric, as time=value.
func put(t *testing.T, s store.Store, metric, host string, samples map[int64]int64) {
	t.Helper()
	series := model.Series{Metric: metric, Tags: model.MustTags("host", host), Type: model.TypeLong}
	var b store.Batch
	b.Reset(s.Epoch())
	ref, err := s.Create(t.Context(), series)
	if err != nil {
		t.Fatal(err)
	}
	for ms, v := range samples {
		b.AddLong(ref, ms, v, 0)
	}
	if err := s.Append(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

func flushed(t *testing.T, s flushable) {
	t.Helper()
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// filled makes the keyspace of a read cluster by a store of its own.
func filled(t *testing.T, c settings, i int, fill func(*Store)) {
	t.Helper()
	s := ready(t, openStore(t, c.ReadClusters[i].alone(c), Options{}))
	fill(s)
	flushed(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// answer is what a query finds: "host: time=value ..", by host.
func answer(t *testing.T, s store.Viewer, metric string, o store.ReadOptions, matchers ...model.Matcher) []string {
	t.Helper()
	lines, err := ask(t.Context(), s, metric, o, matchers...)
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func ask(ctx context.Context, s store.Viewer, metric string, o store.ReadOptions, matchers ...model.Matcher) ([]string, error) {
	v, err := s.View(ctx)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	return askView(ctx, v, metric, o, matchers...)
}

func askView(ctx context.Context, v store.View, metric string, o store.ReadOptions, matchers ...model.Matcher) ([]string, error) {
	found, err := storetest.Select(ctx, v, store.Selection{Metric: metric, Range: o.Range, Matchers: matchers})
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, series := range found {
		host, _ := series.Tags.Get("host")
		line := host + ":"
		c := v.Read(ctx, series, o)
		for {
			b, err := c.Next()
			if err != nil {
				return nil, err
			}
			if b == nil {
				break
			}
			for i, ms := range b.Times {
				line += fmt.Sprintf(" %d=%d", ms, int64(b.Values[i]))
			}
		}
		c.Close()
		if line != host+":" {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

func all() store.ReadOptions { return store.ReadOptions{Range: model.AllTime} }

func between(from, to int64) store.ReadOptions {
	return store.ReadOptions{Range: model.TimeRange{StartMS: from, EndMS: to}}
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
}

// TestReadClusters reads two clusters beside the one that is written to: what
// all have of a series is one series.
func TestReadClusters(t *testing.T) {
	c := clustersConfig(t, "old", "older")
	dropAfter(t, c)
	c.ReadClusters[1].StartTime, c.ReadClusters[1].EndTime = "1970-01-01", "1970-01-12T00:00Z" // to 950400000
	const late = 2_000_000_000
	filled(t, c, 0, func(s *Store) {
		put(t, s, "m", "a", map[int64]int64{1000: 1, 2000: 2, 3000: 3})
		put(t, s, "m", "b", map[int64]int64{1000: 10})
		put(t, s, "only.old", "a", map[int64]int64{5: 5})
	})
	filled(t, c, 1, func(s *Store) {
		put(t, s, "m", "a", map[int64]int64{500: -1, 1000: -1, 2500: -1, late: -1})
		put(t, s, "m", "c", map[int64]int64{1000: -1})
	})
	registry := prometheus.NewRegistry()
	s := ready(t, openStore(t, c, Options{Registerer: registry}))
	put(t, s, "m", "a", map[int64]int64{2000: 200, 4000: 400})
	flushed(t, s)
	put(t, s, "m", "a", map[int64]int64{3000: 3000}) // stays in the spool

	same(t, "all", answer(t, s, "m", all()),
		"a: 500=-1 1000=1 2000=200 2500=-1 3000=3000 4000=400 2000000000=-1", "b: 1000=10", "c: 1000=-1")
	same(t, "descending", answer(t, s, "m", store.ReadOptions{Range: model.AllTime, Descending: true}),
		"a: 2000000000=-1 4000=400 3000=3000 2500=-1 2000=200 1000=1 500=-1", "b: 1000=10", "c: 1000=-1")
	same(t, "limited", answer(t, s, "m", store.ReadOptions{Range: model.AllTime, Limit: 3}),
		"a: 500=-1 1000=1 2000=200", "b: 1000=10", "c: 1000=-1")
	same(t, "a range", answer(t, s, "m", between(900, 2000)), "a: 1000=1 2000=200", "b: 1000=10", "c: 1000=-1")
	same(t, "after the end of one", answer(t, s, "m", between(950_400_001, late)))
	same(t, "its last moment", answer(t, s, "m", between(950_400_000, late)), "a: 2000000000=-1")
	same(t, "one host", answer(t, s, "m", all(), model.Matcher{Tag: "host", Values: []string{"c"}}), "c: 1000=-1")
	same(t, "the metric of one", answer(t, s, "only.old", all()), "a: 5=5")

	names := func(q store.NamesQuery) string {
		t.Helper()
		v, err := s.View(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		names, more, err := v.Names(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(names, more)
	}
	for want, q := range map[string]store.NamesQuery{
		"[m only.old] false": {Kind: store.MetricNames},
		"[m] true":           {Kind: store.MetricNames, Limit: 1},
		"[a b c] false":      {Kind: store.TagValues, Metric: "m", Tag: "host"},
		"[b c] false":        {Kind: store.TagValues, Metric: "m", Tag: "host", After: "a"},
		"[host] false":       {Kind: store.TagNames, Metric: "only.old"},
	} {
		if got := names(q); got != want {
			t.Errorf("%+v: %s, want %s", q, got, want)
		}
	}

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	clusters := map[string]bool{}
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "cluster" {
					clusters[f.GetName()+" "+l.GetValue()] = true
				}
			}
		}
	}
	for _, name := range []string{"write_cluster", "old", "older"} {
		for _, metric := range []string{"varve_cql_connected", "varve_cassandra_cover_backlog", "varve_cassandra_rows_deleted_total"} {
			if !clusters[metric+" "+name] {
				t.Errorf("no %s of %s", metric, name)
			}
		}
	}
	st := s.Status()
	if len(st.Read) != 2 || st.Read[1].Name != "older" || !st.Read[1].State.Connected || st.Read[1].Keyspace == nil || !st.Read[1].Keyspace.Rows.Inverted {
		t.Errorf("%+v", st.Read)
	}
}

// TestReadClustersAgreeWithModel puts random samples into three keyspaces and
// the spool, and asks at random.
func TestReadClustersAgreeWithModel(t *testing.T) {
	c := clustersConfig(t, "one", "two")
	dropAfter(t, c)
	c.Schema.RowWidth = 3000
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	hosts := []string{"a", "b", "c"}
	const span = 40_000
	layers := make([]map[string]map[int64]int64, 4) // the first wins: spool, written to, one, two
	for i := range layers {
		layers[i] = map[string]map[int64]int64{}
		for _, host := range hosts {
			samples := map[int64]int64{}
			first := r.Int64N(span)
			for range r.IntN(3000) {
				samples[first+r.Int64N(span-first)] = r.Int64N(1000) + 10_000*int64(i)
			}
			layers[i][host] = samples
		}
	}
	for i := range c.ReadClusters {
		wide := c
		wide.Schema.RowWidth = []int64{3000, 7000}[i] // keyspaces need not have rows of one width
		filled(t, wide, i, func(s *Store) {
			for host, samples := range layers[2+i] {
				put(t, s, "m", host, samples)
			}
		})
	}
	s := ready(t, openStore(t, c, Options{}))
	for host, samples := range layers[1] {
		put(t, s, "m", host, samples)
	}
	flushed(t, s)
	for host, samples := range layers[0] {
		put(t, s, "m", host, samples)
	}
	merged := map[string]map[int64]int64{}
	for _, host := range hosts {
		merged[host] = map[int64]int64{}
		for _, layer := range slices.Backward(layers) {
			for ms, v := range layer[host] {
				merged[host][ms] = v
			}
		}
	}
	for range 60 {
		from := r.Int64N(span)
		o := between(from, from+r.Int64N(span))
		o.Descending = r.IntN(2) == 0
		o.Limit = r.IntN(3) * r.IntN(500)
		want := []string(nil)
		for _, host := range hosts {
			var times []int64
			for ms := range merged[host] {
				if o.Range.Contains(ms) {
					times = append(times, ms)
				}
			}
			slices.Sort(times)
			if o.Descending {
				slices.Reverse(times)
			}
			if o.Limit > 0 {
				times = times[:min(len(times), o.Limit)]
			}
			line := host + ":"
			for _, ms := range times {
				line += fmt.Sprintf(" %d=%d", ms, merged[host][ms])
			}
			if len(times) > 0 {
				want = append(want, line)
			}
		}
		if got := answer(t, s, "m", o); !slices.Equal(got, want) {
			t.Fatalf("%+v: %s", o, cmp.Diff(want, got))
		}
	}
}

// TestReadClusterIsNotWritten opens a keyspace that KairosDB made as one that is
// read, and looks that nothing comes of it there: no table, no row. It has no
// inverted index, which the trace says.
func TestReadClusterIsNotWritten(t *testing.T) {
	c := clustersConfig(t, "recorded")
	session := cqltest.Keyspace(t, c.ReadClusters[0].over(c.Config.Config), cql.Options{})
	kairosrowstest.Load(t, session, "milliseconds")
	written := c.Config.Config
	cqltest.Drop(t, cqltest.Open(t, written, cql.Options{}))
	before := dump(t, session)

	s := ready(t, openStore(t, c, Options{}))
	put(t, s, "read.only", "a", map[int64]int64{1: 1})
	flushed(t, s)
	if err := s.Set(t.Context(), "service", "key", "k", "v"); err != nil {
		t.Fatal(err)
	}
	v, err := s.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	metrics, _, err := v.Names(t.Context(), store.NamesQuery{Kind: store.MetricNames})
	if err != nil || len(metrics) < 10 || !slices.Contains(metrics, "read.only") {
		t.Fatalf("%q, %v", metrics, err)
	}
	rows := 0
	for _, m := range [][]model.Matcher{{{Tag: "host", Values: []string{"a", "server1"}}}, nil} {
		for _, metric := range metrics {
			found, err := storetest.Select(t.Context(), v, store.Selection{Metric: metric, Range: model.AllTime, Matchers: m})
			if err != nil {
				t.Fatal(err)
			}
			rows += len(found)
		}
	}
	trace := map[string]int64{}
	for _, n := range v.(store.Tracer).Trace() {
		trace[n.Name] = n.N
	}
	if trace["recorded.partitions_uncovered"] == 0 || trace["recorded.partitions_indexed"] != 0 || trace["lookups"] == 0 || rows == 0 {
		t.Errorf("%d rows, trace %v", rows, trace)
	}
	if st := s.Status().Read[0]; st.Keyspace == nil || st.Keyspace.Rows.Inverted {
		t.Errorf("%+v", st.Keyspace)
	}
	if diff := cmp.Diff(before, dump(t, session)); diff != "" {
		t.Errorf("the keyspace that is only read has changed: %s", diff)
	}
}

// dump lists the tables of a keyspace and how many rows and bytes they have.
func dump(t *testing.T, s *cql.Session) map[string]string {
	t.Helper()
	tables, err := s.Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for name, table := range tables {
		n, sum := 0, 0
		columns := make([]string, len(table.Columns))
		raw := make([]cql.Raw, len(table.Columns))
		dest := make([]any, len(table.Columns))
		for i, c := range table.Columns {
			columns[i], dest[i] = c.Name, &raw[i]
		}
		rows := s.Query(t.Context(), &cql.Statement{Name: "test", Scan: true, Text: "SELECT " + strings.Join(columns, ", ") + " FROM " + name})
		for rows.Scan(dest...) {
			n++
			for _, b := range raw {
				for i, x := range b {
					sum += int(x) * (i + 1)
				}
			}
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
		out[name] = fmt.Sprintf("%v: %d rows, sum %d", columns, n, sum)
	}
	return out
}

// TestDeleteFromReadClusters deletes what a query of the same range shows,
// wherever it is: it does not come back from an old cluster.
func TestDeleteFromReadClusters(t *testing.T) {
	c := clustersConfig(t, "old", "older")
	dropAfter(t, c)
	c.ReadClusters[1].EndTime = "1970-01-12"
	c.Delete.KairosDBNodes = remove.NodesNo
	for i := range c.ReadClusters {
		filled(t, c, i, func(s *Store) {
			put(t, s, "m", "a", map[int64]int64{1000: 1, 2000: 2, 2_000_000_000: 3})
			put(t, s, "m", "b", map[int64]int64{1000: 1})
			put(t, s, fmt.Sprintf("gone%d", i), "a", map[int64]int64{1000: 1})
		})
	}
	s := ready(t, openStore(t, c, Options{}))
	put(t, s, "m", "a", map[int64]int64{1000: 100, 5000: 500})
	remove := func(metric string, r model.TimeRange, m ...model.Matcher) {
		t.Helper()
		if err := s.Delete(t.Context(), store.Deletion{Metric: metric, Range: r, Matchers: m}); err != nil {
			t.Fatal(err)
		}
	}
	remove("m", model.TimeRange{StartMS: 500, EndMS: 1500}, model.Matcher{Tag: "host", Values: []string{"a"}})
	same(t, "a part", answer(t, s, "m", all()), "a: 2000=2 5000=500 2000000000=3", "b: 1000=1")
	put(t, s, "m", "a", map[int64]int64{1000: 7})
	same(t, "what is written later stays", answer(t, s, "m", between(0, 1500)), "a: 1000=7", "b: 1000=1")
	remove("gone0", model.AllTime)
	remove("gone1", model.AllTime)
	remove("m", model.AllTime)
	same(t, "all", answer(t, s, "m", all()))
	flushed(t, s)
	v, err := s.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if names, _, err := v.Names(t.Context(), store.NamesQuery{Kind: store.MetricNames}); err != nil || len(names) > 0 {
		t.Errorf("%q, %v", names, err)
	}
	for i, r := range c.ReadClusters {
		alone := ready(t, openStore(t, r.alone(c), Options{}))
		same(t, r.Name+" itself", answer(t, alone, "m", all()))
		_ = i
	}
}

// TestDeleteReachesSpoolsOfReadClusters: a server that writes into a cluster which is
// only read here may have older samples on their way there.
func TestDeleteReachesSpoolsOfReadClusters(t *testing.T) {
	c := clustersConfig(t, "old")
	dropAfter(t, c)
	c.Delete.KairosDBNodes = remove.NodesNo
	filled(t, c, 0, func(s *Store) { put(t, s, "m", "a", map[int64]int64{1000: 1}) })
	writer := ready(t, openStore(t, c.ReadClusters[0].alone(c), Options{Node: "writer"}))
	put(t, writer, "m", "b", map[int64]int64{1000: 1})
	put(t, writer, "n", "b", map[int64]int64{1000: 1})
	s := ready(t, openStore(t, c, Options{Node: "reader"}))
	if err := s.Delete(t.Context(), store.Deletion{Metric: "m", Range: model.AllTime}); err != nil {
		t.Fatal(err)
	}
	flushed(t, writer)
	same(t, "m", answer(t, s, "m", all()))
	same(t, "n", answer(t, s, "n", all()), "b: 1000=1")
}

// TestDeleteJobsOfReadClusters makes every delete a job: those of read clusters
// are written down where the metadata is, and can be listed and cancelled.
func TestDeleteJobsOfReadClusters(t *testing.T) {
	c := clustersConfig(t, "old")
	dropAfter(t, c)
	c.Delete.KairosDBNodes, c.Delete.JobRows = remove.NodesNo, 1
	filled(t, c, 0, func(s *Store) { put(t, s, "m", "a", map[int64]int64{1000: 1}) })
	s := ready(t, openStore(t, c, Options{Node: "n"}))
	put(t, s, "m", "a", map[int64]int64{2000: 2})
	if err := s.Delete(t.Context(), store.Deletion{Metric: "m", Range: model.AllTime}); err != nil {
		t.Fatal(err)
	}
	same(t, "after", answer(t, s, "m", all()))
	jobs, err := s.Deletions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var of []string
	for _, j := range jobs {
		of = append(of, fmt.Sprintf("%q %s", j.Cluster, j.State))
		if again, err := s.CancelDeletion(t.Context(), j.ID); err != nil || again.State != layout.JobDone {
			t.Errorf("%+v, %v", again, err)
		}
	}
	slices.Sort(of)
	same(t, "jobs", of, `"" done`, `"old" done`)
	if _, err := s.CancelDeletion(t.Context(), "nonsense"); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
}

// TestReadClusterAway: if a read cluster cannot be reached, queries that need it fail with the
// reason, all others are answered, and samples are accepted.
func TestReadClusterAway(t *testing.T) {
	c := clustersConfig(t, "away", "missing")
	c.ReadClusters[0].Hosts = []string{cqltest.ClosedPort(t)}
	c.ReadClusters[0].EndTime = "1970-01-12T00:00Z"
	c.ReadClusters[1].StartTime = "2100-01-01" // its keyspace was never made
	c.ConnectTimeout, c.Attempts = time.Second, 1
	cqltest.Drop(t, cqltest.Open(t, c.Config.Config, cql.Options{}))
	s := openStore(t, c, Options{})
	put(t, s, "m", "a", map[int64]int64{1000: 1, 2_000_000_000: 2})
	until := time.Now().Add(time.Minute)
	for s.Degraded() != nil && time.Now().Before(until) {
		time.Sleep(20 * time.Millisecond)
	}
	flushed(t, s)
	same(t, "a range without it", answer(t, s, "m", between(1_000_000_000, 3_000_000_000)), "a: 2000000000=2")
	for what, err := range map[string]error{
		"query":  func() error { _, err := ask(t.Context(), s, "m", between(0, 3_000_000_000)); return err }(),
		"delete": s.Delete(t.Context(), store.Deletion{Metric: "m", Range: model.TimeRange{StartMS: 0, EndMS: 3_000_000_000}}),
	} {
		unavailable := (*store.UnavailableError)(nil)
		if !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "cluster away") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := s.Delete(t.Context(), store.Deletion{Metric: "m", Range: model.TimeRange{StartMS: 1_500_000_000, EndMS: 3_000_000_000}}); err != nil {
		t.Errorf("a delete that does not need it: %v", err)
	}
	same(t, "what was to be deleted with it", answer(t, s, "m", between(1_000_000_000, 3_000_000_000)))
	var told []string
	for _, h := range s.Others() {
		if err := h.Healthy(t.Context()); err != nil {
			told = append(told, err.Error())
		}
	}
	if len(told) != 2 || !strings.Contains(told[0], "cluster away has been unreachable since") || !strings.Contains(told[1], "cluster missing: its keyspace is not open: keyspace "+c.ReadClusters[1].Keyspace+": there is no such keyspace") {
		t.Errorf("%q", told)
	}
	if err := s.Degraded(); err != nil {
		t.Errorf("the cluster that is written to: %v", err)
	}
}

// TestMetaCluster keeps metadata in a keyspace of its own, and finds KairosDB
// nodes there.
func TestMetaCluster(t *testing.T) {
	c := clustersConfig(t)
	dropAfter(t, c)
	c.MetaCluster.Hosts, c.MetaCluster.Keyspace = c.Hosts, cqltest.Name()
	meta := cqltest.Open(t, c.MetaCluster.over(c.Config.Config), cql.Options{})
	cqltest.Drop(t, meta)
	s := ready(t, openStore(t, c, Options{}))
	if err := s.Set(t.Context(), "service", "key", "k", "v"); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Get(t.Context(), "service", "key", "k"); err != nil || v.Text != "v" {
		t.Errorf("%+v, %v", v, err)
	}
	tables, err := meta.Tables(t.Context())
	if _, ok := tables["service_index"]; err != nil || !ok || len(tables) != 1 {
		t.Errorf("%d tables, %v", len(tables), err)
	}
	count := func(keyspace string) (n int) {
		rows := meta.Query(t.Context(), &cql.Statement{Name: "test", Scan: true, Text: "SELECT key FROM " + keyspace + ".service_index WHERE service = 'service' ALLOW FILTERING"})
		for rows.Scan(nil) {
			n++
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if a, b := count(c.MetaCluster.Keyspace), count(c.Keyspace); a != 1 || b != 0 {
		t.Errorf("%d in the cluster for metadata, %d in the one that is written to", a, b)
	}
	// A KairosDB node in the list: its index rows stay.
	now := time.Now().UnixMilli()
	put(t, s, "m", "a", map[int64]int64{now: 1})
	flushed(t, s)
	host := fmt.Sprintf("INSERT INTO %s.service_index (service, service_key, key, value, mtime) VALUES ('_Hosts', 'Active', 'h', 'x', now()) USING TIMESTAMP %d", c.MetaCluster.Keyspace, time.Now().UnixMilli())
	cqltest.Must(t, meta, host)
	if err := s.Delete(t.Context(), store.Deletion{Metric: "m", Range: model.AllTime}); err != nil {
		t.Fatal(err)
	}
	rows := meta.Query(t.Context(), &cql.Statement{Name: "test", Scan: true, Text: "SELECT data_type FROM " + c.Keyspace + ".row_keys WHERE metric = 'm' ALLOW FILTERING"})
	left := 0
	for rows.Scan(nil) {
		left++
	}
	if err := rows.Close(); err != nil || left != 1 {
		t.Errorf("%d row keys are left, %v", left, err)
	}
	if st := s.Status(); st.Meta == nil || st.Meta.Name != "meta_cluster" || st.Meta.Keyspace == nil {
		t.Errorf("%+v", st.Meta)
	}
}

// TestAnotherClusterAnswersBeside: another cluster takes the addresses of one that is only
// read, and of the one with the metadata. It is neither read nor changed, and the previous
// clusters are used again once they answer.
func TestAnotherClusterAnswersBeside(t *testing.T) {
	c := clustersConfig(t, "old")
	c.OutageGrace, c.Attempts = 0, 1
	dropAfter(t, c)
	filled(t, c, 0, func(s *Store) { put(t, s, "m", "a", map[int64]int64{1: 1}) })
	old, meta := cqltest.NewFailingNode(t, c.Hosts[0]), cqltest.NewFailingNode(t, c.Hosts[0])
	c.ReadClusters[0].Hosts = []string{old.Address}
	c.MetaCluster.Hosts, c.MetaCluster.Keyspace = []string{meta.Address}, cqltest.Name()
	cqltest.Drop(t, cqltest.Open(t, c.MetaCluster.over(c.Config.Config), cql.Options{}))
	s := ready(t, openStore(t, c, Options{}))
	if err := s.Set(t.Context(), "service", "key", "k", "v"); err != nil {
		t.Fatal(err)
	}
	same(t, "before", answer(t, s, "m", all()), "a: 1=1")

	old.Pose()
	for range 3 {
		if lines, err := ask(t.Context(), s, "m", all()); !isAway(err) {
			t.Errorf("another cluster answers: %q, %v", lines, err)
		}
	}
	if err := s.Delete(t.Context(), store.Deletion{Metric: "m", Range: model.AllTime}); !isAway(err) {
		t.Errorf("a delete: %v", err)
	}
	until(t, "it is told", func() bool {
		err := s.read[0].degraded()
		return err != nil && strings.Contains(err.Error(), "is in another cluster")
	})
	old.Mend()
	until(t, "the cluster of before is read again", func() bool {
		lines, err := ask(t.Context(), s, "m", all())
		return err == nil && slices.Equal(lines, []string{"a: 1=1"})
	})

	meta.Pose()
	for range 3 {
		if err := s.Set(t.Context(), "service", "key", "k", "w"); !isAway(err) {
			t.Errorf("a key-value is set in another cluster: %v", err)
		}
	}
	if v, err := s.Get(t.Context(), "service", "key", "k"); !isAway(err) {
		t.Errorf("a key-value is read in another cluster: %q, %v", v.Text, err)
	}
	meta.Mend()
	until(t, "the cluster of before has the metadata", func() bool {
		v, err := s.Get(t.Context(), "service", "key", "k")
		return err == nil && v.Text == "v"
	})
}

func isAway(err error) bool {
	var away *store.UnavailableError
	return errors.As(err, &away)
}

// TestReadClusterRemade: the keyspace of a read cluster is created again with another row
// width. It is not read until it is as before, and nothing is written there.
func TestReadClusterRemade(t *testing.T) {
	c := clustersConfig(t, "old")
	dropAfter(t, c)
	filled(t, c, 0, func(s *Store) { put(t, s, "m", "a", map[int64]int64{1: 1}) })
	s := ready(t, openStore(t, c, Options{}))
	same(t, "before", answer(t, s, "m", all()), "a: 1=1")
	old := s.read[0]
	spec := c.ReadClusters[0].Keyspace + ".spec"
	change(t, c, "TRUNCATE "+spec)
	if err := old.confirm(t.Context()); err != nil {
		t.Errorf("emptied: %v", err)
	}
	rows := &cql.Statement{Name: "test", Scan: true, Text: "SELECT value FROM spec LIMIT 1"}
	if written, err := old.session.One(t.Context(), rows, nil, new(string)); written || err != nil {
		t.Errorf("it was written to: %v, %v", written, err)
	}
	for _, width := range []string{"1000", "1814400000"} {
		change(t, c, "INSERT INTO "+spec+" (spec_type, name, value) VALUES ('cluster_config', 'row_width', '"+width+"')")
		err := old.confirm(t.Context())
		_, asked := ask(t.Context(), s, "m", all())
		if changed := (*layout.ChangedError)(nil); errors.As(err, &changed) != (width == "1000") || isAway(asked) != (width == "1000") {
			t.Errorf("row width %s: %v; a query: %v", width, err, asked)
		}
	}
}
