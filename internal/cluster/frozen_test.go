package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
)

// What tells the test binary to be the process that is frozen: the node's address. The
// keyspace is in a variable of its own.
const (
	holderVariable   = "VARVE_TEST_LEASE_HOLDER"
	keyspaceVariable = "VARVE_TEST_LEASE_KEYSPACE"
)

// holder is a process that gets a lease, says so, waits for a line, and then does what it
// has the lease for: it looks whether it still has it, and changes a value.
func holder(address string) {
	config := cqltest.Config(address)
	config.Keyspace = os.Getenv(keyspaceVariable)
	session, err := cql.Open(config, cql.Options{})
	fail(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fail(session.WaitKeyspace(ctx))
	registers, err := OpenRegisters(ctx, session, false)
	fail(err)
	before, err := registers.Get(ctx, "test", "work")
	fail(err)
	lease, err := NewNode(registers, "frozen", "").Acquire(ctx, "work", time.Second)
	fail(err)
	fmt.Println("held", lease.Token)
	bufio.NewReader(os.Stdin).ReadString('\n')
	checked := lease.Check()
	_, swapped := registers.Swap(context.Background(), "test", "work", before, []byte("of the frozen one"), 0)
	fmt.Println(errors.Is(checked, ErrLost), errors.Is(swapped, ErrChanged))
	session.Close()
}

func fail(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// A process that is frozen while it has a lease finds it lost when it goes on, before it
// acts; and what another process has done meanwhile it does not undo.
func testFrozenHolder(t *testing.T, registers *Registers) {
	address, session := originals.Cassandra(t), registers.session
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Env = append(os.Environ(), holderVariable+"="+address, keyspaceVariable+"="+session.KeyspaceName())
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
	lines := bufio.NewReader(out)
	var token int64
	if line, _ := lines.ReadString('\n'); line == "" {
		t.Fatal("the holder said nothing")
	} else if _, err := fmt.Sscanf(line, "held %d", &token); err != nil {
		t.Fatalf("the holder said %q", line)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	node := NewNode(registers, "other", "")
	node.skew = time.Second
	lease := acquireSoon(t, node, "work")
	if lease.Token <= token {
		t.Errorf("token %d after %d", lease.Token, token)
	}
	if _, err := registers.Swap(t.Context(), "test", "work", Value{}, []byte("of the other one"), 0); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	io.WriteString(in, "go on\n")
	if said, _ := lines.ReadString('\n'); said != "true true\n" {
		t.Errorf("the lease is lost, the value changed: %q", said)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if v, err := registers.Get(t.Context(), "test", "work"); err != nil || string(v.Data) != "of the other one" {
		t.Errorf("%q, %v", v.Data, err)
	}
}

// acquireSoon waits for a lease that another process has.
func acquireSoon(t *testing.T, node *Node, name string) *Lease {
	t.Helper()
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	for {
		lease, err := node.Acquire(t.Context(), name, time.Minute)
		if err == nil {
			return lease
		}
		if held := (*HeldError)(nil); !errors.As(err, &held) {
			t.Fatal(err)
		}
		<-pause.C
	}
}
