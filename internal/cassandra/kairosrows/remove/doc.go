// Package remove deletes samples from a keyspace of KairosDB, and the index rows of rows
// that have none left.
//
//	Deleter   plans a deletion, and does it row time by row time
//	jobs      large deletions: they go on after a restart, or on another node, on one at a time
//	Record    tells nodes whose samples are still on their way
//	Repair    walks over all tables, and puts index and rows in accord
//
// Invariants:
//
//   - Removals of index rows are announced before samples are deleted, and carry the
//     timestamp of the announcement: see the rule of index rows at [write.Writer].
//   - Index rows go only after a look at the row that sees all acknowledged samples has
//     found none.
//   - What is to be deleted is never read from memory, nor at the configured consistency.
//   - A step may be repeated, and is after an interruption: timestamps are kept.
package remove
