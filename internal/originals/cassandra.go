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

// Cassandra returns the address, host and port, of a Cassandra 5.0 of one node
// that all tests of the run share; each works in keyspaces of its own. Without
// one, the test is skipped.
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

// ClusterOptions say what ring to start. The zero value is one node of 5.0.
type ClusterOptions struct {
	Version string // of Cassandra: 5.0.8 (default) or 4.1.10
	Nodes   int    // default 1
	IP      string // address of the first node; the others follow it. Default: one of 127/8 that no other ring has
	YAML    string // settings laid over those of scripts/originals/cassandra.yaml.in
	Heap    string // of each node, default 512m

	// Datacenters names the data centre of each node; nil puts all in datacenter1.
	Datacenters []string

	Clocks bool // nodes have clocks that Node.SetClock sets
}

// A Cluster is a ring of Cassandra nodes on this machine.
type Cluster struct {
	Nodes []*Node
}

// A Node is one process of a Cluster. Its methods are for one goroutine.
type Node struct {
	Address string // host and port of CQL
	child   *child
	t       testing.TB
	clock   string // its file, see scripts/cassandra.sh; empty: the machine's clock
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

// Addresses returns where CQL is spoken, one host and port a node.
func (c *Cluster) Addresses() []string {
	addresses := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		addresses[i] = n.Address
	}
	return addresses
}

// Stop ends all nodes in good order.
func (c *Cluster) Stop() {
	for _, n := range c.Nodes {
		n.Stop()
	}
}

// Start starts a node that was stopped or killed, and waits until it answers.
// What it stored is there again.
func (n *Node) Start() {
	n.t.Helper()
	if err := n.child.start(cassandraStartLimit, func() error { return cqlAnswers(n.Address) }); err != nil {
		n.t.Fatal(err)
	}
}

// Stop ends the node in good order: what it holds in memory is on disk.
func (n *Node) Stop() { n.child.stop() }

// Kill ends the node as kill -9 does.
func (n *Node) Kill() { n.child.kill() }

// Restart stops and starts the node.
func (n *Node) Restart() {
	n.t.Helper()
	n.Stop()
	n.Start()
}

// Pause halts the node: connections stay open, and nothing is answered.
func (n *Node) Pause() { n.child.pause() }

// Resume lets a paused node go on.
func (n *Node) Resume() { n.child.resume() }

// SetClock makes the node's wall clock differ from the machine's from now on. The ring
// must have been started with Clocks.
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

// freeAddress returns an address a.b.c.1 of 127/8 at which, and above which,
// nobody listens to Cassandra's ports. It follows from the process id, so that
// test binaries that run at once do not choose the same.
func freeAddress(t testing.TB) string {
	t.Helper()
	pid := os.Getpid()
	for try := range 50 {
		// 100-249: scripts/cassandra.sh has its own choice below.
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
	_ = l.Close() // it accepted nothing
	return true
}

// cqlAnswers asks for the options that a node supports, in protocol 4. A node
// that wants TLS hangs up on that, which counts as an answer: the port is opened
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
