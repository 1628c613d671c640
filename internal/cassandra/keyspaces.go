package cassandra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/layout"
	"varve/internal/growth"
	"varve/internal/model"
	"varve/internal/safefile"
	"varve/internal/spool"
	"varve/internal/store"
)

// Names in the data directory.
const (
	spoolName  = "spool"  // of the first keyspace
	spoolsName = "spools" // has a spool for each further keyspace, by name
)

// Keyspaces is the store over several keyspaces: rules say in which keyspace each metric is
// stored. Each keyspace is a [Store] with its own sessions, spool, limits and caches, so that a
// keyspace that is unavailable, or whose spool is full, affects its own metrics only.
//
// The rules at the time of its acknowledgement decide where a sample is stored: it waits in the spool
// of that keyspace. So a change of rules moves no samples. Older samples are read from the former
// keyspace, and from its spool, if also_read names it.
//
// Metadata, delete jobs of the first keyspace and all other data except samples are stored in
// the first keyspace.
//
// # Refs
//
// A ref, for appending or of a view, is the ref in the metric's store times the number of
// stores, plus the position of that store, so that refs stay dense. The epoch is the sum of the
// stores' epochs. Since these never decrease, a batch whose epoch equals the present sum was
// built in the present epochs of all stores.
type Keyspaces struct {
	store.KeyValues // of the first keyspace

	growth growth.Counts // of series that got their first sample in this process

	stores []*Store     // first the one for metrics without a rule
	names  []string     // names of the clusters to which they write
	rules  []metricRule // of stores[1:]
	words  [][]string   // the rules as in the settings
	also   [][]int      // positions of the stores that stores[1:] also read
	parts  partsPool
}

// OpenKeyspaces opens the stores over all keyspaces that the settings name, with spools below
// dir. Each is opened as by Open. If the settings no longer name a keyspace whose spool still
// has pending samples, OpenKeyspaces fails.
func OpenKeyspaces(fsys vfs.FS, dir string, cfg Config, o Options) (*Keyspaces, error) {
	left, err := makeSpools(fsys, dir, cfg)
	if err != nil {
		return nil, err
	}
	k := &Keyspaces{}
	o.first = func(metric string) { k.growth.Add(k.stores[0].now(), metric) }
	if err := k.open(fsys, dir, cfg, o); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	if len(left) > 0 {
		if err := k.removeSpools(context.Background(), fsys, left); err != nil {
			return nil, errors.Join(fmt.Errorf("remove the empty spools of keyspaces that are no longer used: %w", err), k.Close())
		}
	}
	k.lend(cfg)
	k.growth.Begin(k.stores[0].now())
	return k, nil
}

func (k *Keyspaces) open(fsys vfs.FS, dir string, cfg Config, o Options) error {
	add := func(name, dir string, cfg Config, o Options) error {
		s, err := Open(fsys, dir, cfg, o)
		if err != nil {
			return err
		}
		k.stores, k.names = append(k.stores, s), append(k.names, name)
		return nil
	}
	first := cfg
	first.Keyspaces = nil
	if err := add(WriteClusterName, fsys.PathJoin(dir, spoolName), first, o); err != nil {
		return err
	}
	k.KeyValues, k.stores[0].sync = k.stores[0], k.sync
	o.Events = 0 // events wait for the first keyspace only
	for _, c := range cfg.Keyspaces {
		rule, err := parseMetricRule(c.Metrics)
		if err == nil {
			o.name, o.layout, o.replication = c.Name, c.Layout, c.Replication
			err = add(c.Name, fsys.PathJoin(dir, spoolsName, c.Name), cfg.store(c), o)
		}
		if err != nil {
			return fmt.Errorf("keyspace %s: %w", c.Name, err)
		}
		k.rules, k.words = append(k.rules, rule), append(k.words, c.Metrics)
	}
	return nil
}

// sync makes durable what was acknowledged, in all spools.
func (k *Keyspaces) sync(ctx context.Context) error {
	return k.all("sync a spool", func(i int) error { return k.stores[i].spool.Sync(ctx) })
}

