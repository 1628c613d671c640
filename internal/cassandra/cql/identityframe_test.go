package cql

import (
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/apache/cassandra-gocql-driver/v2/lz4"
)

// answerFrame is a frame of a node.
func answerFrame(flags, opcode byte, body []byte) []byte {
	f := []byte{answerVersion, flags, 0, 0, opcode}
	return append(binary.BigEndian.AppendUint32(f, uint32(len(body))), body...)
}

// hostIDRows is a result with rows of one column; nil is null.
func hostIDRows(rows ...[]byte) []byte {
	b := []byte{0, 0, 0, resultRows, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1, 'k', 0, 1, 't', 0, 1, 'c', 0, 0x0C}
	b = binary.BigEndian.AppendUint32(b, uint32(len(rows)))
	for _, row := range rows {
		b = appendBytes(b, row)
	}
	return b
}

var (
	someID   = UUID{1, 15: 2}
	someRows = hostIDRows(someID[:], nil, UUID{3}.Bytes())
)

// TestHostIDs: rows are read behind notes, and compressed. Of a frame that is cut, none is.
func TestHostIDs(t *testing.T) {
	want := []string{someID.String(), UUID{3}.String()}
	compressed, err := lz4.LZ4Compressor{}.AppendCompressedWithLength(nil, someRows)
	if err != nil {
		t.Fatal(err)
	}
	warning := append([]byte{0, 1, 0, 1, 'w'}, someRows...)
	payload := append([]byte{0, 1, 0, 1, 'n', 0, 0, 0, 2, 'v', 'v'}, someRows...)
	for name, f := range map[string][]byte{
		"plain":      answerFrame(0, opcodeResult, someRows),
		"compressed": answerFrame(flagCompressed, opcodeResult, compressed),
		"traced":     answerFrame(flagTracing, opcodeResult, append(make([]byte, traceIDLen), someRows...)),
		"warning":    answerFrame(flagWarning, opcodeResult, warning),
		"payload":    answerFrame(flagPayload, opcodeResult, payload),
	} {
		if ids, err := hostIDs(f); err != nil || !slices.Equal(ids, want) {
			t.Errorf("%s: %q, %v", name, ids, err)
		}
	}
	if ids, err := hostIDs(answerFrame(0, opcodeResult, hostIDRows())); err != nil || len(ids) != 0 {
		t.Errorf("no row: %q, %v", ids, err)
	}
	for n := range len(someRows) {
		if ids, err := hostIDs(answerFrame(0, opcodeResult, someRows[:n])); !errors.Is(err, errIdentity) {
			t.Errorf("the first %d bytes: %q, %v", n, ids, err)
		}
	}
	huge := hostIDRows()
	binary.BigEndian.PutUint32(huge[len(huge)-4:], 1<<31-1)
	for name, f := range map[string][]byte{
		"an error":               answerFrame(0, 0, someRows),
		"many rows, announced":   answerFrame(0, opcodeResult, huge),
		"long when uncompressed": answerFrame(flagCompressed, opcodeResult, []byte{0x7F, 0, 0, 0, 0}),
	} {
		if ids, err := hostIDs(f); !errors.Is(err, errIdentity) {
			t.Errorf("%s: %q, %v", name, ids, err)
		}
	}
}

// TestHandshake: the driver gets what the node sends, byte by byte if it wants, and nothing of
// a node that is not admitted.
func TestHandshake(t *testing.T) {
	refused := errors.New("refused")
	for _, verdict := range []error{nil, refused} {
		driver, node := net.Pipe()
		defer driver.Close()
		supported, ready, later := answerFrame(0, 6, []byte{0, 0}), answerFrame(0, opcodeReady, nil), []byte("later")
		go func() {
			node.Write(supported)
			node.Write(ready)
			ask := make([]byte, frameHeader+4+len(askLocalID)+3)
			if _, err := node.Read(ask); err == nil {
				node.Write(answerFrame(0, opcodeResult, someRows))
				node.Write(later)
			}
			node.Close()
		}()
		var id string
		c := &identifiedConn{Conn: driver, check: func(is string, _ func() ([]string, error)) error {
			id = is
			return verdict
		}}
		var got []byte
		var err error
		for b := make([]byte, 1); err == nil; {
			var n int
			n, err = c.Read(b)
			got = append(got, b[:n]...)
		}
		want := slices.Concat(supported, ready, later)
		if verdict != nil {
			want = supported
		}
		if !slices.Equal(got, want) || id != someID.String() || errors.Is(err, refused) != (verdict != nil) {
			t.Errorf("verdict %v: %q, %v, of %s; want %q", verdict, got, err, id, want)
		}
	}
}

// TestRoster: nodes are admitted that the cluster has told of, or that know one of its nodes.
func TestRoster(t *testing.T) {
	r := roster{now: time.Now}
	for _, c := range []struct {
		name, id, expected string
		peers              []string
		admitted           bool
	}{
		{"the first", "a", "", nil, true},
		{"again", "a", "", nil, true},
		{"a stranger", "x", "", []string{"y"}, false},
		{"a stranger again", "x", "", nil, false},
		{"a stranger where one of the ring was", "x", "a", nil, false},
		{"one of the ring", "b", "b", nil, true},
		{"one that knows another", "c", "b", []string{"y", "a"}, true},
		{"one that knows the former", "d", "", []string{"c"}, true},
		{"one that has no id", "", "a", nil, true},
		{"one that others told of", "e", "", nil, true},
	} {
		_, err := r.check("address", c.id, c.expected, func() ([]string, error) { return c.peers, nil })
		stray := (*StrayError)(nil)
		if errors.As(err, &stray) == c.admitted || (r.strayed() == nil) != c.admitted {
			t.Errorf("%s: %v", c.name, err)
		}
		r.add("e", "")
	}
}
