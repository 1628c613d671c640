package events

import (
	"context"
	"fmt"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/store"
	"varve/internal/timeline"
	"varve/internal/work"
)

// In a partition of timeline_payloads, references stand at piece -1, with the timeline that
// refers; pieces of the data from 0 on, without one.
var (
	putData         = write("put_payload", "INSERT INTO timeline_payloads (key, piece, timeline, size, data) VALUES (?, ?, '', ?, ?)")
	putReference    = write("put_payload_reference", "INSERT INTO timeline_payloads (key, piece, timeline) VALUES (?, -1, ?)")
	deleteReference = write("delete_payload_reference", "DELETE FROM timeline_payloads"+hiding+" WHERE key = ? AND piece = -1 AND timeline = ?")
	deletePayload   = write("delete_payload", "DELETE FROM timeline_payloads"+hiding+" WHERE key = ? AND piece >= 0")
	readData        = read("read_payload", 4, "SELECT size, data FROM timeline_payloads WHERE key = ? AND piece >= 0")
	readWritten     = read("read_payload_written", 1, "SELECT WRITETIME(data) FROM timeline_payloads WHERE key = ? AND piece >= 0 LIMIT 1")
	readReference   = read("read_payload_references", 1, "SELECT timeline FROM timeline_payloads WHERE key = ? AND piece = -1 LIMIT 1")
)

// putPayloads writes the data that entries refer to.
//
// The references come first, with the timestamps of the events. The data follows, above the
// timestamp of whatever a drop may hide that did not see the reference. See dropPayload.
func (s *Shelf) putPayloads(ctx context.Context, now int64, entries []timeline.Placed) error {
	var references []cql.Entry
	var stamps []int64
	var data []*timeline.Placed // of each key one
	have := map[timeline.PayloadKey]int{}
	for i := range entries {
		e := &entries[i]
		if e.Payload == nil {
			continue
		}
		references = append(references, cql.Entry{Statement: putReference, Args: []any{e.Pointer[:], e.Timeline}})
		stamps = append(stamps, stampOr(now, e.Put))
		switch at, known := have[e.Pointer]; {
		case !known:
			have[e.Pointer] = len(data)
			data = append(data, e)
		case !e.Fresh:
			data[at] = e
		}
	}
	err := work.Parallel(ctx, writesAtOnce, len(references), "write references to data of events", func(ctx context.Context, i int) error {
		return s.session.Exec(ctx, references[i].Statement, stamps[i], references[i].Args...)
	})
	if err != nil {
		return err
	}
	return work.Parallel(ctx, writesAtOnce, len(data), "write data of events", func(ctx context.Context, i int) error {
		return s.putData(ctx, data[i])
	})
}

// Timestamps by which data is written again that a drop hides: how far they are ahead of the
// clock of this server. A clock that is further ahead than the last one is not believed.
var payloadAhead = []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}

// putData writes the data of an entry, whose reference is stored. The same data may have been
// dropped by a server whose clock is ahead, or may be dropped right now by one that has looked
// for references before.
//
// What such a drop hides was there before the reference was. So it is either still there, and the
// data is written above it; or a drop has hidden it, and it shows that the data is not to be seen
// after it was written. Reads are at a quorum and repair what they read, so a drop that one of
// them has met is met by all later ones.
func (s *Shelf) putData(ctx context.Context, e *timeline.Placed) error {
	pieces, stamp := dataPieces(e), s.stamp()
	if e.Fresh { // nobody else knows the key
		return s.putPieces(ctx, stamp, pieces)
	}
	found, before, err := s.payloadWritten(ctx, e.Pointer)
	if err != nil {
		return err
	}
	err = s.putPieces(ctx, max(stamp, before+1), pieces)
	for i := 0; err == nil && !found; i++ {
		if found, _, err = s.payloadWritten(ctx, e.Pointer); err != nil || found {
			break
		}
		if i == len(payloadAhead) {
			return &store.UnavailableError{Reason: fmt.Sprintf("the data of an event cannot be stored, because a server whose clock is more than %v ahead has deleted the same data: synchronise the clocks", payloadAhead[i-1])}
		}
		err = s.putPieces(ctx, stamp+payloadAhead[i].Microseconds(), pieces)
	}
	return err
}

func (s *Shelf) putPieces(ctx context.Context, stamp int64, pieces []cql.Entry) error {
	for _, p := range pieces {
		if err := s.session.Exec(ctx, p.Statement, stamp, p.Args...); err != nil {
			return err
		}
	}
	return nil
}

// payloadWritten returns when the data of a key was written, if it is there.
func (s *Shelf) payloadWritten(ctx context.Context, key timeline.PayloadKey) (found bool, stamp int64, err error) {
	found, err = s.session.One(ctx, readWritten, []any{key[:]}, &stamp)
	return found, stamp, err
}

func dataPieces(e *timeline.Placed) (entries []cql.Entry) {
	data := e.Payload
	for n := int32(0); n == 0 || len(data) > 0; n++ {
		piece := data[:min(len(data), pieceBytes)]
		data = data[len(piece):]
		entries = append(entries, cql.Entry{Statement: putData, Args: []any{e.Pointer[:], n, int32(len(e.Payload)), piece}})
	}
	return entries
}

// Payload is timeline.Shelf.Payload.
func (s *Shelf) Payload(ctx context.Context, key timeline.PayloadKey) ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	rows := s.session.Query(ctx, readData, key[:])
	defer rows.Close()
	data, want, found := []byte{}, int32(0), false
	for {
		var piece cql.Raw
		if !rows.Scan(&want, &piece) {
			break
		}
		data, found = append(data, piece...), true
	}
	switch err := rows.Close(); {
	case err != nil:
		return nil, err
	case !found:
		return nil, timeline.ErrNoPayload
	case len(data) != int(want):
		return nil, &store.CorruptionError{File: "timeline_payloads", Reason: fmt.Sprintf("payload %x has %d bytes, want %d", key, len(data), want)}
	}
	return data, nil
}

// DropPayloads is timeline.Shelf.DropPayloads.
func (s *Shelf) DropPayloads(ctx context.Context, keys []timeline.PayloadKey, name string, before time.Time) error {
	return work.Parallel(ctx, writesAtOnce, len(keys), "delete data of events", func(ctx context.Context, i int) error {
		return s.dropPayload(ctx, keys[i], name, before)
	})
}

// dropPayload looks when the data was written before it looks
// for references, and removes what was written until then. A call that refers to the data
// meanwhile has either written its reference before, which is found, or writes the data later,
// above that timestamp: see putData.
func (s *Shelf) dropPayload(ctx context.Context, key timeline.PayloadKey, name string, before time.Time) error {
	if err := s.check(); err != nil {
		return err
	}
	if err := s.session.Exec(ctx, deleteReference, 0, before.UnixMicro()-1, key[:], name); err != nil {
		return err
	}
	found, written, err := s.payloadWritten(ctx, key)
	if err != nil || !found {
		return err
	}
	var left string
	if found, err := s.session.One(ctx, readReference, []any{key[:]}, &left); err != nil || found {
		return err
	}
	return s.session.Exec(ctx, deletePayload, 0, written, key[:])
}
