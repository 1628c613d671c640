package cassandra

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/diskfs/crashfs"
	"varve/internal/downsample"
	"varve/internal/spool"
	"varve/internal/store"
	"varve/internal/wal"
)

// TestHoursOfSeveralKeyspaces: after a power cut the hours are known of what waits for any
// keyspace, and what is told of samples that come is in each spool. Hours of a keyspace
// that the settings do not name any more outlive its spool.
func TestHoursOfSeveralKeyspaces(t *testing.T) {
	const hour = 3_600_000
	c := settings{Config: DefaultConfig(), Settings: defaultSettings().Settings}
	c.Hosts = []string{cqltest.ClosedPort(t)}
	c.Keyspaces = []KeyspaceConfig{{Name: "second", Metrics: []string{"prefix=b."}, ClusterConfig: ClusterConfig{Keyspace: "k2"}}}
	fs := crashfs.New()
	s := openKeyspaces(t, fs, c)
	crash := func() {
		t.Helper()
		after := fs.CrashClone(vfs.CrashCloneCfg{})
		closed(t, s)
		fs = after
		s = openKeyspaces(t, fs, c)
	}
	want := func(want string) {
		t.Helper()
		if got := string(s.Unnoted().Text()); got != want {
			t.Errorf("unnoted are %s, want %s", got, want)
		}
	}
	put(t, s, "a", "h", map[int64]int64{1: 1})
	put(t, s, "b.x", "h", map[int64]int64{hour: 1})
	want("null")
	crash()
	want(`{"a":[[0,3600000]],"b.x":[[3600000,7200000]]}`)
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("null")
	h := &downsample.Hours{}
	h.Add("c", 2*hour)
	s.AddUnnoted(h)
	for i, one := range s.stores {
		if one.spool.Notes().Unnoted().Empty() {
			t.Errorf("spool %d has no hours", i)
		}
	}
	closed(t, s)

	gone, err := spool.Open(fs, "spools/gone", c.Spool, spool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h = &downsample.Hours{}
	h.Add("g", 3*hour)
	gone.Notes().AddUnnoted(h)
	if err := errors.Join(gone.Notes().Save(t.Context()), gone.Close()); err != nil {
		t.Fatal(err)
	}
	s = openKeyspaces(t, fs, c)
	if names, err := fs.List("spools"); err != nil || len(names) != 1 {
		t.Errorf("spools %q, %v", names, err)
	}
	crash()
	want(`{"a":[[0,3600000]],"b.x":[[3600000,7200000]],"c":[[7200000,10800000]],"g":[[10800000,14400000]]}`)
}

// A key-value may tell of samples that were acknowledged before it, as the watermark of a roll-up
// does. With durability interval, a power cut after a change of a key-value takes none of them,
// whichever keyspace they are for. Cassandra is away here: samples are synced before it is asked.
func TestValuesComeAfterSamples(t *testing.T) {
	for name, change := range map[string]func(store.KeyValues) error{
		"set":   func(kv store.KeyValues) error { return kv.Set(t.Context(), "_Rollups", "Watermark", "t", "{}") },
		"unset": func(kv store.KeyValues) error { return kv.Unset(t.Context(), "_Rollups", "Late", "t") },
	} {
		t.Run(name, func(t *testing.T) {
			c := settings{Config: DefaultConfig(), Settings: defaultSettings().Settings}
			c.Hosts = []string{cqltest.ClosedPort(t)}
			c.Keyspaces = []KeyspaceConfig{{Name: "second", Metrics: []string{"prefix=b."}, ClusterConfig: ClusterConfig{Keyspace: "k2"}}}
			c.Spool.Log.Durability, c.Spool.Log.SyncInterval = wal.Interval, time.Minute
			fs := crashfs.New()
			s := openKeyspaces(t, fs, c)
			put(t, s, "a", "h", map[int64]int64{1: 1})
			put(t, s, "b.x", "h", map[int64]int64{1: 1})
			var away *store.UnavailableError
			if err := change(s); !errors.As(err, &away) {
				t.Fatalf("Cassandra is away, but the key-value is changed: %v", err)
			}
			after := fs.CrashClone(vfs.CrashCloneCfg{})
			closed(t, s)
			s = openKeyspaces(t, after, c)
			defer closed(t, s)
			if got := string(s.Unnoted().Text()); got != `{"a":[[0,3600000]],"b.x":[[0,3600000]]}` {
				t.Errorf("after the power cut there are samples of %s", got)
			}
		})
	}
}
