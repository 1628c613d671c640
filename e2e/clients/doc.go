// Package clients proves that programs of KairosDB's and OpenTSDB's users work
// with Varve: real ones run as processes against the real server, and bytes
// that were recorded from others are replayed into its sockets. docs/clients.md
// says how a user configures each.
//
// The parts, one file each:
//
//	facts      what clients demand of a server, one test each
//	recordings requests as they were recorded, and what must be stored
//	grafana    what panels and variables of its KairosDB plug-in ask
//	java       KairosDB's Java client, Micrometer, metrics4j
//	python     opentsdb-py, potsdb, python-kairosdb
//	node       statsd with its backends, npm kairosdb
//	program    a client that runs as a process
//
// Programs that can not be had on a machine are skipped, and the test says
// loudly which and why. With -short all tests are skipped.
package clients
