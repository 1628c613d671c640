// Package cassandra is the store over an Apache Cassandra cluster. The process
// holds only pending samples. It acknowledges a sample once it is in a local log, and
// drains it into the keyspace a moment later.
//
//	Append --> spool: log + heads in generations --> layout.Sink --> keyspace
//	               \                                                        |
//	                +----> view: pending samples + rows <---- layout.Look
//
// # What is visible
//
// A View pins the spool's generations before it reads the keyspace, so each sample
// is found in at least one of the two. If both have a sample of the same series and
// time, the spool's is valid: it is newer, or the same. Samples in the spools of
// other processes are not visible here until they are drained.
//
// # Deletes
//
// A deletion first drains the samples that were acknowledged before it. Then it
// deletes in the keyspace with a write timestamp above those of all these samples and
// below those of all later ones. It therefore needs Cassandra, and takes as long as
// draining the backlog. The same tombstones hide samples from the spools of other processes,
// which carry the time at which they were acknowledged. Rows that are only in such a spool get
// no tombstones: they are deleted when that process writes them, see redeleter.
//
// # Clocks
//
// After a start nothing is changed in the keyspace until the machine's clock agrees with those of
// the nodes, see startClock.
//
// # Refs
//
// Refs for appends are the spool's. Refs of a View number the series that this View has
// selected, and are void elsewhere.
//
// A layout decides how samples are stored in tables, see package layout. The driver is
// package cql.
package cassandra
