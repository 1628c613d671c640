package events

import (
	"context"
	"slices"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/timeline"
)

// A tombstone hides rows with its timestamp or lower ones.
const hiding = " USING TIMESTAMP ?"

var (
	deleteRange  = write("delete_events", "DELETE FROM timeline_events"+hiding+ofPart+inRange)
	deletePieces = write("delete_event_pieces", "DELETE FROM timeline_pieces"+hiding+ofPart+inRange)
	deletePart   = write("delete_event_part", "DELETE FROM timeline_events"+hiding+ofPart)
	deletePart2  = write("delete_event_part_pieces", "DELETE FROM timeline_pieces"+hiding+ofPart)
)

// rangesAtOnce is how many ranges of a part a batch deletes.
const rangesAtOnce = 25

// Delete implements timeline.Shelf. If a range covers the partition, it writes one partition
// tombstone, otherwise one tombstone for each range.
func (s *Shelf) Delete(ctx context.Context, p timeline.Part, ranges []timeline.Range, before time.Time) error {
	if err := s.check(); err != nil {
		return err
	}
	for some := range slices.Chunk(ranges, rangesAtOnce) {
		if err := s.deleteRanges(ctx, &p, some, before); err != nil {
			return err
		}
	}
	return nil
}

// deleteRanges deletes with one batch. The partitions of both tables have the same key, so the
// batch is applied atomically.
func (s *Shelf) deleteRanges(ctx context.Context, p *timeline.Part, ranges []timeline.Range, before time.Time) error {
	var batch []cql.Entry
	for _, r := range ranges {
		if r.Empty() {
			continue
		}
		args := append([]any{before.UnixMicro() - 1}, argsOf(p)...)
		events, pieces := deletePart, deletePart2
		if r.From.Compare(timeline.At(p.Start)) > 0 || r.To.Compare(timeline.At(p.EndExcl)) < 0 {
			events, pieces = deleteRange, deletePieces
			args = append(args, r.From.Time, r.From.ID, r.To.Time, r.To.ID)
		}
		batch = append(batch, cql.Entry{Statement: events, Args: args}, cql.Entry{Statement: pieces, Args: args})
	}
	if len(batch) == 0 {
		return nil
	}
	return s.session.Batch(ctx, 0, batch)
}
