// Package cluster proves Varve over Apache Cassandra from outside: real varve
// processes over real Cassandra nodes, which are killed, paused and started
// again while clients write and ask. docs/reliability.md says what each test
// shows and what it printed last.
//
//	ledger   what clients know of the points of one metric
//	load     clients that write and ask, and keep a ledger
//	place    a keyspace, and varve processes over it
//	outage   what is done to nodes and processes
//
// TestOneNode starts one node, the others a ring of three. All need the flag
// -cluster: `make test-cluster`.
package cluster
