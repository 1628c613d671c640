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
	deletePayload   = write("delete_payload", "DELETE FROM timeline_payloads"+hiding+" WHERE key = ?")
	readData        = read("read_payload", 4, "SELECT size, data FROM timeline_payloads WHERE key = ? AND piece >= 0")
	readReference   = read("read_payload_references", 1, "SELECT timeline FROM timeline_payloads WHERE key = ? AND piece = -1 LIMIT 1")
)

// PutPayloads is timeline.Shelf.PutPayloads. Data that is there is written again, with the
// timestamp of now: so DropPayload of before does not take it away.
func (s *Shelf) PutPayloads(ctx context.Context, payloads []timeline.Payload) error {
	if err := s.check(); err != nil {
		return err
	}
	now := s.stamp()
	var entries []cql.Entry
	var stamps []int64
	for i := range payloads {
		p := &payloads[i]
		entries = append(entries, dataPieces(p)...)
		for _, name := range p.Timelines {
			entries = append(entries, cql.Entry{Statement: putReference, Args: []any{p.Key[:], name}})
		}
		for stamp := stampOr(now, p.Put); len(stamps) < len(entries); {
			stamps = append(stamps, stamp)
		}
	}
	return work.Parallel(ctx, writesAtOnce, len(entries), "write data of events", func(ctx context.Context, i int) error {
		return s.session.Exec(ctx, entries[i].Statement, stamps[i], entries[i].Args...)
	})
}

func dataPieces(p *timeline.Payload) (entries []cql.Entry) {
	data := p.Data
	for n := int32(0); n == 0 || len(data) > 0; n++ {
		piece := data[:min(len(data), pieceBytes)]
		data = data[len(piece):]
		entries = append(entries, cql.Entry{Statement: putData, Args: []any{p.Key[:], n, int32(len(p.Data)), piece}})
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

// DropPayload is timeline.Shelf.DropPayload. The tombstone of the whole hides only what was
// written before: whoever refers to it since has written the data again.
func (s *Shelf) DropPayload(ctx context.Context, key timeline.PayloadKey, name string, before time.Time) error {
	if err := s.check(); err != nil {
		return err
	}
	hide := before.UnixMicro() - 1
	if err := s.session.Exec(ctx, deleteReference, 0, hide, key[:], name); err != nil {
		return err
	}
	var left string
	if found, err := s.session.One(ctx, readReference, []any{key[:]}, &left); err != nil || found {
		return err
	}
	return s.session.Exec(ctx, deletePayload, 0, hide, key[:])
}
