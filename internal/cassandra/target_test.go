package cassandra

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/diskfs/crashfs"
	"varve/internal/model"
	"varve/internal/safefile"
	"varve/internal/store"
	"varve/internal/store/storetest"
	"varve/internal/wal"
)

func TestTargets(t *testing.T) {
	full := target{Keyspace: "k", Cluster: "prod", Nodes: []string{"1", "2"}}
	for _, test := range []struct {
		before, now target
		differs     bool
	}{
		{target{}, full, false},
		{full, full, false},
		{target{Keyspace: "k"}, full, false},
		{full, target{Keyspace: "k"}, false},
		{full, target{Keyspace: "l"}, true},
		{full, target{Keyspace: "k", Layout: "plain"}, true}, // other tables
		{full, target{Keyspace: "k", Cluster: "prod", Nodes: []string{"2", "3"}}, false}, // a node was replaced
		{full, target{Keyspace: "k", Cluster: "renamed", Nodes: []string{"1"}}, false},
		{full, target{Keyspace: "k", Cluster: "prod", Nodes: []string{"3", "4"}}, true}, // another one of this name
		{full, target{Keyspace: "l", Cluster: "prod", Nodes: []string{"1", "2"}}, true},
	} {
		if got := test.before.differs(test.now); got != test.differs {
			t.Errorf("%v and %v: %v", test.before, test.now, got)
		}
	}
}

// TestDamagedTarget: a flipped bit in the file of the target is an error with the way out, and no other
// keyspace. A file without a checksum, of an earlier build, is accepted.
func TestDamagedTarget(t *testing.T) {
	mem := vfs.NewMem()
	open := func() error {
		_, err := openTarget(mem, "spool", target{Keyspace: "keyspace_a"}, 0, func() int64 { return 1 })
		return err
	}
	replace := func(from, to string) {
		t.Helper()
		text, err := safefile.Read(mem, "spool/target", targetBytesMax)
		if err != nil || !strings.Contains(string(text), from) {
			t.Fatalf("%s, %v", text, err)
		}
		if err := safefile.Replace(mem, "spool/target", []byte(strings.Replace(string(text), from, to, 1))); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(mem.MkdirAll("spool", 0o777), open(), open()); err != nil {
		t.Fatal(err)
	}
	for _, flip := range [][2]string{{"keyspace_a", "keyspace_c"}, {`"keyspace"`, `"keyspacd"`}} {
		replace(flip[0], flip[1])
		if err := open(); err == nil || errors.As(err, new(*MisdirectedError)) || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("%s instead of %s: %v", flip[1], flip[0], err)
		}
		replace(flip[1], flip[0])
	}
	if err := safefile.Replace(mem, "spool/target", []byte(`{"keyspace":"keyspace_a"}`)); err != nil {
		t.Fatal(err)
	}
	if err := open(); err != nil {
		t.Errorf("a file of an earlier build: %v", err)
	}
}

