// Package differential has a test that sends the same random queries about the same
// random points to the original KairosDB 1.3.0-1, on Cassandra, and to Varve, and
// compares the answers. It has no other code.
//
//	go test ./internal/kairos/differential -differential.queries=5000 -differential.seed=7
//
// Points belong to worlds: a handful of metrics, with names of their own, and some
// hundred points each. The test runs queries and deletes on one world after the other.
// The content of a world depends only on the seed and its number; -differential.world=N
// runs one world only.
//
// Answers are compared as in the recorded cases (see TestGolden of package kairos):
// numbers as numbers, the values of tags as sets, results without values as absent.
// listed_test.go lists the deliberate differences and their reasons. Any other
// difference fails, with the smallest query and the fewest points that still show it.
package differential
