package rowkey

import (
	"context"
	"errors"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
)

var insertMetricName = &cql.Statement{Name: "insert_metric_name", Level: cql.Quorum,
	Text: "INSERT INTO string_index (key, column1, value) VALUES (?, ?, ?) USING TTL 0"}

// AddName writes the name of a metric into string_index, with the same value as KairosDB.
func AddName(ctx context.Context, ks *schema.Keyspace, stampMS int64, metric string) error {
	return ks.Session.Exec(ctx, insertMetricName, stampMS, []byte(schema.MetricNames), ks.Tables.NameColumn(metric), []byte{0})
}

// Statements that look for row keys, for lasting decisions.
var (
	ListRowKeys = &cql.Statement{Name: "list_row_keys", Level: cql.Everywhere, PageSize: 1000,
		Text: "SELECT data_type, tags FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ?"}
	probeRow = &cql.Statement{Name: "probe_row", Level: cql.SeesAll, PageSize: 2,
		Text: "SELECT column1 FROM data_points WHERE key = ? LIMIT 1"}
	FindRowTime = &cql.Statement{Name: "find_row_time", Level: cql.Quorum, PageSize: 2,
		Text: "SELECT row_time FROM row_key_time_index WHERE metric = ? AND table_name = ? AND row_time = ?"}
)

// Each calls f with the row keys that a statement lists, until f returns an error.
func Each(ctx context.Context, session *cql.Session, list *cql.Statement, args []any, f func(Key) error) error {
	rows := session.Query(ctx, list, args...)
	defer rows.Close()
	var dataType *string
	var tags cql.TagMap
	for rows.Scan(&dataType, &tags) {
		if dataType == nil || tags.Null {
			continue // a static cell that outlived the rows
		}
		if err := f(Key{model.Type(*dataType), tags.Tags}); err != nil {
			return err
		}
	}
	return rows.Close()
}

// MayHold reports whether a statement finds a row, or so many tombstones that it cannot tell.
func MayHold(ctx context.Context, session *cql.Session, st *cql.Statement, args ...any) (bool, error) {
	found, err := session.One(ctx, st, args, nil)
	if _, ok := errors.AsType[*cql.TombstoneError](err); ok {
		return true, nil
	}
	return found, err
}

// HasSamples reports whether a row has samples, or so many tombstones that it cannot tell.
func HasSamples(ctx context.Context, session *cql.Session, key []byte) (bool, error) {
	return MayHold(ctx, session, probeRow, key)
}
