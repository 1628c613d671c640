// Package cassandra is the store over an Apache Cassandra cluster. The process
// that runs it holds no data of its own but what is on its way: samples are
// acknowledged by a local log and drained into the keyspace a moment later.
//
//	Append --> spool: log + heads in generations --> layout.Sink --> keyspace
//	               \                                                        |
//	                +----> view: pending samples + rows <---- layout.Look
//
// # What is visible
//
// A View pins the spool's generations before it reads the keyspace, so a sample
// is found in one of them at least. Where both have one of a series and time,
// the spool's is taken: it is the newer, or the same. What other processes hold
// in their spools is not visible here until it is drained.
//
// # Deletes
//
// A deletion first drains what was acknowledged before it, then deletes in the
// keyspace with a write timestamp above all of that and below all that comes
// later. It therefore needs Cassandra, and takes as long as the backlog. What
// other processes hold in their spools has stamps of when it was acknowledged, so
// the same tombstones hide it when it comes. Tombstones are for rows that the
// index has; rows that only such a spool has are deleted when they come, see
// redeleter.
//
// # Refs
//
// Refs for appending are the spool's. Refs that a View hands out number what
// that View selected, and mean nothing elsewhere.
//
// How samples lie in tables is the matter of a layout, see package layout; the driver is
// package cql.
package cassandra
