// Package events stores the rows of timelines in tables of Cassandra: it is the
// timeline.Shelf of servers that share a keyspace. docs/formats/timelines-cassandra.md has
// the tables.
//
//	put.go, slice.go, delete.go  events: a partition for each part of a bucket
//	directory.go                 which buckets there are
//	history.go                   layouts, in a register of package cluster; names
//	payload.go                   data that is kept apart
//	arrivals.go, follow.go       logs of arrivals: written, read
//
// Everything is read and written at a quorum of the local data center, layouts by
// lightweight transactions. Write timestamps are microseconds of the server's clock; a
// delete hides what was written before the time that it is given.
package events
