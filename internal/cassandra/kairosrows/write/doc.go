// Package write writes samples into a keyspace of KairosDB, and the index rows by which
// they are found.
//
//	Writer   the spool's sink: passes over a generation, batches, refusals
//	index    the writer of index rows, and what is known of them (see known)
//	Watch    puts back index rows that KairosDB nodes have removed
//
// Invariants:
//
//   - A sample counts as written when its index rows are known to be there after it was
//     written: the rule of index rows, at [Writer].
//   - Samples are written under the timestamps at which they were acknowledged, in
//     milliseconds; index rows under that of the present, above all removals that were
//     announced.
//   - In a keyspace with Varve's own tables row_keys.mtime is only made, with the lowest
//     timestamp, and never moved: a value that is not [schema.WroteHere] means that a
//     KairosDB node added rows.
package write
