package kairosrows

import (
	"hash/fnv"
	"iter"

	"varve/internal/cassandra/cql"
	"varve/internal/model"
)

const selectPostings = "SELECT data_type, tags FROM varve_row_index WHERE metric = ? AND row_time = ? AND tag = ? AND value = ? AND shard = ?"

var insertTagRow = &cql.Statement{Name: "insert_tag_row", Level: cql.Quorum, KeyArgs: 5,
	Text: "INSERT INTO varve_row_index (metric, row_time, tag, value, shard, data_type, tags) VALUES (?, ?, ?, ?, ?, ?, ?) USING TTL ?"}

// A tagPlace names a partition of varve_row_index, within its metric and row
// time.
type tagPlace struct {
	tag, value string
	shard      int
}

// tagPlaces yields those that have a row of a row key with these tags.
func tagPlaces(tags model.Tags, shards int) iter.Seq[tagPlace] {
	return func(yield func(tagPlace) bool) {
		shard := indexShard(tags, shards)
		for name, value := range tags.All() {
			if !yield(tagPlace{name, value, shard}) {
				return
			}
		}
	}
}

// tagRowBatches are the rows of varve_row_index for row keys of one metric and
// row time.
func tagRowBatches(metric string, rowTimeMS int64, keys iter.Seq[rowKey], shards, ttl int) [][]cql.Entry {
	groups := entryGroups[tagPlace]{}
	for k := range keys {
		for at := range tagPlaces(k.tags, shards) {
			groups.add(at, insertTagRow, metric, rowTimeMS, at.tag, at.value, at.shard, string(k.typ), cql.TagMap{Tags: k.tags}, ttl)
		}
	}
	return groups.batches()
}

// args are the columns of a partition of varve_row_index.
func (at tagPlace) args(part partKey) []any {
	return []any{part.metric, part.timeMS, at.tag, at.value, at.shard}
}

// indexShard returns the shard of varve_row_index that has a series' rows.
func indexShard(tags model.Tags, shards int) int {
	h := fnv.New32a()
	for name, value := range tags.All() {
		h.Write([]byte(name))
		h.Write([]byte{0})
		h.Write([]byte(value))
		h.Write([]byte{0})
	}
	return int(h.Sum32() % uint32(shards))
}
