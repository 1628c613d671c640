package cassandra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"varve/internal/cassandra/kairosrows"
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/spool"
	"varve/internal/store"
)

// A redeleter is the spool's sink: it writes generations, and repeats deletions of
// other nodes that concern samples in them.
//
// A deletion finds rows by the index. Rows that had no sample in Cassandra when it
// looked are not found. So a node that deletes records that first, and a node that
// writes looks at what is recorded after it has written:
//
//	who deletes   1 record it   2 look for rows   3 delete
//	who writes    1 samples and index rows        2 look for what is recorded
//
// Either the first finds the rows of the second, or the second finds the record of
// the first. Then it makes the same deletion, with the same write timestamp: it takes
// the samples that were acknowledged before, and no others.
//
// A deletion that cannot be repeated while Cassandra is there, or that somebody has
// cancelled, is logged and left: it must not keep all other samples from being written.
type redeleter struct {
	sink    spool.Sink
	deleter deleter
	log     *slog.Logger
}

// A deleter is what a redeleter needs of a *kairosrows.Deleter.
type deleter interface {
	Recorded(ctx context.Context, fromMS int64, f func(stampMS int64, del store.Deletion) error) error
	Delete(ctx context.Context, stampMS int64, deletions ...store.Deletion) error
}

var _ deleter = (*kairosrows.Deleter)(nil)

// Write implements spool.Sink.
func (r *redeleter) Write(ctx context.Context, g *spool.Generation) error {
	if err := r.sink.Write(ctx, g); err != nil {
		return err
	}
	var found []recorded
	err := r.deleter.Recorded(ctx, g.FirstStampMS(), func(stampMS int64, del store.Deletion) error {
		if found = append(found, recorded{stampMS, del}); len(found) < recordedMost {
			return nil
		}
		err := r.repeat(ctx, g, found)
		found = found[:0]
		return err
	})
	if err != nil {
		return err
	}
	return r.repeat(ctx, g, found)
}

// recordedMost is how many deletions are looked at together.
const recordedMost = 1000

// recorded is a deletion that some node has made.
type recorded struct {
	stampMS int64
	store.Deletion
}

// repeat makes those deletions again that concern samples of a generation, for the
// times of these samples.
func (r *redeleter) repeat(ctx context.Context, g *spool.Generation, found []recorded) error {
	if len(found) == 0 {
		return nil
	}
	concerned, err := concernedBy(g, found)
	if err != nil {
		return err
	}
	for i, within := range concerned {
		del := found[i].Deletion
		del.Range = within
		err := r.deleter.Delete(ctx, found[i].stampMS, del)
		var away *store.UnavailableError
		switch {
		case err == nil:
		case ctx.Err() != nil || errors.As(err, &away):
			return fmt.Errorf("repeat a delete that another node has made while samples waited here: %w", err)
		default:
			r.log.Error("a delete by another node cannot be repeated; samples that waited here while it was made may be there again: repeat it by hand",
				"metric", del.Metric, "start_ms", within.StartMS, "end_ms", within.EndMS, "error", err)
		}
	}
	return nil
}

// concernedBy returns the deletions, by their place, that are later than samples of a
// generation which they mean, and the span of these samples.
func concernedBy(g *spool.Generation, found []recorded) (map[int]model.TimeRange, error) {
	of := map[string][]int{}
	for i := range found {
		of[found[i].Metric] = append(of[found[i].Metric], i)
	}
	concerned := map[int]model.TimeRange{}
	run := head.Run{Stamps: true}
	var cols model.Columns
	for id := range g.Series() {
		series, ok := g.SeriesOf(id)
		if !ok {
			continue
		}
		cols.Reset() // read at most once, however many deletions there are
		for _, i := range of[series.Metric] {
			if !found[i].Means(series) {
				continue
			}
			if cols.Len() == 0 {
				if err := readSamples(g, id, &run, &cols); err != nil {
					return nil, err
				}
			}
			within, any := found[i].takes(g, &cols)
			if !any {
				continue
			}
			if before, twice := concerned[i]; twice {
				within = model.TimeRange{StartMS: min(within.StartMS, before.StartMS), EndMS: max(within.EndMS, before.EndMS)}
			}
			concerned[i] = within
		}
	}
	return concerned, nil
}

// takes returns the span of those samples of a series that the deletion means.
func (r *recorded) takes(g *spool.Generation, cols *model.Columns) (within model.TimeRange, any bool) {
	for i, ms := range cols.Times {
		stampMS := g.StampMS()
		if len(cols.Stamps) > 0 {
			stampMS = min(stampMS, cols.Stamps[i])
		}
		if stampMS > r.stampMS || !r.Range.Contains(ms) {
			continue
		}
		if !any {
			within.StartMS = ms
		}
		within.EndMS, any = ms, true // times ascend
	}
	return within, any
}

// readSamples appends the samples of a series to cols.
func readSamples(g *spool.Generation, id uint32, run *head.Run, cols *model.Columns) error {
	there, err := g.Snapshot(id, model.AllTime, run)
	if err == nil && there {
		err = run.DecodeAll(cols)
	}
	if err != nil {
		return fmt.Errorf("read spooled samples: %w", err)
	}
	return nil
}
