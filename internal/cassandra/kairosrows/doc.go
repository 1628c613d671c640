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
// Imports between these parts go upwards only: write, read and cover import schema and
// rowkey and none of the others; remove also imports write. A Layout passes on all other
// information: changed rows and row keys from write and remove to read, and uncovered
// partitions from read to cover.
//
// Invariant, besides those of the parts: each write and each delete carries a timestamp in
// milliseconds. One in microseconds would hide all that KairosDB writes there later.
package kairosrows
