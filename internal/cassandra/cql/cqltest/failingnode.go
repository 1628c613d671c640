package cqltest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// A FailingNode is a proxy between a session and a real node. It treats chosen statements as a
// failing node would: it answers them with an error, late, or not at all. All others reach the
// real node. It supports version 4 of the protocol without compression, the default of
// sessions.
type FailingNode struct {
	Address string // for cql.Config.Hosts

	node     string
	listener net.Listener
	closed   chan struct{}
	tasks    sync.WaitGroup

	mu    sync.Mutex
	rule  func(Request) *Trouble
	cut   bool
	poses bool
	texts map[string]string // of prepared statements, by their ids
	conns map[net.Conn]bool
}

// A Request is what a session requests: one statement, or those of a batch.
type Request struct {
	Statements  []Bound
	Consistency uint16 // as the protocol has it; 0, which is ANY, of batches
}

// A Bound is a statement and the bytes of its values, nil for null.
type Bound struct {
	Text   string
	Values [][]byte
}

// A Trouble says how to treat a request. The zero value lets it pass.
type Trouble struct {
	Code    uint32 // of an error, as the protocol has it; see the variables below
	Message string
	Extra   []byte // what follows the message

	Error  bool          // answer with the error: Code may be 0
	Apply  bool          // the node executes the request nevertheless
	Silent bool          // there is no answer
	Delay  time.Duration // before the answer, or before the request reaches the node
	HangUp bool          // the connection is closed instead
}

// Troubles of real nodes. Those with Apply false change nothing.
var (
	ServerError  = &Trouble{Error: true, Message: "java.lang.NullPointerException"}
	Overloaded   = &Trouble{Error: true, Code: 0x1001, Message: "Server is in overloaded state. Cannot accept more requests at this point"}
	Unavailable  = &Trouble{Error: true, Code: 0x1000, Message: "Cannot achieve consistency level QUORUM", Extra: extra(cl, 2, 1)}
	WriteTimeout = &Trouble{Error: true, Code: 0x1100, Message: "Operation timed out - received only 0 responses.", Extra: append(extra(cl, 0, 1), "\x00\x0eUNLOGGED_BATCH"...)}
	ReadTimeout  = &Trouble{Error: true, Code: 0x1200, Message: "Operation timed out - received only 0 responses.", Extra: append(extra(cl, 0, 1), 0)}
	WriteFailure = &Trouble{Error: true, Code: 0x1500, Message: "Operation failed - received 0 responses and 1 failures: UNKNOWN from /127.0.0.1:7000", Extra: append(extra(cl, 0, 1, 1), "\x00\x0eUNLOGGED_BATCH"...)}
	Tombstones   = &Trouble{Error: true, Code: 0x1300, Message: "Operation failed - received 0 responses and 1 failures: READ_TOO_MANY_TOMBSTONES from /127.0.0.1:7000", Extra: append(extra(cl, 0, 1, 1), 0)}

	// AppliedTimeout is a write that is applied although its answer is an error.
	AppliedTimeout = &Trouble{Error: true, Apply: true, Code: WriteTimeout.Code, Message: WriteTimeout.Message, Extra: WriteTimeout.Extra}

	KeyTooLong       = &Trouble{Error: true, Code: 0x2200, Message: "Key length of 65540 is longer than maximum of 65535"}
	MutationTooLarge = &Trouble{Error: true, Message: "org.apache.cassandra.db.MutationExceededMaxSizeException: Encountered an oversized mutation (17000000/16777216) for keyspace: ks. Top keys are: data_points.6d00"}
	ValueGuardrail   = &Trouble{Error: true, Code: 0x2200, Message: "Guardrail column_value_size violated: Value of column 'value' has size 5.000KiB, this exceeds the failure threshold of 4.000KiB."}
	OtherGuardrail   = &Trouble{Error: true, Code: 0x2200, Message: "Guardrail write_consistency_levels violated: Provided values [LOCAL_QUORUM] are not allowed for write consistency levels"}
	Unauthorized     = &Trouble{Error: true, Code: 0x2100, Message: "User varve has no MODIFY permission on <table ks.data_points> or any of its parents"}

	Silent = &Trouble{Silent: true}
	HangUp = &Trouble{HangUp: true}
)

const cl = 0x0006 // LOCAL_QUORUM

// extra is a consistency level and numbers.
func extra(consistency uint16, numbers ...int) []byte {
	b := binary.BigEndian.AppendUint16(nil, consistency)
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint32(b, uint32(n))
	}
	return b
}

// Late lets requests pass after a time.
func Late(d time.Duration) *Trouble { return &Trouble{Delay: d} }

// maxFrame bounds a frame: Cassandra accepts 16 MiB, and answers with less.
const maxFrame = 64 << 20

// NewFailingNode returns a proxy for the node at an address, at first without trouble. It ends
// with the test.
func NewFailingNode(t testing.TB, node string) *FailingNode {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &FailingNode{
		Address: l.Addr().String(), node: node, listener: l, closed: make(chan struct{}),
		texts: map[string]string{}, conns: map[net.Conn]bool{},
	}
	n.tasks.Go(n.accept)
	t.Cleanup(n.close)
	return n
}

