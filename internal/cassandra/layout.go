package cassandra

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"varve/internal/cassandra/kairosrows"
)

// layout is an open keyspace with what reads and writes it: of one for metadata
// nothing but itself, and the writer of one that is only read serves its
// deletes.
type layout struct {
	ks      *kairosrows.Keyspace
	reader  *kairosrows.Reader
	writer  *kairosrows.Writer
	deleter *kairosrows.Deleter
}

// openLayout opens the keyspace of a cluster.
func (s *Store) openLayout(ctx context.Context, c *cluster, o Options) (*layout, error) {
	if err := c.session.Wait(ctx); err != nil {
		return nil, err
	}
	doing := func(text string) { c.unreached(errors.New(text)) }
	schema := s.cfg.Schema
	if c != s.written {
		schema.Role = c.role
	} else if err := s.aim(ctx); err != nil {
		return nil, err
	}
	if c == s.meta && s.cfg.MetaCluster.Replication != "" {
		schema.Replication = s.cfg.MetaCluster.Replication
	}
	ks, err := kairosrows.OpenTelling(ctx, c.session, schema, doing)
	if err != nil {
		return nil, err
	}
	l := &layout{ks: ks}
	if c != s.meta {
		o.Registerer = labelled(o.Registerer, c.name)
		if err := l.open(s, c, o); err != nil {
			l.close()
			return nil, err
		}
	}
	o.Logger.Info("the keyspace is open", "cluster", c.name, "keyspace", ks.Name, "row_time_unit", ks.Spec.Unit.String(), "row_width", ks.Spec.Width)
	for _, note := range ks.Notes {
		o.Logger.Warn("the keyspace's schema: "+note, "cluster", c.name)
	}
	return l, nil
}

func (l *layout) open(s *Store, c *cluster, o Options) (err error) {
	l.reader, err = kairosrows.NewReader(l.ks, s.cfg.Read, kairosrows.ReaderOptions{Registerer: o.Registerer, Logger: o.Logger})
	if err != nil {
		return err
	}
	l.writer, err = kairosrows.NewWriter(l.ks, s.cfg.Write, kairosrows.WriterOptions{
		Registerer: o.Registerer, Logger: o.Logger, Wrote: l.reader.RowChanged, KeysChanged: l.reader.RowKeysChanged,
	})
	if err != nil {
		return err
	}
	cluster := "" // in jobs: as they are without further clusters
	if c != s.written {
		cluster = c.name
	}
	l.deleter, err = kairosrows.NewDeleter(l.ks, l.writer, s.cfg.Delete, kairosrows.DeleterOptions{
		Registerer: o.Registerer, Logger: o.Logger, Node: o.Node, Deleted: l.reader.RowChanged, Cluster: cluster, Services: s.services(l, c),
		Look: l.reader.Look,
	})
	return err
}

// services returns what finds the keyspace that has service_index: that of the
// metadata, or else the one that is written to, also for the deletes of others.
func (s *Store) services(l *layout, c *cluster) func() (*kairosrows.Keyspace, error) {
	if c == s.written && s.meta == nil {
		return func() (*kairosrows.Keyspace, error) { return l.ks, nil }
	}
	return s.metadata
}

// resumeEvery is how often delete jobs are looked for that nobody works on.
const resumeEvery = time.Minute

// resume goes on with delete jobs that were not finished, until ctx ends.
func (l *layout) resume(ctx context.Context, log *slog.Logger) {
	for {
		if err := l.deleter.Resume(ctx); err != nil && ctx.Err() == nil {
			log.Warn("delete jobs cannot be looked for", "error", err)
		}
		select {
		case <-time.After(resumeEvery):
		case <-ctx.Done():
			return
		}
	}
}

func (l *layout) close() {
	if l.deleter != nil {
		l.deleter.Close()
	}
	if l.writer != nil {
		l.writer.Close()
	}
	if l.reader != nil {
		l.reader.Close()
	}
}
