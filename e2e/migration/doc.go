// Package migration goes the way of docs/migrating-from-kairosdb.md, there and back, with
// the original KairosDB 1.3.0-1 and real varve processes on one keyspace of Cassandra. It
// has no code of its own.
//
//	make test-migration
//
// Clients write all the time, first to KairosDB, then to Varve, then to KairosDB again.
// Roll-up tasks are KairosDB's, and handed over and back. What clients have sent is the
// measure: each bucket has one result, and where Varve computed it the right one. At each
// stage varve compare asks both the same.
package migration
