// Package admin has the routes with which operators control a running server: check,
// backup, compaction, statistics, cardinality, the state of Cassandra, delete jobs,
// rejected input, reload. [Embedded] and [Cassandra] list the routes of one kind of
// store each. Both lists have the same paths; a route of the other kind of store
// answers with the name of its replacement.
package admin
