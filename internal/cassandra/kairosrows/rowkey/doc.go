// Package rowkey has the code that readers and writers of a KairosDB keyspace share: names,
// order and indexes of row keys, and their state.
//
//	Partition  a partition of row_keys: a metric and a row time
//	Key        a row key of that partition
//	Span       row times of a metric
//	TagPlace   a partition of the inverted index, varve_row_index
//	State      the state of a partition in varve_row_state
//	Stamp      its row_keys.mtime, which shows inserts of KairosDB
//	Announced  the removals that processes have announced
//
// The package keeps no state of its own. Invariants:
//
//   - Reads on which lasting results depend use a quorum, or a quorum of each data center.
//     Functions that use the configured consistency say so.
//   - Each batch is of one partition, or of partitions with the same replicas, and within
//     Cassandra's limits.
package rowkey
