package cassandra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/layout"
	"varve/internal/model"
	"varve/internal/spool"
	"varve/internal/store"
	"varve/internal/work"
)

// Options are the dependencies of a store. All fields except Layouts may be nil.
type Options struct {
	Layouts    layout.Layouts // the layouts that settings can name
	Registerer prometheus.Registerer
	Logger     *slog.Logger

	// Node identifies this server among all that use the keyspace, also after a restart.
	Node string

	// Events is how many events of timelines wait outside the spool for the written cluster.
	Events int64

	clocks func(context.Context) ([]cql.Clock, error) // for tests; nil = the nodes are asked

	// Set for the stores of Keyspaces.
	first       func(metric string) // see spool.Options
	name        string              // of the written cluster; empty for WriteClusterName
	layout      string              // of its keyspace; empty for the default
	replication string              // of a new keyspace; empty for that of the layout's settings
}

// Store is a keyspace, further keyspaces that are only read, and the samples that wait to be
// written to the first.
type Store struct {
	store.Appender // the spool's

	spool  *spool.Spool
	sync   func(context.Context) error // makes durable what was acknowledged, in all spools of the process
	target *targetFile                 // records for which keyspace the spool's samples are

	cfg   Config
	log   *slog.Logger
	views prometheus.Gauge
	now   func() time.Time

	clock   startClock
	backlog backlog

	written *cluster   // written and read
	read    []*cluster // read only
	lent    []loan     // read too; set before the first request
	meta    *cluster   // has the metadata; nil if written has it

	life  store.Lifetime
	stop  context.CancelFunc
	tasks sync.WaitGroup
}

// Open opens the spool in dir and connects to Cassandra in the background; samples are accepted
// meanwhile, however long that takes. If the spool has samples for another keyspace, Open fails
// with a *MisdirectedError. If they are for a keyspace of the same name in another cluster,
// that is noticed when the cluster is reached; then nothing is drained, and samples are
// refused.
func Open(fsys vfs.FS, dir string, cfg Config, o Options) (*Store, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	s := &Store{cfg: cfg, log: o.Logger, now: time.Now}
	if err := s.openClusters(o); err != nil {
		s.closeClusters()
		return nil, err
	}
	own := labelled(o.Registerer, s.written.name)
	s.clock = startClock{clocks: s.written.session.Clocks, log: o.Logger, opened: time.Now()}
	if o.clocks != nil {
		s.clock.clocks = o.clocks
	}
	held, err := spool.Open(fsys, dir, cfg.Spool, spool.Options{Section: "cassandra.spool", Registerer: own, Logger: o.Logger, Check: s.checkBatch, First: o.first, ClockSet: s.clock.trusted})
	if err != nil {
		s.closeClusters()
		return nil, err
	}
	s.target, err = openTarget(fsys, dir, s.configured(), o.Events, func() int64 { return held.Health().Samples })
	if err != nil {
		s.closeClusters()
		return nil, errors.Join(err, held.Close())
	}
	s.Appender, s.spool, s.sync = held, held, held.Sync
	s.views = prometheus.NewGauge(prometheus.GaugeOpts{Name: "varve_cassandra_views", Help: "Views of the store that are open."})
	own.MustRegister(s.views)
	s.clock.agreed = held.FollowClock
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.tasks.Go(func() {
		s.backlog.watch(ctx, s.level)
	})
	for _, c := range s.clusters() {
		s.tasks.Go(func() { s.connect(ctx, c, o) })
	}
	return s, nil
}

func (s *Store) openClusters(o Options) (err error) {
	if s.written, err = openCluster(cmp.Or(o.name, WriteClusterName), layout.RoleAll, o.layout, model.AllTime, s.cfg.Config, o); err != nil {
		return err
	}
	if m := s.cfg.MetaCluster; m.Used() {
		if s.meta, err = openCluster(MetaClusterName, layout.RoleMeta, layout.Default, model.TimeRange{}, m.over(s.cfg.Config), o); err != nil {
			return err
		}
	}
	for _, r := range s.cfg.ReadClusters {
		within, err := r.within()
		if err != nil {
			return fmt.Errorf("cluster %s: %w", r.Name, err)
		}
		c, err := openCluster(r.Name, layout.RoleRead, r.Layout, within, r.over(s.cfg.Config), o)
		if err != nil {
			return err
		}
		s.read = append(s.read, c)
	}
	return nil
}

