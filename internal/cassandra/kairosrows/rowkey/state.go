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

// Forever is the expiry of what has no time-to-live.
const Forever = math.MaxInt64

// A State is what varve_row_state says of a partition, and how long its index rows
// live as far as that is known.
type State struct {
	KairosMtime cql.UUID // of varve_row_state; zero: none
	Changed     cql.UUID
	ChangedMS   int64 // write timestamp of changed
	ExpirySec   int64 // 0: nothing is known
}

// LivesUntil is the expiry of the index rows; for ever if it is not known.
func (s State) LivesUntil() int64 {
	if s.ExpirySec == 0 {
		return Forever
	}
	return s.ExpirySec
}

// Covers reports whether varve_row_index holds every row key of the partition: either
// only Varve writes there, or the coverage pass has seen KairosDB's last insert. Of a
// partition whose mtime is null, because it expired, nothing is known.
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
	TTL       *int // seconds; nil: for ever
}

// ReadStamp reads the mtime of a partition at a level, which is cql.Everywhere for a
// decision that lasts.
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

// ReadState reads the state of a partition, at a quorum. Without varve_row_state nothing
// is known.
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

// ExpiresColumn is varve_row_state.expires: Unix seconds, 0 for never.
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

// UUIDOf reads a UUID; null is zero.
func UUIDOf(raw []byte) (u cql.UUID) {
	copy(u[:], raw)
	return u
}

// WrittenMS reads a write time, which this keyspace has in milliseconds; null
// is 0. Anything far beyond was written in microseconds.
func WrittenMS(raw []byte) int64 {
	if len(raw) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(raw))
}

// A First is what is seen of a partition at its first row key.
type First struct {
	Any      bool // there is a row key
	Hidden   bool // there are too many deleted ones to see whether there is one
	Mtime    *cql.UUID
	MtimeTTL *int
}

// ReadFirst looks whether a partition has row keys, at a quorum.
func ReadFirst(ctx context.Context, session *cql.Session, p Partition) (f First, err error) {
	var dataType *string
	_, err = session.One(ctx, selectFirstRowKey, p.Args(), &dataType, &f.Mtime, &f.MtimeTTL)
	f.Any = dataType != nil
	if _, ok := errors.AsType[*cql.TombstoneError](err); ok {
		return First{Hidden: true}, nil
	}
	return f, err
}
