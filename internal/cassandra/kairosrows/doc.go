// Package kairosrows keeps samples in the tables of KairosDB 1.3, byte for byte
// as KairosDB writes and reads them, and beside them in tables of its own, which
// KairosDB does not look at. docs/formats/kairosdb-cassandra.md draws all of
// them.
//
// Package schema below opens keyspaces. A [Layout] puts together what reads, writes and
// deletes in one: [Reader], [Writer], [Deleter].
//
// Invariants, besides the layout:
//
//   - Each write and each delete carries a timestamp in milliseconds. One in
//     microseconds would hide all that KairosDB writes there later.
//   - row_keys.mtime is never moved by us, only made, with the lowest timestamp:
//     a value that is not [schema.WroteHere] means that a KairosDB node added rows.
package kairosrows
