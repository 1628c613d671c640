package spool

import (
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/registry"
	"varve/internal/store"
	"varve/internal/wal"
	"varve/internal/writelog"
)

// A Generation is a set of samples that go to the remote store together. It is safe
// for concurrent use. A sink uses a generation during Write only.
type Generation struct {
	series *registry.Registry
	place  atomic.Pointer[place]

	stampMS atomic.Int64 // set when it is cut
	samples int64        // set when it is cut; duplicates counted
	number  int64        // set when it is cut; ascending, also across restarts
	began   atomic.Pointer[time.Time]

	logBytes atomic.Int64
	wrote    atomic.Int64 // samples that the sink has written in all attempts, repeated ones included

	// Guarded by the spool's order lock.
	defined idSet       // series that its log records have introduced
	segment wal.Segment // in which it began, 0 if unknown
	firstMS int64       // stamp of the first sample, 0 if samples have none; read without the lock once it is cut
	lastMS  int64       // stamp of the last one

	// Guarded by the spool's mu.
	state   state
	end     wal.Segment     // once it is drained, log segments before this one are not needed
	cut     writelog.Entry  // the record that ends it
	holders int             // number of users: the spool until it is drained, and views
	left    *roaring.Bitmap // series that the sink has not written; nil while the sink has not named them, so any may be unwritten. Never changed, only replaced
}

// A state is how far a generation has come. It has the states in this order, and may skip written.
type state int

const (
	active  state = iota // samples are added to it
	frozen               // immutable; offered to the sink until that has written all of it
	written              // the remote store has it, but not all of an earlier one
	drained              // the remote store has it and all earlier ones; only views read it
)

// A place is where the samples of a generation are: in a head or in a file.
type place struct {
	head *head.Head
	file *spillFile
}

func (s *Spool) newGeneration(segment wal.Segment) *Generation {
	g := &Generation{series: s.series, segment: segment, holders: 1}
	g.place.Store(&place{head: head.NewStamped(int64(s.cfg.generationBytes()))})
	return g
}

// append adds a batch under a write timestamp. The spool's order lock must be held.
func (g *Generation) append(b *store.Batch, kinds []model.Kind, stampMS int64) {
	h := g.place.Load().head
	if !h.Stamped() {
		h.Append(b, kinds)
		return
	}
	if g.firstMS == 0 {
		g.firstMS, g.lastMS = stampMS, stampMS
	}
	// Only a damaged log has others.
	g.lastMS = min(max(stampMS, g.lastMS), g.firstMS+head.MaxStampSpan)
	h.AppendStamped(b, kinds, g.lastMS)
}

// StampMS is the upper bound of the samples' write timestamps, in milliseconds since the Unix
// epoch. It is about the time at which the generation was cut, and below the stamps of all
// samples of later generations. A sample whose own stamp is greater, or that has none, is
// written with StampMS: see head.Run.Stamps.
func (g *Generation) StampMS() int64 { return g.stampMS.Load() }

// FirstStampMS is the lowest write timestamp of the samples.
func (g *Generation) FirstStampMS() int64 {
	if g.firstMS != 0 {
		return min(g.firstMS, g.StampMS())
	}
	return g.StampMS()
}

// Wrote records that a sink has written n samples, before Write returns. Health needs it, since
// a large generation takes minutes.
func (g *Generation) Wrote(n int64) { g.wrote.Add(n) }

// waiting is the number of samples that the remote store does not have, as far
// as the sink has reported.
func (g *Generation) waiting() int64 {
	if g.state >= written {
		return 0
	}
	return max(1, g.samples-g.wrote.Load())
}

// Samples is the number of samples, overwritten ones included.
func (g *Generation) Samples() int64 {
	if h := g.place.Load().head; h != nil {
		return h.Samples()
	}
	return g.samples
}

// Bytes is the size of the generation's log records.
func (g *Generation) Bytes() int64 { return g.logBytes.Load() }

// Series yields the ids of the series with samples, ascending.
func (g *Generation) Series() iter.Seq[model.SeriesNumber] {
	p := g.place.Load()
	if p.head != nil {
		return p.head.Series()
	}
	return func(yield func(model.SeriesNumber) bool) {
		for it := p.file.Series.Iterator(); it.HasNext(); {
			if !yield(model.SeriesNumber(it.Next())) {
				return
			}
		}
	}
}

