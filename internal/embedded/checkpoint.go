package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/partition"
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/wal"
)

// retryAfter is the pause between a failed checkpoint and the next attempt.
const retryAfter = 2 * time.Second

// checkpointer writes the head to files when it is full, and at intervals.
func (s *Store) checkpointer(ctx context.Context) {
	tick := time.NewTicker(s.cfg.CheckpointInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.full:
		case <-tick.C:
		}
		for s.checkpoint() != nil {
			if s.catalogue.Broken() != nil {
				return // permanently: each attempt would leave files behind
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(retryAfter):
			}
		}
	}
}

// swap is what a checkpoint has to write: everything logged before log.
type swap struct {
	head      *head.Head
	late      bool // see arrivesLate
	log       wal.Segment
	define    []record.Definition
	forget    []model.SeriesNumber
	deletions uint64
	next      model.SeriesNumber
}

// checkpoint writes everything that was appended before it was called to files.
func (s *Store) checkpoint() error {
	s.checkpointing.Lock()
	defer s.checkpointing.Unlock()
	return s.checkpointLocked()
}

// checkpointSmall is checkpoint, and also frees the space that the log keeps for reuse. No other
// checkpoint may come in between: the segments that it releases would be reused for the current
// log.
func (s *Store) checkpointSmall() error {
	s.checkpointing.Lock()
	defer s.checkpointing.Unlock()
	if err := s.log.Current().Trim(); err != nil { // the next segment is a fresh, small file
		return err
	}
	if err := s.checkpointLocked(); err != nil {
		return err
	}
	return s.log.Current().Trim()
}

func (s *Store) checkpointLocked() error {
	began := s.now()
	if err := s.catalogue.Broken(); err != nil {
		return err
	}
	if s.pending == nil {
		sw, err := s.swapHead()
		if err != nil {
			return s.checkpointDone(err)
		}
		s.pending = sw
	}
	samples := s.pending.head.Samples()
	s.logger.Debug("checkpoint begins", "samples", samples)
	err := s.writeHead(s.pending)
	if err == nil {
		s.logger.Debug("checkpoint done", "samples", samples, "took", s.now().Sub(began))
		s.metrics.checkpointSeconds.Observe(s.now().Sub(began).Seconds())
		s.pending = nil
		s.reuseIDs()
		s.forget(s.series.Unused())
	}
	return s.checkpointDone(err)
}

func (s *Store) checkpointDone(err error) error {
	if err == nil {
		s.checkpointFailed.Store(nil)
		s.metrics.checkpoints.Inc()
		s.askMerge()
	} else {
		s.checkpointFailed.Store(&err)
		s.metrics.checkpointFailures.Inc()
		if s.catalogue.Broken() == nil { // otherwise fail has logged the consequences
			s.logger.Error("checkpoint failed; will retry", "error", err)
		}
	}
	s.room.Notify()
	return err
}

// swapHead starts a new head and a new log segment.
func (s *Store) swapHead() (*swap, error) {
	s.installing.Lock()
	defer s.installing.Unlock()
	if err := s.lockErased(context.Background()); err != nil { // frozen has applied all deletions
		return nil, err
	}
	defer s.order.Unlock()
	segment, err := s.log.Current().Rotate()
	if err != nil {
		if !s.log.Closed() { // Close says why the last checkpoint failed
			err = s.log.Error(context.Background(), err)
		}
		return nil, fmt.Errorf("start a log segment: %w", err)
	}
	sw := &swap{
		head: s.active.Load(), late: s.order.late, log: segment,
		define: s.order.define, forget: s.order.forget,
		deletions: s.order.deletions,
		next:      s.series.NextID(),
	}
	s.order.define, s.order.forget, s.order.late = nil, nil, false
	fresh := s.newHead()
	s.active.Store(fresh)
	s.frozenRecords.Store(sw.head.Records())
	s.frozenBytes.Store(sw.head.Expanded() + s.definedBytes.Swap(0))
	s.publish(func(st *state) {
		st.active, st.frozen, st.frozenDeletions = fresh, sw.head, sw.deletions
	})
	return sw, nil
}

// writeHead writes a frozen head to files and commits them. The catalogue ends the
// process if it has no disk space, so it is written to only after the files have found
// space.
func (s *Store) writeHead(sw *swap) error {
	counts, err := s.partitionsOf(sw.head)
	if err != nil {
		return fmt.Errorf("count the samples of each partition: %w", err)
	}
	out := s.place.NewOutput(&counts, chunk.Fast, blockfile.Origin{Sequence: s.nextFile.Add(1), Deletions: sw.deletions, Late: s.lateOf(sw)})
	if err := s.writeSeries(sw.head, out); err != nil {
		out.Abort()
		return fmt.Errorf("write samples to files: %w", err)
	}
	files, err := finished(out)
	if err != nil {
		return fmt.Errorf("write samples to files: %w", err)
	}
	if err := s.journal.Trim(context.Background()); err != nil {
		return errors.Join(err, s.discard(files))
	}
	return s.installCheckpoint(sw, files)
}

