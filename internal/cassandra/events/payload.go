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
// The references come first, with the timestamps of the events. The data follows, with a
// timestamp taken after that: so a drop that did not see the reference does not hide it. See
// dropPayload.
func (s *Shelf) putPayloads(ctx context.Context, now int64, entries []timeline.Placed) error {
	var references, data []cql.Entry
	var stamps []int64
	have := map[timeline.PayloadKey]bool{}
	for i := range entries {
		e := &entries[i]
		if e.Payload == nil {
			continue
		}
		references = append(references, cql.Entry{Statement: putReference, Args: []any{e.Pointer[:], e.Timeline}})
		stamps = append(stamps, stampOr(now, e.Put))
		if !have[e.Pointer] {
			have[e.Pointer] = true
			data = append(data, dataPieces(e)...)
		}
	}
	err := work.Parallel(ctx, writesAtOnce, len(references), "write references to data of events", func(ctx context.Context, i int) error {
		return s.session.Exec(ctx, references[i].Statement, stamps[i], references[i].Args...)
	})
	if err != nil {
		return err
	}
	written := s.stamp()
	return work.Parallel(ctx, writesAtOnce, len(data), "write data of events", func(ctx context.Context, i int) error {
		return s.session.Exec(ctx, data[i].Statement, written, data[i].Args...)
	})
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
// meanwhile has either written its reference before, which is found, or writes the data later.
func (s *Shelf) dropPayload(ctx context.Context, key timeline.PayloadKey, name string, before time.Time) error {
	if err := s.check(); err != nil {
		return err
	}
	if err := s.session.Exec(ctx, deleteReference, 0, before.UnixMicro()-1, key[:], name); err != nil {
		return err
	}
	var written int64
	if found, err := s.session.One(ctx, readWritten, []any{key[:]}, &written); err != nil || !found {
		return err
	}
	var left string
	if found, err := s.session.One(ctx, readReference, []any{key[:]}, &left); err != nil || found {
		return err
	}
	return s.session.Exec(ctx, deletePayload, 0, written, key[:])
}
