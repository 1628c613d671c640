package rowkey

import (
	"context"
	"errors"
	"fmt"

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
	ListRowKeys = &cql.Statement{Name: "list_row_keys", Level: cql.Everywhere, Prefetch: true,
		Text: "SELECT data_type, tags FROM row_keys WHERE metric = ? AND table_name = ? AND row_time = ?"}
	probeRow = &cql.Statement{Name: "probe_row", Level: cql.SeesAll, PageSize: 2,
		Text: "SELECT column1 FROM data_points WHERE key = ? LIMIT 1"}
	FindRowTime = &cql.Statement{Name: "find_row_time", Level: cql.Quorum, PageSize: 2,
		Text: "SELECT row_time FROM row_key_time_index WHERE metric = ? AND table_name = ? AND row_time = ?"}
)

// Each calls f with the row keys that a statement lists, until f returns an error.
func Each(ctx context.Context, session *cql.Session, list *cql.Statement, args []any, f func(Key) error) error {
	return EachOf(session.Query(ctx, list, args...), func(k Key, _ int) error { return f(k) })
}

// EachOf calls f with row keys, and with the length of their tags in bytes, until f returns an
// error. rows have two columns: data type and tags.
func EachOf(rows *cql.Rows, f func(k Key, tagBytes int) error) error {
	defer rows.Close()
	var dataType, tags cql.Raw
	dest := []any{&dataType, &tags}
	var k Key
	for rows.Scan(dest...) {
		if dataType == nil || tags == nil {
			continue // a static cell that outlived the rows
		}
		if err := k.Decode(dataType, tags); err != nil {
			return err
		}
		if err := f(k, len(tags)); err != nil {
			return err
		}
	}
	return rows.Close()
}

// Decode decodes a row key. It needs memory for the tags, and for a type other than that of the key
// that k was before: rows are sorted by type.
func (k *Key) Decode(dataType, tags []byte) (err error) {
	if string(dataType) != string(k.Type) {
		k.Type = model.Type(dataType)
	}
	if k.Tags, err = cql.ParseTagMap(tags); err != nil {
		return fmt.Errorf("row key of type %s: %w", dataType, err)
	}
	return nil
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