// SeriesOf returns the series of an id. It knows all ids that Series yields.
func (g *Generation) SeriesOf(id model.SeriesNumber) (model.Series, bool) { return g.series.Series(id) }

// Snapshot fills run with the samples of a series in the range, and perhaps with others, which
// callers clip. If run.Stamps is set, run has each sample's write timestamp, unless an earlier
// version of the server has acknowledged the samples. Snapshot reports whether the series has
// any samples. It fails if memory is damaged or a file cannot be read.
func (g *Generation) Snapshot(id model.SeriesNumber, within model.TimeRange, run *head.Run) (bool, error) {
	p := g.place.Load()
	if p.head != nil {
		return p.head.Snapshot(id, within, run)
	}
	return p.file.snapshot(id, within, run)
}

// has reports whether a series may have samples in r.
func (g *Generation) has(id model.SeriesNumber, r model.TimeRange) bool {
	p := g.place.Load()
	if p.head == nil {
		return p.file.Range().Overlaps(r) && p.file.Series.Contains(uint32(id))
	}
	span, ok := p.head.Span(id)
	return ok && span.Overlaps(r)
}

// memory is the size of the samples in memory, in bytes.
func (g *Generation) memory() int64 {
	if h := g.place.Load().head; h != nil {
		return h.Expanded()
	}
	return 0
}

// A spillFile holds the samples of a frozen generation that was moved to disk.
type spillFile struct {
	*blockfile.File
	stamps  *spillFile // the samples' stamps, see stampsAsSamples; nil if they have none
	firstMS int64      // stamps are offsets from it
	readers sync.Pool  // *spillReader
}

// each calls call for the file and, if there is one, for the file of the stamps.
func (f *spillFile) each(call func(*blockfile.File)) {
	call(f.File)
	if f.stamps != nil {
		call(f.stamps.File)
	}
}

type spillReader struct {
	iter    *blockfile.Iter
	decoder chunk.Decoder
}

func (f *spillFile) snapshot(id model.SeriesNumber, within model.TimeRange, run *head.Run) (bool, error) {
	run.Fragments, run.Kind = run.Fragments[:0], 0
	run.Open.Reset()
	if !f.Series.Contains(uint32(id)) {
		return false, nil
	}
	if run.Stamps && f.stamps != nil {
		return true, f.stamped(id, run)
	}
	return true, f.read(id, within, run)
}

// stamped reads a series with its stamps.
func (f *spillFile) stamped(id model.SeriesNumber, run *head.Run) error {
	if err := f.read(id, model.AllTime, run); err != nil {
		return err
	}
	stamps := head.Run{Hold: run.Hold}
	defer stamps.Release()
	if err := f.stamps.read(id, model.AllTime, &stamps); err != nil {
		return err
	}
	if stamps.Open.Len() != run.Open.Len() {
		return fmt.Errorf("read spooled samples: series %d has %d samples in %s, and %d write timestamps in %s",
			id, run.Open.Len(), f.Path, stamps.Open.Len(), f.stamps.Path)
	}
	for _, ms := range stamps.Open.Values {
		run.Open.Stamps = append(run.Open.Stamps, f.stamps.firstMS+int64(ms))
	}
	return nil
}

// read appends the samples of a series to run, and reserves their memory.
func (f *spillFile) read(id model.SeriesNumber, within model.TimeRange, run *head.Run) error {
	r, _ := f.readers.Get().(*spillReader)
	if r == nil {
		r = &spillReader{iter: f.Iter(true)}
	}
	defer f.readers.Put(r)
	r.iter.Seek(id, within, false)
	for reserved := int64(0); ; {
		e, err := r.iter.Next()
		if err != nil {
			return fmt.Errorf("read spooled samples: %w", err)
		}
		if e == nil {
			return nil
		}
		run.Kind = e.Kind
		if err := r.decoder.DecodeEntry(e, &run.Open); err != nil {
			return r.iter.Corrupt(err)
		}
		if more := run.Open.Memory() - reserved; more >= head.ReserveStep {
			if err := run.Reserve(more); err != nil {
				return err
			}
			reserved += more
		}
	}
}
