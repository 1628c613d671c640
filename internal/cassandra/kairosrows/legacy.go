package kairosrows

import (
	"context"
	"errors"

	"varve/internal/cassandra/cql"
	"varve/internal/model"
	"varve/internal/rowtime"
)

var (
	readLegacyKeys = &cql.Statement{Name: "read_legacy_keys",
		Text: "SELECT column1 FROM row_key_index WHERE key = ? AND column1 >= ? AND column1 < ?"}
	readLegacyKeysAtQuorum = &cql.Statement{Name: "read_legacy_keys", Level: cql.Quorum, Text: readLegacyKeys.Text}
	readAnyLegacyKey       = &cql.Statement{Name: "read_any_legacy_key", Scan: true, PageSize: 1,
		Text: "SELECT key FROM row_key_index LIMIT 1"}
)

// eachLegacyKey calls f with the keys that row_key_index has of a span, by a statement;
// the error is that of one that cannot be read.
func eachLegacyKey(ctx context.Context, session *cql.Session, read *cql.Statement, s span, f func(rowtime.Key, error)) error {
	parts := []span{s}
	if s.lowMS < 0 && s.highMS >= 0 {
		parts = []span{{s.metric, s.lowMS, -1}, {s.metric, 0, s.highMS}}
	}
	for _, part := range parts {
		rows := session.Query(ctx, read, []byte(part.metric),
			rowtime.AppendIndexBound(nil, part.metric, part.lowMS, false), rowtime.AppendIndexBound(nil, part.metric, part.highMS, true))
		var column cql.Raw
		for rows.Scan(&column) {
			k, err := rowtime.ParseKey(string(column))
			if err == nil && k.Metric != part.metric {
				err = errOtherMetric
			}
			f(k, err)
		}
		if err := rows.Close(); err != nil {
			return err
		}
	}
	return nil
}

var errOtherMetric = errors.New("the key is of another metric")

// keysOfLegacy returns the row keys that one of row_key_index stands for: of an old row,
// which names no type, that of its longs and that of its doubles.
func keysOfLegacy(k rowtime.Key) []rowKey {
	if k.Type != rowtime.TypeLegacy {
		return []rowKey{{k.Type, k.Tags}}
	}
	return []rowKey{{model.TypeLong, k.Tags}, {model.TypeDouble, k.Tags}}
}
