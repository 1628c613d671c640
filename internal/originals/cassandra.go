package originals

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// cassandraVariable names the environment variable with the address of the node
// that all tests of a run share.
const cassandraVariable = "VARVE_TEST_CASSANDRA"

// cassandraStartLimit is how long one node may take until it answers. On an idle
// machine it takes 5 s.
const cassandraStartLimit = 3 * time.Minute

// Cassandra returns the address, host and port, of a single node of Cassandra 5.0
// that all tests of the run share. Each test uses its own keyspaces. Without a
// node, the test is skipped.
func Cassandra(t testing.TB) string {
	t.Helper()
	address := os.Getenv(cassandraVariable)
	if address == "" {
		t.Skipf("*** SKIPPED: no Cassandra. %s is not set; `make test` starts a node and sets it, and so does `scripts/cassandra.sh with go test ./...` ***", cassandraVariable)
	}
	if err := cqlAnswers(address); err != nil {
		t.Fatalf("%s=%s: %v", cassandraVariable, address, err)
	}
	return address
}

// ClusterOptions are the options of a ring. The zero value is one node of 5.0.
type ClusterOptions struct {
	Version string // of Cassandra: 5.0.8 (default) or 4.1.10
	Nodes   int    // default 1
	IP      string // address of the first node; the others have the next addresses. Default: a free one of 127/8
	YAML    string // settings that override those of scripts/originals/cassandra.yaml.in
	Heap    string // of each node, default 512m

	// Datacenters names the data centre of each node; nil puts all in datacenter1.
	Datacenters []string

	Clocks bool // Node.SetClock can set the clocks of nodes
}

// A Cluster is a ring of Cassandra nodes on this machine.
type Cluster struct {
	Nodes []*Node
}

// A Node is one process of a Cluster. Its methods are not safe for concurrent use.
type Node struct {
	Address string // host and port of CQL
	child   *child
	t       testing.TB
	clock   string // path of the clock's file, see scripts/cassandra.sh; "": the machine's clock
}

// StartCluster starts a ring and waits until every node answers CQL. The ring
// ends with the test.
func StartCluster(t testing.TB, o ClusterOptions) *Cluster {
	t.Helper()
	if o.Version == "" {
		o.Version = "5.0.8"
	}
	o.Nodes = max(o.Nodes, 1)
	if o.Heap == "" {
		o.Heap = "512m"
	}
	if o.IP == "" {
		o.IP = freeAddress(t)
	}
	first, err := netip.ParseAddr(o.IP)
	if err != nil {
		t.Fatal(err)
	}
	script := need(t, "cassandra.sh", o.Version)
	dir := t.TempDir()
	overlay := filepath.Join(dir, "overlay.yaml")
	if err := os.WriteFile(overlay, []byte(o.YAML+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cluster := &Cluster{}
	for i, address := 1, first; i <= o.Nodes; i, address = i+1, address.Next() {
		log := filepath.Join(dir, fmt.Sprintf("node%d.log", i))
		node := &Node{t: t, Address: netip.AddrPortFrom(address, 9042).String()}
		command := []string{script, "run", "--dir", dir, "--version", o.Version,
			"--nodes", strconv.Itoa(o.Nodes), "--node", strconv.Itoa(i), "--ip", o.IP, "--yaml", overlay, "--heap", o.Heap}
		if o.Datacenters != nil {
			command = append(command, "--datacenters", strings.Join(o.Datacenters, ","))
		}
		if o.Clocks {
			node.clock = filepath.Join(dir, fmt.Sprintf("node%d.clock", i))
			node.SetClock(0)
			command = append(command, "--clock", node.clock)
		}
		node.child = newChild(t, fmt.Sprintf("Cassandra node %d", i), log, command...)
		cluster.Nodes = append(cluster.Nodes, node)
		node.Start()
	}
	return cluster
}

// Addresses returns the CQL addresses of the nodes, each host and port.
func (c *Cluster) Addresses() []string {
	addresses := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		addresses[i] = n.Address
	}
	return addresses
}

// Stop shuts all nodes down.
func (c *Cluster) Stop() {
	for _, n := range c.Nodes {
		n.Stop()
	}
}

// Start starts a node that was stopped or killed, with its data, and waits until it
// answers.
func (n *Node) Start() {
	n.t.Helper()
	if err := n.child.start(cassandraStartLimit, func() error { return cqlAnswers(n.Address) }); err != nil {
		n.t.Fatal(err)
	}
}

// Stop shuts the node down. It first writes to disk what it has in memory.
func (n *Node) Stop() { n.child.stop() }

// Kill ends the node as kill -9 does.
func (n *Node) Kill() { n.child.kill() }

// Restart stops and starts the node.
func (n *Node) Restart() {
	n.t.Helper()
	n.Stop()
	n.Start()
}

// Pause suspends the node: connections stay open, and it answers nothing.
func (n *Node) Pause() { n.child.pause() }

// Resume ends Pause.
func (n *Node) Resume() { n.child.resume() }

// SetClock sets how far the node's wall clock is ahead of the machine's. The ring must
// have been started with Clocks.
func (n *Node) SetClock(ahead time.Duration) {
	n.t.Helper()
	f, err := os.OpenFile(n.clock, os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		// In place: the node has the file mapped.
		_, err = f.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(ahead)), 0)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// freeAddress returns an address a.b.c.1 of 127/8 at which Cassandra's ports are free.
// It is derived from the process id, so that test binaries that run at once choose
// different ones.
func freeAddress(t testing.TB) string {
	t.Helper()
	pid := os.Getpid()
	for try := range 50 {
		// 100-249: scripts/cassandra.sh chooses smaller numbers.
		address := fmt.Sprintf("127.%d.%d.1", 100+(pid/250+try)%150, pid%250+1)
		if bindable(address+":9042") && bindable(address+":7000") {
			return address
		}
	}
	t.Fatal("no free address in 127/8 for a ring")
	return ""
}

func bindable(address string) bool {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	_ = l.Close() // no connection was accepted
	return true
}

// cqlAnswers asks a node for its supported options, in protocol 4. A node that requires
// TLS closes the connection. That counts as an answer, because a node opens this port
// last.
func cqlAnswers(address string) error {
	conn, err := net.DialTimeout("tcp", address, 2*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte{4, 0, 0, 0, 5, 0, 0, 0, 0}); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	if netError, slow := err.(net.Error); slow && netError.Timeout() {
		return fmt.Errorf("%s accepts connections, but does not speak CQL: %w", address, err)
	}
	return nil
}
