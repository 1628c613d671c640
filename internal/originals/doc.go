// Package originals runs the programs that Varve replaces or builds upon, for
// tests: Apache Cassandra and KairosDB, from jars that scripts/cassandra.sh and
// scripts/kairosdb.sh fetch through Maven. It knows nothing of Varve.
//
// If something is missing (Java, Maven, a network at first use, Linux), the test is
// skipped with a message that names it.
//
// Each process is a child of the test binary. It ends with the test that started it,
// and the kernel kills it when the binary dies. Its output goes to a file below
// t.TempDir, whose end is logged if the test fails.
package originals
