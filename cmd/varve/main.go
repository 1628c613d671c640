// Command varve is a time series database in one binary: varve serve starts
// it, varve help says what else there is.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	_ "time/tzdata" // queries name time zones, also where the system knows none
)

// A terminal is what a command reads and writes beside its arguments.
type terminal struct {
	stdout, stderr io.Writer
	environment    []string
}

// Exit statuses.
const (
	exitOK    = 0
	exitFault = 1 // what was asked for could not be done
	exitUsage = 2 // it is not clear what was asked for, or a comparison could not be made
	exitPart  = 3 // it was done, but for what was reported
)

// A usageError is a command line or a configuration that has no meaning.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func main() {
	t := terminal{stdout: os.Stdout, stderr: os.Stderr, environment: os.Environ()}
	os.Exit(run(t, os.Args[1:]))
}

// run does what the arguments say and returns the exit status.
func run(t terminal, args []string) int {
	err := dispatch(t, args)
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(t.stderr, "varve:", err)
	if usage := (*usageError)(nil); errors.As(err, &usage) {
		return exitUsage
	}
	if incomplete := (*incompleteError)(nil); errors.As(err, &incomplete) {
		return exitUsage
	}
	if part := (*rejectedError)(nil); errors.As(err, &part) {
		return exitPart
	}
	if faulty := (*faultyError)(nil); errors.As(err, &faulty) {
		return exitPart
	}
	if unknown := (*unknownError)(nil); errors.As(err, &unknown) {
		return exitPart
	}
	return exitFault
}
