// Package originals runs the programs that Varve replaces or builds upon, for
// tests: Apache Cassandra and KairosDB, from jars that scripts/cassandra.sh and
// scripts/kairosdb.sh fetch through Maven. It knows nothing of Varve.
//
// Where something is missing (Java, Maven, a network at first use, Linux), the
// test that asked is skipped and says what is missing.
//
// Each process is a child of the test binary: it ends with the test that started
// it, and the kernel ends it when the binary dies. Its output goes to a file
// below t.TempDir; the end of it is printed when the test fails.
package originals