// lend lets the stores of further keyspaces read other keyspaces and clusters that may have
// their samples.
func (k *Keyspaces) lend(cfg Config) {
	for i, c := range cfg.Keyspaces {
		s := k.stores[i+1]
		var also []int
		for _, name := range c.AlsoRead {
			at := slices.Index(k.names, name)
			s.lent, also = append(s.lent, loan{k.stores[at].written, k.stores[at]}), append(also, at)
		}
		k.also = append(k.also, also)
		for _, c := range k.stores[0].read {
			s.lent = append(s.lent, loan{c, nil})
		}
	}
}

// makeSpools creates the directory of the further keyspaces' spools, and returns the empty
// spools that are no longer used.
func makeSpools(fsys vfs.FS, dir string, cfg Config) (left []leftSpool, err error) {
	all := fsys.PathJoin(dir, spoolsName)
	names, err := fsys.List(all)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist) && len(cfg.Keyspaces) == 0:
		return nil, nil
	case errors.Is(err, fs.ErrNotExist):
		if err = fsys.MkdirAll(all, 0o750); err == nil {
			err = safefile.SyncDir(fsys, dir)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("check the spools of cassandra.keyspaces: %w", err)
	}
	for _, name := range names {
		wanted := slices.ContainsFunc(cfg.Keyspaces, func(c KeyspaceConfig) bool { return c.Name == name })
		if wanted || checkFileName(name) != nil { // not a spool
			continue
		}
		one, err := lookLeft(fsys, fsys.PathJoin(all, name), name, cfg.Spool)
		if err != nil {
			return nil, err
		}
		left = append(left, one)
	}
	return left, nil
}

// lookLeft reads the spool of a keyspace that the settings no longer name. It fails if samples
// wait in it.
func lookLeft(fsys vfs.FS, dir, name string, cfg spool.Config) (leftSpool, error) {
	left, err := lookInto(fsys, dir, cfg)
	switch {
	case err != nil:
		return left, fmt.Errorf("check whether samples in %s wait for keyspace %s, which cassandra.keyspaces no longer names: %w", dir, name, err)
	case left.waiting > 0:
		return left, fmt.Errorf("%d samples in %s wait for %s, but cassandra.keyspaces no longer has %s. Start with the previous settings and POST /admin/flush; "+
			"or remove the directory, and they are lost", left.waiting, dir, left.owner, name)
	}
	return left, nil
}

// of returns the position of the store that stores a metric.
func (k *Keyspaces) of(metric string) int {
	for i, rule := range k.rules {
		if rule.matches(metric) {
			return i + 1
		}
	}
	return 0
}

// having reports, by position, which stores may have samples that queries find for metrics that
// begin with prefix. Others have at most names of metrics whose rule has changed since.
func (k *Keyspaces) having(prefix string) []bool {
	has := make([]bool, len(k.stores))
	has[0] = len(k.stores[0].read) > 0 // it lists the names in read clusters for all stores
	for i, rule := range k.rules {
		if rule.mayMatch(prefix) {
			has[i+1] = true
			for _, at := range k.also[i] {
				has[at] = true
			}
		}
		if rule.matchesAll(prefix) {
			return has
		}
	}
	has[0] = true
	return has
}

// A keyspaceError says in which keyspace an error occurred.
type keyspaceError struct {
	name string
	err  error
}

func (e *keyspaceError) Error() string { return "keyspace " + e.name + ": " + e.err.Error() }
func (e *keyspaceError) Unwrap() error { return e.err }

// ofKeyspace adds the name of the keyspace to an error, unless it is the expected keyspace, the
// error already has it, or the error would be the same in any keyspace.
func ofKeyspace(name string, err error) error {
	switch {
	case err == nil, name == WriteClusterName,
		errors.As(err, new(*keyspaceError)), errors.As(err, new(*store.InputError)), errors.As(err, new(*store.LimitError)),
		errors.Is(err, store.ErrStale), errors.Is(err, store.ErrClosed):
		return err
	}
	return &keyspaceError{name, err}
}

