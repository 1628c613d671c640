package kairosrows

import (
	"context"
	"encoding/binary"
	"errors"
	"math"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/schema"
)

var (
	selectMtime = &cql.Statement{Name: "read_mtime", PageSize: 1,
		Text: "SELECT mtime, WRITETIME(mtime), TTL(mtime) FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? LIMIT 1"}
	selectMtimeAtQuorum = &cql.Statement{Name: "cover_mtime", Level: cql.Quorum, PageSize: 1, Text: selectMtime.Text}
	selectRowState      = &cql.Statement{Name: "select_row_state", Level: cql.Quorum, PageSize: 2,
		Text: "SELECT kairos_mtime, changed, WRITETIME(changed), expires FROM varve_row_state WHERE metric = ? AND row_time = ?"}
	selectFirstRowKey = &cql.Statement{Name: "select_first_row_key", Level: cql.Quorum, PageSize: 2,
		Text: "SELECT data_type, mtime, TTL(mtime) FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? LIMIT 1"}
)

// forever is the expiry of what has no time-to-live.
const forever = math.MaxInt64

// A partState is what varve_row_state says of a partition, and how long its index rows
// live as far as that is known.
type partState struct {
	kairosMtime cql.UUID // of varve_row_state; zero: none
	changed     cql.UUID
	changedMS   int64 // write timestamp of changed
	expirySec   int64 // 0: nothing is known
}

// livesUntil is the expiry of the index rows; for ever if it is not known.
func (s partState) livesUntil() int64 {
	if s.expirySec == 0 {
		return forever
	}
	return s.expirySec
}

// covers reports whether varve_row_index holds every row key of the partition: either
// only Varve writes there, or the coverage pass has seen KairosDB's last insert. Of a
// partition whose mtime is null, because it expired, nothing is known.
func (s partState) covers(now stamp) bool {
	return now.mtime != (cql.UUID{}) && s.kairosMtime == now.mtime
}

// A rowState is a row time and its state, without an expiry.
type rowState struct {
	timeMS int64
	partState
}

// A stamp is row_keys.mtime of a partition.
type stamp struct {
	mtime     cql.UUID // zero: null
	writtenMS int64
	ttl       *int // seconds; nil: for ever
}

// readStamp reads the mtime of a partition, readStampAtQuorum for a decision that lasts.
func readStamp(ctx context.Context, session *cql.Session, p partKey) (stamp, error) {
	return stampBy(ctx, session, selectMtime, p)
}

func readStampAtQuorum(ctx context.Context, session *cql.Session, p partKey) (stamp, error) {
	return stampBy(ctx, session, selectMtimeAtQuorum, p)
}

func stampBy(ctx context.Context, session *cql.Session, st *cql.Statement, p partKey) (s stamp, err error) {
	var mtime, written cql.Raw
	_, err = session.One(ctx, st, p.args(), &mtime, &written, &s.ttl)
	s.mtime, s.writtenMS = uuidOf(mtime), writtenMS(written)
	return s, err
}

// readState reads the state of a partition, at a quorum. Without varve_row_state nothing
// is known.
func readState(ctx context.Context, ks *schema.Keyspace, p partKey) (s partState, err error) {
	if !ks.Tables.Own {
		return s, nil
	}
	var kairos, changed, written cql.Raw
	var expires *int64
	_, err = ks.Session.One(ctx, selectRowState, []any{p.metric, p.timeMS}, &kairos, &changed, &written, &expires)
	s.kairosMtime, s.changed, s.changedMS = uuidOf(kairos), uuidOf(changed), writtenMS(written)
	if expires != nil {
		s.expirySec = expiryOf(*expires)
	}
	return s, err
}

// expiresColumn is varve_row_state.expires: Unix seconds, 0 for never.
func expiresColumn(expirySec int64) int64 {
	if expirySec == forever {
		return 0
	}
	return expirySec
}

func expiryOf(column int64) int64 {
	if column == 0 {
		return forever
	}
	return column
}

// uuidOf reads a UUID; null is zero.
func uuidOf(raw []byte) (u cql.UUID) {
	copy(u[:], raw)
	return u
}

// writtenMS reads a write time, which this keyspace has in milliseconds; null
// is 0. Anything far beyond was written in microseconds.
func writtenMS(raw []byte) int64 {
	if len(raw) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(raw))
}

// A first is what is seen of a partition at its first row key.
type first struct {
	any      bool // there is a row key
	hidden   bool // there are too many deleted ones to see whether there is one
	mtime    *cql.UUID
	mtimeTTL *int
}

// readFirst looks whether a partition has row keys, at a quorum.
func readFirst(ctx context.Context, session *cql.Session, p partKey) (f first, err error) {
	var dataType *string
	_, err = session.One(ctx, selectFirstRowKey, p.args(), &dataType, &f.mtime, &f.mtimeTTL)
	f.any = dataType != nil
	if tombstones := (*cql.TombstoneError)(nil); errors.As(err, &tombstones) {
		return first{hidden: true}, nil
	}
	return f, err
}
