// Package kairosrows keeps samples in the tables of KairosDB 1.3, byte for byte
// as KairosDB writes and reads them, and beside them in tables of its own, which
// KairosDB does not look at. docs/formats/kairosdb-cassandra.md draws all of
// them.
//
// [Open] opens a keyspace as it is found, or makes it. A [Keyspace] knows its
// row arithmetic (ks.Spec) and which tables it has in which form (ks.Tables),
// and is a store.KeyValues over KairosDB's table service_index.
//
// Invariants, besides the layout:
//
//   - Each write and each delete carries a timestamp in milliseconds. One in
//     microseconds would hide all that KairosDB writes there later.
//   - The rows of the table spec are there before anything else: a KairosDB that
//     finds metric names and no spec takes the keyspace for an old one.
//   - row_keys.mtime is never moved by us, only made, with the lowest timestamp:
//     a value that is not [WroteHere] means that a KairosDB node added rows.
package kairosrows
