package cql

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"testing"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"varve/internal/model"
)

var (
	packedInsert = &Statement{Name: "insert", Text: "INSERT INTO t (key, column1) VALUES (?, ?)"}
	packedDelete = &Statement{Name: "delete", Text: "DELETE FROM t WHERE key = ?"}
)

// shortFrame is what the driver makes of a batch that a payload names: two statements of
// two values and one.
func shortFrame(name string, number uint64) []byte {
	body := []byte{0, 1, 0, byte(len(name))}
	body = append(body, name...)
	body = binary.BigEndian.AppendUint64(append(body, 0, 0, 0, payloadNumber), number)
	body = append(body, 1, 0, 2)
	body = append(body, preparedEntry, 0, 2, 'i', 'd', 0, 2, 0, 0, 0, 1, 'k', 0xFF, 0xFF, 0xFF, 0xFF)
	body = append(body, preparedEntry, 0, 1, 'j', 0, 1, 0, 0, 0, 1, 'k')
	body = append(body, "rest"...)
	frame := append([]byte{frameVersion, flagPayload, 0, 7, opcodeBatch}, binary.BigEndian.AppendUint32(nil, uint32(len(body)))...)
	return append(frame, body...)
}

func somePacked(t *testing.T) *packedBatch {
	t.Helper()
	p, ok := pack([]Entry{
		{packedInsert, []any{[]byte("k"), []byte(nil)}}, {packedDelete, []any{[]byte("k")}},
		{packedInsert, []any{Raw("l"), &Raw{}}}, {packedDelete, []any{[]byte("m")}},
	})
	if !ok {
		t.Fatal("not packed")
	}
	return p
}

func TestPack(t *testing.T) {
	value := []byte("v")
	one := Entry{packedDelete, []any{value}}
	number := Entry{&Statement{}, []any{1<<31 - 1}}
	others := func(n int) (all []Entry) {
		for range n {
			all = append(all, Entry{&Statement{}, nil})
		}
		return all
	}
	for _, c := range []struct {
		name    string
		entries []Entry
		want    bool
	}{
		{"two of a statement", []Entry{one, one}, true},
		{"nothing is saved", []Entry{one, {packedInsert, []any{value, value}}}, false},
		{"an int64", []Entry{one, one, {packedDelete, []any{int64(1)}}}, true},
		{"an int", []Entry{number, number}, true},
		{"a number that is no int", []Entry{number, number, {number.Statement, []any{1 << 31}}}, false},
		{"a value of a type that only the driver knows", []Entry{one, one, {packedDelete, []any{1.5}}}, false},
		{"no value at all", []Entry{one, one, {packedDelete, []any{(*Raw)(nil)}}}, false},
		{"too few values", []Entry{one, one, {packedDelete, nil}}, false},
		{"four statements", append(others(packedStatements-1), one, one), true},
		{"five statements", append(others(packedStatements), one, one), false},
	} {
		if _, ok := pack(c.entries); ok != c.want {
			t.Errorf("%s: %v", c.name, ok)
		}
	}
}

// TestPackedValues: values are as the driver would send them.
func TestPackedValues(t *testing.T) {
	raw := Raw("raw")
	for _, c := range []struct {
		arg any
		typ gocql.Type
	}{
		{[]byte("bytes"), gocql.TypeBlob}, {[]byte{}, gocql.TypeBlob}, {[]byte(nil), gocql.TypeBlob}, {raw, gocql.TypeBlob}, {&raw, gocql.TypeBlob},
		{"text", gocql.TypeText}, {"", gocql.TypeText}, {TimeUUID(), gocql.TypeTimeUUID},
		{7, gocql.TypeInt}, {-7, gocql.TypeInt}, {int64(1) << 40, gocql.TypeBigInt}, {int64(-2), gocql.TypeTimestamp},
		{TagMap{Tags: model.MustTags("host", "a", "rack", "")}, gocql.TypeBlob}, {TagMap{}, gocql.TypeBlob}, {TagMap{Null: true}, gocql.TypeBlob},
	} {
		want, err := gocql.Marshal(gocql.NewNativeType(frameVersion, c.typ, ""), c.arg)
		if err != nil || !encodes(c.arg) {
			t.Fatal(c.arg, err)
		}
		length := uint32(len(want))
		if want == nil {
			length = math.MaxUint32
		}
		got := appendArg(nil, c.arg)
		if !bytes.Equal(got, append(binary.BigEndian.AppendUint32(nil, length), want...)) || len(got) > sizeOf([]any{c.arg}) {
			t.Errorf("%T %v: %x, want %x", c.arg, c.arg, got, want)
		}
	}
}

