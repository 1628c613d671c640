// Package cluster tests Varve over Apache Cassandra from outside: real varve
// processes over real Cassandra nodes, which are killed, paused and restarted
// while clients write and query. docs/reliability.md says what each test shows,
// and its latest results.
//
//	ledger       what clients know of the points of one metric
//	load         clients that write and ask, and keep a ledger
//	place        a keyspace, and varve processes over it
//	outage       what is done to nodes and processes of a ring
//	datacenters  the same with two data centres
//	stale        nodes that lack what they missed
//	clocks       clocks that differ and jump
//
// TestOneNode starts one node, TestRing a ring of three. TestRingOfDatacenters has a
// fourth node in another data centre, TestRingWithOne a ring that forgets what a node
// missed, TestRingOfClocks clocks that differ. All need the flag -cluster: `make
// test-cluster`.
package cluster