// The file survives a crash, and samples that wait for one keyspace are not written to another
// one.
func TestTargetFile(t *testing.T) {
	mem := crashfs.New()
	if err := mem.MkdirAll("spool", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", "spool"} {
		d, err := mem.OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	waiting := int64(0)
	open := func(keyspace string) (*targetFile, error) {
		mem = mem.CrashClone(vfs.CrashCloneCfg{})
		return openTarget(mem, "spool", target{Keyspace: keyspace}, 0, func() int64 { return waiting })
	}
	f, err := open("k")
	if err != nil {
		t.Fatal(err)
	}
	old := target{Keyspace: "k", Cluster: "prod", Nodes: []string{"1"}}
	if err := f.reached(old); err != nil {
		t.Fatal(err)
	}
	waiting = 5
	var misdirected *MisdirectedError
	if _, err := open("l"); !errors.As(err, &misdirected) || misdirected.Samples != 5 {
		t.Errorf("another keyspace: %v", err)
	} else if text := err.Error(); !strings.Contains(text, `5 samples in spool wait for keyspace k of cluster "prod"`) || !strings.Contains(text, "keyspace l") {
		t.Error(text)
	}
	if f, err = open("k"); err != nil {
		t.Fatal(err)
	}
	if err := f.reached(target{Keyspace: "k", Cluster: "prod", Nodes: []string{"9"}}); !errors.As(err, &misdirected) {
		t.Errorf("another cluster: %v", err)
	}
	if err := f.reached(target{Keyspace: "k", Cluster: "prod", Nodes: []string{"1", "9"}}); err != nil {
		t.Error(err)
	}
	waiting = 0
	if f, err = open("l"); err != nil {
		t.Fatal(err)
	}
	waiting = 1 // for l
	if err := f.reached(target{Keyspace: "l", Cluster: "other", Nodes: []string{"77"}}); err != nil {
		t.Error(err)
	}
}

// TestTargetOfEvents: a cluster gets no events of timelines that wait for another one, also if no
// samples do.
func TestTargetOfEvents(t *testing.T) {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("spool", 0o755); err != nil {
		t.Fatal(err)
	}
	open := func(events int64) *targetFile {
		t.Helper()
		f, err := openTarget(mem, "spool", target{Keyspace: "k"}, events, func() int64 { return 0 })
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	own, other := target{Keyspace: "k", Cluster: "prod", Nodes: []string{"1"}}, target{Keyspace: "k", Cluster: "prod", Nodes: []string{"9"}}
	if err := open(0).reached(own); err != nil {
		t.Fatal(err)
	}
	f := open(3)
	var misdirected *MisdirectedError
	if err := f.reached(other); !errors.As(err, &misdirected) || !strings.Contains(err.Error(), "0 samples in spool and 3 events of timelines wait for keyspace k") {
		t.Errorf("another cluster: %v", err)
	}
	if err := f.reached(own); err != nil {
		t.Errorf("the one that they wait for: %v", err)
	}
	if err := open(0).reached(other); err != nil {
		t.Errorf("another cluster, and nothing waits: %v", err)
	}
}

// TestTargetOnAFullDisk: a full disk keeps nobody from starting and from draining, and
// once there is room the file says what it would have said.
func TestTargetOnAFullDisk(t *testing.T) {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("spool", 0o755); err != nil {
		t.Fatal(err)
	}
	var full atomic.Bool
	disk := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && (op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpCreate) {
			return syscall.ENOSPC
		}
		return nil
	}))
	waiting := int64(0)
	open := func(keyspace string) *targetFile {
		t.Helper()
		f, err := openTarget(disk, "spool", target{Keyspace: keyspace}, 0, func() int64 { return waiting })
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	prod := target{Keyspace: "k", Cluster: "prod", Nodes: []string{"1"}}
	if err := open("k").reached(prod); err != nil {
		t.Fatal(err)
	}
	full.Store(true)
	waiting = 5
	if err := open("k").reached(prod); err != nil {
		t.Errorf("what is there already: %v", err)
	}
	grown := target{Keyspace: "k", Cluster: "prod", Nodes: []string{"1", "2"}}
	f := open("k")
	if err := f.reached(grown); !wal.NoSpace(err) || !f.has("2") {
		t.Errorf("another node: %v", err)
	}
	waiting = 0
	open("l")
	waiting = 1 // for l
	if f = open("l"); f.now.Keyspace != "l" {
		t.Errorf("the target is %v", f.now)
	}
	full.Store(false)
	if err := f.reached(target{Keyspace: "l", Cluster: "other", Nodes: []string{"77"}}); err != nil {
		t.Error(err)
	}
	var misdirected *MisdirectedError
	if _, err := openTarget(disk, "spool", target{Keyspace: "k"}, 0, func() int64 { return 1 }); !errors.As(err, &misdirected) {
		t.Errorf("once there was room, opened for another keyspace: %v", err)
	}
}

// Samples that wait for one keyspace of a real cluster are neither drained into another one nor
// lost, and a spool of another cluster neither accepts nor drains samples.
func TestMisdirected(t *testing.T) {
	c := clustersConfig(t)
	dropAfter(t, c)
	fs := vfs.NewMem()
	open := func(c settings) (*Store, error) { return c.open(fs, Options{}) }
	away := c
	away.Hosts = []string{"127.0.0.1:1"}
	s, err := open(away)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "m", "x", map[int64]int64{1501672887988: 1})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	other := c
	other.Keyspace += "x"
	var misdirected *MisdirectedError
	if s, err := open(other); !errors.As(err, &misdirected) {
		if err == nil {
			s.Close()
		}
		t.Fatalf("opened for another keyspace: %v", err)
	}

	// As if it had been another cluster of this name.
	if err := (&targetFile{fs: fs, dir: "spool"}).set(target{Keyspace: c.Keyspace, Cluster: "Test Cluster", Nodes: []string{"00000000-0000-0000-0000-000000000001"}}); err != nil {
		t.Fatal(err)
	}
	if s, err = open(c); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); s.Healthy() == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it takes samples for another cluster")
		}
	}
	if err := s.Healthy(); !errors.As(err, &misdirected) {
		t.Errorf("it refuses, since %v", err)
	}
	view, err := s.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var unavailable *store.UnavailableError
	if _, err := storetest.Select(t.Context(), view, store.Selection{Metric: "m", Range: model.AllTime}); !errors.As(err, &unavailable) {
		t.Errorf("it answers: %v", err)
	}
	view.Close()
	if n := s.spool.Health().Samples; n != 1 {
		t.Errorf("%d samples wait", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	if err := fs.Remove("spool/" + targetName); err != nil { // the way out
		t.Fatal(err)
	}
	if s, err = open(c); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), cqltest.Patience)
	defer cancel()
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	same(t, "drained", answer(t, ready(t, s), "m", all()), "x: 1501672887988=1")
	if at := s.target.now; at.Cluster == "" || len(at.Nodes) == 0 {
		t.Errorf("it is not known where to: %+v", at)
	}
}

