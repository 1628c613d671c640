// Package e2e proves Varve from outside: its tests build the binary, run it as
// a process, talk to it as clients do, and end it in every way a process ends.
// docs/reliability.md says what each test shows and what it found last.
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
// Points have a time and a value that follow from their number, so that
// whatever an answer holds can be traced to one point, or was never sent.
//
// Everything is on loopback, has an end in time, and ends its processes also
// when it fails. With -short all tests are skipped.
package e2e
