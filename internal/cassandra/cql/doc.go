// Package cql talks to an Apache Cassandra cluster for the stores that keep
// their data there. It is the only package that imports the driver.
//
// What it adds to the driver:
//
//   - A [Session] opens without a cluster and connects in the background, for as
//     long as it takes; [Session.State] says what it waits for.
//   - A node of another cluster that takes the address of a node counts as one that is down:
//     see identity.go.
//   - The write timestamp of each statement is given by the caller, in
//     milliseconds, and is the same at every attempt.
//   - Statements in flight are limited by number and bytes, separately for reads and
//     writes. An overloaded node does not refuse work but gets slower, so its limit
//     shrinks while it is slow, and grows again afterwards: see pace.go. Fast replicas
//     are preferred to slow ones.
//   - A read whose node takes unusually long is also sent to another replica: see
//     hedge.go.
//   - Statements and batches of one partition go to a replica of it.
//   - Most batches of several rows are written to the connection by this package, which
//     takes a fraction of the driver's CPU for each row: see packed.go.
//   - If a retry can help, a statement is sent again after a pause, to a node that answers.
//     A node that has stopped answering (paused, or unreachable) gets no statements until
//     it answers again. If no node answers, reads wait for a moment and then fail at once;
//     writes are sent nevertheless.
//   - Errors are of few types, and each names the statement, the table and the way
//     out: [*store.UnavailableError] (a later attempt may succeed), [*RefusedError] (it
//     will not), [*TombstoneError] (a smaller range may succeed).
//   - Each statement has a name, which the metrics use.
//
// Every statement must be idempotent: it may be applied more than once.
package cql
