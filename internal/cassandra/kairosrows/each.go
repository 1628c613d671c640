package kairosrows

import (
	"context"
	"errors"

	"varve/internal/cassandra/cql"
	"varve/internal/model"
)

var (
	listRowKeys = &cql.Statement{Name: "list_row_keys", Level: cql.Quorum, PageSize: 1000,
		Text: "SELECT data_type, tags FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ?"}
	probeRow = &cql.Statement{Name: "probe_row", Level: cql.SeesAll, PageSize: 2,
		Text: "SELECT column1 FROM data_points WHERE key = ? LIMIT 1"}
	findRowTime = &cql.Statement{Name: "find_row_time", Level: cql.Quorum, PageSize: 2,
		Text: "SELECT row_time FROM row_key_time_index WHERE metric = ? AND table_name = ? AND row_time = ?"}
)

// eachKey calls f with the row keys that a statement lists, until it fails.
func eachKey(ctx context.Context, session *cql.Session, list *cql.Statement, args []any, f func(rowKey) error) error {
	rows := session.Query(ctx, list, args...)
	defer rows.Close()
	var dataType *string
	var tags cql.TagMap
	for rows.Scan(&dataType, &tags) {
		if dataType == nil || tags.Null {
			continue // a static cell that outlived the rows
		}
		if err := f(rowKey{model.Type(*dataType), tags.Tags}); err != nil {
			return err
		}
	}
	return rows.Close()
}

// mayHold reports whether a statement finds a row, or so many deleted ones that it
// cannot see.
func mayHold(ctx context.Context, session *cql.Session, st *cql.Statement, args ...any) (bool, error) {
	found, err := session.One(ctx, st, args, nil)
	if tombstones := (*cql.TombstoneError)(nil); errors.As(err, &tombstones) {
		return true, nil
	}
	return found, err
}

// hasSamples reports whether a row has samples, or so many deleted ones that it
// cannot be seen.
func hasSamples(ctx context.Context, session *cql.Session, key []byte) (bool, error) {
	return mayHold(ctx, session, probeRow, key)
}
