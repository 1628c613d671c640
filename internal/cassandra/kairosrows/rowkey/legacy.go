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

// EachLegacy calls f with the keys in row_key_index of a span, until f returns an error. read
// is one of the statements above. If a key cannot be parsed, f gets the error.
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

// eachLegacyOf is EachLegacy for a span whose times all have the same sign.
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

var errOtherMetric = errors.New("the key belongs to another metric")

// KeysOfLegacy returns the row keys for a key of row_key_index. An old key has no type, so it
// stands for two row keys: one for longs and one for doubles.
func KeysOfLegacy(k rowtime.Key) []Key {
	if k.Type != rowtime.TypeLegacy {
		return []Key{{k.Type, k.Tags}}
	}
	return []Key{{model.TypeLong, k.Tags}, {model.TypeDouble, k.Tags}}
}