// readable lists the clusters that may have samples, the written one first.
func (s *Store) readable() []*cluster {
	all := slices.Concat([]*cluster{s.written}, s.read)
	for _, l := range s.lent {
		all = append(all, l.cluster)
	}
	return all
}

// clusters lists the store's own clusters, the written one first.
func (s *Store) clusters() []*cluster {
	var all []*cluster
	if s.written != nil {
		all = append(all, s.written)
	}
	if s.meta != nil {
		all = append(all, s.meta)
	}
	return append(all, s.read...)
}

func (s *Store) closeClusters() {
	for _, c := range s.clusters() {
		c.close()
	}
}

// connect connects to a cluster, and starts the background work there.
func (s *Store) connect(ctx context.Context, c *cluster, o Options) {
	if !c.connect(ctx, func(ctx context.Context) (layout.Keyspace, error) { return s.openKeyspace(ctx, c, o) }) {
		return
	}
	ks := c.keyspace()
	if c == s.written {
		s.spool.Start(&aimedSink{sink: &redeleter{sink: ks.Sink(), deleter: ks.Deleter(), log: s.log}, confirm: s.confirm})
		s.tasks.Go(func() { s.keepAim(ctx) })
	}
	close(c.opened)
	if c == s.meta {
		return
	}
	s.tasks.Go(func() { s.keepConfirmed(ctx, c) })
	for _, other := range []*cluster{s.written, s.meta} { // one of them has the jobs
		if other == nil {
			continue
		}
		select {
		case <-other.opened:
		case <-ctx.Done():
			return
		}
	}
	if s.clock.wait(ctx) != nil {
		return
	}
	resume(ctx, ks.Deleter(), s.log)
}

func (s *Store) check(ctx context.Context) error {
	if err := s.life.Check(ctx); err != nil {
		return err
	}
	return s.written.checkAim()
}

// WaitReady returns when the keyspaces of all clusters are open.
func (s *Store) WaitReady(ctx context.Context) error {
	for _, c := range s.clusters() {
		select {
		case <-c.opened:
		case <-ctx.Done():
			_, err := c.open()
			return err
		}
	}
	return nil
}

// Flush waits until all samples that were appended before are in Cassandra. If metrics are
// given, it waits for these metrics only. It waits through an outage. If Cassandra refuses the
// samples for lack of a right or a table, it fails after outage_grace, since that does not end
// by itself.
func (s *Store) Flush(ctx context.Context, metrics ...string) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	before := s.spool.Health().SinkFails
	_, err := s.flushUnless(ctx, metrics, flushEnd{
		reason: "not everything could be written; what was accepted waits in the spool; repeat the flush once the cause is removed",
		ends: func(away error) bool { // the right may have been granted since an earlier attempt
			return errors.Is(away, store.ErrLacks) && (s.written.keyspace() == nil || s.spool.Health().SinkFails > before)
		},
		fromStart: func(error) bool { return true },
	})
	return err
}

// Delete implements store.Deleter.
func (s *Store) Delete(ctx context.Context, deletions ...store.Deletion) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	// Delete everything that a query of the same range would show, in every cluster.
	of := map[*cluster][]store.Deletion{}
	deleters := map[*cluster]layout.Deleter{}
	for _, d := range deletions {
		if d.Metric == "" {
			return &store.InputError{Reason: "delete: the metric name is empty"}
		}
		if !inUTF8(&d) {
			return &store.InputError{Reason: "delete: the metric name or a tag is not UTF-8, and Cassandra stores no others"}
		}
		asked, keyspaces, err := s.asked(d.Range)
		if err != nil {
			return fmt.Errorf("delete from %s: %w", d.Metric, err)
		}
		for i, c := range asked {
			of[c], deleters[c] = append(of[c], d), keyspaces[i].Deleter()
		}
	}
	stamps, err := s.flushAll(ctx, of, metricsOf(deletions))
	if err != nil {
		return err
	}
	// The deletions are recorded in each cluster, for the servers that write there, which need
	// not be the servers that write to this store's cluster.
	for c, deletions := range of {
		if err := deleters[c].Record(ctx, stamps[s.writerOf(c)], deletions...); err != nil {
			return fmt.Errorf("delete: %w", c.explain(err))
		}
	}
	// All clusters concurrently: a delete may become a job, which continues without the client.
	clusters := slices.Collect(maps.Keys(of))
	parts := store.RecordedParts(ctx, len(clusters))
	return each("delete from a cluster", len(clusters), func(i int) error {
		defer store.Recorded(parts[i])
		c := clusters[i]
		return c.explain(deleters[c].Delete(parts[i], stamps[s.writerOf(c)], of[c]...))
	})
}