// named adds the name of the i-th keyspace to an error.
func (k *Keyspaces) named(i int, err error) error { return ofKeyspace(k.names[i], err) }

// each calls f concurrently for the stores at places, and returns all errors, with the names of their
// keyspaces.
func (k *Keyspaces) each(doing string, places []int, f func(i int) error) error {
	return each(doing, len(places), func(n int) error { return k.named(places[n], f(places[n])) })
}

// all calls f concurrently for all stores.
func (k *Keyspaces) all(doing string, f func(i int) error) error {
	return each(doing, len(k.stores), func(i int) error { return k.named(i, f(i)) })
}

// outer converts a ref of the i-th store to a ref of k.
func (k *Keyspaces) outer(i int, r store.Ref) store.Ref {
	return r*store.Ref(len(k.stores)) + store.Ref(i)
}

// inner converts a ref of k to the position of its store, and the ref there.
func (k *Keyspaces) inner(r store.Ref) (i int, in store.Ref) {
	n := store.Ref(len(k.stores))
	return int(r % n), r / n
}

// Epoch implements store.Appender.
func (k *Keyspaces) Epoch() (sum uint64) {
	for _, s := range k.stores {
		sum += s.Epoch()
	}
	return sum
}

// Lookup implements store.Appender.
func (k *Keyspaces) Lookup(key []byte) (store.Ref, bool) {
	if len(k.stores) == 1 || len(key) == 0 {
		return k.stores[0].Lookup(key)
	}
	i := k.of(model.TrustKey(unsafe.String(unsafe.SliceData(key), len(key))).Metric)
	r, ok := k.stores[i].Lookup(key)
	return k.outer(i, r), ok && uint64(r) < k.room()
}

// room is how many refs of each store can be converted to outer refs.
func (k *Keyspaces) room() uint64 { return math.MaxUint32 / uint64(len(k.stores)) }

// Create implements store.Appender.
func (k *Keyspaces) Create(ctx context.Context, series model.Series) (store.Ref, error) {
	i := k.of(series.Metric)
	r, err := k.stores[i].Create(ctx, series)
	if err == nil && uint64(r) >= k.room() {
		err = &store.UnavailableError{Reason: fmt.Sprintf("with %d keyspaces there are references for %d series in memory of each, and all are taken", len(k.stores), k.room())}
	}
	if err != nil {
		return 0, k.named(i, err)
	}
	return k.outer(i, r), nil
}

// SeriesCount implements store.Appender.
func (k *Keyspaces) SeriesCount() (n int) {
	for _, s := range k.stores {
		n += s.SeriesCount()
	}
	return n
}

// SeriesBytes implements store.Appender.
func (k *Keyspaces) SeriesBytes() (n int64) {
	for _, s := range k.stores {
		n += s.SeriesBytes()
	}
	return n
}

// CheckSample implements store.SampleChecker.
func (k *Keyspaces) CheckSample(r store.Ref, kind model.Kind, ms int64, value uint64, data []byte, ttl uint32) error {
	i, in := k.inner(r)
	return k.named(i, k.stores[i].CheckSample(in, kind, ms, value, data, ttl))
}

// Delete implements store.Deleter. For metrics whose keyspace is unavailable it deletes
// nothing, for the others everything.
func (k *Keyspaces) Delete(ctx context.Context, deletions ...store.Deletion) error {
	of := map[int][]store.Deletion{}
	var places []int
	for _, d := range deletions {
		i := k.of(d.Metric)
		if d.Metric == "" {
			return k.stores[i].Delete(ctx, d) // the store refuses the deletion
		}
		if len(of[i]) == 0 {
			places = append(places, i)
		}
		of[i] = append(of[i], d)
	}
	parts := store.RecordedParts(ctx, len(places))
	return each("delete from a keyspace", len(places), func(n int) error {
		defer store.Recorded(parts[n])
		i := places[n]
		return k.named(i, k.stores[i].Delete(parts[n], of[i]...))
	})
}

