package kairosrows

import (
	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/rowtime"
)

// A partKey names a partition of row_keys.
type partKey struct {
	metric string
	timeMS int64 // row time
}

// args are the columns of the partition in row_keys, and of its row in
// row_key_time_index.
func (p partKey) args() []any { return []any{p.metric, schema.DataPoints, p.timeMS} }

// series is that of a row key of the partition.
func (p partKey) series(k rowKey) model.Series {
	return model.Series{Metric: p.metric, Tags: k.tags, Type: k.typ}
}

// dataKey is the key in data_points of the row of a row key. An error means that there
// can be no such row.
func (p partKey) dataKey(k rowKey) ([]byte, error) {
	return rowtime.Key{Metric: p.metric, RowTimeMS: p.timeMS, Type: k.typ, Tags: k.tags}.Append(nil)
}

// A rowKey is a row of row_keys apart from its partition.
type rowKey struct {
	typ  model.Type
	tags model.Tags
}

func keyOfSeries(s model.Series) rowKey { return rowKey{s.Type, s.Tags} }

// args are the columns of a row key behind those of its partition.
func (k rowKey) args() []any { return []any{string(k.typ), cql.TagMap{Tags: k.tags}} }

// mapBytes is the length of tags as a map of Cassandra.
func mapBytes(tags model.Tags) int {
	n := 4
	for name, value := range tags.All() {
		n += 8 + len(name) + len(value)
	}
	return n
}

// span is the row times that a lookup is about.
type span struct {
	metric        string
	lowMS, highMS int64
}

// has reports whether a partition is in a span, or the span is everything.
func (s span) has(k partKey) bool {
	return s.metric == "" || s.metric == k.metric && s.lowMS <= k.timeMS && k.timeMS <= s.highMS
}

// everything is a span that means all metrics.
var everything = span{}