// inUTF8 reports whether the texts of a deletion are UTF-8. JSON replaces bytes that are not
// UTF-8, so the record of another deletion would name other series, and other servers would
// delete from those.
func inUTF8(d *store.Deletion) bool {
	for _, m := range d.Matchers {
		if !utf8.ValidString(m.Tag) || slices.ContainsFunc(m.Values, func(v string) bool { return !utf8.ValidString(v) }) {
			return false
		}
	}
	return utf8.ValidString(d.Metric)
}

// each calls f for 0 to n-1 concurrently, and returns all errors. doing is as for [work.Do].
func each(doing string, n int, f func(i int) error) error {
	if n == 1 {
		return work.Do(doing, func() error { return f(0) })
	}
	errs := make([]error, n)
	var tasks sync.WaitGroup
	for i := range n {
		tasks.Go(func() { errs[i] = work.Do(doing, func() error { return f(i) }) })
	}
	tasks.Wait()
	return errors.Join(errs...)
}

// flushAll writes the samples of some metrics that wait for the clusters of a delete, and returns
// the stamps of the delete by the store whose spool has the samples.
func (s *Store) flushAll(ctx context.Context, of map[*cluster][]store.Deletion, metrics []string) (map[*Store]int64, error) {
	stamps := map[*Store]int64{s: 0} // its samples may be in no cluster that is asked
	for c := range of {
		stamps[s.writerOf(c)] = 0
	}
	for writer := range stamps {
		name := writer.written.name
		if err := writer.clock.check(ctx); err != nil {
			return nil, fmt.Errorf("delete: %w", ofKeyspace(name, err))
		}
		stampMS, err := writer.flushSoon(ctx, metrics)
		if err != nil {
			return nil, fmt.Errorf("delete: write earlier samples: %w", ofKeyspace(name, err))
		}
		stamps[writer] = stampMS
	}
	return stamps, nil
}

// StoredTime is [store.TimeCutter.StoredTime], for any metric. Before the keyspace is open, it is ms.
func (s *Store) StoredTime(ms int64) int64 {
	ks := s.written.keyspace()
	if ks == nil {
		return ms
	}
	_, stored, _ := ks.Deleter().Place(ms, model.AllTime)
	return stored
}

// flushLook is how often a delete that waits for the spool checks whether Cassandra is
// unavailable.
const flushLook = 100 * time.Millisecond

func metricsOf(deletions []store.Deletion) []string {
	metrics := make([]string, len(deletions))
	for i := range deletions {
		metrics[i] = deletions[i].Metric
	}
	slices.Sort(metrics)
	return slices.Compact(metrics)
}

// flushSoon flushes the samples of some metrics for a delete. It fails once Cassandra has
// accepted nothing for outage_grace, or has left some of these samples for that long while
// accepting others. An outage may last for hours, and a client that waits so long cannot know
// what became of its request; after an error it knows that nothing was done. Unlike samples, a
// delete cannot be stored for later, since delete jobs are stored in Cassandra, for all nodes.
func (s *Store) flushSoon(ctx context.Context, metrics []string) (stampMS int64, err error) {
	return s.flushUnless(ctx, metrics, flushEnd{
		reason:    "nothing was deleted, because earlier samples of the metric cannot be written; try again later",
		ends:      func(error) bool { return true },
		fromStart: spool.IsPartial,
	})
}

// A flushEnd says which causes of Degraded end a flush once they have lasted for outage_grace.
type flushEnd struct {
	reason    string           // of the error
	ends      func(error) bool // reports whether a cause ends it
	fromStart func(error) bool // reports whether only the time since the start of the flush counts for a cause
}

