package cql_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
)

// A wireNode speaks version 4 of Cassandra's protocol, as far as the driver needs it, and
// answers statements as a test says. It is for what no real node can be brought to say. Its
// connections are in memory, so that its tests run in a bubble of synctest, on a clock that
// only advances while the session and the nodes wait: a busy machine delays nothing.
type wireNode struct {
	t        *testing.T
	wires    *wires
	listener *wireListener
	number   int
	id       byte        // of its host id, the first
	peers    []*wireNode // itself included
	wg       sync.WaitGroup

	mu     sync.Mutex
	answer func(text string) reply // to statements that are not about the system
	schema byte                    // version of its schema
	bodies map[string][][]byte     // requests of each statement, by its text
	conns  map[net.Conn]bool
	named  int // how many connections have asked for the host id

	stopped bool
}

// A reply is an error, or rows that are none, after a time.
type reply struct {
	code    int // of an error; 0 is none
	message string
	extra   []byte // of the error
	delay   time.Duration
	hangUp  bool
}

// Codes of errors, and of frames.
const (
	codeServer, codeProtocol                              = 0x0000 + 1<<16, 0x000A
	codeUnavailable, codeOverloaded, codeBootstrapping    = 0x1000, 0x1001, 0x1002
	codeTruncate, codeWriteTimeout, codeReadTimeout       = 0x1003, 0x1100, 0x1200
	codeReadFailure, codeFunctionFailure, codeWriteFailed = 0x1300, 0x1400, 0x1500
	codeCASUnknown                                        = 0x1700
	codeSyntax, codeUnauthorized, codeInvalid             = 0x2000, 0x2100, 0x2200
	codeConfig, codeAlreadyExists, codeUnprepared         = 0x2300, 0x2400, 0x2500

	opError, opStartup, opReady, opOptions, opSupported       = 0, 1, 2, 5, 6
	opQuery, opResult, opPrepare, opExecute, opRegister, opBt = 7, 8, 9, 10, 11, 13
)

// wires are the network between a session and its nodes.
type wires struct {
	mu        sync.Mutex
	listeners map[string]*wireListener // by address
}

type wireListener struct {
	wires   *wires
	address *net.TCPAddr
	arrived chan net.Conn
	closed  chan struct{} // closed by the node
}

// listen takes an address of the network. The driver tells nodes apart by their addresses,
// not by their ports.
func (w *wires) listen(number int) *wireListener {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &wireListener{w, &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(number+1)), Port: 9042}, make(chan net.Conn), make(chan struct{})}
	w.listeners[l.address.String()] = l
	return l
}

// dial is the session's way to the nodes.
func (w *wires) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	l := w.listeners[address]
	w.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("nobody listens at %s", address)
	}
	near, far := net.Pipe()
	select {
	case l.arrived <- far:
		return wireConn{near, l.address}, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: network, Addr: l.address, Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// A wireConn is a connection whose other end has an address.
type wireConn struct {
	net.Conn
	remote net.Addr
}

func (c wireConn) RemoteAddr() net.Addr { return c.remote }

// startWire starts nodes that know each other.
func startWire(t *testing.T, n int) []*wireNode {
	t.Helper()
	t.Cleanup(func() { time.Sleep(time.Minute) }) // the driver's goroutines end a while after their session
	nodes := make([]*wireNode, n)
	w := &wires{listeners: make(map[string]*wireListener)}
	for i := range nodes {
		nodes[i] = newWire(t, w, i)
	}
	for _, node := range nodes {
		node.peers = nodes
		node.wg.Go(node.accept)
	}
	t.Cleanup(func() {
		for _, node := range nodes {
			node.stop()
		}
	})
	return nodes
}

func newWire(t *testing.T, w *wires, number int) *wireNode {
	return &wireNode{t: t, wires: w, listener: w.listen(number), number: number, id: byte(number + 1), answer: func(string) reply { return reply{} },
		schema: 1, bodies: make(map[string][][]byte), conns: make(map[net.Conn]bool)}
}

// follow stops the node, and starts another one at its address, with another host id, which
// knows some nodes beside itself. None of them knows it.
func (n *wireNode) follow(id byte, peers ...*wireNode) *wireNode {
	n.t.Helper()
	n.stop()
	next := newWire(n.t, n.wires, n.number)
	next.id = id
	next.peers = append(slices.Clone(peers), next)
	next.wg.Go(next.accept)
	n.t.Cleanup(next.stop)
	return next
}

func (n *wireNode) stop() {
	n.mu.Lock()
	if !n.stopped {
		close(n.listener.closed)
	}
	n.stopped = true
	for c := range n.conns {
		c.Close()
	}
	n.mu.Unlock()
	n.wg.Wait()
}

func (n *wireNode) address() string { return n.listener.address.String() }

// says sets the answers from now on.
func (n *wireNode) says(f func(text string) reply) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answer = f
	n.bodies = make(map[string][][]byte)
}

