package cassandra

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/cassandra/layout"
	"varve/internal/model"
	"varve/internal/store"
)

var plain = Options{Layouts: layout.Layouts{plainName: plainLayout{}}}

// layoutsConfig is keyspacesConfig with another layout in the second keyspace, whose metrics
// the first one has older samples of.
func layoutsConfig(t *testing.T) settings {
	t.Helper()
	c := keyspacesConfig(t)
	c.Keyspaces[0].Layout, c.Keyspaces[0].AlsoRead = plainName, []string{WriteClusterName}
	return c
}

// TestLayouts: keyspaces of different layouts are one store. Samples go to the tables of their
// keyspace's layout, queries merge both, and a delete reaches both.
func TestLayouts(t *testing.T) {
	c := layoutsConfig(t)
	before := ready(t, openStore(t, c.only(0), Options{}))
	put(t, before, "b.x", "h", map[int64]int64{1000: 1, 2000: 2, 3000: 3})
	flushed(t, before)
	closed(t, before)

	s := ready(t, openKeyspacesAs(t, vfs.NewMem(), c, plain))
	put(t, s, "b.x", "h", map[int64]int64{3000: 30, 4000: 40, 5000: 50})
	put(t, s, "b.y", "i", map[int64]int64{6000: 60})
	put(t, s, "a.x", "h", map[int64]int64{1000: 7})
	right := func(what string) {
		t.Helper()
		same(t, what+": b.x", answer(t, s, "b.x", all()), "h: 1000=1 2000=2 3000=30 4000=40 5000=50")
		same(t, what+": a part of b.x", answer(t, s, "b.x", between(2000, 4000)), "h: 2000=2 3000=30 4000=40")
		same(t, what+": b.x backwards", answer(t, s, "b.x", store.ReadOptions{Range: model.AllTime, Descending: true}), "h: 5000=50 4000=40 3000=30 2000=2 1000=1")
		same(t, what+": a.x", answer(t, s, "a.x", all()), "h: 1000=7")
		same(t, what+": names", namesOf(t, s, store.NamesQuery{}), "a.x", "b.x", "b.y")
		same(t, what+": values", namesOf(t, s, store.NamesQuery{Kind: store.TagValues}), "h", "i")
	}
	right("in the spools")
	flushed(t, s)
	right("in Cassandra")

	first, further := s.Status()
	if got := []string{first.Written.Layout, further[0].Written.Layout}; got[0] != layout.Default || got[1] != plainName {
		t.Errorf("the status names the layouts %q", got)
	}
	if further[0].Written.Keyspace == nil || further[0].Written.Keyspace.Rows != nil || first.Written.Keyspace.Rows == nil {
		t.Errorf("the status describes %+v and %+v", first.Written.Keyspace, further[0].Written.Keyspace)
	}

	err := s.Delete(t.Context(), store.Deletion{Metric: "b.x", Range: model.TimeRange{StartMS: 2000, EndMS: 4000}})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "deleted", answer(t, s, "b.x", all()), "h: 1000=1 5000=50")
	closed(t, s)
	first0 := ready(t, openStore(t, c.only(0), Options{}))
	same(t, "deleted from the first alone", answer(t, first0, "b.x", all()), "h: 1000=1")
	same(t, "names of the first alone", namesOf(t, first0, store.NamesQuery{}), "a.x", "b.x")
}

// TestLayoutHolds: what a layout cannot hold is refused for the metrics of its keyspaces alone.
func TestLayoutHolds(t *testing.T) {
	s := openKeyspacesAs(t, vfs.NewMem(), layoutsConfig(t), plain)
	var input *store.InputError
	if _, err := s.Create(t.Context(), model.Series{Metric: "b.x", Tags: model.MustTags("host", "h"), Type: model.TypeDouble}); !errors.As(err, &input) {
		t.Errorf("a double where there are longs only: %v", err)
	}
	for metric, refused := range map[string]bool{"a.x": false, "b.x": true} {
		ref, err := s.Create(t.Context(), model.Series{Metric: metric, Tags: model.MustTags("host", "h"), Type: model.TypeLong})
		if err != nil {
			t.Fatal(err)
		}
		const ttl = 1 << 31 // so that nothing expires meanwhile
		if err := s.CheckSample(ref, model.Long, 1000, 1, nil, ttl-1); errors.As(err, &input) != refused {
			t.Errorf("%s: a sample that expires: %v", metric, err)
		}
	}
}

// TestLayoutOfSpool: samples that wait for one layout are not given to another one.
func TestLayoutOfSpool(t *testing.T) {
	c, disk := layoutsConfig(t), vfs.NewMem()
	s := ready(t, openKeyspacesAs(t, disk, c, plain))
	put(t, s, "b.x", "h", map[int64]int64{1000: 1})
	closed(t, s)
	other := layoutsConfig(t)
	other.Config.Config, other.Keyspaces[0].Keyspace = c.Config.Config, c.Keyspaces[0].Keyspace
	other.Keyspaces[0].Layout = ""
	var misdirected *MisdirectedError
	if _, err := other.openAll(disk, Options{}); !errors.As(err, &misdirected) {
		t.Errorf("other tables: %v", err)
	}
	s = ready(t, openKeyspacesAs(t, disk, c, plain))
	flushed(t, s)
	same(t, "the same tables", answer(t, s, "b.x", all()), "h: 1000=1")
}

// TestUnknownLayout: the error lists the layouts that there are.
func TestUnknownLayout(t *testing.T) {
	c := Config{ReadClusters: []ReadCluster{{Layout: layout.Default}, {Layout: "bigraphite"}}, Keyspaces: []KeyspaceConfig{{}, {Layout: "packed"}}}
	err := c.CheckLayouts(layout.Layouts{layout.Default: nil, "plain": nil})
	want := `read_clusters[1].layout: "bigraphite": there is no such layout of tables; want kairosdb or plain` + "\n" +
		`keyspaces[1].layout: "packed": there is no such layout of tables; want kairosdb or plain`
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}
