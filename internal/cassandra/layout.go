package cassandra

import (
	"context"
	"log/slog"
	"time"

	"varve/internal/cassandra/kairosrows"
	"varve/internal/store"
)

// layout is an open keyspace with what reads and writes it.
type layout struct {
	ks      *kairosrows.Keyspace
	reader  *kairosrows.Reader
	writer  *kairosrows.Writer
	deleter *kairosrows.Deleter
}

func (s *Store) openLayout(ctx context.Context, o Options) (*layout, error) {
	if err := s.session.Wait(ctx); err != nil {
		return nil, err
	}
	ks, err := kairosrows.Open(ctx, s.session, s.cfg.Schema)
	if err != nil {
		return nil, err
	}
	l := &layout{ks: ks}
	if err := l.open(s.cfg, o); err != nil {
		l.close()
		return nil, err
	}
	o.Logger.Info("the keyspace is open", "keyspace", ks.Name, "row_time_unit", ks.Spec.Unit.String(), "row_width", ks.Spec.Width)
	for _, note := range ks.Notes {
		o.Logger.Warn("the keyspace's schema: " + note)
	}
	return l, nil
}

func (l *layout) open(cfg Config, o Options) (err error) {
	l.reader, err = kairosrows.NewReader(l.ks, cfg.Read, kairosrows.ReaderOptions{Registerer: o.Registerer, Logger: o.Logger})
	if err != nil {
		return err
	}
	l.writer, err = kairosrows.NewWriter(l.ks, cfg.Write, kairosrows.WriterOptions{
		Registerer: o.Registerer, Logger: o.Logger, Wrote: l.reader.RowChanged, KeysChanged: l.reader.RowKeysChanged,
	})
	if err != nil {
		return err
	}
	l.deleter, err = kairosrows.NewDeleter(l.ks, l.writer, cfg.Delete, kairosrows.DeleterOptions{
		Registerer: o.Registerer, Logger: o.Logger, Node: o.Node, Deleted: l.reader.RowChanged,
		Lookup: func(ctx context.Context, sel store.Selection) ([]kairosrows.SeriesRows, error) {
			return l.reader.Look().Lookup(ctx, sel)
		},
	})
	return err
}

// resumeEvery is how often delete jobs are looked for that nobody works on.
const resumeEvery = time.Minute

// resume goes on with delete jobs that were not finished, until ctx ends.
func (l *layout) resume(ctx context.Context, log *slog.Logger) {
	for {
		if err := l.deleter.Resume(ctx); err != nil && ctx.Err() == nil {
			log.Warn("delete jobs can not be looked for", "error", err)
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