// TestUnpackDamaged: a frame that is not as the driver makes it is not sent at all.
func TestUnpackDamaged(t *testing.T) {
	var b packedBatches
	payload, done := b.add(somePacked(t))
	number := binary.BigEndian.Uint64(payload[payloadName])
	whole := shortFrame(payloadName, number)
	if _, err := b.unpack(nil, whole); err != nil {
		t.Fatal(err)
	}
	damaged := map[string][]byte{"other payload": shortFrame("other", number), "other batch": shortFrame(payloadName, number+1)}
	for n := frameHeader; n < len(whole)-len("rest"); n++ {
		damaged[fmt.Sprint("first ", n)] = whole[:n]
	}
	refuse := func(name string, frame []byte) {
		if got, err := b.unpack(nil, frame); !errors.Is(err, errPacked) || len(got) != 0 {
			t.Errorf("%s: %v, %d bytes", name, err, len(got))
		}
	}
	for name, frame := range damaged {
		refuse(name, frame)
	}
	done()
	refuse("ended batch", whole)
}

// A brokenConn fails after some bytes.
type brokenConn struct {
	net.Conn
	takes int
	got   []byte
}

var errBroken = errors.New("broken")

func (c *brokenConn) Write(p []byte) (int, error) {
	n := min(len(p), c.takes)
	c.got = append(c.got, p[:n]...)
	if n < len(p) {
		return n, errBroken
	}
	return n, nil
}

// TestPayloadNeverLeaves: a frame with a payload has one row of each statement, so it is
// an error where it cannot be replaced.
func TestPayloadNeverLeaves(t *testing.T) {
	var b packedBatches
	payload, done := b.add(somePacked(t))
	defer done()
	whole := shortFrame(payloadName, binary.BigEndian.Uint64(payload[payloadName]))
	for name, change := range map[string]func(frame []byte){
		"another version": func(frame []byte) { frame[0]++ },
		"compressed":      func(frame []byte) { frame[1] |= flagCompressed },
		"no batch":        func(frame []byte) { frame[4]-- },
	} {
		frame := bytes.Clone(whole)
		change(frame)
		node := &fakeConn{}
		if n, err := (&packedConn{Conn: node, batches: &b}).Write(frame); n != 0 || !errors.Is(err, errPacked) || node.written {
			t.Errorf("%s: %d, %v; something was sent: %v", name, n, err, node.written)
		}
	}
}

// A fakeConn notes whether it is written to.
type fakeConn struct {
	net.Conn
	written bool
}

func (c *fakeConn) Write(p []byte) (int, error) {
	c.written = true
	return len(p), nil
}

// TestPackedWrite: the driver hears of its own frame, never that all of it was written if
// the one that was sent instead was cut.
func TestPackedWrite(t *testing.T) {
	var b packedBatches
	payload, done := b.add(somePacked(t))
	defer done()
	short := shortFrame(payloadName, binary.BigEndian.Uint64(payload[payloadName]))
	long, err := b.unpack(nil, short)
	if err != nil {
		t.Fatal(err)
	}
	for takes := range len(long) + 1 {
		under := &brokenConn{takes: takes}
		c := &packedConn{Conn: under, batches: &b}
		n, err := c.Write(short)
		whole := takes == len(long)
		if whole != (err == nil) || whole != (n == len(short)) || (n == 0) != (takes == 0) || !bytes.Equal(under.got, long[:takes]) {
			t.Errorf("after %d of %d bytes: %d of %d, %v", takes, len(long), n, len(short), err)
		}
	}
}

// TestPackedMemory: a connection keeps memory for the next frame, but not that of a long
// one.
func TestPackedMemory(t *testing.T) {
	var b packedBatches
	for _, c := range []struct {
		bytes int
		keeps bool
	}{{100, true}, {keptFrame, false}} {
		e := Entry{packedDelete, []any{make([]byte, c.bytes)}}
		p, ok := pack([]Entry{{packedInsert, []any{[]byte("k"), []byte("k")}}, e, e})
		payload, done := b.add(p)
		conn := &packedConn{Conn: &brokenConn{takes: 1 << 20}, batches: &b}
		if _, err := conn.Write(shortFrame(payloadName, binary.BigEndian.Uint64(payload[payloadName]))); err != nil || !ok {
			t.Fatal(err, ok)
		}
		done()
		if keeps := conn.frame != nil; keeps != c.keeps {
			t.Errorf("after %d bytes: keeps %d", c.bytes, cap(conn.frame))
		}
	}
	if len(b.all) != 0 {
		t.Errorf("%d batches are kept", len(b.all))
	}
}
