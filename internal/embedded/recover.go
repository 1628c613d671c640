package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/embedded/datadir"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
	"varve/internal/wal"
	"varve/internal/writelog"
)

// openSeries reads the catalogue's series into registry and index. The index is filled in parallel,
// because that takes as long as the reading.
func (s *Store) openSeries() error {
	const chunk, chunkBytes, chunks = 4096, 1 << 20, 8
	queue := make(chan []seriesRow, chunks)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for rows := range queue {
			for _, r := range rows {
				s.index.Add(r.id, r.series)
			}
		}
	}()
	s.series.Expect(s.catalogue.Meta.NextSeries)
	var rows []seriesRow
	bytes := 0 // bytes of their keys
	err := s.catalogue.Series(func(d record.Definition, series model.Series) {
		s.series.Restore(d)
		bytes += len(d.Key)
		if rows = append(rows, seriesRow{d.ID, series}); len(rows) == chunk || bytes >= chunkBytes {
			queue <- rows
			bytes = 0
			s.opening.series(d.ID, s.catalogue.Meta.NextSeries)
			rows = make([]seriesRow, 0, chunk)
		}
	})
	queue <- rows
	close(queue)
	<-done
	return err
}

type seriesRow struct {
	id     model.SeriesNumber
	series model.Series
}

// replay loads the records of the log that are not in files into the active
// head. One goroutine reads and decodes them, another applies them.
func (s *Store) replay() error {
	began := time.Now()
	r := &replayer{store: s, steps: make(chan *replayStep, replayAhead), used: make(chan *replayStep, replayAhead)}
	r.size = s.logSize()
	applied := make(chan error, 1)
	go func() { applied <- r.apply() }()
	options := s.catalogue.Meta.Log()
	options.OnDamage = s.salvage.onDamage()
	stats, err := wal.Replay(s.fs, s.path(datadir.Log), options, r.decode)
	s.salvage.done(stats)
	close(r.steps)
	err = errors.Join(err, <-applied)
	s.journal.EndReplay()
	if err != nil {
		return fmt.Errorf("replay the write-ahead log: %w", err)
	}
	if stats.Records > 0 {
		s.logger.Info("replayed the write-ahead log", "records", stats.Records, "bytes", stats.Bytes,
			"samples", s.active.Load().Samples(), "cut_bytes", stats.CutBytes, "took", time.Since(began))
	}
	return nil
}

// replayAhead bounds the decoded records that wait to be applied.
const replayAhead = 16

type replayer struct {
	store *Store
	steps chan *replayStep
	used  chan *replayStep
	read  int64 // bytes of payload
	size  int64 // of the log
}

// replayStep is one decoded log record: a batch, or a deletion.
type replayStep struct {
	batch    store.Batch
	kinds    []model.Kind
	deletion *record.Deletion
}

func (r *replayer) step() *replayStep {
	select {
	case step := <-r.used:
		step.deletion = nil
		return step
	default:
		return &replayStep{}
	}
}

func (r *replayer) decode(_ wal.Segment, typ byte, payload []byte) error {
	r.read += int64(len(payload))
	r.store.opening.log(r.read, r.size)
	step := r.step()
	var err error
	switch typ {
	case record.TypeBatch:
		err = r.store.decodeBatch(payload, step)
	case record.TypeDeletion:
		var d record.Deletion
		d, err = record.ParseDeletion(payload)
		step.deletion = &d
	default:
		err = writelog.UnknownType(typ)
	}
	if err != nil && !r.store.salvage.keep(r.store.series, step) {
		return err
	}
	if typ == record.TypeBatch {
		r.store.journal.Replayed(&step.batch, r.store.series.Key) // the replay has checked the keys
	}
	r.steps <- step
	return nil
}

// apply carries out the steps. After an error it only empties the queue.
func (r *replayer) apply() (err error) {
	for step := range r.steps {
		switch {
		case err != nil:
		case step.deletion != nil:
			err = r.store.replayDeletion(step.deletion)
		default:
			r.store.active.Load().Append(&step.batch, step.kinds)
		}
		select {
		case r.used <- step:
		default:
		}
	}
	return err
}

func (s *Store) decodeBatch(payload []byte, step *replayStep) (err error) {
	step.kinds, err = s.log.Decode(payload, &step.batch, step.kinds[:0], func(d record.Definition, series model.Series) error {
		s.series.Restore(d)
		s.journal.Introduce(d.ID)
		s.index.Add(d.ID, series)
		s.defineLater(d)
		return nil
	}, s.series.DecodeSamples)
	return err
}

// replayDeletion carries out a deletion of the log. It also does so if the catalogue has
// the deletion too (see replace), because the log has brought samples into the head that
// are older than the deletion.
func (s *Store) replayDeletion(d *record.Deletion) error {
	known := slices.ContainsFunc(s.current.deletions(), func(o *record.Deletion) bool { return o.Sequence == d.Sequence })
	if !known {
		s.hide(d)
	}
	s.order.deletions = max(s.order.deletions, d.Sequence)
	e := newErasing(d)
	e.run(s.active.Load(), 0)
	return errors.Join(e.errs...)
}

// settleIndex forgets the series that have no samples: those whose last one was
// deleted, or expired, shortly before the store was closed or crashed.
func (s *Store) settleIndex() error {
	s.forgetSuperseded(s.series.Settle())
	var dead []model.SeriesNumber
	stored := roaring.New()
	for _, f := range s.current.files {
		stored.Or(f.Series)
	}
	active := s.active.Load()
	doubtful := roaring.New()
	nowMS := s.expiredMS()
	doubt := len(s.current.deletions()) > 0 ||
		slices.ContainsFunc(s.current.files, func(f *openFile) bool { return f.ExpiresMS <= nowMS })
	for _, id := range s.series.IDs() {
		inFiles := stored.Contains(uint32(id))
		if inFiles && !doubt {
			continue
		}
		if ms, inHead := active.Expiry(id); inHead && ms > nowMS {
			continue
		}
		if inFiles {
			doubtful.Add(uint32(id))
		} else {
			dead = append(dead, id)
		}
	}
	s.forget(dead)
	return s.forgetEmpty(context.Background(), doubtful)
}