// writeSeries adds the samples of every series to out, without those whose
// time-to-live has passed, unless they hide older ones in files. It holds a few
// chunks of a series at a time, unless the samples arrived in random order.
func (s *Store) writeSeries(h *head.Head, out *partition.Output) error {
	st := s.acquire()
	defer s.release(st)
	var (
		run   head.Run
		g     = partition.Gather{Out: out}
		nowMS = s.expiredMS()
	)
	for id := range h.Series() {
		if _, err := h.Snapshot(id, model.AllTime, &run); err != nil {
			return err
		}
		span, _ := h.Span(id)
		keepExpired := st.hasFile(id, span)
		g.Begin(id, run.Kind)
		step := func() error {
			if !keepExpired {
				g.DropExpired(nowMS)
			}
			return g.FlushIfFull()
		}
		for _, f := range run.Fragments {
			if err := run.Decode(f, &g.Columns); err != nil {
				return err
			}
			if err := step(); err != nil {
				return err
			}
		}
		for i := range run.Open.Times {
			g.Columns.AppendFrom(run.Kind, &run.Open, i)
			if !g.Full() {
				continue
			}
			if err := step(); err != nil {
				return err
			}
		}
		if err := errors.Join(step(), g.End()); err != nil {
			return err
		}
	}
	return nil
}

// hasFile reports whether a file may have samples of id in r.
func (st *state) hasFile(id model.SeriesNumber, r model.TimeRange) bool {
	return slices.ContainsFunc(st.files, func(f *openFile) bool {
		return f.Range().Overlaps(r) && f.Series.Contains(uint32(id))
	})
}

// partitionsOf counts how many samples of h each partition has. Samples that were
// overwritten in the head count too.
func (s *Store) partitionsOf(h *head.Head) (partition.Counts, error) {
	var (
		counts partition.Counts
		run    head.Run
		cols   model.Columns
	)
	for id := range h.Series() {
		span, _ := h.Span(id)
		start := s.width.Partition(span.StartMS)
		if start == s.width.Partition(span.EndMS) {
			counts.Add(start, h.Count(id))
			continue
		}
		h.Arrivals(id, &run)
		for _, f := range run.Fragments {
			start := s.width.Partition(f.FirstMS)
			if start == s.width.Partition(f.LastMS) {
				counts.Add(start, int64(f.Count()))
				continue
			}
			cols.Reset()
			if err := run.Decode(f, &cols); err != nil {
				return counts, err
			}
			s.countTimes(&counts, cols.Times)
		}
		s.countTimes(&counts, run.Open.Times)
	}
	return counts, nil
}

// countTimes counts samples at the given times, in any order.
func (s *Store) countTimes(counts *partition.Counts, times []int64) {
	for i := 0; i < len(times); {
		start := s.width.Partition(times[i])
		n := 1
		for i+n < len(times) && s.width.Partition(times[i+n]) == start {
			n++
		}
		counts.Add(start, int64(n))
		i += n
	}
}

// installCheckpoint commits the files, so that the part of the log from before
// the checkpoint is no longer needed.
func (s *Store) installCheckpoint(sw *swap, files []*openFile) error {
	if err := s.commitCheckpoint(sw, files); err != nil {
		return err
	}
	return s.forgetEmpty(context.Background(), unwritten(sw.head, files))
}

func (s *Store) commitCheckpoint(sw *swap, files []*openFile) error {
	begun := s.log.Current().Begun(sw.log)
	s.installing.Lock()
	defer s.installing.Unlock()
	ch := catalogue.Change{
		AddFiles: manifestOf(files),
		Define:   sw.define,
		Forget:   sw.forget,
		Meta: func(m *catalogue.Meta) {
			m.LogFrom, m.LogBegun, m.NextSeries, m.Deletions = uint64(sw.log), begun, sw.next, sw.deletions
		},
	}
	for _, d := range s.current.deletions() {
		if d.Sequence <= sw.deletions {
			ch.AddDeletions = append(ch.AddDeletions, d)
		}
	}
	if err := s.commit(ch, files); err != nil {
		return err
	}
	s.leaving.Committed(setOf(sw.forget))
	s.savedDeletions = max(s.savedDeletions, sw.deletions)
	written := s.samplesIn(files)
	s.publish(func(st *state) {
		st.frozen = nil
		st.files = append(st.files, files...)
	})
	s.frozenBytes.Store(0)
	s.frozenRecords.Store(0)
	s.metrics.checkpointSamples.Add(float64(written))
	if err := s.log.Current().Release(sw.log); err != nil {
		s.logger.Warn("log segments could not be released; will retry with the next checkpoint", "error", err)
	}
	return nil
}

func (s *Store) samplesIn(files []*openFile) (n int64) {
	for _, f := range files {
		n += f.Samples
	}
	return n
}

func manifestOf(files []*openFile) map[uint64]catalogue.File {
	m := make(map[uint64]catalogue.File)
	for _, f := range files {
		m[f.Number] = catalogue.File{Bytes: f.Bytes, Sequence: f.Sequence, Deletions: f.Deletions}
	}
	return m
}

// commit makes a change durable. If the write fails, it is usually unknown whether the change is
// on disk: the files stay, and the next start finds out. Until then no other change is tried. An
// error from before the write, for example for lack of space for new series, concerns this attempt
// alone.
func (s *Store) commit(ch catalogue.Change, added []*openFile) error {
	err := s.catalogue.Commit(ch)
	if err == nil {
		return nil
	}
	if s.catalogue.Broken() == nil {
		return errors.Join(err, s.discard(added))
	}
	s.retire(added)
	s.log.Fail("the catalogue failed", err)
	return err
}

// unwritten returns the series of h that have no sample in files, because all of them have expired.
func unwritten(h *head.Head, files []*openFile) *roaring.Bitmap {
	ids := roaring.New()
	for id := range h.Series() {
		if !slices.ContainsFunc(files, func(f *openFile) bool { return f.Series.Contains(uint32(id)) }) {
			ids.Add(uint32(id))
		}
	}
	return ids
}
