package stream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
)

// A readFunc is a source of bytes.
type readFunc func(p []byte) (int, error)

func (f readFunc) readMetered(p []byte) (int, error) { return f(p) }
func (f readFunc) more() bool                        { return true }

// An inbound returns the bytes that arrived, in pieces that never extend into the next record, no
// matter how they arrived. It reports whether a whole record has arrived.
func TestInbound(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		var sent []byte
		ends := map[int]bool{0: true}
		for range 20 {
			body := make([]byte, random.IntN(1<<random.IntN(17)))
			for i := range body {
				body[i] = byte(random.Uint32())
			}
			sent = append(sent, 23, 3, 3)
			sent = append(binary.BigEndian.AppendUint16(sent, uint16(len(body))), body...)
			ends[len(sent)] = true
		}
		left, broken := sent, errors.New("the line is broken")
		read := readFunc(func(p []byte) (int, error) {
			if random.IntN(10) == 0 {
				return 0, io.ErrNoProgress // as a deadline
			}
			n := min(len(left), len(p), 1+random.IntN(1<<random.IntN(18)))
			copy(p, left[:n])
			if left = left[n:]; n == 0 {
				return 0, broken
			}
			return n, nil
		})
		var in inbound
		var got []byte
		for {
			whole, came := in.whole(), len(left)
			p := make([]byte, 1+random.IntN(40_000))
			n, err := in.next(p, read)
			if whole && (n == 0 || came != len(left)) {
				t.Fatalf("seed %d: the reader waited although a whole record had arrived", seed)
			}
			for i := len(got) + 1; i < len(got)+n; i++ {
				if ends[i] {
					t.Fatalf("seed %d: bytes %d to %d are of two records", seed, len(got), len(got)+n)
				}
			}
			got = append(got, p[:n]...)
			if err == broken {
				break
			}
		}
		if !bytes.Equal(got, sent) {
			t.Fatalf("seed %d: %d bytes, want %d, or others", seed, len(got), len(sent))
		}
		if len(in.buf) > mostInbound {
			t.Fatalf("seed %d: a buffer of %d bytes", seed, len(in.buf))
		}
	}
}

// A connection has a large buffer while much arrives, and none while it waits for its client.
func TestNoLargeBufferWhileWaiting(t *testing.T) {
	record := append([]byte{23, 3, 3, 0xff, 0xf0}, make([]byte, 0xfff0)...)
	p := make([]byte, 40_000)
	for size := 1; size < 4*mostInbound; size += 4093 {
		come := bytes.Repeat(record, size/len(record)+1)[:size]
		from := &counting{come: come}
		var in inbound
		for err := error(nil); err == nil; {
			_, err = in.next(p, from)
		}
		if from.waited > firstInbound {
			t.Fatalf("after %d bytes the connection waits with a buffer of %d", size, from.waited)
		}
		if most := 3 + size/(mostInbound/2); from.reads > most {
			t.Fatalf("%d bytes arrived in %d reads, want at most %d", size, from.reads, most)
		}
	}
}

// A counting is a source of bytes that have arrived. At their end it records the size of the reader's buffer.
type counting struct {
	come   []byte
	reads  int
	waited int // bytes of the buffer of a read that would wait
}

func (c *counting) more() bool { return len(c.come) > 0 }

func (c *counting) readMetered(p []byte) (int, error) {
	if len(c.come) == 0 {
		c.waited = len(p)
		return 0, io.EOF
	}
	c.reads++
	n := copy(p, c.come)
	c.come = c.come[n:]
	return n, nil
}
