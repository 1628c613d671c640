// Package write writes samples into a keyspace of KairosDB, and the index rows by which
// they are found.
//
//	Writer   the spool's sink: passes over a generation, batches, refusals
//	index    writes index rows, and remembers those that exist (see known)
//	Watch    restores index rows that KairosDB nodes have removed
//
// Invariants:
//
//   - A sample counts as written once its index rows are known to exist after the write of
//     the sample: the rule of index rows, at [Writer].
//   - The write timestamp of a sample is the time of its acknowledgement, in milliseconds.
//     That of an index row is the present time, and above all announced removals.
//   - In a keyspace with Varve's own tables, row_keys.mtime is only created, with the lowest
//     timestamp, and never changed: a value that is not [schema.WroteHere] means that a
//     KairosDB node added rows.
package write
