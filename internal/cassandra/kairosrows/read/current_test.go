package read

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/originals"
	"varve/internal/rowtime"
	"varve/internal/store"
)

// Consistencies as the protocol has them.
const (
	levelOne    = 1
	levelQuorum = 4
)

// TestCurrentAtQuorum: where queries read at ONE, a current Look reads all at a quorum, and
// uses no row keys that were read at ONE: the replica that was asked may lack some.
func TestCurrentAtQuorum(t *testing.T) {
	b := newReadBench(t, readConfig(), nil)
	metric, row := b.Name("current"), keyspacetest.CityTime(0)
	b.FillKeys(metric, row, keyspacetest.CityKeys(0, 20))
	for _, k := range keyspacetest.CityKeys(0, 20) {
		key, err := rowKeyBytes(model.Series{Metric: metric, Tags: k.Tags, Type: k.Type}, Row{row, Typed})
		if err != nil {
			t.Fatal(err)
		}
		b.Exec("INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)", key, rowtime.ColumnBytes(0), make([]byte, 8))
	}

	node := cqltest.NewFailingNode(t, originals.Cassandra(t))
	config := cqltest.Config(node.Address)
	config.Keyspace, config.ReadConsistency, config.WriteConsistency = b.KS.Name, "ONE", "QUORUM"
	ks, err := schema.Open(b.Ctx, cqltest.Open(t, config, cql.Options{}), schema.DefaultConfig(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(ks, readConfig(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	var mu sync.Mutex
	var levels []uint16
	rowKeys := 0
	node.Fail(func(r cqltest.Request) *cqltest.Trouble {
		mu.Lock()
		defer mu.Unlock()
		levels = append(levels, r.Consistency)
		if text := r.Statements[0].Text; strings.Contains(text, "SELECT data_type, tags") {
			rowKeys++
		}
		return nil
	})
	// ask reads all samples, as most queries do, those of one city, and the names of tags.
	ask := func(current bool) {
		t.Helper()
		for _, matchers := range [][]model.Matcher{nil, {keyspacetest.OneOf("city", "city-000007")}} {
			look, samples, want := r.Look(), 0, 20
			if current {
				look.Current()
			}
			if matchers != nil {
				want = 1
			}
			for _, s := range b.lookup(look, store.Selection{Metric: metric, Range: model.AllTime, Matchers: matchers}) {
				samples += len(b.samplesOf(look, s.Series, s.Rows, store.ReadOptions{Range: model.AllTime}))
			}
			if samples != want {
				t.Errorf("%d samples, want %d", samples, want)
			}
			if _, _, err := look.Names(b.Ctx, store.NamesQuery{Kind: store.TagNames, Metric: metric}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, test := range []struct {
		current bool
		level   uint16
		cached  bool // row keys, from a read that sees as much
	}{
		{false, levelOne, false},
		{false, levelOne, true},
		{true, levelQuorum, false},
		{true, levelQuorum, true},
		{false, levelOne, true},
	} {
		mu.Lock()
		levels, rowKeys = nil, 0
		mu.Unlock()
		ask(test.current)
		if len(levels) == 0 || slices.ContainsFunc(levels, func(l uint16) bool { return l != test.level }) {
			t.Errorf("question %d: read at %v, want %d", i, levels, test.level)
		}
		if cached := rowKeys == 0; cached != test.cached {
			t.Errorf("question %d: row keys from the cache: %v, want %v", i, cached, test.cached)
		}
	}
}