// Fail sets what happens to requests from now on. rule returns nil for those
// that pass; it is called by many goroutines. nil lets all pass.
func (n *FailingNode) Fail(rule func(Request) *Trouble) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rule = rule
}

// Cut closes all connections and accepts no new ones until Mend, like a node that is down.
func (n *FailingNode) Cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = true
	n.closeLocked()
}

// Pose makes the node pose as one of another cluster that has got its address: connections are
// closed, and new ones lead to a node with another host id, which knows no other node. All
// other requests reach the real node. Mend ends this, and closes these connections.
func (n *FailingNode) Pose() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.poses = true
	n.closeLocked()
}

func (n *FailingNode) closeLocked() {
	for c := range n.conns {
		c.Close()
	}
}

// Mend ends all troubles.
func (n *FailingNode) Mend() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.poses {
		n.closeLocked()
	}
	n.cut, n.rule, n.poses = false, nil, false
}

func (n *FailingNode) close() {
	close(n.closed)
	n.listener.Close()
	n.mu.Lock()
	n.closeLocked()
	n.mu.Unlock()
	n.tasks.Wait()
}

// keep registers a connection, so that close and Cut end it. It returns false after these.
func (n *FailingNode) keep(c net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.closed:
		return false
	default:
	}
	if n.cut {
		return false
	}
	n.conns[c] = true
	return true
}

func (n *FailingNode) drop(c net.Conn) {
	c.Close()
	n.mu.Lock()
	delete(n.conns, c)
	n.mu.Unlock()
}

func (n *FailingNode) accept() {
	for {
		client, err := n.listener.Accept()
		if err != nil {
			return
		}
		n.tasks.Go(func() { n.serve(client) })
	}
}

func (n *FailingNode) serve(client net.Conn) {
	defer n.drop(client)
	if !n.keep(client) {
		return
	}
	node, err := net.Dial("tcp", n.node)
	if err != nil {
		return
	}
	defer n.drop(node)
	if !n.keep(node) {
		return
	}
	p := &proxied{FailingNode: n, client: client, node: node, preparing: map[uint16]string{}, muted: map[uint16]*Trouble{}}
	n.tasks.Go(func() {
		defer client.Close()
		p.answers()
	})
	p.requests()
}

// A proxied is one connection.
type proxied struct {
	*FailingNode
	client, node net.Conn
	toClient     sync.Mutex
	toNode       sync.Mutex

	preparing map[uint16]string   // texts by stream; mu guards both
	muted     map[uint16]*Trouble // answers that replace those of the node, by stream
}

// A frame is a message of the protocol.
type frame struct {
	header [9]byte
	body   []byte
}

func (f *frame) stream() uint16 { return binary.BigEndian.Uint16(f.header[2:]) }
func (f *frame) op() byte       { return f.header[4] }

func readFrame(c net.Conn) (f frame, err error) {
	if _, err := io.ReadFull(c, f.header[:]); err != nil {
		return f, err
	}
	size := binary.BigEndian.Uint32(f.header[5:])
	if size > maxFrame || f.header[0]&0x7f != 4 || f.header[1]&1 != 0 {
		return f, fmt.Errorf("a frame of version %d, flags %x, %d bytes: want version 4 without compression", f.header[0]&0x7f, f.header[1], size)
	}
	f.body = make([]byte, size)
	_, err = io.ReadFull(c, f.body)
	return f, err
}

func send(to net.Conn, mu *sync.Mutex, f frame) {
	mu.Lock()
	defer mu.Unlock()
	to.Write(append(f.header[:], f.body...))
}

// Operations of the protocol.
const (
	opError   = 0x00
	opQuery   = 0x07
	opResult  = 0x08
	opPrepare = 0x09
	opExecute = 0x0A
	opBatch   = 0x0D

	resultPrepared = 4
	hostIDLen      = 16
)

// requests forwards what the client sends.
func (p *proxied) requests() {
	for {
		f, err := readFrame(p.client)
		if err != nil {
			return
		}
		trouble := p.troubleOf(&f)
		if answer, ok := p.pose(&f); ok {
			send(p.client, &p.toClient, answer)
			continue
		}
		switch {
		case trouble == nil:
			send(p.node, &p.toNode, f)
		case trouble.HangUp:
			return
		default:
			p.tasks.Go(func() { p.give(f, trouble) })
		}
	}
}

// give treats a request as trouble says.
func (p *proxied) give(f frame, trouble *Trouble) {
	if trouble.Apply {
		p.mu.Lock()
		p.muted[f.stream()] = trouble
		p.mu.Unlock()
		send(p.node, &p.toNode, f)
		return
	}
	if trouble.Silent || !p.wait(trouble.Delay) {
		return
	}
	if trouble.Error {
		send(p.client, &p.toClient, trouble.frame(f.stream()))
		return
	}
	send(p.node, &p.toNode, f)
}