// connections is how many connections have asked for the host id.
func (n *wireNode) connections() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.named
}

// asked returns the requests of a statement since says.
func (n *wireNode) asked(st *cql.Statement) [][]byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.bodies[st.Sent("ks")])
}

func (n *wireNode) accept() {
	for {
		var c net.Conn
		select {
		case c = <-n.listener.arrived:
		case <-n.listener.closed:
			return
		}
		n.mu.Lock()
		n.conns[c] = true
		if n.stopped {
			c.Close()
		}
		n.mu.Unlock()
		n.wg.Go(func() { n.serve(c) })
	}
}

func (n *wireNode) serve(c net.Conn) {
	defer func() {
		c.Close()
		n.mu.Lock()
		delete(n.conns, c)
		n.mu.Unlock()
	}()
	var writing sync.Mutex
	for {
		header := make([]byte, 9)
		if _, err := io.ReadFull(c, header); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(header[5:]))
		if _, err := io.ReadFull(c, body); err != nil {
			return
		}
		send := func(stream []byte, op byte, body []byte) {
			writing.Lock()
			defer writing.Unlock()
			frame := append([]byte{0x84, 0, stream[0], stream[1], op}, binary.BigEndian.AppendUint32(nil, uint32(len(body)))...)
			c.Write(append(frame, body...))
		}
		if header[0] != 4 {
			n.t.Errorf("a frame of version %d", header[0])
			return
		}
		if header[1] != 0 {
			n.t.Errorf("a frame with flags %x", header[1])
			return
		}
		op, answer, r := n.respond(header[4], body)
		if r.hangUp {
			return
		}
		if r.delay == 0 {
			send(header[2:4], op, answer)
			continue
		}
		n.wg.Go(func() {
			time.Sleep(r.delay)
			send(header[2:4], op, answer)
		})
	}
}

func errorBody(code int, message string, extra []byte) []byte {
	if code == codeServer {
		code = 0
	}
	return append(appendString(binary.BigEndian.AppendUint32(nil, uint32(code)), message), extra...)
}

