package cql

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/apache/cassandra-gocql-driver/v2/lz4"
)

// A roster knows the nodes of the session's cluster, and keeps those of others away.
//
// A session is of the cluster that it reaches first. The driver reconnects to addresses, and an
// address may lead to another cluster by then: machines and pods inherit addresses, names are
// pointed elsewhere. Rows of the wrong cluster would be read and cached, and rows would be
// written and deleted there. Therefore each new connection asks its node for its host id, which
// a node keeps for life, before the driver uses the connection. Later statements need no check:
// a connection leads to the same process until it is closed.
//
// A node of another cluster counts as a node that is down. Whatever copes with an outage copes
// with this, too.
type roster struct {
	now func() time.Time

	mu    sync.Mutex
	ids   map[string]bool // host ids; empty until a node was reached
	stray *StrayError     // of the last connection that was refused; nil since one was admitted
	told  time.Time       // when the log last said that one was refused
}

// A StrayError means that a node of another cluster answers where nodes of the session's
// cluster are expected.
type StrayError struct{ Address, ID string }

func (e *StrayError) Error() string {
	return fmt.Sprintf("the node at %s, with host id %s, is in another cluster than the nodes that this process has used so far. "+
		"It is not used. If the other cluster is intended, restart the process", e.Address, e.ID)
}

// add adds nodes of which a node of the cluster has told.
func (r *roster) add(ids ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		r.addLocked(id)
	}
}

func (r *roster) addLocked(id string) {
	if r.ids == nil {
		r.ids = make(map[string]bool)
	}
	if id != "" {
		r.ids[id] = true
	}
}

// check admits a node, or returns why not, and whether the log should say so. expected is its host id by
// the ring that the driver knows, which is of nodes that were admitted. peers asks the node for
// the host ids of the others that it knows. One of them is enough: the node was added, or has
// replaced another one at its address.
func (r *roster) check(address, id, expected string, peers func() ([]string, error)) (tell bool, err error) {
	if id == "" || id == expected || r.opens(id) || r.knows(id) {
		r.admit(id)
		return false, nil
	}
	others, err := peers()
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(others, r.knows) {
		r.admit(id)
		return false, nil
	}
	return r.refuse(&StrayError{address, id})
}

// opens takes the node as the first one, and reports whether it is.
func (r *roster) opens(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ids) > 0 {
		return false
	}
	r.addLocked(id)
	return true
}

func (r *roster) knows(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ids[id]
}

func (r *roster) admit(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(id)
	r.stray = nil
}

func (r *roster) refuse(e *StrayError) (tell bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stray = e
	if tell = r.told.IsZero() || r.now().Sub(r.told) >= tellEvery; tell {
		r.told = r.now()
	}
	return tell, e
}

// strayed returns the error of the last connection, if it was refused.
func (r *roster) strayed() *StrayError {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stray
}

const (
	askLocalID = "SELECT host_id FROM system.local WHERE key = 'local'"
	askPeerIDs = "SELECT host_id FROM system.peers"

	// askedFrame bounds a frame that is read here: some 40,000 host ids.
	askedFrame = 1 << 20

	answerVersion = 0x80 | frameVersion
	flagTracing   = 0x02
	flagWarning   = 0x08

	opcodeReady   = 0x02
	opcodeQuery   = 0x07
	opcodeResult  = 0x08
	opcodeAuthed  = 0x10
	resultRows    = 2
	globalTable   = 0x01
	levelOne      = 1
	typeOptionLen = 2
	traceIDLen    = 16
)

var errIdentity = errors.New("cassandra: a node did not say which host id it has")

// An identifiedConn asks the node for its host id once the driver may send statements, before
// the driver hears of that. Nothing else is in flight then.
type identifiedConn struct {
	net.Conn
	check func(id string, peers func() ([]string, error)) error

	checked bool
	ahead   []byte // was read, and is for the driver
}

