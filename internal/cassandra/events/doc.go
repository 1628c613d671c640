// Package events stores the rows of timelines in tables of Cassandra: it is the timeline.Shelf
// of servers that share a keyspace. docs/formats/timelines-cassandra.md describes the tables.
//
//	put.go, slice.go, delete.go  events: a partition for each part of a bucket
//	directory.go                 the list of buckets
//	history.go                   layouts, in a register of package cluster; names
//	payload.go                   data in rows of its own
//	arrivals.go, follow.go       logs of arrivals: written, read
//
// Reads and writes use a quorum of the local data center, changes of layouts lightweight
// transactions. Write timestamps are microseconds of the server's clock; a delete hides
// the events that were written before its own timestamp.
package events
