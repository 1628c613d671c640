package cassandra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/cassandra/layout"
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/spool"
	"varve/internal/store"
)

// A redeleter is the spool's sink: it writes generations, and repeats deletions by other nodes
// that concern samples in them.
//
// A deletion finds rows through the index, so it does not find rows that had no sample in
// Cassandra at that time:
//
//	who deletes   1 record it   2 look for rows   3 delete
//	who writes    1 samples and index rows        2 look for what is recorded
//
// Either the deleting node finds the rows, or the writing node finds the record. Then it executes
// the same deletion with the same write timestamp, which deletes exactly the samples that were
// acknowledged before.
//
// If Cassandra refuses a repeated deletion, that is logged and the deletion is skipped: it must
// not keep all other samples from being written.
type redeleter struct {
	sink    spool.Sink
	deleter layout.Repeater
	log     *slog.Logger

	checked map[*spool.Generation]uint64 // for partly written generations: how many series were left at the last look for deletions; for Write only
}

// Write implements spool.Sink. If a generation is partly written, deletions are repeated for
// the series that count as written.
func (r *redeleter) Write(ctx context.Context, g *spool.Generation) error {
	failed := r.sink.Write(ctx, g)
	partial, ok := errors.AsType[*spool.PartialError](failed)
	switch {
	case failed == nil:
		if err := r.look(ctx, g, nil); err != nil {
			return waits(ctx, g, err)
		}
		delete(r.checked, g)
		return nil
	case !ok || partial.Series == nil:
		return failed
	}
	left := partial.Series.GetCardinality()
	if before, looked := r.checked[g]; looked && left == before {
		return failed
	}
	if err := r.look(ctx, g, partial.Series); err != nil {
		return &spool.PartialError{Left: partial.Left, Written: partial.Written, Err: errors.Join(partial.Err, err)}
	}
	if r.checked == nil {
		r.checked = map[*spool.Generation]uint64{}
	}
	r.checked[g] = left
	return failed
}

// waits returns the error for a written generation for which a deletion cannot be repeated yet.
// If replicas are missing for that, perhaps those of another data center, the error lets later
// generations continue.
func waits(ctx context.Context, g *spool.Generation, err error) error {
	if ctx.Err() != nil || !errors.As(err, new(*store.UnavailableError)) {
		return err
	}
	series := int64(0)
	for range g.Series() {
		series++
	}
	return &spool.PartialError{Left: series, Err: err}
}

// look repeats the deletions that concern samples of a generation, except for series that are
// left.
func (r *redeleter) look(ctx context.Context, g *spool.Generation, left *roaring.Bitmap) error {
	var found []recorded
	memory := 0
	err := r.deleter.Recorded(ctx, g.FirstStampMS(), func(stampMS int64, del store.Deletion) error {
		found, memory = append(found, recorded{stampMS, del}), memory+del.Memory()
		if len(found) < recordedMost && memory < recordedBytes {
			return nil
		}
		err := r.repeat(ctx, g, left, found)
		clear(found)
		found, memory = found[:0], 0
		return err
	})
	if err != nil {
		return err
	}
	return r.repeat(ctx, g, left, found)
}

// recordedMost is how many deletions are processed together, recordedBytes how much memory they may take:
// one may have 100,000 values of tags.
const (
	recordedMost  = 1000
	recordedBytes = 16 << 20
)

// recorded is a deletion by any node.
type recorded struct {
	stampMS int64
	store.Deletion
}

// writtenMost is how many parts of rows are collected before they are deleted.
const writtenMost = 20_000

// repeat executes deletions again for the older samples of a generation that they select. It
// deletes only these samples and does not look for others, because the deleting node has found
// all samples that were in Cassandra before. Series that are left are skipped.
func (r *redeleter) repeat(ctx context.Context, g *spool.Generation, left *roaring.Bitmap, found []recorded) error {
	if len(found) == 0 {
		return nil
	}
	of := map[string][]int{}
	for i := range found {
		of[found[i].Metric] = append(of[found[i].Metric], i)
	}
	means := map[int]func(model.Series) bool{}       // of the deletions of metrics that the generation has
	gathered, parts := map[int][]layout.Written{}, 0 // by position of the deletion
	run := head.Run{Stamps: true}
	var cols model.Columns
	for id := range g.Series() {
		series, ok := g.SeriesOf(id)
		if !ok || left != nil && left.Contains(uint32(id)) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		cols.Reset() // read at most once per series, however many deletions there are
		for _, i := range of[series.Metric] {
			if means[i] == nil {
				means[i] = found[i].Meaning()
			}
			if !means[i](series) {
				continue
			}
			if cols.Len() == 0 {
				if err := readSamples(g, id, &run, &cols); err != nil {
					return err
				}
			}
			before := len(gathered[i])
			gathered[i] = r.appendSelected(gathered[i], &found[i], series, g.StampMS(), &cols)
			if parts += len(gathered[i]) - before; parts < writtenMost {
				continue
			}
			if err := r.delete(ctx, found, gathered); err != nil {
				return err
			}
			clear(gathered)
			parts = 0
		}
	}
	return r.delete(ctx, found, gathered)
}

// delete deletes the samples collected for each deletion.
func (r *redeleter) delete(ctx context.Context, found []recorded, gathered map[int][]layout.Written) error {
	for i, written := range gathered {
		if len(written) == 0 {
			continue
		}
		del := &found[i]
		err := r.deleter.DeleteWritten(ctx, del.stampMS, del.Metric, written)
		switch {
		case err == nil:
		case ctx.Err() != nil || errors.As(err, new(*store.UnavailableError)):
			return fmt.Errorf("repeat a delete that another node made while samples waited here: %w", err)
		default:
			r.log.Error("a delete by another node cannot be repeated; samples that waited here at the time may reappear: repeat the delete by hand",
				"metric", del.Metric, "start_ms", del.Range.StartMS, "end_ms", del.Range.EndMS, "error", err)
		}
	}
	return nil
}

// appendSelected appends the samples of a series that a deletion selects, row by row. stampMS is the
// upper bound of the samples' write timestamps.
func (r *redeleter) appendSelected(written []layout.Written, del *recorded, series model.Series, stampMS int64, cols *model.Columns) []layout.Written {
	last, any := int64(0), false    // the row of the last element
	for i, ms := range cols.Times { // ascending
		stamp := stampMS
		if len(cols.Stamps) > 0 {
			stamp = min(stamp, cols.Stamps[i])
		}
		row, stored, deleted := r.deleter.Place(ms, del.Range)
		switch {
		case stamp > del.stampMS || !deleted:
		case any && row == last:
			written[len(written)-1].Times.EndMS = stored
		default:
			written = append(written, layout.Written{Series: series, RowTimeMS: row, Times: model.TimeRange{StartMS: stored, EndMS: stored}})
			last, any = row, true
		}
	}
	return written
}

// readSamples appends the samples of a series to cols.
func readSamples(g *spool.Generation, id model.SeriesNumber, run *head.Run, cols *model.Columns) error {
	there, err := g.Snapshot(id, model.AllTime, run)
	if err == nil && there {
		err = run.DecodeAll(cols)
	}
	if err != nil {
		return fmt.Errorf("read spooled samples: %w", err)
	}
	return nil
}
