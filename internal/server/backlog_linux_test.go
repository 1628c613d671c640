package server

import (
	"crypto/tls"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"varve/internal/server/tlstest"
)

// The kernel takes in no more for a connection of HTTP/2 than its flow control lets a client
// send.
func TestBacklogOfHTTP2(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	s, _ := secured(t, ca, nil)
	config := ca.Client("")
	config.NextProtos = []string{http2}
	c, err := tls.Dial("tcp", s.Addr("http"), config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	if _, err := c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil { // the server's settings: the connection was accepted
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/sys/net/core/rmem_max")
	if err != nil {
		t.Skipf("what the kernel allows is not known: %v", err)
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	want := 2 * min(http2Backlog, most)
	if got := backlogOf(t, c.LocalAddr().(*net.TCPAddr).Port); got != want {
		t.Errorf("the kernel takes in %d bytes, want %d", got, want)
	}
}

// backlogOf returns the size of the buffer for what comes from a port, in this process.
func backlogOf(t *testing.T, port int) int {
	t.Helper()
	const files = 1024 // that are looked at
	for fd := range files {
		peer, err := syscall.Getpeername(fd)
		if from, ok := peer.(*syscall.SockaddrInet4); err != nil || !ok || from.Port != port {
			continue
		}
		size, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF)
		if err != nil {
			t.Fatal(err)
		}
		return size
	}
	t.Fatalf("no connection from port %d", port)
	return 0
}
