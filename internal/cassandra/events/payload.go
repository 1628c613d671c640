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

// In a partition of timeline_payloads, references are at piece -1, with the referring timeline;
// the pieces of the data begin at 0, without a timeline.
var (
	putData         = write("put_payload", "INSERT INTO timeline_payloads (key, piece, timeline, size, data) VALUES (?, ?, '', ?, ?)"+forEver)
	putReference    = write("put_payload_reference", "INSERT INTO timeline_payloads (key, piece, timeline) VALUES (?, -1, ?)"+forEver)
	deleteReference = write("delete_payload_reference", "DELETE FROM timeline_payloads"+hiding+" WHERE key = ? AND piece = -1 AND timeline = ?")
	deletePayload   = write("delete_payload", "DELETE FROM timeline_payloads"+hiding+" WHERE key = ? AND piece >= 0")
	readData        = read("read_payload", 4, "SELECT size, data FROM timeline_payloads WHERE key = ? AND piece >= 0")
	readWritten     = read("read_payload_written", 1, "SELECT WRITETIME(data) FROM timeline_payloads WHERE key = ? AND piece >= 0 LIMIT 1")
	readReference   = read("read_payload_references", 1, "SELECT timeline FROM timeline_payloads WHERE key = ? AND piece = -1 LIMIT 1")
)

// putPayloads writes the data that entries refer to.
//
// The references are written first, with the timestamps of the events. The data follows, with a
// timestamp above everything that may be hidden by a drop that did not see the reference. See
// dropPayload.
func (s *Shelf) putPayloads(ctx context.Context, now int64, entries []timeline.Placed) error {
	var references []cql.Entry
	var stamps []int64
	var data []*timeline.Placed // one for each key
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

// payloadAhead are the timestamps with which data is written again if a drop hides it, relative
// to this server's clock. A drop with a timestamp beyond the last one is an error.
var payloadAhead = []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}

// putData writes the data of an entry, whose reference is stored. The same data may have been
// dropped by a server whose clock is ahead, or may be dropped at this moment by a server that
// looked for references before this one was stored.
//
// Such a drop hides data that was stored before the reference. So either that data is still
// visible, and the new data is written with a higher timestamp; or a drop has hidden it, which
// shows because the new data is not visible after it was written. Reads are at a quorum and
// repair what they read, so a drop that one read has seen is seen by all later reads.
func (s *Shelf) putData(ctx context.Context, e *timeline.Placed) error {
	pieces, stamp := dataPieces(e), s.stamp()
	if e.Fresh { // no other server knows the key
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

// payloadWritten returns the write timestamp of a key's data, if the data exists.
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

// Payload implements timeline.Shelf.
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

// DropPayloads implements timeline.Shelf.
func (s *Shelf) DropPayloads(ctx context.Context, keys []timeline.PayloadKey, name string, before time.Time) error {
	return work.Parallel(ctx, writesAtOnce, len(keys), "delete data of events", func(ctx context.Context, i int) error {
		return s.dropPayload(ctx, keys[i], name, before)
	})
}

// dropPayload reads the data's write timestamp before it looks for references, and removes the
// data up to that timestamp. A concurrent call that refers to the data has either written its
// reference before, which dropPayload finds, or writes the data later, above that timestamp:
// see putData.
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
