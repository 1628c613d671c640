// Package beside holds tests that run Varve, as a process, and the original
// KairosDB 1.3.0-1 on one keyspace of Cassandra at once. It has no code of its
// own.
//
//	scripts/cassandra.sh with go test ./e2e/beside -v -beside.load=5m
//
// Writers send to both, to the same series, while readers compare the answers
// of both with the sent points, and other clients delete. The value of a point
// is computed from its series and time, so any other value in an answer is
// wrong.
//
// Random questions about such a keyspace are in package differential.
package beside
