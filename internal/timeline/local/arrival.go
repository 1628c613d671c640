package local

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"varve/internal/store"
	"varve/internal/timeline"
)

// The log of arrivals has a row for each timeline of a Put, or several if there are many
// events. A row lists the positions of the events:
//
//	row: { time difference varint | id length uvarint | id } of each event
//
// Sequences grow by one for each row. Their upper 24 bits count how often the store was
// opened: rows that a power cut removed share no sequence with later rows, so a reader that
// saw them misses nothing.
const (
	rowEvents      = 256 // most positions in a row
	sequenceShift  = 40
	floorStep      = 1 << 16 // events of a timeline after which its log is cut
	floorSteps     = 16      // steps that are kept: about a million events
	generationsOld = 8       // openings of the store after which arrivals are removed
)

// A place is how far a reader of arrivals has come: it has read some events of a row.
type place struct {
	sequence uint64
	skip     uint16 // events of that row that were read; rowEvents or more: all
}

// An opening of the store has a generation, which counts openings, and a random id. After an
// older backup was restored, generations repeat, and so do sequences, but ids do not.
type opening struct {
	generation uint32
	id         uint32 // 0: the store was opened by a build without ids
}

// A cursor is a place and the opening in which it was made:
//
//	0              8         10               14      18
//	+--------------+---------+----------------+-------+
//	| sequence u64 | skip u16| generation u32 | id u32|
//	+--------------+---------+----------------+-------+
//
// The cursors of builds without ids are a place alone.
const (
	placeBytes  = 10
	cursorBytes = placeBytes + 8
)

func (s *Shelf) cursor(p place) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, cursorBytes), p.sequence)
	b = binary.BigEndian.AppendUint16(b, p.skip)
	b = binary.BigEndian.AppendUint32(b, s.opening.generation)
	return binary.BigEndian.AppendUint32(b, s.opening.id)
}

var errCursor = &store.InputError{Reason: "the cursor was not issued by this store, or was issued after the backup that the store was restored from: " +
	"read the events since then by time, then follow the timeline without a cursor"}

// parseCursor returns the place of a cursor. A cursor of an opening that this store does not know
// is refused: it is from another store, or newer than the backup that this store was restored
// from.
func (s *Shelf) parseCursor(b []byte) (place, error) {
	if len(b) != placeBytes && len(b) != cursorBytes {
		return place{}, errCursor
	}
	p := place{binary.BigEndian.Uint64(b), binary.BigEndian.Uint16(b[8:])}
	made := opening{generation: uint32(p.sequence >> sequenceShift)}
	if len(b) == cursorBytes {
		made = opening{binary.BigEndian.Uint32(b[placeBytes:]), binary.BigEndian.Uint32(b[placeBytes+4:])}
	}
	if made == s.opening {
		return p, nil
	}
	there, err := s.openingOf(made.generation)
	if err == nil && there != made {
		err = errCursor
	}
	return p, err
}

// An arrivalLog is the state of the log of one timeline in memory. The order lock guards it.
type arrivalLog struct {
	events int      // since the last floor was added
	floors []uint64 // sequences at every floorStep events, oldest first
	cut    bool     // arrivals of old generations were removed in this opening
}

// logArrivals adds the arrival of entries of one timeline to a batch. s.order must be held.
func (s *Shelf) logArrivals(b *pebble.Batch, n number, positions []timeline.Position) error {
	for len(positions) > 0 {
		some := positions[:min(rowEvents, len(positions))]
		positions = positions[len(some):]
		s.order.sequence++
		s.order.row = appendPositions(s.order.row[:0], some)
		if err := b.Set(arrivalKey(n, s.order.sequence), s.order.row, nil); err != nil {
			return err
		}
		if err := s.cutArrivals(b, n, len(some)); err != nil {
			return err
		}
	}
	return nil
}

// cutArrivals removes old rows from the log of a timeline. s.order must be held.
func (s *Shelf) cutArrivals(b *pebble.Batch, n number, events int) error {
	l := s.order.logs[n]
	if l == nil {
		l = &arrivalLog{}
		s.order.logs[n] = l
	}
	floor := uint64(0)
	if !l.cut && s.opening.generation > generationsOld {
		// The stored floor may be later. Lowering it would hide a gap from readers.
		stored, err := s.floor(n)
		if err != nil {
			return err
		}
		if old := uint64(s.opening.generation-generationsOld)<<sequenceShift - 1; old > stored {
			floor = old
		}
	}
	l.cut = true
	if l.events += events; l.events >= floorStep {
		l.events = 0
		if l.floors = append(l.floors, s.order.sequence); len(l.floors) > floorSteps {
			floor = l.floors[0]
			l.floors = append(l.floors[:0], l.floors[1:]...)
		}
	}
	if floor == 0 {
		return nil
	}
	if err := b.DeleteRange(numbered(tableArrival, n), arrivalKey(n, floor+1), nil); err != nil {
		return err
	}
	return b.Set(numbered(tableFloor, n), binary.BigEndian.AppendUint64(nil, floor), nil)
}

