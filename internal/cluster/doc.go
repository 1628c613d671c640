// Package cluster coordinates servers that share a Cassandra keyspace: leases for work that
// only one server may do at a time, and values that several servers change. It uses one table
// of versioned values:
//
//	varve_registers
//	    space    text, partition   the kind of value: "lease", ...
//	    name     text, clustering
//	    version  bigint            increases with each change
//	    nonce    text              identifies the change to its writer
//	    value    blob
//	    written  timestamp         time of the change, by the clock of a Cassandra node
//
// Each change is a lightweight transaction, conditional on the version that was read, among the
// replicas of all data centers. A data center that has a majority of them works without the
// others.
//
//   - [Registers]: read and compare-and-set of a value.
//   - [Node.Acquire]: a lease, held by one process at a time. Its token is larger than those of
//     all earlier leases of the same name. [Node.Reacquire] is for a restarted server.
//
// # Clocks
//
// A lease contains its end, computed from the holder's clock before the request was sent. At
// that time the holder considers the lease lost; other processes wait for Skew longer. So two
// processes hold a lease at once only if their clocks differ by more than Skew. The holder
// checks both the wall clock and the monotonic clock, so a process that was stopped, or a
// machine that was suspended, finds its lease lost.
//
// If a holder whose clock is hours ahead dies, others would wait for hours. So a process also
// takes a lease over if it has seen no renewal for the life of the lease plus Skew. This does
// not depend on synchronized clocks: by then the holder considers its lease lost.
//
// A process may be stopped between checking its lease and acting on it. An action that must not
// happen twice must be a compare-and-set, or carry the token.
package cluster
