package spool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/head"
	"varve/internal/model"
)

// spillRetry is how long the spiller waits after a failure.
const spillRetry = 2 * time.Second

// spiller writes frozen heads to files when there are too many in memory.
func (s *Spool) spiller(ctx context.Context) {
	for {
		err := s.spillAll(ctx)
		var retry <-chan time.Time
		if err != nil && ctx.Err() == nil {
			s.logger.Error("samples could not be written to files; will retry", "error", err)
			retry = time.After(spillRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.pokeSpiller:
		case <-retry:
		}
	}
}

// spillAll writes the oldest heads to files until few enough are in memory.
func (s *Spool) spillAll(ctx context.Context) error {
	for ctx.Err() == nil {
		g := s.toSpill()
		if g == nil {
			return nil
		}
		err := s.spill(ctx, g)
		s.mu.Lock()
		s.spillErr = err
		s.mu.Unlock()
		s.room.Notify()
		if err != nil {
			s.metrics.spillFailures.Inc()
			return err
		}
	}
	return ctx.Err()
}

// toSpill returns the generation to write next, nil if memory has room for one more active
// generation.
func (s *Spool) toSpill() *Generation {
	if s.memory() <= int64(s.cfg.MaxMemory-s.cfg.generationBytes()) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.held {
		if g.state != active && g.place.Load().head != nil {
			return g
		}
	}
	return nil
}

func (s *Spool) spillError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spillErr
}

// spill moves a generation's samples to a file. They stay readable meanwhile. The file need not
// survive a crash: the log has its samples.
func (s *Spool) spill(ctx context.Context, g *Generation) error {
	s.nextFile++
	number := s.nextFile
	path := s.fs.PathJoin(s.path(spillName), fmt.Sprintf("%010d.blk", number))
	h := g.place.Load().head
	f, err := s.spillHead(ctx, h, path, number, 0)
	if err != nil {
		return err
	}
	if h.Stamped() {
		s.nextFile++
		if f.stamps, err = s.spillHead(ctx, h, path+stampsSuffix, s.nextFile, g.firstMS); err != nil {
			return errors.Join(err, s.removeFile(f))
		}
	}
	if !s.install(g, f) {
		return s.removeFile(f)
	}
	s.metrics.spills.Inc()
	return nil
}

// stampsSuffix is appended to the name of a spilled file to name the file of its stamps.
const stampsSuffix = ".stamps"

// spillHead writes the samples of a head to a file, or their stamps as offsets
// from firstMS if that is not 0.
func (s *Spool) spillHead(ctx context.Context, h *head.Head, path string, number uint64, firstMS int64) (*spillFile, error) {
	if err := s.writeFile(ctx, path, number, h, firstMS); err != nil {
		return nil, err
	}
	f, err := blockfile.Open(s.fs, path, number, s.cache)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read back what was just written: %w", err), s.fs.Remove(path))
	}
	return &spillFile{File: f, firstMS: firstMS}, nil
}

// removeFile closes and removes a spilled file and the file of its stamps.
func (s *Spool) removeFile(f *spillFile) (err error) {
	f.each(func(f *blockfile.File) { err = errors.Join(err, f.Close(), s.fs.Remove(f.Path)) })
	return err
}

// install makes a file the place of g's samples, unless g has no holder left.
func (s *Spool) install(g *Generation, f *spillFile) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.held, g) {
		return false
	}
	s.frozenMem.Add(-g.memory())
	f.each(func(f *blockfile.File) { s.spillTotal += f.Bytes })
	g.place.Store(&place{file: f})
	return true
}

func (s *Spool) writeFile(ctx context.Context, path string, sequence uint64, h *head.Head, firstMS int64) error {
	w, err := blockfile.Create(s.fs, path, chunk.Fast, blockfile.Origin{Sequence: sequence})
	if err != nil {
		return err
	}
	defer w.Abort()
	run := head.Run{Stamps: firstMS != 0}
	var samples model.Columns
	for id := range h.Series() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if _, err := h.Snapshot(id, model.AllTime, &run); err != nil {
			return err
		}
		if err := writeRun(w, id, &run, &samples, firstMS); err != nil {
			return err
		}
	}
	_, err = w.Finish()
	return err
}

// spillSamples and spillBytes bound what spilling holds of one series in memory, unless its
// samples arrived out of order.
const (
	spillSamples = 16 * chunk.TargetSamples
	spillBytes   = 4 << 20 // of values of variable length
)

// writeRun adds a series' samples to w fragment by fragment. If run has stamps, it adds these
// instead, as stampsAsSamples encodes them. samples is scratch space.
func writeRun(w *blockfile.Writer, id model.SeriesNumber, run *head.Run, samples *model.Columns, firstMS int64) error {
	samples.Reset()
	kind, written := run.Kind, 0
	flush := func() error {
		if run.Stamps {
			kind = model.Long
			stampsAsSamples(samples, written, firstMS)
			written += samples.Len()
		}
		for from := 0; from < samples.Len(); from += chunk.TargetSamples {
			if err := w.Add(id, kind, samples, from, min(from+chunk.TargetSamples, samples.Len())); err != nil {
				return err
			}
		}
		samples.Reset()
		return nil
	}
	full := func() bool { return samples.Len() >= spillSamples || len(samples.Data) >= spillBytes }
	for _, f := range run.Fragments {
		if err := run.Decode(f, samples); err != nil {
			return err
		}
		if full() {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	for i := range run.Open.Times {
		samples.AppendFrom(run.Kind, &run.Open, i)
		if full() {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// stampsAsSamples encodes stamps as samples: the values are the stamps, as offsets from
// firstMS, and the times are consecutive numbers from number. These times take no space, since
// they are the same for all series.
func stampsAsSamples(samples *model.Columns, number int, firstMS int64) {
	samples.Values, samples.TTLs = samples.Values[:0], samples.TTLs[:0]
	for i, ms := range samples.Stamps {
		samples.Times[i] = int64(number + i)
		samples.Values = append(samples.Values, uint64(ms-firstMS))
	}
}
