// Package schema opens keyspaces of KairosDB: their tables, row arithmetic and
// key-values, and what an operator should know of one before a server works on it.
//
// [Open] opens a keyspace as it is found, or makes it. A [Keyspace] knows its
// row arithmetic (ks.Spec) and which tables it has in which form (ks.Tables),
// and is a store.KeyValues over KairosDB's table service_index.
//
// The rows of the table spec are there before anything else: a KairosDB that finds
// metric names and no spec takes the keyspace for an old one.
package schema