func appendString(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

func appendInts(b []byte, all ...int) []byte {
	for _, i := range all {
		b = binary.BigEndian.AppendUint32(b, uint32(i))
	}
	return b
}

// respond makes the answer to one frame. Prepared statements have their text as
// their id.
func (n *wireNode) respond(op byte, body []byte) (byte, []byte, reply) {
	switch op {
	case opOptions:
		return opSupported, []byte{0, 0}, reply{}
	case opStartup, opRegister:
		return opReady, nil, reply{}
	case opPrepare:
		return opResult, prepared(string(body[4:])), reply{}
	case opQuery:
		return n.execute(string(body[4:4+binary.BigEndian.Uint32(body)]), body)
	case opExecute:
		return n.execute(string(body[2:2+binary.BigEndian.Uint16(body)]), body)
	case opBt: // the first statement stands for all
		return n.execute(string(body[6:6+binary.BigEndian.Uint16(body[4:])]), body)
	}
	return opError, errorBody(codeProtocol, fmt.Sprint("unknown frame ", op), nil), reply{}
}

func (n *wireNode) execute(text string, body []byte) (byte, []byte, reply) {
	if strings.HasPrefix(text, "USE ") {
		return opResult, appendString(appendInts(nil, 3), strings.Trim(text[4:], `"`)), reply{}
	}
	if rows, ok := n.system(text); ok {
		return opResult, rows, reply{}
	}
	n.mu.Lock()
	n.bodies[text] = append(n.bodies[text], body)
	answer := n.answer
	n.mu.Unlock()
	r := answer(text)
	switch {
	case r.code != 0:
		return opError, errorBody(r.code, r.message, r.extra), r
	case strings.HasPrefix(text, "SELECT"):
		return opResult, rowsOf(selected(text, nil), nil), r
	}
	return opResult, appendInts(nil, 1), r
}

// prepared describes a statement, all of whose columns are blobs. The first bind
// marker is the partition key.
func prepared(text string) []byte {
	b := appendString(appendInts(nil, 4), text)
	marks := strings.Count(text, "?")
	b = appendInts(b, 1, marks, min(marks, 1))
	if marks > 0 {
		b = append(b, 0, 0)
	}
	b = appendString(appendString(b, "ks"), "t")
	for i := range marks {
		b = appendString(b, fmt.Sprint("p", i))
		if strings.Contains(text, "system_schema") {
			b = append(b, 0, typeText)
		} else {
			b = append(b, 0, typeBlob)
		}
	}
	return appendInts(b, 4, 0) // nothing is said of the rows
}

const (
	typeBlob, typeBool, typeInt, typeUUID = 0x03, 0x04, 0x09, 0x0C
	typeText, typeInet, typeMap, typeSet  = 0x0D, 0x10, 0x21, 0x22
)

// A field is a column of a row: its type as it is sent, and its value.
type field struct {
	name  string
	typ   []byte
	value []byte
}

func text(name, value string) field { return field{name, []byte{0, typeText}, []byte(value)} }

func (n *wireNode) node() []field {
	uuid := func(first byte) []byte { return append([]byte{first}, make([]byte, 15)...) }
	ip := net.IPv4(127, 0, 0, byte(n.number+1)).To4()
	token := fmt.Sprint(n.number * 1000)
	tokens := appendInts(nil, 1, len(token))
	n.mu.Lock()
	defer n.mu.Unlock()
	return []field{
		text("key", "local"), text("release_version", "4.1.0"), text("data_center", "dc"), text("rack", "r"),
		text("cluster_name", "c"), text("partitioner", "org.apache.cassandra.dht.Murmur3Partitioner"),
		{"host_id", []byte{0, typeUUID}, uuid(n.id)},
		{"schema_version", []byte{0, typeUUID}, uuid(n.schema)},
		{"peer", []byte{0, typeInet}, ip}, {"broadcast_address", []byte{0, typeInet}, ip}, {"rpc_address", []byte{0, typeInet}, ip},
		{"native_address", []byte{0, typeInet}, ip},
		{"native_port", []byte{0, typeInt}, appendInts(nil, n.listener.address.Port)},
		{"tokens", []byte{0, typeSet, 0, typeText}, append(tokens, token...)},
	}
}

// system answers questions about the node and the ring.
func (n *wireNode) system(query string) ([]byte, bool) {
	var rows [][]field
	switch {
	case strings.Contains(query, "system.local"):
		n.mu.Lock()
		if strings.HasPrefix(query, "SELECT host_id ") {
			n.named++
		}
		n.mu.Unlock()
		rows = [][]field{n.node()}
	case strings.Contains(query, "system.peers"):
		for _, p := range n.peers {
			if p != n {
				rows = append(rows, p.node())
			}
		}
	case strings.Contains(query, "system_schema.keyspaces"):
		replication := appendInts(nil, 2)
		for _, s := range []string{"class", "org.apache.cassandra.locator.SimpleStrategy", "replication_factor", "2"} {
			replication = append(appendInts(replication, len(s)), s...)
		}
		rows = [][]field{{text("keyspace_name", "ks"), {"durable_writes", []byte{0, typeBool}, []byte{1}},
			{"replication", []byte{0, typeMap, 0, typeText, 0, typeText}, replication}}}
	default:
		return nil, false
	}
	for i, r := range rows {
		rows[i] = selected(query, r)
	}
	if len(rows) == 0 {
		return rowsOf(selected(query, n.node()), nil), true
	}
	return rowsOf(rows[0], rows), true
}

// selected picks the columns that a statement selects. Those of no row are blobs.
func selected(query string, row []field) []field {
	list, _, _ := strings.Cut(strings.Join(strings.Fields(query), " "), " FROM ")
	list = strings.TrimPrefix(list, "SELECT ")
	if list == "*" {
		return row
	}
	var picked []field
	for name := range strings.SplitSeq(list, ", ") {
		i := slices.IndexFunc(row, func(f field) bool { return f.name == name })
		if i < 0 {
			picked = append(picked, field{name: name, typ: []byte{0, typeBlob}})
			continue
		}
		picked = append(picked, row[i])
	}
	return picked
}

func rowsOf(columns []field, rows [][]field) []byte {
	b := appendString(appendString(appendInts(nil, 2, 1, len(columns)), "ks"), "t")
	for _, f := range columns {
		b = append(appendString(b, f.name), f.typ...)
	}
	b = appendInts(b, len(rows))
	for _, r := range rows {
		for _, f := range r {
			b = append(appendInts(b, len(f.value)), f.value...)
		}
	}
	return b
}
