package rowkey

import (
	"context"
	"errors"

	"varve/internal/cassandra/cql"
	"varve/internal/model"
	"varve/internal/rowtime"
)

// Statements that read row_key_index.
var (
	LegacyKeys = &cql.Statement{Name: "read_legacy_keys",
		Text: "SELECT column1 FROM row_key_index WHERE key = ? AND column1 >= ? AND column1 < ?"}
	LegacyKeysAtQuorum = &cql.Statement{Name: "read_legacy_keys", Level: cql.Everywhere, Text: LegacyKeys.Text}
	AnyLegacyKey       = &cql.Statement{Name: "read_any_legacy_key", Scan: true, PageSize: 1,
		Text: "SELECT key FROM row_key_index LIMIT 1"}
)

// EachLegacy calls f with the keys that row_key_index has of a span, read by one of these
// statements at a level, until f fails. The error that f is given is that of a key that
// cannot be read.
func EachLegacy(ctx context.Context, session *cql.Session, level cql.Level, read *cql.Statement, s Span, f func(rowtime.Key, error) error) error {
	parts := []Span{s}
	if s.LowMS < 0 && s.HighMS >= 0 {
		parts = []Span{{s.Metric, s.LowMS, -1}, {s.Metric, 0, s.HighMS}}
	}
	for _, part := range parts {
		if err := eachLegacyOf(ctx, session, level, read, part, f); err != nil {
			return err
		}
	}
	return nil
}

// eachLegacyOf is EachLegacy of a span whose times have one sign.
func eachLegacyOf(ctx context.Context, session *cql.Session, level cql.Level, read *cql.Statement, s Span, f func(rowtime.Key, error) error) error {
	rows := session.QueryAt(ctx, level, read, []byte(s.Metric),
		rowtime.AppendIndexBound(nil, s.Metric, s.LowMS, false), rowtime.AppendIndexBound(nil, s.Metric, s.HighMS, true))
	defer rows.Close()
	var column cql.Raw
	for rows.Scan(&column) {
		k, err := rowtime.ParseKey(string(column))
		if err == nil && k.Metric != s.Metric {
			err = errOtherMetric
		}
		if err := f(k, err); err != nil {
			return err
		}
	}
	return rows.Close()
}

var errOtherMetric = errors.New("the key is of another metric")

// KeysOfLegacy returns the row keys that one of row_key_index stands for: of an old row,
// which names no type, that of its longs and that of its doubles.
func KeysOfLegacy(k rowtime.Key) []Key {
	if k.Type != rowtime.TypeLegacy {
		return []Key{{k.Type, k.Tags}}
	}
	return []Key{{model.TypeLong, k.Tags}, {model.TypeDouble, k.Tags}}
}
