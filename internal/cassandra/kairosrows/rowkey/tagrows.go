package rowkey

import (
	"hash/fnv"
	"iter"

	"varve/internal/cassandra/cql"
	"varve/internal/model"
)

// SelectTagRows reads a partition of varve_row_index.
const SelectTagRows = "SELECT data_type, tags FROM varve_row_index WHERE metric = ? AND row_time = ? AND tag = ? AND value = ? AND shard = ?"

// InsertTagRow writes a row of varve_row_index.
var InsertTagRow = &cql.Statement{Name: "insert_tag_row", Level: cql.Quorum, KeyArgs: 5,
	Text: "INSERT INTO varve_row_index (metric, row_time, tag, value, shard, data_type, tags) VALUES (?, ?, ?, ?, ?, ?, ?) USING TTL ?"}

// A TagPlace identifies a partition of varve_row_index within its metric and row time.
type TagPlace struct {
	Tag, Value string
	Shard      int
}

// TagPlaces yields the partitions that have a row for a row key with these tags.
func TagPlaces(tags model.Tags, shards int) iter.Seq[TagPlace] {
	return func(yield func(TagPlace) bool) {
		shard := Shard(tags, shards)
		for name, value := range tags.All() {
			if !yield(TagPlace{name, value, shard}) {
				return
			}
		}
	}
}

// PlacesOf returns the partitions with the row keys of a literal matcher, by value and then by
// shard.
func PlacesOf(m model.Matcher, shards int) []TagPlace {
	var places []TagPlace
	for _, v := range Distinct(m.Values) {
		for shard := range shards {
			places = append(places, TagPlace{m.Tag, v, shard})
		}
	}
	return places
}

// TagRowBatches returns the rows of varve_row_index for row keys of one metric and row time.
func TagRowBatches(metric string, rowTimeMS int64, keys iter.Seq[Key], shards, ttl int) [][]cql.Entry {
	groups := Groups[TagPlace]{}
	for k := range keys {
		for at := range TagPlaces(k.Tags, shards) {
			groups.Add(at, InsertTagRow, metric, rowTimeMS, at.Tag, at.Value, at.Shard, string(k.Type), cql.TagMap{Tags: k.Tags}, ttl)
		}
	}
	return groups.Batches()
}

// Args are the columns of a partition of varve_row_index.
func (at TagPlace) Args(part Partition) []any {
	return []any{part.Metric, part.TimeMS, at.Tag, at.Value, at.Shard}
}

// Shard returns the shard of varve_row_index that contains a series' rows.
func Shard(tags model.Tags, shards int) int {
	h := fnv.New32a()
	for name, value := range tags.All() {
		h.Write([]byte(name))
		h.Write([]byte{0})
		h.Write([]byte(value))
		h.Write([]byte{0})
	}
	return int(h.Sum32() % uint32(shards))
}
