// Package clients tests that the client programs of KairosDB and OpenTSDB work
// with Varve. Real clients run as processes against the real server, and
// recorded bytes of other clients are replayed into its sockets.
// docs/clients.md says how a user configures each.
//
// The parts, one file each:
//
//	facts      what clients demand of a server, one test each
//	recordings requests as they were recorded, and what must be stored
//	grafana    what panels and variables of its KairosDB plug-in ask
//	java       KairosDB's Java client in everything that a server does
//	meters     Micrometer, metrics4j, the Java client's telnet side
//	scripts    opentsdb-py, potsdb, python-kairosdb, npm kairosdb, statsd
//	program    a client that runs as a process
//	wire       a connection on which a test says each byte
//
// java/, python/ and node/ hold the small programs that drive the clients.
// Programs that are not available on a machine are skipped, and the test
// reports which and why. With -short all tests are skipped.
package clients