// Read is called by the driver, by one goroutine at a time.
func (c *identifiedConn) Read(p []byte) (int, error) {
	if !c.checked && len(c.ahead) == 0 {
		if err := c.handshake(); err != nil {
			return 0, err
		}
	}
	if len(c.ahead) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.ahead)
	c.ahead = c.ahead[n:]
	return n, nil
}

// handshake reads the next frame of the handshake.
func (c *identifiedConn) handshake() error {
	f, err := c.receive()
	if err != nil {
		return err
	}
	switch {
	case f[0] != answerVersion: // the driver gives up such a connection
		c.checked = true
	case f[4] == opcodeReady || f[4] == opcodeAuthed:
		if err := c.identify(); err != nil {
			return err
		}
		c.checked = true
	}
	c.ahead = f
	return nil
}

func (c *identifiedConn) identify() error {
	ids, err := c.ask(askLocalID)
	if err != nil {
		return err
	}
	id := ""
	if len(ids) > 0 {
		id = ids[0]
	}
	return c.check(id, func() ([]string, error) { return c.ask(askPeerIDs) })
}

// receive reads a frame. Of one of another version it reads the header.
func (c *identifiedConn) receive() ([]byte, error) {
	f := make([]byte, frameHeader)
	if _, err := io.ReadFull(c.Conn, f); err != nil || f[0] != answerVersion {
		return f, err
	}
	n := binary.BigEndian.Uint32(f[5:])
	if n > askedFrame {
		return nil, errIdentity
	}
	f = append(f, make([]byte, n)...)
	_, err := io.ReadFull(c.Conn, f[frameHeader:])
	return f, err
}

// ask returns the host ids that a statement selects.
func (c *identifiedConn) ask(text string) ([]string, error) {
	body := append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	body = append(body, 0, levelOne, 0)
	f := append([]byte{frameVersion, 0, 0, 0, opcodeQuery}, binary.BigEndian.AppendUint32(nil, uint32(len(body)))...)
	if _, err := c.Conn.Write(append(f, body...)); err != nil {
		return nil, err
	}
	f, err := c.receive()
	if err != nil {
		return nil, err
	}
	return hostIDs(f)
}

// hostIDs reads the rows of one column with host ids. A null is left out.
func hostIDs(f []byte) ([]string, error) {
	flags, body := f[1], f[frameHeader:]
	if f[0] != answerVersion || f[4] != opcodeResult {
		return nil, fmt.Errorf("%w: it answers with a frame of type %d", errIdentity, f[4])
	}
	if flags&flagCompressed != 0 {
		var err error
		if body, err = decompressed(body); err != nil {
			return nil, err
		}
	}
	r := frameReader{rest: body}
	r.skipNotes(flags)
	if kind, _, columns := r.int(), r.int(), r.int(); kind != resultRows || columns != 1 {
		return nil, errIdentity
	}
	for range 3 { // keyspace, table, column
		r.bytes(r.short())
	}
	r.bytes(typeOptionLen)
	var ids []string
	for range r.int() {
		value := r.bytes(max(0, r.int()))
		if r.cut {
			break
		}
		if id, err := gocql.UUIDFromBytes(value); err == nil {
			ids = append(ids, id.String())
		}
	}
	if r.cut {
		return nil, errIdentity
	}
	return ids, nil
}

// decompressed is the body of a compressed frame. Its length is in front.
func decompressed(body []byte) ([]byte, error) {
	r := frameReader{rest: body}
	if n := r.int(); n < 0 || n > askedFrame {
		return nil, errIdentity
	}
	return lz4.LZ4Compressor{}.AppendDecompressedWithLength(nil, body)
}

// skipNotes skips what flags announce in front of a result.
func (r *frameReader) skipNotes(flags byte) {
	if flags&flagTracing != 0 {
		r.bytes(traceIDLen)
	}
	if flags&flagWarning != 0 {
		for range r.short() {
			r.bytes(r.short())
		}
	}
	if flags&flagPayload != 0 {
		for range r.short() {
			r.bytes(r.short())
			r.bytes(max(0, r.int()))
		}
	}
}