// pose answers the question for host ids, if the node poses as one of another cluster.
func (p *proxied) pose(f *frame) (answer frame, ok bool) {
	p.mu.Lock()
	poses := p.poses
	p.mu.Unlock()
	request, ok := p.request(f)
	if !ok || !poses || f.op() != opQuery {
		return answer, false
	}
	var rows [][]byte
	switch table := "SELECT host_id FROM system."; {
	case strings.HasPrefix(request.Statements[0].Text, table+"local"):
		rows = [][]byte{bytes.Repeat([]byte{0xAA}, hostIDLen)}
	case !strings.HasPrefix(request.Statements[0].Text, table+"peers"):
		return answer, false
	}
	answer = frame{header: [9]byte{0x84, 0, f.header[2], f.header[3], opResult}, body: hostIDs(rows)}
	binary.BigEndian.PutUint32(answer.header[5:], uint32(len(answer.body)))
	return answer, true
}

// hostIDs is a result of one column of UUIDs.
func hostIDs(rows [][]byte) []byte {
	const kindRows, global, columns, typeUUID = 2, 1, 1, 0x000C
	b := []byte{0, 0, 0, kindRows, 0, 0, 0, global, 0, 0, 0, columns}
	for _, name := range []string{"system", "local", "host_id"} {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(name))), name...)
	}
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(b, typeUUID), uint32(len(rows)))
	for _, row := range rows {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(row))), row...)
	}
	return b
}

// wait waits, and reports false if the test ends.
func (p *proxied) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.closed:
		return false
	}
}

// frame is the error as the node would send it.
func (t *Trouble) frame(stream uint16) frame {
	body := binary.BigEndian.AppendUint32(nil, t.Code)
	body = binary.BigEndian.AppendUint16(body, uint16(len(t.Message)))
	body = append(append(body, t.Message...), t.Extra...)
	f := frame{header: [9]byte{0x84, 0, byte(stream >> 8), byte(stream), opError}, body: body}
	binary.BigEndian.PutUint32(f.header[5:], uint32(len(body)))
	return f
}

// answers forwards what the node sends.
func (p *proxied) answers() {
	for {
		f, err := readFrame(p.node)
		if err != nil {
			return
		}
		p.mu.Lock()
		text, prepared := p.preparing[f.stream()]
		delete(p.preparing, f.stream())
		trouble := p.muted[f.stream()]
		delete(p.muted, f.stream())
		if r := (reader{f.body}); prepared && f.op() == opResult && r.int() == resultPrepared {
			p.texts[string(r.short())] = text
		}
		p.mu.Unlock()
		switch {
		case trouble == nil:
			send(p.client, &p.toClient, f)
		case !trouble.Silent:
			send(p.client, &p.toClient, trouble.frame(f.stream()))
		}
	}
}

// troubleOf returns how to treat a frame of the client, nil if it passes.
func (p *proxied) troubleOf(f *frame) *Trouble {
	p.mu.Lock()
	rule := p.rule
	if r := (reader{f.body}); f.op() == opPrepare {
		p.preparing[f.stream()] = string(r.long())
	}
	p.mu.Unlock()
	if rule == nil {
		return nil
	}
	request, ok := p.request(f)
	if !ok {
		return nil
	}
	return rule(request)
}

var errShort = errors.New("the frame is too short")

// request decodes the request of a frame; ok is false if the frame is not one.
func (p *proxied) request(f *frame) (request Request, ok bool) {
	defer func() {
		if e := recover(); e == errShort {
			ok = false // the node will report the error
		} else if e != nil {
			panic(e)
		}
	}()
	r := reader{f.body}
	switch f.op() {
	case opQuery:
		request.Statements = []Bound{{Text: string(r.long())}}
	case opExecute:
		one := Bound{Text: p.text(r.short())}
		request.Consistency = binary.BigEndian.Uint16(r.take(2))
		if r.take(1)[0]&1 != 0 {
			one.Values = r.values()
		}
		request.Statements = []Bound{one}
	case opBatch:
		r.take(1) // type
		for range r.count() {
			var one Bound
			if r.take(1)[0] == 0 {
				one.Text = string(r.long())
			} else {
				one.Text = p.text(r.short())
			}
			one.Values = r.values()
			request.Statements = append(request.Statements, one)
		}
	default:
		return request, false
	}
	return request, true
}

func (p *proxied) text(id []byte) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.texts[string(id)]
}

// A reader decodes a body. It panics with errShort at its end.
type reader struct{ rest []byte }

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.rest) {
		panic(errShort)
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) int() int      { return int(int32(binary.BigEndian.Uint32(r.take(4)))) }
func (r *reader) count() int    { return int(binary.BigEndian.Uint16(r.take(2))) }
func (r *reader) short() []byte { return r.take(r.count()) }
func (r *reader) long() []byte  { return r.take(r.int()) }

func (r *reader) values() [][]byte {
	values := make([][]byte, r.count())
	for i := range values {
		if n := r.int(); n >= 0 {
			values[i] = r.take(n)
		}
	}
	return values
}
