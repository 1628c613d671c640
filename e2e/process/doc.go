// Package process builds varve and runs it for tests: as a process that is
// started, asked over its ports, read in its log, and ended in every way a
// process ends. Nothing that it starts outlives the test binary.
package process
