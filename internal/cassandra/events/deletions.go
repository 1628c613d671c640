package events

import (
	"context"
	"time"

	"varve/internal/timeline"
)

// The deletes of each day are in a partition of their own, so that no partition grows for as
// long as deletes are kept. A reader that looks for deletes of the last few tenths of a second
// reads one partition.
const (
	dayMicros = 86400 * 1_000_000

	// deletionsPage is the maximum number of deletes in a page.
	deletionsPage = 1000

	// aheadMost is how far the clock of a deleting server may be ahead of that of a reading
	// one: much more than Cassandra itself tolerates.
	aheadMost = time.Hour

	// deletionsTTL is longer than promised, because clocks may differ.
	deletionsTTL = timeline.DeletionsKept + 24*time.Hour
)

var (
	putDeletion   = write("put_deletion", "INSERT INTO timeline_deletions (timeline, day, before, from_time, from_id, to_time, to_id, id) VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TTL ?")
	readDeletions = read("read_deletions", deletionsPage, "SELECT before, from_time, from_id, to_time, to_id, id FROM timeline_deletions WHERE timeline = ? AND day = ? AND before > ?")
)

var _ timeline.DeletionLog = (*Shelf)(nil)

func dayOf(micros int64) int64 { return micros / dayMicros }

// NoteDeletion implements timeline.DeletionLog.
func (s *Shelf) NoteDeletion(ctx context.Context, name string, d timeline.Deleted) error {
	if err := s.check(); err != nil {
		return err
	}
	before, r := d.Before.UnixMicro(), d.Range
	return s.session.Exec(ctx, putDeletion, s.stamp(), name, dayOf(before), before, r.From.Time, r.From.ID, r.To.Time, r.To.ID, d.ID, seconds(deletionsTTL))
}

// Deletions implements timeline.DeletionLog.
func (s *Shelf) Deletions(ctx context.Context, name string, after time.Time, f func(timeline.Deleted) error) error {
	if err := s.check(); err != nil {
		return err
	}
	now := s.now()
	from := max(after.UnixMicro(), now.Add(-deletionsTTL).UnixMicro())
	last := max(from, now.UnixMicro()) + aheadMost.Microseconds() // the clock may have been set back
	for day := dayOf(from); day <= dayOf(last); day++ {
		if err := s.deletionsOf(ctx, name, day, from, f); err != nil {
			return err
		}
	}
	return nil
}

func (s *Shelf) deletionsOf(ctx context.Context, name string, day, after int64, f func(timeline.Deleted) error) error {
	rows := s.session.Query(ctx, readDeletions, name, day, after)
	defer rows.Close()
	for {
		var d timeline.Deleted
		var before int64
		if !rows.Scan(&before, &d.Range.From.Time, &d.Range.From.ID, &d.Range.To.Time, &d.Range.To.ID, &d.ID) {
			return rows.Close()
		}
		d.Before = time.UnixMicro(before)
		if err := f(d); err != nil {
			return err
		}
	}
}
