// Package schema opens keyspaces of KairosDB: their tables, row arithmetic and
// key-values. It also checks a keyspace before a server uses it.
//
// [Open] opens an existing keyspace, or creates it. A [Keyspace] has its row
// arithmetic (ks.Spec) and the list of its tables and their forms (ks.Tables),
// and is a store.KeyValues over KairosDB's table service_index.
//
// The rows of the table spec are written before all others: a KairosDB that finds
// metric names but no spec treats the keyspace as one of an old version.
package schema
