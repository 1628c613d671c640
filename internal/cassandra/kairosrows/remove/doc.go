// Package remove deletes samples from a keyspace of KairosDB, and the index rows of rows
// that have no samples left.
//
//	Deleter   plans a deletion, and executes it one row time after another
//	jobs      large deletions: they continue after a restart or on another node, one node
//	          at a time
//	Record    tells nodes with pending samples about deletions
//	Repair    walks over all tables, and makes index and rows consistent
//
// Invariants:
//
//   - Removals of index rows are announced before samples are deleted, and have the timestamp
//     of the announcement: see the rule of index rows at [write.Writer].
//   - Index rows of a row are removed only after a read that sees all acknowledged samples
//     has found none in the row.
//   - The rows to delete are never read from a cache, nor at the configured consistency.
//   - A large deletion makes room for samples: see pace and turns.
//   - Steps may be repeated, and are repeated after an interruption, with their timestamps.
package remove
