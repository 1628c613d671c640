package events

import (
	"context"

	"varve/internal/cassandra/cql"
	"varve/internal/timeline"
	"varve/internal/work"
)

const (
	// inlineBytesMax is the largest data that is stored in an event's row. A whole page of rows
	// is in memory at once.
	inlineBytesMax = 32 << 10

	// pieceBytes is the size of the pieces of larger data.
	pieceBytes = 256 << 10

	// togetherBytes is the largest data whose pieces and row are written atomically: half of
	// what Cassandra accepts for a partition in one batch. If a put of larger data is
	// interrupted, the earlier row may exist together with pieces of the new data.
	togetherBytes = 8 << 20

	// A batch of one partition is most efficient with about a hundred rows and up to 128 KiB.
	batchRows  = 100
	batchBytes = 128 << 10

	// writesAtOnce is how many batches of a call are in flight at once.
	writesAtOnce = 16
)

var (
	putEvent = write("put_event", "INSERT INTO timeline_events (timeline, bucket, part, time, id, event) VALUES (?, ?, ?, ?, ?, ?)"+forEver)
	putPiece = write("put_event_piece", "INSERT INTO timeline_pieces (timeline, bucket, part, time, id, piece, data) VALUES (?, ?, ?, ?, ?, ?, ?)"+forEver)
)

// A batch has entries of a call for one partition, or a part of them.
type batch struct {
	entries []cql.Entry
	of      []int // indexes of its entries in the call
	bytes   int
	stamp   int64
}

// Put implements timeline.Shelf. Data that does not fit into a row is written together with the
// row, or before it.
func (s *Shelf) Put(ctx context.Context, entries []timeline.Placed) error {
	if err := s.check(); err != nil {
		return err
	}
	for i := range entries {
		if entries[i].MayPoint || entries[i].Payload != nil {
			return s.putReplacing(ctx, entries)
		}
	}
	return s.put(ctx, s.stamp(), entries)
}

// put writes entries and their arrivals. Entries without Placed.Put get the timestamp now.
func (s *Shelf) put(ctx context.Context, now int64, entries []timeline.Placed) error {
	failed := map[int]error{} // by index
	var large []batch
	for i := range entries {
		large = append(large, putPieces(now, i, &entries[i])...)
	}
	s.putBatches(ctx, large, failed)
	s.putBatches(ctx, putRows(now, entries, failed), failed)
	s.arrived(ctx, entries, failed)
	if len(failed) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil && len(failed) == len(entries) {
		return context.Cause(ctx)
	}
	return &timeline.PutError{Failed: failed}
}

// putBatches writes batches, and records which entries may not be stored.
func (s *Shelf) putBatches(ctx context.Context, batches []batch, failed map[int]error) {
	each(len(batches), func(i int) []int { return batches[i].of }, failed, func(i int) error {
		return s.session.Batch(ctx, batches[i].stamp, batches[i].entries)
	})
}

// each calls f for 0 to n-1, several at once, and records errors for the entries whose indexes
// of returns.
func each(n int, of func(int) []int, failed map[int]error, f func(int) error) {
	errs := make([]error, n)
	_ = work.Parallel(context.Background(), writesAtOnce, n, "put events", func(_ context.Context, i int) error {
		errs[i] = work.Do("put events", func() error { return f(i) })
		return nil // the others continue
	})
	for i, err := range errs {
		if err != nil {
			for _, at := range of(i) {
				failed[at] = err
			}
		}
	}
}

func argsOf(p *timeline.Part) []any { return []any{p.Timeline, p.Start, int32(p.Partition)} }

// inPieces reports whether the data of an entry is too large for a row, and whether data and
// row are written in one batch.
func inPieces(e *timeline.Placed) (pieces, together bool) {
	pieces = len(e.Data) > inlineBytesMax && e.Pointer == (timeline.PayloadKey{})
	return pieces, pieces && len(e.Data) <= togetherBytes
}

// putPieces returns batches for data that is too large for a row. Its partition and that of the
// row have the same key, so a batch of both is applied atomically.
func putPieces(now int64, index int, e *timeline.Placed) []batch {
	pieces, together := inPieces(e)
	if !pieces {
		return nil
	}
	var entries []cql.Entry
	for n, data := int32(0), e.Data; len(data) > 0; n++ {
		piece := data[:min(len(data), pieceBytes)]
		data = data[len(piece):]
		entries = append(entries, cql.Entry{Statement: putPiece, Args: append(argsOf(&e.Part), e.Time, e.ID, n, piece)})
	}
	of, stamp := []int{index}, stampOr(now, e.Put)
	if together {
		return []batch{{stamp: stamp, of: of, entries: append(entries, putRow(e, appendRow(nil, &e.Entry)))}}
	}
	var all []batch
	for i := range entries {
		all = append(all, batch{stamp: stamp, of: of, entries: entries[i : i+1]})
	}
	return all
}

func putRow(e *timeline.Placed, cell []byte) cql.Entry {
	return cql.Entry{Statement: putEvent, Args: append(argsOf(&e.Part), e.Time, e.ID, cell)}
}

// putRows returns the rows of each part in batches.
func putRows(now int64, entries []timeline.Placed, leave map[int]error) []batch {
	type key struct {
		timeline.Part
		stamp int64
	}
	open := map[key]int{}
	var all []batch
	for i := range entries {
		e := &entries[i]
		if _, together := inPieces(e); together || leave[i] != nil {
			continue
		}
		cell := appendRow(nil, &e.Entry)
		row := putRow(e, cell)
		size := len(e.ID) + len(cell) + 64
		k := key{e.Part, stampOr(now, e.Put)}
		at, ok := open[k]
		if !ok || len(all[at].of) >= batchRows || all[at].bytes+size > batchBytes {
			at = len(all)
			open[k] = at
			all = append(all, batch{stamp: k.stamp})
		}
		b := &all[at]
		b.entries, b.of, b.bytes = append(b.entries, row), append(b.of, i), b.bytes+size
	}
	return all
}
