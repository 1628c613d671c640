// Package e2e tests Varve from outside: its tests build the binary, run it as a
// process, use it as clients do, and end it in every way in which a process can
// end. docs/reliability.md says what each test shows, and its latest results.
//
// The package process below runs the server. The nouns of the tests, one file
// each:
//
//	ledger   what a writer knows of its points, and what is open
//	writer   sends points and deletions, and keeps the ledger
//	ballast  a file that fills a small file system
//	soak     a server under load for as long as one likes
//
// Only the overload test runs the server's parts in its own process, to give
// them a slow disk.
//
// The time and the value of a point are computed from its number, so each value
// in an answer can be traced to one point, or is recognised as never sent.
//
// All tests use loopback only, have a time limit, and end their processes even
// when they fail. With -short all tests are skipped.
package e2e
