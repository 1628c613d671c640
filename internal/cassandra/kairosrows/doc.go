// Package kairosrows keeps samples in the tables of KairosDB 1.3, byte for byte
// as KairosDB writes and reads them, and beside them in tables of its own, which
// KairosDB does not look at. docs/formats/kairosdb-cassandra.md draws all of
// them.
//
// It is the [Layout], which ties its parts together:
//
//	schema   opens keyspaces: tables, row arithmetic, key-values
//	rowkey   row keys: names, order, state; what all parts share
//	write    samples and their index rows
//	read     finding series, reading rows, caches
//	cover    what KairosDB wrote, into the inverted index
//	remove   deletes, delete jobs, repair
//
// Parts import those above them, of these only: write, read and cover import schema and
// rowkey and none of the others, remove imports write. What they have to tell each other
// beyond that, a Layout passes on: rows and row keys that changed go from write and remove
// to read, partitions that are not covered from read to cover.
//
// Invariant, besides those of the parts: each write and each delete carries a timestamp in
// milliseconds. One in microseconds would hide all that KairosDB writes there later.
package kairosrows
