// Package cluster lets servers that share a keyspace of Cassandra agree which of
// them does what only one may do, and what a value is that several change. It stands on one table of versioned values:
//
//	varve_registers
//	    space    text, partition   what belongs together: "lease", ...
//	    name     text, clustering
//	    version  bigint            rises with each change
//	    nonce    text              of the change, by which its writer recognises it
//	    value    blob
//	    written  timestamp         of the change, by the clock of a Cassandra node
//
// Each change is a lightweight transaction on the version that was read, among the
// replicas of all data centers: one with a majority of the replicas goes on alone.
//
//   - [Registers]: read and compare-and-set of a value.
//   - [Node.Acquire]: a lease, which one process has at a time. Its token is larger
//     than that of all leases of the name before it. [Node.Reacquire] is for servers that
//     were started again.
//
// # Clocks
//
// A lease says until when it is held, by the clock of its holder, taken before the
// request was sent. The holder counts it as lost from then on. Others wait for Skew
// longer. So two processes hold a lease at once only if their clocks differ by more
// than Skew. The holder looks at the wall clock and at the monotonic one: a process
// that was stopped, or a machine that slept, finds its lease lost.
//
// A holder whose clock is ahead by hours, and that is gone, would keep others waiting for
// hours. So a process that wants a lease also takes it over if it has seen no renewal for the
// life of the lease and Skew. That needs no clocks that agree: the holder counts its lease as
// lost by then.
//
// A look at the clock and what follows it are two things, and a process may be
// stopped in between. What must not happen twice has to be a compare-and-set, or
// carry the token.
package cluster
