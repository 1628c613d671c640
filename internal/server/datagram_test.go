package server

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/principal"
)

// echoes is a DatagramServer that sends each datagram back.
type echoes struct{ stopped chan struct{} }

func (e *echoes) Serve(_ context.Context, c *net.UDPConn, _ func(netip.Addr) (principal.Principal, error)) error {
	stop := context.AfterFunc(e.context(), func() { c.Close() })
	defer stop()
	b := make([]byte, 100)
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if err != nil {
			return nil
		}
		c.WriteToUDPAddrPort(b[:n], from)
	}
}

func (e *echoes) context() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-e.stopped; cancel() }()
	return ctx
}

func (e *echoes) Shutdown(context.Context) error {
	close(e.stopped)
	return nil
}

// TestDatagramsAreServed: a stream of UDP begins and ends with the server.
func TestDatagramsAreServed(t *testing.T) {
	c := DefaultConfig()
	c.HTTPAddr, c.TelnetAddr, c.CarbonAddr, c.PickleAddr, c.CarbonUDPAddr = "127.0.0.1:0", "", "", "", "127.0.0.1:0"
	c.CloseGrace = 0
	var log bytes.Buffer
	s := New(Options{Config: c, Log: slog.New(slog.NewTextHandler(&log, nil)), Registry: prometheus.NewRegistry(),
		Front: Front{Datagrams: map[string]DatagramServer{"carbon_udp": &echoes{make(chan struct{})}}}})
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	addr := s.Addr("carbon_udp")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	conn, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.Write([]byte("hello"))
	conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
	b := make([]byte, 100)
	if n, err := conn.Read(b); err != nil || string(b[:n]) != "hello" {
		t.Errorf("read %q, %v", b[:n], err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	again, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatalf("the port is not free after the stop: %v", err)
	}
	defer again.Close()
	if strings.Contains(log.String(), "reachable from other machines") {
		t.Errorf("loopback is warned of:\n%s", &log)
	}

	c.CarbonUDPAddr = addr
	err = New(Options{Config: c, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Front: s.front}).Listen()
	if err == nil || !strings.Contains(err.Error(), "server.carbon_udp_addr") {
		t.Errorf("a taken address: %v", err)
	}
}
