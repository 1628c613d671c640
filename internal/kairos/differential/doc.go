// Package differential holds a test that asks the original KairosDB 1.3.0-1, on
// Cassandra, and Varve the same random questions about the same random points,
// and compares what they answer. It has no code of its own.
//
//	go test ./internal/kairos/differential -differential.queries=5000 -differential.seed=7
//
// Points come in worlds: a handful of metrics, with names of their own, and some
// hundred points each. Questions are asked about a world, deletes among them, and
// then comes the next. The seed and the number of a world say what is in it;
// -differential.world=N asks about one world only.
//
// An answer is compared as the recorded cases are (see TestGolden of package
// kairos): numbers as numbers, the values of tags as sets, results without
// values count as absent. Where the two differ, listed_test.go says whether that
// is deliberate and why. Any other difference fails, with the smallest question
// and the fewest points that still show it.
package differential
