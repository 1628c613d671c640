package cassandra

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows"
	"varve/internal/spool"
	"varve/internal/store"
)

// Options are what a store is given to work with. Nil fields are left out.
type Options struct {
	Registerer prometheus.Registerer
	Logger     *slog.Logger

	// Node names this process among all that work on the keyspace, the same
	// after a restart.
	Node string

	// Observe is called with the name of each statement that is sent, for tests
	// that count them.
	Observe func(statement string)
}

// Store is a keyspace and the samples on their way into it.
type Store struct {
	store.Appender // the spool's

	spool   *spool.Spool
	session *cql.Session
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	now     func() time.Time

	rows   atomic.Pointer[layout] // nil until Cassandra was reached
	opened chan struct{}          // closed when it was
	reason atomic.Pointer[error]  // why rows is nil
	closed atomic.Bool
	stop   context.CancelFunc
	tasks  sync.WaitGroup
}

// Open opens the spool in dir and goes on to reach Cassandra, which may be away
// for as long as it likes: samples are taken meanwhile.
func Open(fsys vfs.FS, dir string, cfg Config, o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	session, err := cql.Open(cfg.Config, cql.Options{Registerer: o.Registerer, Logger: o.Logger, Observe: o.Observe})
	if err != nil {
		return nil, err
	}
	held, err := spool.Open(fsys, dir, cfg.Spool, spool.Options{Registerer: o.Registerer, Logger: o.Logger})
	if err != nil {
		session.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Store{
		Appender: held, spool: held, opened: make(chan struct{}), session: session, cfg: cfg, log: o.Logger,
		metrics: newMetrics(o.Registerer), now: time.Now, stop: cancel,
	}
	s.unreached(errors.New("not tried yet"))
	s.tasks.Go(func() { s.connect(ctx, o) })
	return s, nil
}

// connect reaches the cluster and opens the keyspace, trying for as long as it
// takes.
func (s *Store) connect(ctx context.Context, o Options) {
	for wait := time.Second / 4; ; wait = min(2*wait, 15*time.Second) {
		l, err := s.openLayout(ctx, o)
		if err == nil {
			s.rows.Store(l)
			s.spool.Start(l.writer)
			close(s.opened)
			l.resume(ctx, s.log)
			return
		}
		if ctx.Err() != nil {
			return
		}
		s.unreached(err)
		s.log.Warn("the keyspace can not be opened; trying again", "error", err, "in", wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

func (s *Store) unreached(err error) { s.reason.Store(&err) }

// layout returns the open keyspace.
func (s *Store) layout() (*layout, error) {
	if l := s.rows.Load(); l != nil {
		return l, nil
	}
	return nil, &store.UnavailableError{Reason: "the keyspace is not open yet", Err: *s.reason.Load()}
}

func (s *Store) check(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// WaitReady returns when the keyspace is open.
func (s *Store) WaitReady(ctx context.Context) error {
	select {
	case <-s.opened:
		return nil
	case <-ctx.Done():
		_, err := s.layout()
		return err
	}
}

// Flush returns when everything that was appended before is in Cassandra.
func (s *Store) Flush(ctx context.Context) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	_, err := s.spool.Flush(ctx)
	return err
}

// Delete implements store.Deleter.
func (s *Store) Delete(ctx context.Context, d store.Deletion) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	if d.Metric == "" {
		return &store.InputError{Reason: "delete: the metric name is empty"}
	}
	l, err := s.layout()
	if err != nil {
		return err
	}
	stampMS, err := s.spool.Flush(ctx)
	if err != nil {
		return fmt.Errorf("delete from %s: write what was sent before: %w", d.Metric, err)
	}
	return l.deleter.Delete(ctx, d, stampMS)
}

// Close stops taking samples. What is not drained stays in the log, and is
// drained after the next Open.
func (s *Store) Close() error {
	if !s.closed.CompareAndSwap(false, true) {
		return store.ErrClosed
	}
	s.stop()
	s.tasks.Wait()
	err := s.spool.Close()
	if l := s.rows.Load(); l != nil {
		l.close()
	}
	s.session.Close()
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
	ks, err := s.ready(ctx)
	if err != nil {
		return err
	}
	return ks.Set(ctx, service, serviceKey, key, value)
}

// Unset implements store.KeyValues.
func (s *Store) Unset(ctx context.Context, service, serviceKey, key string) error {
	ks, err := s.ready(ctx)
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

func (s *Store) ready(ctx context.Context) (*kairosrows.Keyspace, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	l, err := s.layout()
	if err != nil {
		return nil, err
	}
	return l.ks, nil
}

func failedKeys(err error) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) { yield("", err) }
}