// flushUnless flushes the samples of some metrics, or of all if there are none, unless Cassandra
// does not accept them.
func (s *Store) flushUnless(ctx context.Context, metrics []string, end flushEnd) (stampMS int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	began := s.now()
	var watch sync.WaitGroup
	watch.Go(func() {
		var since time.Time
		for {
			switch away := s.Degraded(); {
			case away == nil || !end.ends(away):
				since = time.Time{}
			case since.IsZero():
				if since = s.degradedSince(); end.fromStart(away) && since.Before(began) {
					since = began
				}
				continue
			case s.now().Sub(since) >= s.cfg.OutageGrace:
				cancel(&store.UnavailableError{Reason: end.reason, Err: away})
				return
			}
			if work.Pause(ctx, flushLook) != nil {
				return
			}
		}
	})
	stampMS, err = s.spool.Flush(ctx, metrics...)
	if away, ok := errors.AsType[*store.UnavailableError](context.Cause(ctx)); err != nil && ok {
		err = away
	}
	cancel(nil)
	watch.Wait()
	return stampMS, err
}

// asked returns the clusters that may have samples in a range, the written one first, and their
// keyspaces.
func (s *Store) asked(r model.TimeRange) (asked []*cluster, keyspaces []layout.Keyspace, err error) {
	for _, c := range s.readable() {
		if !c.within.Overlaps(r) {
			continue
		}
		ks, err := c.open()
		if err != nil {
			return nil, nil, err
		}
		asked, keyspaces = append(asked, c), append(keyspaces, ks)
	}
	return asked, keyspaces, nil
}

// Close stops accepting samples. Undrained samples stay in the log, and are drained after the
// next Open.
func (s *Store) Close() error {
	if err := s.life.End(); err != nil {
		return err
	}
	s.stop()
	s.tasks.Wait()
	err := s.spool.Close()
	s.closeClusters()
	return err
}

// Get implements store.KeyValues.
func (s *Store) Get(ctx context.Context, service, serviceKey, key string) (store.Value, error) {
	ks, err := s.ready(ctx)
	if err != nil {
		return store.Value{}, err
	}
	return ks.Get(ctx, service, serviceKey, key)
}

// Set implements store.KeyValues.
func (s *Store) Set(ctx context.Context, service, serviceKey, key, value string) error {
	ks, err := s.changeable(ctx)
	if err != nil {
		return err
	}
	return ks.Set(ctx, service, serviceKey, key, value)
}

// Unset implements store.KeyValues.
func (s *Store) Unset(ctx context.Context, service, serviceKey, key string) error {
	ks, err := s.changeable(ctx)
	if err != nil {
		return err
	}
	return ks.Unset(ctx, service, serviceKey, key)
}

// ServiceKeys implements store.KeyValues.
func (s *Store) ServiceKeys(ctx context.Context, service string) iter.Seq2[string, error] {
	ks, err := s.ready(ctx)
	if err != nil {
		return failedKeys(err)
	}
	return ks.ServiceKeys(ctx, service)
}

// Keys implements store.KeyValues.
func (s *Store) Keys(ctx context.Context, service, serviceKey, prefix string) iter.Seq2[string, error] {
	ks, err := s.ready(ctx)
	if err != nil {
		return failedKeys(err)
	}
	return ks.Keys(ctx, service, serviceKey, prefix)
}

// Modified implements store.KeyValues.
func (s *Store) Modified(ctx context.Context, service, serviceKey string) (time.Time, error) {
	ks, err := s.ready(ctx)
	if err != nil {
		return time.Time{}, err
	}
	return ks.Modified(ctx, service, serviceKey)
}

// changeable is ready, after all samples that were acknowledged before are durable, in whichever
// spool they wait: a key-value may refer to them, as the watermark of a roll-up refers to its
// results.
func (s *Store) changeable(ctx context.Context) (store.KeyValues, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	if err := s.sync(ctx); err != nil {
		return nil, err
	}
	kv, err := s.metadata()
	if err == nil {
		err = s.clock.check(ctx)
	}
	return kv, err
}

func (s *Store) ready(ctx context.Context) (store.KeyValues, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	return s.metadata()
}

// metadata returns the keyspace that has the metadata.
func (s *Store) metadata() (store.KeyValues, error) {
	c := s.written
	if s.meta != nil {
		c = s.meta
	}
	ks, err := c.open()
	if err != nil {
		return nil, err
	}
	kv, ok := ks.(store.KeyValues)
	if !ok {
		return nil, fmt.Errorf("the tables of keyspace %s have layout %s, which holds no metadata", c.session.KeyspaceName(), c.layout)
	}
	return kv, nil
}

func failedKeys(err error) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) { yield("", err) }
}
