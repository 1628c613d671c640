//go:build !race

package fastpath

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"varve/internal/stream"
)

// socketPair returns a socket, its connection, and the client's end.
func socketPair(t *testing.T) (wire, *stream.Conn, *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sl := stream.NewListener(l, stream.Options{Name: "test", Limit: 1})
	defer sl.Close()
	client := dial(t, network{}, l.Addr().String()).(*net.TCPConn)
	c, err := sl.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s := newWire(c.(*stream.Conn))
	if _, ok := s.(*socket); !ok {
		t.Fatalf("it is a %T", s)
	}
	return s, c.(*stream.Conn), client
}

// More than the kernel takes at once arrives whole, in both directions.
func TestSocketWaits(t *testing.T) {
	s, c, client := socketPair(t)
	if err := c.Conn.(*net.TCPConn).SetWriteBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	sent := make([]byte, 2<<20)
	rand.NewChaCha8([32]byte{1}).Read(sent)
	echoed := make(chan error, 1)
	go func() {
		got := make([]byte, len(sent))
		_, err := io.ReadFull(s, got)
		if err == nil {
			var n int
			if n, err = s.Write(got[:len(got)/2]); n != len(got)/2 && err == nil {
				err = io.ErrShortWrite
			}
		}
		if err == nil {
			rest := got[len(got)/2:]
			err = s.writePieces(rest[:10], nil, rest[10:100_000], rest[100_000:100_000], rest[100_000:100_001], rest[100_001:])
		}
		echoed <- err
	}()
	if _, err := client.Write(sent); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("other bytes came back, %v", err)
	}
	if err := <-echoed; err != nil {
		t.Error(err)
	}
}

// Deadlines, the end of a connection and its reset are told as by net.
func TestSocketErrors(t *testing.T) {
	s, c, client := socketPair(t)
	if n, err := s.Read(nil); n != 0 || err != nil {
		t.Errorf("read nothing: %d, %v", n, err)
	}
	c.SetDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read after the deadline: %v", err)
	}
	written := 0
	for err := error(nil); err == nil; {
		var n int
		n, err = s.Write(make([]byte, 1<<20))
		written += n
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write after the deadline: %v", err)
		}
	}
	c.SetDeadline(time.Time{})
	if _, err := io.ReadFull(client, make([]byte, written)); err != nil {
		t.Errorf("of %d bytes written: %v", written, err)
	}
	client.CloseWrite()
	if n, err := s.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("read at the end: %d, %v", n, err)
	}
	client.SetLinger(0)
	client.Close() // resets
	if _, err := s.Read(make([]byte, 1)); err == nil {
		t.Error("read after a reset")
	}
	if _, err := s.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("written after a reset: %v", err)
	}
	c.Close()
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read after Close: %v", err)
	}
}
