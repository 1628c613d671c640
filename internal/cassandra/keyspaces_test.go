package cassandra

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/diskfs/crashfs"
	"varve/internal/model"
	"varve/internal/originals"
	"varve/internal/store"
	"varve/internal/store/storetest"
	"varve/internal/units"
)

// keyspacesConfig is a store over two new keyspaces on the tests' node. The second one
// keeps what begins with "b." and is reached at hosts, as the first if there are none.
func keyspacesConfig(t *testing.T, hosts ...string) settings {
	t.Helper()
	c := clustersConfig(t)
	c.Keyspaces = []KeyspaceConfig{{
		Name: "second", Metrics: []string{"prefix=b."}, ClusterConfig: ClusterConfig{Hosts: hosts, Keyspace: cqltest.Name()},
	}}
	dropAfter(t, c)
	dropAfter(t, c.only(1))
	return c
}

// only is the store over one of the keyspaces alone, reached at the tests' node.
func (c settings) only(i int) settings {
	if i > 0 {
		k := c.Keyspaces[i-1]
		k.Hosts = nil
		c.Config = c.store(k)
	}
	c.Keyspaces = nil
	return c
}

func openKeyspaces(t *testing.T, fs vfs.FS, c settings) *Keyspaces {
	t.Helper()
	return openKeyspacesAs(t, fs, c, Options{})
}

