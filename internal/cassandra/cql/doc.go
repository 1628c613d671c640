// Package cql talks to an Apache Cassandra cluster for the stores that keep
// their data there. It is the only package that imports the driver.
//
// What it adds to the driver:
//
//   - A [Session] opens without a cluster and connects in the background, for as
//     long as it takes; [Session.State] says what it waits for.
//   - The write timestamp of each statement is given by the caller, in
//     milliseconds, and is the same at every attempt.
//   - Statements in flight are limited by number and bytes, separately for reads and
//     writes. The server answers overload with silence, so a node's limit shrinks while
//     it is slow, and grows again when it is not: see pace.go. A fast replica is
//     preferred to a slow one.
//   - A read whose node takes unusually long is also sent to another replica: see
//     hedge.go.
//   - Statements and batches of one partition go to a replica of it.
//   - A statement is tried again, after a pause, where that can help, and at a node that
//     answers. A node that has stopped answering (paused, or gone without a word) gets no
//     statements until it answers again. When none answers, reads wait for a moment and
//     then fail at once; writes are tried nevertheless.
//   - Errors are of few types, and each says what was done, to what, and the way
//     out: [*store.UnavailableError] (trying again later may help),
//     [*RefusedError] (it will not), [*TombstoneError] (a smaller range may).
//   - Each statement has a name, under which it is counted.
//
// Every statement given to this package must be idempotent: it may be applied
// more than once.
package cql