var _ store.TimeCutter = (*Keyspaces)(nil)

// StoredTime implements store.TimeCutter.
func (k *Keyspaces) StoredTime(metric string, ms int64) int64 {
	return k.stores[k.of(metric)].StoredTime(ms)
}

// Flush waits until all samples that were appended before are in Cassandra. If metrics are
// given, it waits for these metrics only.
func (k *Keyspaces) Flush(ctx context.Context, metrics ...string) error {
	if len(metrics) == 0 {
		return k.all("flush", func(i int) error { return k.stores[i].Flush(ctx) })
	}
	of, places := make([][]string, len(k.stores)), []int(nil)
	for _, metric := range metrics {
		i := k.of(metric)
		if len(of[i]) == 0 {
			places = append(places, i)
		}
		of[i] = append(of[i], metric)
	}
	return k.each("flush", places, func(i int) error { return k.stores[i].Flush(ctx, of[i]...) })
}

// WaitReady returns when all keyspaces are open.
func (k *Keyspaces) WaitReady(ctx context.Context) error {
	return k.all("wait for a keyspace", func(i int) error { return k.stores[i].WaitReady(ctx) })
}

// Close closes all stores.
func (k *Keyspaces) Close() error {
	var errs []error
	for i, s := range slices.Backward(k.stores) { // the others use clusters of the first
		errs = append(errs, k.named(i, s.Close()))
	}
	return errors.Join(errs...)
}

// CheckClock returns an error if nothing must be changed through Session yet, because the clock of
// this machine may not have been set since its start.
func (k *Keyspaces) CheckClock(ctx context.Context) error { return k.stores[0].clock.check(ctx) }

// CheckCluster returns an error if Session must not be used, because a different cluster is
// known to answer, or it is not known yet which cluster answers.
func (k *Keyspaces) CheckCluster() error {
	first := k.stores[0]
	if err := first.written.checkCluster(); err != nil {
		return err
	}
	if !first.target.isFixed() {
		return &store.UnavailableError{Reason: "it is not known yet which cluster answers", Err: first.written.why()}
	}
	return nil
}

// ConfirmCluster checks with a statement whether a different cluster answers at Session.
func (k *Keyspaces) ConfirmCluster(ctx context.Context) error {
	return k.stores[0].confirmCluster(ctx)
}

// Session returns the session of the first keyspace, for data other than samples. It ends when
// the store is closed.
func (k *Keyspaces) Session() *cql.Session { return k.stores[0].Session() }

// Deletions lists the delete jobs of all keyspaces as Store.Deletions does, newest first. If
// some keyspaces are unavailable, it returns their errors and the jobs of the others; the jobs
// are nil if all are unavailable.
func (k *Keyspaces) Deletions(ctx context.Context) ([]layout.Job, error) {
	of := make([][]layout.Job, len(k.stores))
	var answered atomic.Bool
	err := k.all("list delete jobs of a keyspace", func(i int) (err error) {
		if of[i], err = k.stores[i].Deletions(ctx); err == nil {
			answered.Store(true)
		}
		for at := range of[i] {
			if i > 0 {
				of[i][at].Cluster = cmp.Or(of[i][at].Cluster, k.names[i])
			}
		}
		return err
	})
	all := slices.Concat(of...)
	if all == nil && answered.Load() {
		all = []layout.Job{}
	}
	slices.SortStableFunc(all, func(a, b layout.Job) int { return b.Started.Compare(a.Started) })
	return all, err
}

// CancelDeletion is like Store.CancelDeletion, for a job of any keyspace. Jobs can be cancelled
// even if other keyspaces are unavailable.
func (k *Keyspaces) CancelDeletion(ctx context.Context, id string) (job layout.Job, err error) {
	var away error
	for i, s := range k.stores {
		job, err = s.CancelDeletion(ctx, id)
		switch {
		case err == nil:
			return job, nil
		case !errors.Is(err, store.ErrNotFound):
			away = cmp.Or(away, k.named(i, err))
		}
	}
	return job, cmp.Or(away, err)
}
