package cql

import (
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
)

// A packedBatch is a batch whose frame this package writes, because the driver needs a
// microsecond of CPU and a dozen allocations for each row: it looks up the row's prepared
// statement, converts its values one by one, and builds the frame in new memory that it grows
// repeatedly.
//
// The driver gets one row for each statement, and a custom payload that identifies the batch.
// It prepares the statements, chooses node and connection, reads the answer and retries, as
// with other batches. The connection finds the payload and sends the frame of all rows instead,
// the same as the driver would have sent.
//
// Frame of a batch, version 4 (integers big-endian):
//
//	header     version u8, flags u8, stream u16, opcode u8, length of what follows u32
//	payload    count u16, then for each: name (u16, bytes), value (i32, bytes); only if flags say so
//	kind       u8
//	entries    count u16, then for each: 1 u8, id of the statement (u16, bytes),
//	           count u16, then for each value: i32, bytes; -1 is null
//	rest       consistency, flags, timestamp
type packedBatch struct {
	entries    []Entry
	statements []packedStatement // in the order of their first entries
}

// A packedStatement is a statement of a packed batch.
type packedStatement struct {
	*Statement
	first int // the first entry with this statement
}

const (
	// packedStatements bounds the statements of a packed batch, because they are
	// looked up one by one for each entry.
	packedStatements = 4

	// keptFrame is the longest frame whose memory a connection keeps. It holds a batch of
	// 600 rows with keys of 150 bytes.
	keptFrame = 256 << 10

	payloadName = "varve"

	frameHeader    = 9
	frameVersion   = 4
	flagCompressed = 0x01
	flagPayload    = 0x04
	opcodeBatch    = 0x0D
	preparedEntry  = 1
	entryOverhead  = 1 + 2 + 2 // kind, length of the id, count of the values
	lengthOverhead = 4
	payloadNumber  = 8 // bytes of the value of the payload
)

// pack returns a packed batch of entries, and false if the driver must encode them. They can be
// packed if several have the same statement, and appendArg can encode all values.
func pack(entries []Entry) (*packedBatch, bool) {
	p := &packedBatch{entries: entries}
	for i, e := range entries {
		at := p.statement(e.Statement)
		if at < 0 {
			if len(p.statements) == packedStatements {
				return nil, false
			}
			at = len(p.statements)
			p.statements = append(p.statements, packedStatement{e.Statement, i})
		}
		if len(e.Args) != len(entries[p.statements[at].first].Args) {
			return nil, false // the driver will return the error
		}
		for _, a := range e.Args {
			if !encodes(a) {
				return nil, false
			}
		}
	}
	return p, len(p.statements) < len(entries)
}

// statement returns the index of a statement, -1 if it is not in the batch.
func (p *packedBatch) statement(st *Statement) int {
	for i, s := range p.statements {
		if s.Statement == st {
			return i
		}
	}
	return -1
}

// forDriver returns the entries that the driver gets.
func (p *packedBatch) forDriver() []Entry {
	few := make([]Entry, len(p.statements))
	for i, s := range p.statements {
		few[i] = p.entries[s.first]
	}
	return few
}

// encodes reports whether appendArg can encode a value.
func encodes(arg any) bool {
	switch a := arg.(type) {
	case []byte, Raw, string, UUID, TagMap, int64:
		return true
	case *Raw:
		return a != nil
	case int:
		return int(int32(a)) == a
	}
	return false
}

// appendArg appends length and bytes of a value for which encodes returns true.
func appendArg(dst []byte, arg any) []byte {
	switch a := arg.(type) {
	case []byte:
		return appendBytes(dst, a)
	case Raw:
		return appendBytes(dst, a)
	case *Raw:
		return appendBytes(dst, *a)
	case string:
		return append(binary.BigEndian.AppendUint32(dst, uint32(len(a))), a...)
	case UUID:
		return appendBytes(dst, a[:])
	case int:
		return binary.BigEndian.AppendUint32(append(dst, 0, 0, 0, 4), uint32(a))
	case int64:
		return binary.BigEndian.AppendUint64(append(dst, 0, 0, 0, 8), uint64(a))
	case TagMap:
		if !a.Null {
			return a.Append(binary.BigEndian.AppendUint32(dst, uint32(a.Size())))
		}
	}
	return appendBytes(dst, nil)
}

