package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
)

// holder is a process that acquires a lease, says so, waits for a line, and then does its work
// under the lease: it checks the lease, and changes a value.
func holder(config cql.Config) {
	session, err := cql.Open(config, cql.Options{})
	cqltest.TwinMust(err)
	ctx, cancel := context.WithTimeout(context.Background(), cqltest.Patience)
	defer cancel()
	cqltest.TwinMust(session.WaitKeyspace(ctx))
	registers, err := OpenRegisters(ctx, session, false)
	cqltest.TwinMust(err)
	before, err := registers.Get(ctx, "test", "work")
	cqltest.TwinMust(err)
	lease, err := NewNode(registers, "frozen", "").Acquire(ctx, "work", time.Second)
	cqltest.TwinMust(err)
	fmt.Println("held", lease.Token)
	bufio.NewReader(os.Stdin).ReadString('\n')
	checked := lease.Check()
	_, swapped := registers.Swap(context.Background(), "test", "work", before, []byte("of the frozen one"), 0)
	fmt.Println(errors.Is(checked, ErrLost), errors.Is(swapped, ErrChanged))
	session.Close()
}

// A process that is frozen while it holds a lease finds it lost when it continues, before it
// acts, and does not undo changes that another process has made meanwhile.
func testFrozenHolder(t *testing.T, registers *Registers) {
	session := registers.session
	twin := cqltest.StartTwin(t, originals.Cassandra(t), session.KeyspaceName())
	var token int64
	if line, _ := twin.Out.ReadString('\n'); line == "" {
		t.Fatal("the holder said nothing")
	} else if _, err := fmt.Sscanf(line, "held %d", &token); err != nil {
		t.Fatalf("the holder said %q", line)
	}
	if err := twin.Command.Process.Signal(syscall.SIGSTOP); err != nil {
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
	if err := twin.Command.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	io.WriteString(twin.In, "go on\n")
	if said, _ := twin.Out.ReadString('\n'); said != "true true\n" {
		t.Errorf("the lease is lost, the value changed: %q", said)
	}
	if err := twin.Command.Wait(); err != nil {
		t.Error(err)
	}
	if v, err := registers.Get(t.Context(), "test", "work"); err != nil || string(v.Data) != "of the other one" {
		t.Errorf("%q, %v", v.Data, err)
	}
}

// acquireSoon waits for a lease that another process holds.
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
