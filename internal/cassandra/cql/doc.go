// Package cql talks to an Apache Cassandra cluster for the stores that keep
// their data there. It is the only package that imports the driver.
//
// What it adds to the driver:
//
//   - A [Session] opens even if the cluster is unavailable, and keeps trying to connect in the
//     background; [Session.State] says why it is not connected.
//   - If a node of another cluster gets the address of a node, that node counts as down: see
//     identity.go.
//   - The caller passes the write timestamp of each statement, in milliseconds. It is the same
//     at every attempt.
//   - Statements in flight are limited by number and bytes, separately for reads and
//     writes. The limit of a node shrinks while it is slow: see pace.go. Fast replicas are
//     preferred to slow ones.
//   - A read whose node takes unusually long is also sent to another replica: see
//     hedge.go.
//   - Statements and batches of one partition go to a replica of it.
//   - Most batches of several rows are encoded by this package, which takes a fraction of the
//     driver's CPU for each row: see packed.go.
//   - If a retry can help, a statement is sent again after a pause, to a node that answers.
//     A node that has stopped answering gets no statements until it answers again. If no node
//     answers, reads wait for a moment and then fail at once; writes are sent nevertheless.
//   - There are only a few types of errors, and each error names the statement, the table and
//     the solution: [*store.UnavailableError] (a later attempt may succeed), [*RefusedError]
//     (it will not, unless the former contains it), [*TombstoneError] (a smaller range may succeed).
//   - Each statement has a name, which the metrics use.
//
// Every statement must be idempotent: it may be applied more than once.
package cql
