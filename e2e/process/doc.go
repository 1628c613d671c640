// Package process builds varve and runs it for tests. It starts the process,
// sends requests to its ports, reads its log, and ends it in every way in which
// a process can end. No process that it starts outlives the test binary.
package process
