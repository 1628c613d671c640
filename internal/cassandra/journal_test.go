package cassandra

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/diskfs/crashfs"
	"varve/internal/downsample"
	"varve/internal/spool"
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
		if one.Unnoted().Empty() {
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
