package events

import (
	"context"
	"errors"
	"fmt"

	"varve/internal/cassandra/cql"
	"varve/internal/store"
	"varve/internal/timeline"
)

// pageRows is the maximum number of rows of events in a page.
const pageRows = 128

const (
	eventColumns = "SELECT time, id, event FROM timeline_events"
	oldestFirst  = " ORDER BY time ASC, id ASC"
)

var (
	readNewest = read("read_events", pageRows, eventColumns+ofPart+inRange+" LIMIT ?")
	readOldest = read("read_events", pageRows, eventColumns+ofPart+inRange+oldestFirst+" LIMIT ?")
	readPieces = read("read_event_pieces", 4, "SELECT data FROM timeline_pieces"+ofPart+" AND time = ? AND id = ? ORDER BY time ASC, id ASC, piece ASC")
)

// Slice implements timeline.Shelf. If Cassandra refuses a read because of too many tombstones,
// Slice reads the range in halves.
func (s *Shelf) Slice(ctx context.Context, p timeline.Part, r timeline.Range, d timeline.Direction, l timeline.Limit) (timeline.Slice, error) {
	if err := s.check(); err != nil {
		return timeline.Slice{}, err
	}
	out := slicer{shelf: s, part: p, direction: d, limit: l}
	err := out.read(ctx, r)
	return timeline.Slice{Entries: out.entries, More: out.more}, err
}

// A slicer executes one call of Slice.
type slicer struct {
	shelf     *Shelf
	part      timeline.Part
	direction timeline.Direction
	limit     timeline.Limit

	entries []timeline.Entry
	bytes   int64
	more    bool
}

func (s *slicer) read(ctx context.Context, r timeline.Range) error {
	if r.Empty() || s.more {
		return nil
	}
	err := s.rows(ctx, r)
	if !errors.As(err, new(*cql.TombstoneError)) {
		return err
	}
	near, far, ok := s.halves(r)
	if !ok {
		return err
	}
	if err := s.read(ctx, near); err != nil {
		return err
	}
	return s.read(ctx, far)
}

// halves divides the rest of a range, in the order of reading.
func (s *slicer) halves(r timeline.Range) (near, far timeline.Range, ok bool) {
	if n := len(s.entries); n > 0 {
		r = behind(r, s.entries[n-1].Position(), s.direction)
	}
	middle := timeline.At(r.From.Time + (r.To.Time-r.From.Time)/2)
	if middle.Compare(r.From) <= 0 || middle.Compare(r.To) >= 0 {
		return r, r, false
	}
	near, far = timeline.Range{From: middle, To: r.To}, timeline.Range{From: r.From, To: middle}
	if s.direction == timeline.Ascending {
		near, far = far, near
	}
	return near, far, true
}

// behind returns the part of a range after a position that was read.
func behind(r timeline.Range, last timeline.Position, d timeline.Direction) timeline.Range {
	if d == timeline.Ascending {
		r.From = last.Next()
	} else {
		r.To = last
	}
	return r
}

// rows reads a range up to the limit.
func (s *slicer) rows(ctx context.Context, r timeline.Range) error {
	st := readNewest
	if s.direction == timeline.Ascending {
		st = readOldest
	}
	args := append(argsOf(&s.part), r.From.Time, r.From.ID, r.To.Time, r.To.ID, int32(s.limit.Entries-len(s.entries)+1))
	found := s.shelf.session.Query(ctx, st, args...)
	defer found.Close()
	for {
		e, ok, err := scan(found)
		if err != nil || !ok {
			return err
		}
		if len(s.entries) == s.limit.Entries || len(s.entries) > 0 && s.bytes+e.size() > s.limit.Bytes {
			s.more = true
			return nil
		}
		if there, err := s.shelf.complete(ctx, &s.part, &e); err != nil {
			return err
		} else if !there {
			continue
		}
		s.bytes += e.Bytes()
		s.entries = append(s.entries, e.Entry)
	}
}

// A row is an entry as it is in its row.
type row struct {
	timeline.Entry
	inPieces bool // Data must be read from its pieces, and has length Size
}

// size is the size of the entry when it is complete.
func (r *row) size() int64 {
	if r.inPieces {
		return r.Bytes() + int64(r.Size)
	}
	return r.Bytes()
}

func scan(rows *cql.Rows) (r row, ok bool, err error) {
	var cell cql.Raw
	if !rows.Scan(&r.Time, &r.ID, &cell) {
		return r, false, rows.Close()
	}
	r.inPieces, err = parseRow(cell, &r.Entry)
	return r, err == nil, err
}

// complete reads data that does not fit into a row, and reports whether the entry still exists.
func (s *Shelf) complete(ctx context.Context, p *timeline.Part, r *row) (there bool, err error) {
	for r.inPieces {
		if r.Data, err = s.pieces(ctx, p, r); err != nil {
			return false, err
		}
		if len(r.Data) == r.Size {
			r.Size, r.inPieces = 0, false
			return true, nil
		}
		// It may have been deleted, or replaced, since its row was read.
		now, there, err := s.again(ctx, p, r)
		if err == nil && there && now.inPieces && now.Size == r.Size {
			err = &store.CorruptionError{File: "timeline_pieces", Reason: fmt.Sprintf("the data of event %q of timeline %q has %d bytes, want %d", r.ID, p.Timeline, len(r.Data), r.Size)}
		}
		if err != nil || !there {
			return false, err
		}
		*r = now
	}
	return true, nil
}

func (s *Shelf) again(ctx context.Context, p *timeline.Part, r *row) (now row, there bool, err error) {
	rows := s.session.Query(ctx, readNewest, append(argsOf(p), r.Time, r.ID, r.Time, r.Position().Next().ID, int32(1))...)
	defer rows.Close()
	return scan(rows)
}

// pieces reads the data of an entry from its pieces. It ignores pieces that are left over from
// earlier, larger data.
func (s *Shelf) pieces(ctx context.Context, p *timeline.Part, e *row) ([]byte, error) {
	var data []byte
	rows := s.session.Query(ctx, readPieces, append(argsOf(p), e.Time, e.ID)...)
	for {
		var piece cql.Raw
		if !rows.Scan(&piece) || len(data)+len(piece) > e.Size {
			return data, rows.Close()
		}
		data = append(data, piece...)
	}
}
