package cqltest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"varve/internal/cassandra/cql"
)

// What makes a test binary a twin: the node's address, and the keyspace.
const (
	twinVariable     = "VARVE_TEST_TWIN"
	keyspaceVariable = "VARVE_TEST_TWIN_KEYSPACE"
)

// A Twin is a second process of the test binary that acts as another server of a keyspace,
// which a test can stop with SIGSTOP. It communicates with the test in lines.
type Twin struct {
	Command *exec.Cmd
	In      io.Writer
	Out     *bufio.Reader
}

// StartTwin starts a twin, with additional environment variables. The twin must end when its
// input does; the test waits for that.
func StartTwin(t testing.TB, address, keyspace string, variables ...string) *Twin {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Env = append(os.Environ(), append(variables, twinVariable+"="+address, keyspaceVariable+"="+keyspace)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Wait() })
	return &Twin{cmd, in, bufio.NewReader(out)}
}

// IsTwin reports whether this process is a twin, and how it reaches the keyspace. TestMain
// calls it.
func IsTwin() (cql.Config, bool) {
	address := os.Getenv(twinVariable)
	config := Config(address)
	config.Keyspace = os.Getenv(keyspaceVariable)
	return config, address != ""
}

// TwinMust ends a twin after an error.
func TwinMust(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
