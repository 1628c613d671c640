// Package kairosrows stores samples in the tables of KairosDB 1.3, byte for byte as
// KairosDB writes and reads them. It has further tables, which KairosDB ignores.
// docs/formats/kairosdb-cassandra.md describes all of them.
//
// The [Layout] combines these packages:
//
//	schema   opens keyspaces: tables, row arithmetic, key-values
//	rowkey   row keys: names, order, state
//	write    samples and their index rows
//	read     finds series, reads rows, caches both
//	cover    copies row keys that KairosDB wrote into the inverted index
//	remove   deletes, delete jobs, repair
//
// Of these, write, read and cover import only schema and rowkey; remove also imports
// write. The Layout passes all other information between them: changed rows and row keys
// from write and remove to read, and uncovered partitions from read to cover.
//
// Invariant of all of them: each write and each delete has a timestamp in milliseconds.
// One in microseconds would hide everything that KairosDB writes there later.
package kairosrows
