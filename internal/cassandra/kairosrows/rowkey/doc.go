// Package rowkey holds what all who work on a keyspace of KairosDB share: how its row
// keys are named, ordered and indexed, what is known of them, and how that is read.
//
//	Partition  one of row_keys: a metric and a row time
//	Key        a row key: what a row of that partition names
//	Span       row times of a metric
//	TagPlace   a partition of the inverted index, varve_row_index
//	State      what varve_row_state says of a partition
//	Stamp      its row_keys.mtime, by which KairosDB's inserts are seen
//	Announced  what processes have announced that they may remove
//
// It has no state and decides nothing. Invariants:
//
//   - What decides something lasting is read at a quorum, or at one of each data center:
//     what is read at the configured consistency says so.
//   - Batches that it makes are of one partition each, or of partitions with the same
//     replicas, and within what Cassandra takes.
package rowkey
