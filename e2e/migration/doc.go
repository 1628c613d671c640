// Package migration goes the way of docs/migrating-from-kairosdb.md, there and back, with
// the original KairosDB 1.3.0-1 and real varve processes on one keyspace of Cassandra. It
// has no code of its own.
//
//	make test-migration
//
// Clients write all the time, first to KairosDB, then to Varve, then to KairosDB again.
// Roll-up tasks are created by KairosDB, and handed over and back. Results are compared
// with the sent points: each bucket must have one result, and if Varve computed it, the
// right one. At each stage, varve compare sends the same queries to both.
package migration