func openKeyspacesAs(t *testing.T, fs vfs.FS, c settings, o Options) *Keyspaces {
	t.Helper()
	s, err := c.openAll(fs, o)
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

func closed(t *testing.T, s store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// namesOf lists names of a store.
func namesOf(t *testing.T, s store.Viewer, q store.NamesQuery) []string {
	t.Helper()
	v, err := s.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	names, _, err := v.Names(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// selectMetrics selects the series of several metrics, and reads them.
func selectMetrics(t *testing.T, s store.Viewer, metrics ...model.Matcher) []string {
	t.Helper()
	v, err := s.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	found, err := storetest.Select(t.Context(), v, store.Selection{Metrics: metrics, Range: model.AllTime})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, series := range found {
		names = append(names, series.Metric)
		if b, err := v.Read(t.Context(), series, all()).Next(); err != nil || b == nil || b.Len() != 3 {
			t.Errorf("read %s: %v, %v", series.Metric, b, err)
		}
	}
	return names
}

// TestKeyspacesByRule: each metric is written to the keyspace of its rule, and to no
// other; queries, names and deletes find it there.
func TestKeyspacesByRule(t *testing.T) {
	c := keyspacesConfig(t)
	s := ready(t, openKeyspaces(t, vfs.NewMem(), c))
	var b store.Batch
	b.Reset(s.Epoch())
	for i, metric := range []string{"b.x", "a.x", "b.y", "c"} {
		series := model.Series{Metric: metric, Tags: model.MustTags("host", "h"), Type: model.TypeLong}
		ref, err := s.Create(t.Context(), series)
		if err != nil {
			t.Fatal(err)
		}
		if found, ok := s.Lookup(series.AppendKey(nil)); !ok || found != ref {
			t.Errorf("%s: created as %d, found as %d, %t", metric, ref, found, ok)
		}
		for ms := range int64(3) {
			b.AddLong(ref, ms, int64(i), 0)
		}
	}
	if err := s.Append(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	right := func(what string) {
		t.Helper()
		same(t, what+": a.x", answer(t, s, "a.x", all()), "h: 0=1 1=1 2=1")
		same(t, what+": b.y", answer(t, s, "b.y", all()), "h: 0=2 1=2 2=2")
		same(t, what+": several metrics", selectMetrics(t, s, store.AnyMetric), "a.x", "b.x", "b.y", "c")
		same(t, what+": names", namesOf(t, s, store.NamesQuery{}), "a.x", "b.x", "b.y", "c")
		same(t, what+": two names", namesOf(t, s, store.NamesQuery{Limit: 2}), "a.x", "b.x")
		same(t, what+": a level", namesOf(t, s, store.NamesQuery{Delimiter: '.'}), "a.", "b.", "c")
		same(t, what+": tags", namesOf(t, s, store.NamesQuery{Kind: store.TagNames, Metric: "b.x"}), "host")
	}
	right("in the spools")
	flushed(t, s)
	right("in Cassandra")
	same(t, "first", namesOf(t, ready(t, openStore(t, c.only(0), Options{Node: "beside"})), store.NamesQuery{}), "a.x", "c")
	second := ready(t, openStore(t, c.only(1), Options{Node: "beside"}))
	same(t, "second", namesOf(t, second, store.NamesQuery{}), "b.x", "b.y")

	err := s.Delete(t.Context(), store.Deletion{Metric: "b.x", Range: model.AllTime}, store.Deletion{Metric: "a.x", Range: model.TimeRange{StartMS: 1, EndMS: 1}})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "after the delete: a.x", answer(t, s, "a.x", all()), "h: 0=1 2=1")
	same(t, "after the delete: names", namesOf(t, s, store.NamesQuery{}), "a.x", "b.y", "c")
	var input *store.InputError
	if err := s.Delete(t.Context(), store.Deletion{Metric: "b.y", Range: model.AllTime}, store.Deletion{Range: model.AllTime}); !errors.As(err, &input) {
		t.Errorf("a delete of no metric: %v", err)
	}
	same(t, "after a delete that was refused", namesOf(t, second, store.NamesQuery{}), "b.y")
}

// TestBatchThatOneKeyspaceCannotHold: nothing of it is stored, as the contract says, nor of
// one with refs of an earlier epoch.
func TestBatchThatOneKeyspaceCannotHold(t *testing.T) {
	c := keyspacesConfig(t)
	s := ready(t, openKeyspaces(t, vfs.NewMem(), c))
	var refs []store.Ref
	for _, metric := range []string{"a", "b.x"} {
		ref, err := s.Create(t.Context(), model.Series{Metric: metric, Tags: model.MustTags("host", "h"), Type: model.TypeString})
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	for i := range refs {
		var b store.Batch
		b.Reset(s.Epoch())
		b.AddBytes(refs[i], 1, []byte("fits"), 0)
		b.AddBytes(refs[1-i], 1, []byte(strings.Repeat("x", 70_000)), 0)
		var input *store.InputError
		if err := s.Append(t.Context(), &b); !errors.As(err, &input) {
			t.Errorf("%d: %v", i, err)
		}
		b.Reset(s.Epoch() + 1)
		b.AddBytes(refs[i], 1, []byte("fits"), 0)
		if err := s.Append(t.Context(), &b); !errors.Is(err, store.ErrStale) {
			t.Errorf("%d, of another epoch: %v", i, err)
		}
		b.Reset(s.Epoch())
		b.AddBytes(refs[i], 1, []byte("fits"), 0)
		b.AddBytes(refs[1-i]+1000, 1, []byte("fits"), 0)
		if err := s.Append(t.Context(), &b); !errors.Is(err, store.ErrStale) {
			t.Errorf("%d, of no series: %v", i, err)
		}
	}
	if names := namesOf(t, s, store.NamesQuery{}); len(names) > 0 {
		t.Errorf("stored: %q", names)
	}
}

// aKeyspaceAway is a store over two keyspaces; the second is behind a node that fails on
// command.
func aKeyspaceAway(t *testing.T, change func(*settings)) (s *Keyspaces, node *cqltest.FailingNode, first, second *Store) {
	t.Helper()
	node = cqltest.NewFailingNode(t, originals.Cassandra(t))
	c := keyspacesConfig(t, node.Address)
	c.Spool.Linger = 20 * time.Millisecond
	c.Attempts, c.WriteTimeout, c.ReadTimeout, c.OutageGrace = 2, 2*time.Second, 2*time.Second, time.Second
	if change != nil {
		change(&c)
	}
	first = ready(t, openStore(t, c.only(0), Options{Node: "beside"}))
	second = ready(t, openStore(t, c.only(1), Options{Node: "beside"}))
	return ready(t, openKeyspaces(t, vfs.NewMem(), c)), node, first, second
}

// until polls.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// TestKeyspaceAway: an unavailable keyspace affects its own metrics only.
func TestKeyspaceAway(t *testing.T) {
	s, node, first, second := aKeyspaceAway(t, nil)
	put(t, s, "b.x", "h", map[int64]int64{1: 1})
	flushed(t, s)
	node.Cut()
	put(t, s, "a", "h", map[int64]int64{1: 1})
	put(t, s, "b.x", "h", map[int64]int64{2: 2})
	until(t, "the first keyspace has its sample", func() bool { return len(answer(t, first, "a", all())) == 1 })
	same(t, "the second", answer(t, second, "b.x", all()), "h: 1=1")
	until(t, "the outage is told", func() bool { return s.stores[1].Degraded() != nil })

	if err := s.Flush(t.Context(), "a"); err != nil {
		t.Errorf("a flush of the first: %v", err)
	}
	same(t, "a query of the first", answer(t, s, "a", all()), "h: 1=1")
	var away *store.UnavailableError
	named := func(what string, err error) {
		t.Helper()
		if !errors.As(err, &away) || strings.Count(err.Error(), "keyspace second: ") != 1 {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := ask(t.Context(), s, "b.x", all())
	named("a query of the second", err)
	v, err := s.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	_, _, err = v.Names(t.Context(), store.NamesQuery{})
	named("names of all", err)
	for _, prefix := range []string{"b", "b.x"} {
		_, _, err = v.Names(t.Context(), store.NamesQuery{Prefix: prefix})
		named("names that begin with "+prefix, err)
	}
	if names, _, err := v.Names(t.Context(), store.NamesQuery{Prefix: "a", Limit: 1}); err != nil || !slices.Equal(names, []string{"a"}) {
		t.Errorf("names that only the first has: %q, %v", names, err)
	}
	part := v.(store.PartialView)
	part.AllowPartial()
	names, _, err := v.Names(t.Context(), store.NamesQuery{})
	if err != nil || !slices.Equal(names, []string{"a", "b.x"}) {
		t.Errorf("names in part: %q, %v", names, err)
	}
	named("missing", part.Missing())
	if lines, err := askView(t.Context(), v, "b.x", all()); err != nil || !slices.Equal(lines, []string{"h: 2=2"}) {
		t.Errorf("the second in part: %q, %v", lines, err)
	}
	named("a delete of both", s.Delete(t.Context(), store.Deletion{Metric: "b.x", Range: model.AllTime}, store.Deletion{Metric: "a", Range: model.AllTime}))
	if got := answer(t, s, "a", all()); len(got) > 0 {
		t.Errorf("of the first is left %q", got)
	}
	jobs, err := s.Deletions(t.Context())
	if named("delete jobs", err); jobs == nil {
		t.Error("no delete jobs of the first")
	}
	if err := errors.Join(s.Healthy(), s.Degraded()); err != nil {
		t.Errorf("the first is said to fail: %v", err)
	}
	if others := s.Others(); len(others) != 1 || others[0].Name != "second" || others[0].Healthy(t.Context()) == nil {
		t.Errorf("the second is not said to fail: %v", others)
	}
	_, err = s.CancelDeletion(t.Context(), "unknown")
	named("cancelling an unknown job", err)
	status, further := s.Status()
	if status.Degraded != "" || len(further) != 1 || further[0].Degraded == "" || further[0].Spool.Samples != 1 || further[0].Name != "second" {
		t.Errorf("status %+v, %+v", status, further)
	}
	node.Mend()
	flushed(t, s)
	same(t, "afterwards", answer(t, second, "b.x", all()), "h: 1=1 2=2")
}

// TestDroppedKeyspace: a keyspace that is dropped under a running server refuses its
// samples, which wait, and the other one goes on.
func TestDroppedKeyspace(t *testing.T) {
	s, _, first, second := aKeyspaceAway(t, nil)
	drop := &cql.Statement{Name: "drop_keyspace", Text: `DROP KEYSPACE IF EXISTS "` + second.Session().KeyspaceName() + `"`}
	patient := cqltest.Open(t, cqltest.Config(originals.Cassandra(t)), cql.Options{}) // a busy node takes its time
	if err := patient.Change(t.Context(), drop); err != nil {
		t.Fatal(err)
	}
	for i := range int64(3) {
		put(t, s, "a", "h", map[int64]int64{i: i})
		put(t, s, "b.x", "h", map[int64]int64{i: i})
	}
	until(t, "the first keyspace has all samples", func() bool {
		return slices.Equal(answer(t, first, "a", all()), []string{"h: 0=0 1=1 2=2"})
	})
	until(t, "the second is said to fail", func() bool { return s.Others()[0].Healthy(t.Context()) != nil })
	if err := s.Degraded(); err != nil {
		t.Error(err)
	}
	if _, further := s.Status(); further[0].Spool.Samples != 3 {
		t.Errorf("%d samples wait", further[0].Spool.Samples)
	}
}

// TestFullSpoolOfOneKeyspace: its samples are refused, and those of another keyspace in the
// same batch are stored. The server as a whole is healthy.
func TestFullSpoolOfOneKeyspace(t *testing.T) {
	s, node, first, _ := aKeyspaceAway(t, func(c *settings) { c.Spool.MaxBytes = units.MiB })
	node.Cut()
	var refs []store.Ref
	for _, metric := range []string{"a", "b.x"} {
		ref, err := s.Create(t.Context(), model.Series{Metric: metric, Tags: model.MustTags("host", "h"), Type: model.TypeString})
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	var b store.Batch
	text := []byte(strings.Repeat("x", 60_000))
	var refused error
	for i := int64(0); refused == nil && i < 100; i++ {
		b.Reset(s.Epoch())
		b.AddBytes(refs[1], i, text, 0)
		refused = s.Append(t.Context(), &b)
	}
	b.Reset(s.Epoch())
	b.AddBytes(refs[1], 1, text, 0)
	b.AddBytes(refs[0], 1, []byte("there"), 0)
	refused = s.Append(t.Context(), &b)
	var full *store.UnavailableError
	if !errors.As(refused, &full) || !strings.Contains(refused.Error(), "keyspace second: the spool is full") {
		t.Errorf("a full spool: %v", refused)
	}
	var part *store.PartError
	if !errors.As(refused, &part) || part.Stored != 1 || part.Refused != 1 {
		t.Errorf("a full spool: %#v", refused)
	}
	until(t, "the first keyspace has the sample", func() bool { return len(namesOf(t, first, store.NamesQuery{})) == 1 })
	writers := s.Writers()
	if s.Healthy() != nil || len(writers) != 2 || writers[0].Healthy(t.Context()) != nil || writers[1].Healthy(t.Context()) == nil {
		t.Errorf("healthy %v, writers %v", s.Healthy(), writers)
	}
}

// TestChangedRules: waiting samples are written where the rules said when they were
// acknowledged, and new samples where the rules say now. also_read finds both.
func TestChangedRules(t *testing.T) {
	c := keyspacesConfig(t)
	fs := vfs.NewMem()
	before := c
	before.Keyspaces = nil
	s := ready(t, openKeyspaces(t, fs, before))
	put(t, s, "b.x", "h", map[int64]int64{1: 1})
	closed(t, s) // it waits

	c.Keyspaces[0].AlsoRead = []string{WriteClusterName}
	s = ready(t, openKeyspaces(t, fs, c))
	put(t, s, "b.x", "h", map[int64]int64{2: 2})
	flushed(t, s)
	same(t, "with also_read", answer(t, s, "b.x", all()), "h: 1=1 2=2")
	first, second := ready(t, openStore(t, c.only(0), Options{})), ready(t, openStore(t, c.only(1), Options{}))
	same(t, "the first", answer(t, first, "b.x", all()), "h: 1=1")
	same(t, "the second", answer(t, second, "b.x", all()), "h: 2=2")
	if err := s.Delete(t.Context(), store.Deletion{Metric: "b.x", Range: model.TimeRange{StartMS: 1, EndMS: 1}}); err != nil {
		t.Fatal(err)
	}
	if got := answer(t, first, "b.x", all()); len(got) > 0 {
		t.Errorf("the first still has %q", got)
	}
	put(t, first, "b.x", "h", map[int64]int64{3: 3})
	flushed(t, first)
	closed(t, s)

	c.Keyspaces[0].AlsoRead = nil
	s = ready(t, openKeyspaces(t, fs, c))
	same(t, "without also_read", answer(t, s, "b.x", all()), "h: 2=2")
	put(t, s, "b.x", "h", map[int64]int64{4: 4})
	closed(t, s)

	_, err := before.openAll(fs, Options{})
	if err == nil || !strings.Contains(err.Error(), "1 samples in spools/second wait for keyspace "+c.Keyspaces[0].Keyspace) {
		t.Fatalf("without the keyspace while a sample waits: %v", err)
	}
	s = ready(t, openKeyspaces(t, fs, c))
	flushed(t, s)
	closed(t, s)
	s = ready(t, openKeyspaces(t, fs, before))
	if names, err := fs.List("spools"); err != nil || len(names) > 0 {
		t.Errorf("spools %q, %v", names, err)
	}
	same(t, "the first again", answer(t, s, "b.x", all()), "h: 3=3")
}

// TestChangedRulesWhileSamplesWait: samples that wait for the former keyspace of their metric are
// found and deleted as if they were in it.
func TestChangedRulesWhileSamplesWait(t *testing.T) {
	c := keyspacesConfig(t)
	c.Spool.Linger = time.Hour
	fs := vfs.NewMem()
	before := c
	before.Keyspaces = nil
	s := ready(t, openKeyspaces(t, fs, before))
	put(t, s, "b.x", "h", map[int64]int64{1: 1, 2: 2, 3: 3})
	put(t, s, "b.x", "i", map[int64]int64{1: 1, 3: 3})
	closed(t, s)

	c.Keyspaces[0].AlsoRead = []string{WriteClusterName}
	s = ready(t, openKeyspaces(t, fs, c))
	put(t, s, "b.x", "h", map[int64]int64{2: 20})
	same(t, "while they wait", answer(t, s, "b.x", all()), "h: 1=1 2=20 3=3", "i: 1=1 3=3")
	same(t, "values of the tag", namesOf(t, s, store.NamesQuery{Kind: store.TagValues, Metric: "b.x", Tag: "host"}), "h", "i")
	last := all()
	last.Descending, last.Limit = true, 2
	same(t, "the last two", answer(t, s, "b.x", last), "h: 3=3 2=20", "i: 3=3 1=1")
	if err := s.Delete(t.Context(), store.Deletion{Metric: "b.x", Range: model.TimeRange{StartMS: 3, EndMS: 3}}); err != nil {
		t.Fatal(err)
	}
	first := ready(t, openStore(t, c.only(0), Options{}))
	same(t, "the first after a delete", answer(t, first, "b.x", all()), "h: 1=1 2=2", "i: 1=1")
	same(t, "after a delete", answer(t, s, "b.x", all()), "h: 1=1 2=20", "i: 1=1")
	flushed(t, s)
	same(t, "after a flush", answer(t, s, "b.x", all()), "h: 1=1 2=20", "i: 1=1")
}

// TestSpoolsOutliveAPowerCut: what was acknowledged for a further keyspace is there after
// the first start of a server with one, also if the directory of its spool was new.
func TestSpoolsOutliveAPowerCut(t *testing.T) {
	c := settings{Config: DefaultConfig(), Settings: defaultSettings().Settings}
	c.Hosts = []string{cqltest.ClosedPort(t)}
	c.Keyspaces = []KeyspaceConfig{{Name: "second", Metrics: []string{"prefix=b."}, ClusterConfig: ClusterConfig{Keyspace: "k2"}}}
	fs := crashfs.New()
	s := openKeyspaces(t, fs, c)
	put(t, s, "a", "h", map[int64]int64{1: 1})
	put(t, s, "b.x", "h", map[int64]int64{1: 1, 2: 2})
	after := fs.CrashClone(vfs.CrashCloneCfg{})
	closed(t, s)
	s = openKeyspaces(t, after, c)
	status, further := s.Status()
	if status.Spool.Samples != 1 || further[0].Spool.Samples != 2 {
		t.Errorf("%d and %d samples wait, want 1 and 2", status.Spool.Samples, further[0].Spool.Samples)
	}
}

// TestReadClustersOfSeveralKeyspaces: read clusters are asked for the metrics of each
// keyspace, and reached once.
func TestReadClustersOfSeveralKeyspaces(t *testing.T) {
	c := keyspacesConfig(t)
	r := ReadCluster{}
	r.SetDefaults()
	r.Name, r.Hosts, r.Keyspace = "old", c.Hosts, cqltest.Name()
	c.ReadClusters = []ReadCluster{r}
	dropAfter(t, settings{r.alone(c.only(0)).Config, c.Settings})
	filled(t, c.only(0), 0, func(s *Store) {
		put(t, s, "a", "h", map[int64]int64{1: 1})
		put(t, s, "b.x", "h", map[int64]int64{1: 1})
	})
	registry := prometheus.NewRegistry()
	s := ready(t, openKeyspacesAs(t, vfs.NewMem(), c, Options{Registerer: registry}))
	put(t, s, "a", "h", map[int64]int64{2: 2})
	put(t, s, "b.x", "h", map[int64]int64{2: 2})
	flushed(t, s)
	same(t, "a", answer(t, s, "a", all()), "h: 1=1 2=2")
	same(t, "b.x", answer(t, s, "b.x", all()), "h: 1=1 2=2")
	same(t, "names", namesOf(t, s, store.NamesQuery{}), "a", "b.x")
	of := map[string][]string{} // clusters by metric
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "cluster" {
					of[f.GetName()] = append(of[f.GetName()], l.GetValue())
				}
			}
		}
	}
	same(t, "sessions", of["varve_cql_connected"], "old", "second", "write_cluster")
	same(t, "spools", of["varve_spool_samples"], "second", "write_cluster")
	same(t, "views", of["varve_cassandra_views"], "second", "write_cluster")
}

// TestKeyspaceSettings: invalid settings are refused at the start, with their keys.
func TestKeyspaceSettings(t *testing.T) {
	good := KeyspaceConfig{Name: "second", Metrics: []string{"prefix=b."}, ClusterConfig: ClusterConfig{Keyspace: "k2"}}
	if err := good.Validate(); err != nil {
		t.Errorf("good: %v", err)
	}
	for _, x := range []struct {
		want   string
		change func(*KeyspaceConfig)
	}{
		{"name: empty", func(k *KeyspaceConfig) { k.Name = "" }},
		{`name: "../x": want letters`, func(k *KeyspaceConfig) { k.Name = "../x" }},
		{"metrics: empty", func(k *KeyspaceConfig) { k.Metrics = nil }},
		{`metrics: "b.": want name=`, func(k *KeyspaceConfig) { k.Metrics = []string{"b."} }},
		{`metrics: "prefix=": want name=`, func(k *KeyspaceConfig) { k.Metrics = []string{"prefix="} }},
		{`metrics: "glob=b*": want name=`, func(k *KeyspaceConfig) { k.Metrics = []string{"glob=b*"} }},
		{`metrics: "regex=(": pattern`, func(k *KeyspaceConfig) { k.Metrics = []string{"regex=("} }},
		{"keyspace: empty", func(k *KeyspaceConfig) { k.Keyspace = "" }},
		{"hosts: empty, although", func(k *KeyspaceConfig) { k.Username = "u" }},
	} {
		k := good
		x.change(&k)
		if err := k.Validate(); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", x.want, err)
		}
	}
	for _, x := range []struct {
		want   string
		change func(*Config)
	}{
		{`keyspaces[1].name: "second": another cluster has this name`, func(c *Config) {}},
		{`keyspaces[1].name: "Second": differs from "second" in case only`, func(c *Config) { c.Keyspaces[1].Name = "Second" }},
		{`keyspaces[1].keyspace: "K2" is also keyspaces[0].keyspace`, func(c *Config) { c.Keyspaces[1].Keyspace = "K2" }},
		{`keyspaces[0].keyspace: "k2" is also that of all other metrics`, func(c *Config) { c.Keyspace = "k2" }},
		{`keyspaces[1].also_read[0]: "third": want write_cluster or`, func(c *Config) { c.Keyspaces[1].Name, c.Keyspaces[1].AlsoRead = "third", []string{"third"} }},
		{`keyspaces[1].also_read[1]: "second" is named twice`, func(c *Config) { c.Keyspaces[1].Name, c.Keyspaces[1].AlsoRead = "third", []string{"second", "second"} }},
		{"keyspaces: 17: want at most 16", func(c *Config) { c.Keyspaces = make([]KeyspaceConfig, 17) }},
	} {
		c := DefaultConfig()
		c.Keyspaces = []KeyspaceConfig{good, good}
		c.Keyspaces[1].Keyspace = "k3"
		x.change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", x.want, err)
		}
	}
}

// TestKeyspaceIsAsCassandra: settings that a keyspace lacks are those of cassandra.
func TestKeyspaceIsAsCassandra(t *testing.T) {
	base := DefaultConfig().Config
	base.Hosts, base.Username, base.Datacenter, base.ReadConsistency, base.WriteConsistency = []string{"a"}, "u", "dc1", "ONE", "QUORUM"
	k := KeyspaceConfig{ClusterConfig: ClusterConfig{Keyspace: "k2"}}
	got := k.over(base)
	if got.Keyspace != "k2" || got.Hosts[0] != "a" || got.Username != "u" || got.Datacenter != "dc1" || got.ReadConsistency != "ONE" || got.WriteConsistency != "QUORUM" {
		t.Errorf("in the same cluster: %+v", got)
	}
	k.Hosts, k.WriteConsistency = []string{"b"}, "ALL"
	got = k.over(base)
	if got.Hosts[0] != "b" || got.Username != "" || got.Datacenter != "" || got.ReadConsistency != "ONE" || got.WriteConsistency != "ALL" {
		t.Errorf("in another cluster: %+v", got)
	}
}

// TestMetricRule: a metric goes to the first keyspace of which a word matches.
func TestMetricRule(t *testing.T) {
	k := &Keyspaces{}
	for _, words := range [][]string{{"name=load", "regex=[a-c]\\.x"}, {"prefix=a.", "name=load"}} {
		rule, err := parseMetricRule(words)
		if err != nil {
			t.Fatal(err)
		}
		k.rules = append(k.rules, rule)
	}
	for metric, want := range map[string]int{"load": 1, "load2": 0, "a.x": 1, "a.xy": 2, "d.x": 0, "a": 0, "": 0} {
		if got := k.of(metric); got != want {
			t.Errorf("%s: %d, want %d", metric, got, want)
		}
	}
}

// TestKeyspacesThatHaveNames: which keyspaces have to answer before it is known which metrics
// begin with a text.
func TestKeyspacesThatHaveNames(t *testing.T) {
	k := &Keyspaces{stores: []*Store{{}, {}, {}, {}}, also: [][]int{nil, {0}, {1}}}
	for _, words := range [][]string{{"prefix=bill.", "name=invoices"}, {"regex=lab[0-9]+\\..*"}, {"prefix=web.", "regex=(?i)old.*"}} {
		rule, err := parseMetricRule(words)
		if err != nil {
			t.Fatal(err)
		}
		k.rules = append(k.rules, rule)
	}
	for prefix, want := range map[string][]bool{
		"":          {true, true, true, true},
		"bill.x":    {false, true, false, false}, // the first rule has them all
		"bill":      {true, true, false, true},
		"invoices":  {true, true, false, true},
		"invoices2": {true, true, false, true}, // by (?i), whose beginning is not known; it also reads the first
		"lab7":      {true, true, true, true},
		"labour":    {true, true, true, true},
		"web.a":     {false, true, false, true},
	} {
		if got := k.having(prefix); !slices.Equal(got, want) {
			t.Errorf("%q: %t, want %t", prefix, got, want)
		}
	}
	k.stores[0].read = []*cluster{{}}
	if got, want := k.having("bill.x"), []bool{true, true, false, false}; !slices.Equal(got, want) {
		t.Errorf("with a read cluster: %t, want %t", got, want)
	}
	k.stores, k.rules, k.also = k.stores[:1], nil, nil
	if got := k.having("a"); !slices.Equal(got, []bool{true}) {
		t.Errorf("one keyspace: %t", got)
	}
}
