// Package admin holds what operators ask a running server: check, backup,
// compaction, statistics, cardinality, the state of Cassandra, delete jobs, rejected
// input, reload. [Embedded] and [Cassandra] list the routes of one kind of store each;
// both have the same paths, and those of the other kind answer what to use instead.
package admin
