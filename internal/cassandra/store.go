package cassandra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/layout"
	"varve/internal/model"
	"varve/internal/spool"
	"varve/internal/store"
	"varve/internal/work"
)

// Options are what a store is given to work with. Nil fields but Layouts are left out.
type Options struct {
	Layouts    layout.Layouts // what the settings of a keyspace can name
	Registerer prometheus.Registerer
	Logger     *slog.Logger

	// Node names this process among all that work on the keyspace, the same
	// after a restart.
	Node string

	// Events is how many events of timelines wait beside the spool for the cluster that is
	// written to.
	Events int64

	// Observe is called with the name of each statement that is sent, for tests
	// that count them.
	Observe func(statement string)

	// Of a store among others, see Keyspaces.
	name        string // of the cluster that is written to; empty is WriteClusterName
	layout      string // of its keyspace; empty is the default one
	replication string // of a new keyspace; empty is as in the layout's settings
}

// Store is a keyspace, further ones that are only read, and the samples on their
// way into the first.
type Store struct {
	store.Appender // the spool's

	spool  *spool.Spool
	target *targetFile // for which keyspace the spool's samples are

	cfg     Config
	log     *slog.Logger
	metrics *metrics
	now     func() time.Time

	backlog backlog

	written *cluster   // takes all samples, and is read
	read    []*cluster // are read besides
	lent    []*cluster // are read besides, and belong to other stores; set before the first request
	meta    *cluster   // has the metadata; nil if written has it

	closed atomic.Bool
	stop   context.CancelFunc
	tasks  sync.WaitGroup
}

// Open opens the spool in dir and goes on to reach Cassandra, which may be away
// for as long as it likes: samples are taken meanwhile. If the spool has samples for
// another keyspace, Open fails with a *MisdirectedError. If they are for another
// cluster of the same keyspace name, that shows when it is reached; then nothing is
// drained, and no more samples are taken.
func Open(fsys vfs.FS, dir string, cfg Config, o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	s := &Store{cfg: cfg, log: o.Logger, now: time.Now}
	if err := s.openClusters(o); err != nil {
		s.closeClusters()
		return nil, err
	}
	own := labelled(o.Registerer, s.written.name)
	held, err := spool.Open(fsys, dir, cfg.Spool, spool.Options{Section: "cassandra.spool", Registerer: own, Logger: o.Logger, Check: s.checkBatch})
	if err != nil {
		s.closeClusters()
		return nil, err
	}
	s.target, err = openTarget(fsys, dir, s.configured(), o.Events, func() int64 { return held.Health().Samples })
	if err != nil {
		s.closeClusters()
		return nil, errors.Join(err, held.Close())
	}
	s.Appender, s.spool, s.metrics = held, held, newMetrics(own)
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.tasks.Go(func() {
		s.backlog.watch(ctx, func() level { return levelOf(s.now(), s.spool.Health()) })
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

// readable lists the clusters that may have samples, the one that is written to first.
func (s *Store) readable() []*cluster {
	return slices.Concat([]*cluster{s.written}, s.read, s.lent)
}

// clusters lists the store's own, the one that is written to first.
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

// connect reaches a cluster and begins what is to be done there.
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
	resume(ctx, ks.Deleter(), s.log)
}

func (s *Store) check(ctx context.Context) error {
	if err := s.checkOpen(ctx); err != nil {
		return err
	}
	return s.written.checkAim()
}

func (s *Store) checkOpen(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
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

// Flush returns when everything that was appended before, of some metrics or, without any,
// of all, is in Cassandra.
func (s *Store) Flush(ctx context.Context, metrics ...string) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	_, err := s.spool.Flush(ctx, metrics...)
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
		asked, keyspaces, err := s.asked(d.Range)
		if err != nil {
			return fmt.Errorf("delete from %s: %w", d.Metric, err)
		}
		for i, c := range asked {
			of[c], deleters[c] = append(of[c], d), keyspaces[i].Deleter()
		}
	}
	stampMS, err := s.flushSoon(ctx, metricsOf(deletions))
	if err != nil {
		return fmt.Errorf("delete: write earlier samples: %w", err)
	}
	// Each cluster has the record for the servers that write there, which may be others
	// than those that write where this one does.
	for c, deletions := range of {
		if err := deleters[c].Record(ctx, stampMS, deletions...); err != nil {
			return fmt.Errorf("delete: %w", c.explain(err))
		}
	}
	// All clusters at once: a delete may become a job, which goes on without the
	// client.
	errs := make(chan error, len(of))
	for c, deletions := range of {
		go func() {
			errs <- work.Do("delete from a cluster", func() error {
				return c.explain(deleters[c].Delete(ctx, stampMS, deletions...))
			})
		}()
	}
	var all []error
	for range of {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// flushLook is how often a delete that waits for the spool looks whether Cassandra
// is away.
const flushLook = 100 * time.Millisecond

// metricsOf returns the metrics of deletions.
func metricsOf(deletions []store.Deletion) []string {
	var metrics []string
	for _, d := range deletions {
		if !slices.Contains(metrics, d.Metric) {
			metrics = append(metrics, d.Metric)
		}
	}
	return metrics
}

// flushSoon flushes the samples of some metrics for a request: it does not wait for a
// Cassandra that has taken nothing for outage_grace, and not longer than that for
// samples that Cassandra leaves while it takes others. An outage may take hours, and a
// client that waits so long cannot know what came of its request; with an error it
// knows that nothing was done. A delete cannot be kept for later as samples are: its
// job is in Cassandra, for all nodes.
func (s *Store) flushSoon(ctx context.Context, metrics []string) (stampMS int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	began := s.now()
	var watch sync.WaitGroup
	watch.Go(func() {
		var since time.Time
		for {
			switch away := s.Degraded(); {
			case away == nil:
				since = time.Time{}
			case since.IsZero():
				if since = s.degradedSince(); partly(away) && since.Before(began) {
					since = began
				}
				continue
			case s.now().Sub(since) >= s.cfg.OutageGrace:
				cancel(&store.UnavailableError{Reason: "nothing was deleted, because earlier samples of the metric cannot be written; try again later", Err: away})
				return
			}
			if work.Pause(ctx, flushLook) != nil {
				return
			}
		}
	})
	stampMS, err = s.spool.Flush(ctx, metrics...)
	if away := (*store.UnavailableError)(nil); err != nil && errors.As(context.Cause(ctx), &away) {
		err = away
	}
	cancel(nil)
	watch.Wait()
	return stampMS, err
}

// partly reports whether Cassandra takes some samples.
func partly(away error) bool {
	var partial *spool.PartialError
	return errors.As(away, &partial)
}

// asked returns the clusters that may have samples of a range, the one that is
// written to first, and their keyspaces.
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

// Close stops taking samples. Undrained samples stay in the log, and are drained
// after the next Open.
func (s *Store) Close() error {
	if !s.closed.CompareAndSwap(false, true) {
		return store.ErrClosed
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

// changeable is ready, after all samples that were acknowledged before are durable: a key-value may
// tell of them, as the watermark of a roll-up does of its results.
func (s *Store) changeable(ctx context.Context) (store.KeyValues, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	if err := s.spool.Sync(ctx); err != nil {
		return nil, err
	}
	return s.metadata()
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
