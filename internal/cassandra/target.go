package cassandra

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/layout"
	"varve/internal/safefile"
	"varve/internal/spool"
	"varve/internal/wal"
	"varve/internal/work"
)

// targetName is the file in the spool's directory that records for which keyspace of which
// cluster its samples are.
const (
	targetName     = "target"
	targetBytesMax = 1 << 20
)

// A target is a keyspace of a cluster. Two clusters may have the same name, so a cluster is
// identified by its nodes: each node has an id that never changes. Nodes are added and removed,
// but not all at once.
type target struct {
	Keyspace string   `json:"keyspace"`
	Layout   string   `json:"layout,omitempty"`  // of its tables; empty for the default
	Cluster  string   `json:"cluster,omitempty"` // empty until the cluster was reached
	Nodes    []string `json:"nodes,omitempty"`   // ids, sorted
}

func (t target) String() string {
	keyspace := "keyspace " + t.Keyspace
	if t.Layout != "" {
		keyspace += " with layout " + t.Layout
	}
	switch {
	case t.Cluster == "":
		return keyspace
	case len(t.Nodes) == 0:
		return fmt.Sprintf("%s of cluster %q", keyspace, t.Cluster)
	}
	return fmt.Sprintf("%s of cluster %q (%d nodes, one is %s)", keyspace, t.Cluster, len(t.Nodes), t.Nodes[0])
}

// differs reports whether two targets are known to be different.
func (t target) differs(other target) bool {
	if t.Keyspace == "" || other.Keyspace == "" {
		return false
	}
	if t.Keyspace != other.Keyspace || t.Layout != other.Layout {
		return true
	}
	known := len(t.Nodes) > 0 && len(other.Nodes) > 0
	return known && !slices.ContainsFunc(t.Nodes, func(id string) bool { return slices.Contains(other.Nodes, id) })
}

func (t target) equal(other target) bool {
	return t.Keyspace == other.Keyspace && t.Layout == other.Layout && t.Cluster == other.Cluster && slices.Equal(t.Nodes, other.Nodes)
}

// A MisdirectedError means that the spool has samples for a keyspace other than the one in the
// settings, or that a different cluster answers than at the start.
type MisdirectedError struct {
	Dir      string // of the spool
	Samples  int64
	Events   int64 // of timelines, which wait outside the spool
	For, Now string
}

func (e *MisdirectedError) Error() string {
	if e.Samples+e.Events == 0 {
		return fmt.Sprintf("the server started with %s, but now %s answers at the same addresses. It continues once the previous nodes answer again. If the other cluster is intended, restart the server", e.For, e.Now)
	}
	events := ""
	if e.Events > 0 {
		events = fmt.Sprintf(" and %d events of timelines", e.Events)
	}
	return fmt.Sprintf("%d samples in %s%s wait for %s, but the settings name %s. Start with the previous settings and POST /admin/flush; "+
		"or start with another data_dir, and keep this one until its samples are written; "+
		"or, if this is the same data on new nodes, remove the file %s/%s, and they are written here",
		e.Samples, e.Dir, events, e.For, e.Now, e.Dir, targetName)
}

// A targetFile keeps the target in the spool's directory.
type targetFile struct {
	fs      vfs.FS
	dir     string
	waiting func() int64 // samples in the spool

	mu     sync.Mutex
	events int64 // that waited outside the spool at the start; 0 once the cluster was reached
	now    target
	saved  target // content of the file; differs from now if the disk was full
	fixed  bool   // now was reached, and remains the target until the process ends
}

// openTarget reads the file. It fails if samples in the spool wait for a keyspace other than
// configured. The cluster of configured is not known yet. Samples that are added to the spool
// later are for configured.
func openTarget(fsys vfs.FS, dir string, configured target, events int64, waiting func() int64) (*targetFile, error) {
	f := &targetFile{fs: fsys, dir: dir, waiting: waiting, events: events}
	if err := f.read(); err != nil {
		return nil, err
	}
	if f.now.Keyspace != configured.Keyspace {
		f.events = 0 // their own spool checks the keyspace
	}
	if waiting() == 0 && f.events == 0 { // whatever the cluster is
		err := f.set(configured)
		if wal.NoSpace(err) {
			err = f.remove() // no file also means that no cluster was reached yet
		}
		return f, err
	}
	if f.now.Keyspace == "" { // of an earlier version, or the disk was full
		if err := f.set(configured); !wal.NoSpace(err) {
			return f, err
		}
		return f, nil // retried once the cluster is reached
	}
	return f, f.check(configured)
}

// reached refuses a cluster other than the one that samples wait for, and records the cluster.
func (f *targetFile) reached(t target) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.check(t); err != nil {
		return err
	}
	f.fixed, f.events = true, 0
	return f.set(t)
}

// isFixed reports whether the cluster was reached.
func (f *targetFile) isFixed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fixed
}

// has reports whether a node is known to belong to the cluster.
func (f *targetFile) has(node string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.now.Nodes, node)
}

func (f *targetFile) check(t target) error {
	if n := f.waiting(); (n+f.events > 0 || f.fixed) && f.now.differs(t) {
		return &MisdirectedError{Dir: f.dir, Samples: n, Events: f.events, For: f.now.String(), Now: t.String()}
	}
	return nil
}

func (f *targetFile) path() string { return f.fs.PathJoin(f.dir, targetName) }

func (f *targetFile) read() error {
	err := safefile.ReadObject(f.fs, f.path(), targetBytesMax, &f.now)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	f.saved = f.now
	if err != nil {
		return fmt.Errorf("read which keyspace samples wait for, from %s: %w; if the settings name that keyspace and the file cannot be restored, remove it", f.path(), err)
	}
	return nil
}

