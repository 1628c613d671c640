// Package beside holds tests that run Varve, as a process, and the original
// KairosDB 1.3.0-1 on one keyspace of Cassandra at once. It has no code of its
// own.
//
//	scripts/cassandra.sh with go test ./e2e/beside -v -beside.load=5m
//
// Writers send to both, to the same series, while readers compare what both
// answer with what was sent, and others delete. The value of a point follows
// from its series and time, so that an answer with anything else in it was
// invented.
//
// Random questions about such a keyspace are in package differential.
package beside