func appendPositions(row []byte, some []timeline.Position) []byte {
	last := int64(0)
	for _, p := range some {
		row = timeline.AppendText(binary.AppendVarint(row, p.Time-last), p.ID)
		last = p.Time
	}
	return row
}

var errRow = errors.New("a row of arrivals is cut short")

func parsePositions(row []byte) ([]timeline.Position, error) {
	var all []timeline.Position
	last := int64(0)
	for c := (timeline.Cutter{Rest: row}); len(c.Rest) > 0; {
		last += c.Varint()
		id := c.Text()
		if c.Bad || len(all) == rowEvents {
			return nil, errRow
		}
		all = append(all, timeline.Position{Time: last, ID: string(id)})
	}
	return all, nil
}

// Arrivals implements [timeline.Shelf].
func (s *Shelf) Arrivals(ctx context.Context, name string, after []byte, l timeline.Limit) (timeline.Arrivals, error) {
	if err := s.begin(); err != nil {
		return timeline.Arrivals{}, err
	}
	defer s.end()
	durable := s.durable.Load()
	if after == nil {
		return timeline.Arrivals{Next: s.cursor(place{durable, rowEvents})}, nil
	}
	from, err := s.parseCursor(after)
	if err == nil && from.sequence > durable {
		err = errCursor
	}
	if err != nil {
		return timeline.Arrivals{}, err
	}
	n, found, err := s.number(name)
	if err != nil || !found {
		return timeline.Arrivals{Next: after}, err
	}
	a, err := s.arrivals(ctx, n, from, durable, l)
	if err == nil {
		err = s.checkFloor(n, from) // last, because rows may have been removed meanwhile
	}
	if err != nil {
		return timeline.Arrivals{}, err
	}
	return a, nil
}

// checkFloor returns ErrBehind if rows that a reader has not seen were removed.
func (s *Shelf) checkFloor(n number, from place) error {
	floor, err := s.floor(n)
	if err != nil || floor == 0 {
		return err
	}
	if from.sequence < floor || from.sequence == floor && from.skip < rowEvents {
		return timeline.ErrBehind
	}
	return nil
}

// floor returns the sequence up to which arrivals of a timeline were removed, 0 if none were.
func (s *Shelf) floor(n number) (floor uint64, err error) {
	_, err = s.get("read the log of arrivals", numbered(tableFloor, n), func(value []byte) error {
		if len(value) != 8 {
			return s.damaged("the end of a log of arrivals has %d bytes, want 8", len(value))
		}
		floor = binary.BigEndian.Uint64(value)
		return nil
	})
	return floor, err
}

func (s *Shelf) arrivals(ctx context.Context, n number, from place, durable uint64, l timeline.Limit) (timeline.Arrivals, error) {
	a := timeline.Arrivals{Next: s.cursor(from)}
	err := s.walk(ctx, "read the log of arrivals", arrivalKey(n, from.sequence), arrivalKey(n, durable+1), false, func(it *pebble.Iterator) (bool, error) {
		err := ctx.Err()
		if err == nil {
			a.More, err = s.arrivalRow(&a, n, it, from, &l)
		}
		return !a.More, err
	})
	if err == nil && !a.More {
		// The next read need not pass the rows that other timelines have added.
		a.Next = s.cursor(place{max(durable, from.sequence), rowEvents})
	}
	return a, err
}

// arrivalRow reads the events of a row, up to the limit.
func (s *Shelf) arrivalRow(a *timeline.Arrivals, n number, it *pebble.Iterator, from place, left *timeline.Limit) (more bool, err error) {
	sequence := binary.BigEndian.Uint64(it.Key()[5:])
	row, err := it.ValueAndErr()
	if err != nil {
		return false, s.failed("read the log of arrivals", err)
	}
	positions, err := parsePositions(row)
	if err != nil {
		return false, s.damaged("%v", err)
	}
	for i, p := range positions {
		if sequence == from.sequence && i < int(from.skip) {
			continue
		}
		if left.Entries <= 0 || left.Bytes <= 0 {
			return true, nil
		}
		e, found, err := s.event(n, p)
		if err != nil {
			return false, err
		}
		a.Next = s.cursor(place{sequence, uint16(i + 1)})
		left.Entries-- // even if it was deleted: the read was work
		if found {
			a.Entries, a.After = append(a.Entries, e), append(a.After, a.Next)
			left.Bytes -= e.Bytes()
		}
	}
	return false, nil
}

// event reads one event.
func (s *Shelf) event(n number, p timeline.Position) (e timeline.Entry, found bool, err error) {
	found, err = s.get("read an event", eventKey(nil, n, p), func(value []byte) error {
		e, _, err = s.entry(p, value)
		return err
	})
	return e, found, err
}

// entry reads the value of the event at p.
func (s *Shelf) entry(p timeline.Position, value []byte) (timeline.Entry, int, error) {
	e, partition, err := parseEntry(p, value)
	if err != nil {
		err = s.damaged("event %d %q: %v", p.Time, p.ID, err)
	}
	return e, partition, err
}

func (s *Shelf) damaged(format string, args ...any) error {
	return &store.CorruptionError{File: s.dir, Reason: fmt.Sprintf(format, args...)}
}
