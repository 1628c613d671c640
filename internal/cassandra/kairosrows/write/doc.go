// Package write writes samples into a keyspace of KairosDB, and the index rows by which
// they are found.
//
//	Writer   the spool's sink: passes over a generation, batches, refusals
//	index    writes index rows that are not known to exist
//	known    remembers which exist
//	Watch    restores index rows that KairosDB nodes have removed
//
// # What is known of index rows
//
// Writing the index rows of each sample would cost more than the samples. So each row key is
// recorded in known when its index rows are written, with the time until which they live.
//
//	missingRows: which rows of a generation    indexWriter: writes those,
//	have index rows that are not known?        at a quorum
//	     ^                                          |
//	     |  holds                              put  |  unless its metric was
//	     |                                          v  forgotten meanwhile
//	+-- known: row keys by partition, least recently used ones are evicted ---------+
//	|  epoch: how often something was forgotten. What a pass relied on is looked up |
//	|  again after its samples are written, if the epoch has moved: indexAgain      |
//	+-------------------------------------------------------------------------------+
//	     ^                    ^                        ^                       ^
//	     |                    |        forget          |                       |
//	deletes and repairs  those of others:         probe: someone has     Watch: a KairosDB
//	of this process:     announcements.look,      emptied the tables     node removed row
//	announce             after each generation                           keys
//
// A record that is missing, because it was evicted, forgotten or never made, costs a repeated
// write. A record that is wrong would lose samples, so everything that may make it wrong, on the
// lower line, is noticed before the samples count as written: the rule of index rows, at
// [Writer]. Only KairosDB nodes announce nothing. While one runs, known also says which
// partitions got samples since Watch last read their row keys.
//
// # Invariants
//
//   - A sample counts as written once its index rows are known to exist after the write of
//     the sample.
//   - The write timestamp of a sample is the time of its acknowledgement, in milliseconds.
//     That of an index row is the present time, and above all announced removals.
//   - In a keyspace with Varve's own tables, row_keys.mtime is only created, with the lowest
//     timestamp, and never changed: a value that is not [schema.WroteHere] means that a
//     KairosDB node added rows.
package write
