package rowkey

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
	selectMtimeEverywhere = &cql.Statement{Name: "cover_mtime", Level: cql.Everywhere, PageSize: 1, Text: selectMtime.Text}
	selectRowState        = &cql.Statement{Name: "select_row_state", Level: cql.Quorum, PageSize: 2,
		Text: "SELECT kairos_mtime, changed, WRITETIME(changed), expires FROM varve_row_state WHERE metric = ? AND row_time = ?"}
	selectFirstRowKey = &cql.Statement{Name: "select_first_row_key", Level: cql.Quorum, PageSize: 2,
		Text: "SELECT data_type, mtime, TTL(mtime) FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ? LIMIT 1"}
)

// Forever is the expiry of rows without a time-to-live.
const Forever = math.MaxInt64

// A State is the content of varve_row_state for a partition, and how long its index rows live,
// as far as is known.
type State struct {
	KairosMtime cql.UUID // kairos_mtime of varve_row_state; zero if null
	Changed     cql.UUID
	ChangedMS   int64 // write timestamp of changed
	ExpirySec   int64 // 0 if unknown
}

// LivesUntil is the expiry of the index rows, Forever if it is unknown.
func (s State) LivesUntil() int64 {
	if s.ExpirySec == 0 {
		return Forever
	}
	return s.ExpirySec
}

// Covers reports whether varve_row_index holds every row key of the partition: either only
// Varve writes there, or a coverage pass has seen KairosDB's last insert. If mtime is null
// because it expired, it is unknown whether the index is complete, so the partition is not
// covered.
func (s State) Covers(now Stamp) bool {
	return now.Mtime != (cql.UUID{}) && s.KairosMtime == now.Mtime
}

// A RowTime is a row time and its state, without an expiry.
type RowTime struct {
	TimeMS int64
	State
}

// A Stamp is row_keys.mtime of a partition.
type Stamp struct {
	Mtime     cql.UUID // zero: null
	WrittenMS int64
	TTL       *int // seconds; nil if it never expires
}

// ReadStamp reads the mtime of a partition at a consistency level, which must be cql.Everywhere
// for lasting decisions.
func ReadStamp(ctx context.Context, session *cql.Session, p Partition, level cql.Level) (s Stamp, err error) {
	st := selectMtime
	if level == cql.Everywhere {
		st = selectMtimeEverywhere
	}
	var mtime, written cql.Raw
	rows := session.QueryAt(ctx, level, st, p.Args()...)
	rows.Scan(&mtime, &written, &s.TTL)
	err = rows.Close()
	s.Mtime, s.WrittenMS = UUIDOf(mtime), WrittenMS(written)
	return s, err
}

// ReadState reads the state of a partition, at a quorum. Without varve_row_state it returns the
// zero State.
func ReadState(ctx context.Context, ks *schema.Keyspace, p Partition) (s State, err error) {
	if !ks.Tables.Own {
		return s, nil
	}
	var kairos, changed, written cql.Raw
	var expires *int64
	_, err = ks.Session.One(ctx, selectRowState, []any{p.Metric, p.TimeMS}, &kairos, &changed, &written, &expires)
	s.KairosMtime, s.Changed, s.ChangedMS = UUIDOf(kairos), UUIDOf(changed), WrittenMS(written)
	if expires != nil {
		s.ExpirySec = expiryOf(*expires)
	}
	return s, err
}

// ExpiresColumn converts an expiry to varve_row_state.expires: Unix seconds, 0 for never.
func ExpiresColumn(expirySec int64) int64 {
	if expirySec == Forever {
		return 0
	}
	return expirySec
}

func expiryOf(column int64) int64 {
	if column == 0 {
		return Forever
	}
	return column
}

// UUIDOf decodes a UUID; null is the zero UUID.
func UUIDOf(raw []byte) (u cql.UUID) {
	copy(u[:], raw)
	return u
}

// WrittenMS decodes a write time, which in this keyspace is in milliseconds; null is 0. A value
// far too large for that was written in microseconds.
func WrittenMS(raw []byte) int64 {
	if len(raw) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(raw))
}

// A First is what reading the first row key of a partition shows.
type First struct {
	Any      bool // there is a row key
	Hidden   bool // too many tombstones to tell whether there is one
	Mtime    *cql.UUID
	MtimeTTL *int
}

// ReadFirst reads the first row key of a partition, at a quorum.
func ReadFirst(ctx context.Context, session *cql.Session, p Partition) (f First, err error) {
	var dataType *string
	_, err = session.One(ctx, selectFirstRowKey, p.Args(), &dataType, &f.Mtime, &f.MtimeTTL)
	f.Any = dataType != nil
	if _, ok := errors.AsType[*cql.TombstoneError](err); ok {
		return First{Hidden: true}, nil
	}
	return f, err
}