// set replaces the file atomically. t is the target from now on even if set returns an error.
func (f *targetFile) set(t target) error {
	f.now = t
	if f.saved.equal(t) {
		return nil
	}
	if err := safefile.ReplaceObject(f.fs, f.path(), t); err != nil {
		return fmt.Errorf("record which keyspace samples wait for: %w", err)
	}
	f.saved = t
	return nil
}

// remove removes the file, which is also possible on a full disk.
func (f *targetFile) remove() error {
	if err := safefile.Remove(f.fs, f.path()); err != nil {
		return fmt.Errorf("remove the record of which keyspace samples waited for: %w", err)
	}
	f.saved = target{}
	return nil
}

var (
	readClusterName = &cql.Statement{Name: "read_cluster_name", Text: "SELECT cluster_name FROM system.local WHERE key = 'local'"}
	readNodeID      = &cql.Statement{Name: "read_node_id", Text: "SELECT host_id FROM system.local WHERE key = 'local'"}
)

// targetOf completes t with the name and nodes of the cluster.
func targetOf(ctx context.Context, s *cql.Session, t target) (target, error) {
	var name *string
	_, err := s.One(ctx, readClusterName, nil, &name)
	if name != nil {
		t.Cluster = *name
	}
	var nodes []cql.Node
	if err == nil {
		nodes, err = s.Nodes(ctx)
	}
	if err != nil {
		return t, fmt.Errorf("find out which cluster this is: %w", err)
	}
	for _, n := range nodes {
		if n.ID != "" {
			t.Nodes = append(t.Nodes, strings.ToLower(n.ID))
		}
	}
	slices.Sort(t.Nodes)
	t.Nodes = slices.Compact(t.Nodes)
	return t, nil
}

// configured returns the target as far as the settings specify it.
func (s *Store) configured() target {
	t := target{Keyspace: s.cfg.Keyspace}
	if s.written.layout != layout.Default {
		t.Layout = s.written.layout
	}
	return t
}

// targetEvery is how often the nodes of the cluster are recorded.
const targetEvery = time.Minute

// aim fails if samples wait for another cluster, or if a different cluster answers than before.
// Samples are then refused, since they would be mixed with those for the other cluster, until
// the previous cluster answers again.
func (s *Store) aim(ctx context.Context) error {
	t, err := targetOf(ctx, s.written.session, s.configured())
	if err != nil {
		return err
	}
	err = s.target.reached(t)
	if wal.NoSpace(err) {
		// Samples can be drained nevertheless; keepAim retries.
		s.log.Warn("cannot record the nodes of the cluster because the disk is full; will retry", "error", err)
		err = nil
	}
	if misdirected, ok := errors.AsType[*MisdirectedError](err); ok {
		s.written.misdirected.Store(misdirected)
		s.spool.Refuse(err)
	}
	if err == nil {
		s.written.misdirected.Store(nil)
		if s.spool.Admit() {
			s.log.Info("the previous nodes answer again; samples are accepted and written again", "cluster", s.written.name)
		}
	}
	return err
}

// keepAim records the nodes of the cluster at intervals, until ctx ends.
func (s *Store) keepAim(ctx context.Context) {
	for work.Pause(ctx, targetEvery) == nil {
		if err := s.aim(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot record the nodes of the cluster; will retry", "error", err)
		}
	}
}

// keepConfirmed checks at intervals that the keyspace is the one that was opened, until ctx
// ends. The sink checks only the written cluster, and only when it writes.
func (s *Store) keepConfirmed(ctx context.Context, c *cluster) {
	for work.Pause(ctx, targetEvery) == nil {
		if err := c.confirm(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot confirm that the keyspace is the one that was opened; will retry", "cluster", c.name, "error", err)
		}
	}
}

// confirm returns an error if a different cluster answers than before, the keyspace was
// created again, or the clock is not set yet.
func (s *Store) confirm(ctx context.Context) error {
	if err := s.confirmCluster(ctx); err != nil {
		return err
	}
	if err := s.written.confirm(ctx); err != nil {
		return fmt.Errorf("check that the keyspace is the one that was opened: %w", err)
	}
	return s.clock.check(ctx)
}

// confirmCluster returns an error if a different cluster answers than before.
func (s *Store) confirmCluster(ctx context.Context) error {
	var id *cql.UUID
	if _, err := s.written.session.One(ctx, readNodeID, nil, &id); err != nil {
		return fmt.Errorf("find out which cluster this is: %w", err)
	}
	if id == nil || !s.target.has(strings.ToLower(id.String())) {
		return s.aim(ctx)
	}
	return nil
}

// sureFor is how long the check after one generation also counts as the check before the next
// one. A separate check would cost as much as the samples of a small generation.
const sureFor = time.Second

// An aimedSink is a sink that refuses generations for another cluster or keyspace. A keyspace
// may be dropped and created again, which nothing else would notice. A session never switches
// to another cluster, but it does not know for which cluster samples waited before the start.
type aimedSink struct {
	sink    spool.Sink
	confirm func(context.Context) error
	sure    time.Time // when the last attempt confirmed cluster and keyspace, zero if it did not
}

// Write implements spool.Sink. Samples count as written once both are confirmed
// after the last of them.
func (s *aimedSink) Write(ctx context.Context, g *spool.Generation) error {
	if time.Since(s.sure) > sureFor {
		if err := s.confirm(ctx); err != nil {
			return err
		}
	}
	s.sure = time.Time{}
	err := s.sink.Write(ctx, g)
	if err != nil && !spool.IsPartial(err) {
		return err
	}
	if unsure := s.confirm(ctx); unsure != nil {
		return unsure
	}
	s.sure = time.Now()
	return err
}
