// Package graphite proves that the programs of a Graphite installation work with Varve:
// a graphite-web in front of it, senders whose output must arrive whole, and the
// reader of Whisper's files. They
// run as processes against the real server, with the settings that the docs have.
//
// Programs that cannot be had on a machine are skipped, and the test says loudly which
// and why. With -short all tests are skipped.
package graphite
