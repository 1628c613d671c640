package events

import (
	"context"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/timeline"
)

// A tombstone hides what was written with its timestamp or before.
const hiding = " USING TIMESTAMP ?"

var (
	deleteRange  = write("delete_events", "DELETE FROM timeline_events"+hiding+ofPart+inRange)
	deletePieces = write("delete_event_pieces", "DELETE FROM timeline_pieces"+hiding+ofPart+inRange)
	deletePart   = write("delete_event_part", "DELETE FROM timeline_events"+hiding+ofPart)
	deletePart2  = write("delete_event_part_pieces", "DELETE FROM timeline_pieces"+hiding+ofPart)
)

// Delete is timeline.Shelf.Delete: one tombstone, of the partition where the range covers
// it. The partitions of both tables have the same key, so the batch is applied as a whole.
func (s *Shelf) Delete(ctx context.Context, p timeline.Part, r timeline.Range, before time.Time) error {
	if err := s.check(); err != nil || r.Empty() {
		return err
	}
	args := append([]any{before.UnixMicro() - 1}, argsOf(&p)...)
	events, pieces := deletePart, deletePart2
	if r.From.Compare(timeline.At(p.Start)) > 0 || r.To.Compare(timeline.At(p.EndExcl)) < 0 {
		events, pieces = deleteRange, deletePieces
		args = append(args, r.From.Time, r.From.ID, r.To.Time, r.To.ID)
	}
	return s.session.Batch(ctx, 0, []cql.Entry{{Statement: events, Args: args}, {Statement: pieces, Args: args}})
}
