// Command varve is a time series database in one binary: varve serve starts it,
// varve help lists all other commands.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	_ "time/tzdata" // queries name time zones, even on systems without a time zone database

	"varve/internal/units"
)

// A terminal has the streams and the environment of a command.
type terminal struct {
	stdout, stderr io.Writer
	environment    []string
}

// Exit statuses.
const (
	exitOK    = 0
	exitFault = 1 // the command failed
	exitUsage = 2 // the command line is wrong, or a comparison could not be made
	exitPart  = 3 // the command succeeded, except for what it reported
)

// An exitError ends a command with a status of its own.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// leftOut is the error of a command that has succeeded except for n items, which it has
// reported in the file where. The error is nil if n is 0.
func leftOut(n int64, one, what, where string) error {
	if n == 0 {
		return nil
	}
	was := "were"
	if n == 1 {
		was = "was"
	}
	if where != "" {
		where = ", see " + where
	}
	return &exitError{exitPart, fmt.Errorf("%s %s %s%s", units.Count(n, one), was, what, where)}
}

// A usageError is the error of an invalid command line or configuration.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func main() {
	t := terminal{stdout: os.Stdout, stderr: os.Stderr, environment: os.Environ()}
	os.Exit(run(t, os.Args[1:]))
}

// run executes the command in args and returns the exit status.
func run(t terminal, args []string) int {
	err := dispatch(t, args)
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(t.stderr, "varve:", err)
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit.status
	}
	return exitFault
}
