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

// A roster has the nodes of the session's cluster, and refuses nodes of other clusters.
//
// A session belongs to the cluster that it reaches first. The driver reconnects to addresses,
// and an address may lead to another cluster later: machines and pods reuse addresses, and DNS
// names change. Rows of the wrong cluster would be read and cached, and rows would be written
// and deleted there. Therefore each new connection asks its node for its host id, which never
// changes, before the driver uses the connection. Later statements need no check: a connection
// leads to the same process until it is closed.
//
// A node of another cluster counts as down, so it is handled like an outage.
type roster struct {
	now func() time.Time

	mu    sync.Mutex
	ids   map[string]bool // host ids; empty until a node was reached
	stray *StrayError     // of the last refused connection; nil once a later one is admitted
	told  time.Time       // when a refusal was last logged
}

// A StrayError means that a node of another cluster answers where nodes of the session's
// cluster are expected.
type StrayError struct{ Address, ID string }

func (e *StrayError) Error() string {
	return fmt.Sprintf("the node at %s, with host id %s, is in another cluster than the nodes that this process has used so far. "+
		"It is not used. If the other cluster is intended, restart the process", e.Address, e.ID)
}

// add adds nodes that a node of the cluster has listed.
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

// check admits a node, or returns why not, and whether to log that. expected is the node's host
// id according to the driver's ring, which consists of admitted nodes. peers asks the node for
// the host ids of its peers. One known peer is sufficient: the node was added to the cluster,
// or has replaced another one at its address.
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

// opens admits the node if it is the first one, and reports whether it is.
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

	// askedFrame bounds the size of a frame that is read here: some 40,000 host ids.
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

// An identifiedConn asks the node for its host id when the handshake is complete, before the
// driver learns of that. Nothing else is in flight at that time.
type identifiedConn struct {
	net.Conn
	check func(id string, peers func() ([]string, error)) error

	checked bool
	ahead   []byte // bytes that were read for the driver
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
	case f[0] != answerVersion: // the driver closes such a connection
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

// receive reads a frame. If the frame is of another version, it reads only the header.
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

// hostIDs decodes rows of one column with host ids. It skips nulls.
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

// decompressed returns the body of a compressed frame, which begins with its uncompressed
// length.
func decompressed(body []byte) ([]byte, error) {
	r := frameReader{rest: body}
	if n := r.int(); n < 0 || n > askedFrame {
		return nil, errIdentity
	}
	return lz4.LZ4Compressor{}.AppendDecompressedWithLength(nil, body)
}

// skipNotes skips the parts before a result that flags announce.
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