// While a server runs, another cluster answers at the same address. No waiting samples are
// written to it, and it is not read.
func TestAnotherClusterAnswers(t *testing.T) {
	for _, waits := range []bool{true, false} {
		c := clustersConfig(t)
		dropAfter(t, c)
		c.Spool.Linger = time.Hour
		s := ready(t, openStore(t, c, Options{}))
		put(t, s, "m", "x", map[int64]int64{1501672887988: 1})
		flushed(t, s)
		if waits {
			put(t, s, "m", "x", map[int64]int64{1501672887989: 1})
		}
		own := replaceNodes(s, []string{"00000000-0000-0000-0000-000000000001"}) // the other one
		var misdirected *MisdirectedError
		if waits {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Flush(ctx) }()
			for end := time.Now().Add(time.Minute); s.Healthy() == nil && len(done) == 0 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			}
			cancel()
			if err := <-done; err == nil {
				t.Error("it was flushed")
			}
			if n := s.spool.Health().Samples; n != 1 {
				t.Errorf("%d samples wait", n)
			}
		} else if err := s.aim(t.Context()); !errors.As(err, &misdirected) || !strings.Contains(err.Error(), "restart the server") {
			t.Error(err)
		}
		if err := s.Healthy(); !errors.As(err, &misdirected) {
			t.Errorf("it takes samples: %v", err)
		}
		var unavailable *store.UnavailableError
		if _, err := ask(t.Context(), s, "m", all()); !errors.As(err, &unavailable) {
			t.Errorf("it answers: %v", err)
		}
		if err := s.Delete(t.Context(), store.Deletion{Metric: "m", Range: model.AllTime}); !errors.As(err, &unavailable) {
			t.Errorf("it deletes: %v", err)
		}

		replaceNodes(s, own) // they answer again
		if err := s.aim(t.Context()); err != nil {
			t.Fatal(err)
		}
		put(t, s, "m", "x", map[int64]int64{1501672887990: 1})
		flushed(t, s)
		want := "x: 1501672887988=1 1501672887990=1"
		if waits {
			want = "x: 1501672887988=1 1501672887989=1 1501672887990=1"
		}
		same(t, "once the nodes of before answer again", answer(t, s, "m", all()), want)
	}
}

// replaceNodes replaces the nodes that a store considers its cluster's, and returns the
// previous ones.
func replaceNodes(s *Store, nodes []string) (before []string) {
	s.target.mu.Lock()
	defer s.target.mu.Unlock()
	before, s.target.now.Nodes = s.target.now.Nodes, nodes
	return before
}

// Another cluster answers in place of that of one keyspace. It is not queried, nothing is
// deleted there, and the other keyspaces continue to work.
func TestAnotherClusterAnswersForOneKeyspace(t *testing.T) {
	c := keyspacesConfig(t)
	third := KeyspaceConfig{Name: "third", Metrics: []string{"prefix=c."}, AlsoRead: []string{"second"}, ClusterConfig: ClusterConfig{Keyspace: cqltest.Name()}}
	c.Keyspaces = append(c.Keyspaces, third)
	dropAfter(t, c.only(2))
	s := ready(t, openKeyspaces(t, vfs.NewMem(), c))
	for _, metric := range []string{"a", "b.x", "c.x"} {
		put(t, s, metric, "h", map[int64]int64{1: 1})
	}
	flushed(t, s)
	lost := s.stores[1]
	replaceNodes(lost, []string{"00000000-0000-0000-0000-000000000001"}) // the other one
	if err := lost.aim(t.Context()); err == nil {
		t.Fatal("the other cluster is taken for the one of before")
	}
	same(t, "a keyspace beside", answer(t, s, "a", all()), "h: 1=1")
	if err := errors.Join(s.CheckCluster(), s.ConfirmCluster(t.Context())); err != nil {
		t.Errorf("the cluster of the first keyspace: %v", err)
	}
	first := replaceNodes(s.stores[0], lost.target.now.Nodes)
	if err := s.ConfirmCluster(t.Context()); err == nil || s.CheckCluster() == nil {
		t.Errorf("another cluster for the first keyspace: %v, %v", err, s.CheckCluster())
	}
	replaceNodes(s.stores[0], first)
	if err := errors.Join(s.ConfirmCluster(t.Context()), s.stores[0].aim(t.Context()), s.CheckCluster()); err != nil {
		t.Errorf("the first keyspace's own cluster again: %v", err)
	}
	var misdirected *MisdirectedError
	for _, metric := range []string{"b.x", "c.x"} {
		if lines, err := ask(t.Context(), s, metric, all()); !errors.As(err, &misdirected) {
			t.Errorf("%s: %q, %v", metric, lines, err)
		}
		if err := s.Delete(t.Context(), store.Deletion{Metric: metric, Range: model.AllTime}); !errors.As(err, &misdirected) {
			t.Errorf("a delete of %s: %v", metric, err)
		}
	}
	if err := s.Delete(t.Context(), store.Deletion{Metric: "a", Range: model.AllTime}); err != nil {
		t.Errorf("a delete beside: %v", err)
	}
}
