package rowkey

import (
	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/rowtime"
)

// A Partition names a partition of row_keys.
type Partition struct {
	Metric string
	TimeMS int64 // row time
}

// Args are the columns of the partition in row_keys, and of its row in
// row_key_time_index.
func (p Partition) Args() []any { return []any{p.Metric, schema.DataPoints, p.TimeMS} }

// Series returns the series of a row key of the partition.
func (p Partition) Series(k Key) model.Series {
	return model.Series{Metric: p.Metric, Tags: k.Tags, Type: k.Type}
}

// DataKey returns the key in data_points of a row key's row. An error means that there can be
// no such row.
func (p Partition) DataKey(k Key) ([]byte, error) {
	return rowtime.Key{Metric: p.Metric, RowTimeMS: p.TimeMS, Type: k.Type, Tags: k.Tags}.Append(nil)
}

// A Key is a row key within its partition: the other columns of row_keys.
type Key struct {
	Type model.Type
	Tags model.Tags
}

// Of returns the row key of a series.
func Of(s model.Series) Key { return Key{s.Type, s.Tags} }

// Args are the columns of a row key after those of its partition.
func (k Key) Args() []any { return []any{string(k.Type), cql.TagMap{Tags: k.Tags}} }

// A Span is a range of row times of a metric.
type Span struct {
	Metric        string
	LowMS, HighMS int64
}

// Has reports whether a partition is in a span, or the span is everything.
func (s Span) Has(k Partition) bool {
	return s.Metric == "" || s.Metric == k.Metric && s.LowMS <= k.TimeMS && k.TimeMS <= s.HighMS
}

// Everything is the span of all metrics.
var Everything = Span{}