// appendBytes appends a value; nil is null.
func appendBytes(dst, value []byte) []byte {
	if value == nil {
		return append(dst, 0xFF, 0xFF, 0xFF, 0xFF)
	}
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(value))), value...)
}

// packedBatches are the packed batches that the driver is executing, at most as many as
// statements in flight.
type packedBatches struct {
	mu   sync.Mutex
	last uint64
	all  map[uint64]*packedBatch
}

// add returns the payload that identifies p until done is called.
func (b *packedBatches) add(p *packedBatch) (payload map[string][]byte, done func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = make(map[uint64]*packedBatch)
	}
	b.last++
	number := b.last
	b.all[number] = p
	return map[string][]byte{payloadName: binary.BigEndian.AppendUint64(nil, number)}, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.all, number)
	}
}

func (b *packedBatches) get(number uint64) *packedBatch {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all[number]
}

// A packedConn sends packed batches in full. The driver writes one frame at a time.
type packedConn struct {
	net.Conn
	batches *packedBatches
	frame   []byte // memory for the next frame
}

// Write is called by the driver.
func (c *packedConn) Write(p []byte) (int, error) {
	if !hasPayload(p) {
		return c.Conn.Write(p)
	}
	frame, err := c.batches.unpack(c.frame[:0], p)
	if err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(frame)
	c.frame = nil
	if cap(frame) <= keptFrame {
		c.frame = frame
	}
	if err != nil {
		return min(n, len(p)-1), err
	}
	return len(p), nil
}

// hasPayload reports whether p is a frame with a custom payload. Only packed batches have one,
// so such a frame must never be sent unchanged: it has only one row of each statement.
func hasPayload(p []byte) bool { return len(p) > frameHeader && p[1]&flagPayload != 0 }

var errPacked = errors.New("cassandra: frame of a packed batch is not as the driver makes it")

// unpack appends the complete frame of the batch that the driver's frame identifies to dst.
func (b *packedBatches) unpack(dst, short []byte) ([]byte, error) {
	if short[0] != frameVersion || short[1]&flagCompressed != 0 || short[4] != opcodeBatch {
		return dst, errPacked
	}
	r := frameReader{rest: short[frameHeader:]}
	count, name, number := r.short(), string(r.bytes(r.short())), r.bytes(r.int())
	if r.cut || count != 1 || name != payloadName || len(number) != payloadNumber {
		return dst, errPacked
	}
	p := b.get(binary.BigEndian.Uint64(number))
	if p == nil {
		return dst, errPacked
	}
	kind, ids := r.bytes(1), make([][]byte, 0, packedStatements)
	for range r.short() {
		r.bytes(1)
		ids = append(ids, r.bytes(r.short()))
		for range r.short() {
			r.bytes(max(0, r.int()))
		}
	}
	if r.cut || len(ids) != len(p.statements) {
		return dst, errPacked
	}
	at := len(dst)
	dst = slices.Grow(dst, len(short)+p.size(ids))
	dst = append(dst, short[:frameHeader]...)
	dst = append(dst, kind...)
	dst = p.append(dst, ids)
	dst = append(dst, r.rest...)
	dst[at+1] &^= flagPayload
	binary.BigEndian.PutUint32(dst[at+5:], uint32(len(dst)-at-frameHeader))
	return dst, nil
}

// size returns an upper bound of the bytes that append appends.
func (p *packedBatch) size(ids [][]byte) int {
	n := 2
	for _, e := range p.entries {
		n += entryOverhead + len(ids[p.statement(e.Statement)]) + sizeOf(e.Args)
	}
	return n
}

// append appends count and entries. ids are the node's ids of the statements.
func (p *packedBatch) append(dst []byte, ids [][]byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(p.entries)))
	for _, e := range p.entries {
		id := ids[p.statement(e.Statement)]
		dst = append(dst, preparedEntry)
		dst = append(binary.BigEndian.AppendUint16(dst, uint16(len(id))), id...)
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(e.Args)))
		for _, a := range e.Args {
			dst = appendArg(dst, a)
		}
	}
	return dst
}

// A frameReader reads parts of a frame. After the end of the frame, it returns zero values.
type frameReader struct {
	rest []byte
	cut  bool
}

func (r *frameReader) bytes(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.cut, r.rest = true, nil
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *frameReader) short() int {
	if b := r.bytes(2); b != nil {
		return int(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *frameReader) int() int {
	if b := r.bytes(4); b != nil {
		return int(int32(binary.BigEndian.Uint32(b)))
	}
	return 0
}
