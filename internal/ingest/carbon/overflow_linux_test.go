package carbon

import (
	"context"
	"net"
	"testing"
	"time"

	"varve/internal/ingest/ingesttest"
)

// TestOverflowIsTold: what Linux drops at a full socket is told with the next datagram, in the
// room that is left for it.
func TestOverflowIsTold(t *testing.T) {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetReadBuffer(1); err != nil { // the least that the system has
		t.Fatal(err)
	}
	if err := countOverflow(c); err != nil {
		t.Fatal(err)
	}
	sender, err := net.DialUDP("udp", nil, c.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	const sent = 100
	send := func(n int) {
		for range n {
			if _, err := sender.Write(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
	}
	data, oob := make([]byte, 2000), make([]byte, overflowBytes)
	read := func(patience time.Duration) (dropped uint32, told bool, err error) {
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		_, n, _, _, err := c.ReadMsgUDPAddrPort(data, oob)
		if err != nil {
			return 0, false, err
		}
		dropped, told = overflowIn(oob[:n])
		return dropped, told, nil
	}
	send(sent)
	var got uint32
	for ; ; got++ {
		if _, _, err := read(100 * time.Millisecond); err != nil {
			break // no more of them wait
		}
	}
	if got == 0 || got == sent {
		t.Skipf("NOT RUN: %d of %d datagrams came; the socket does not overflow here", got, sent)
	}
	send(1)
	if dropped, told, err := read(2 * time.Minute); err != nil || !told || dropped != sent-got {
		t.Errorf("%d are dropped, told %t, %v; want %d", dropped, told, err, sent-got)
	}
	if _, told := overflowIn([]byte{1, 2, 3}); told {
		t.Error("a message that is cut off tells of some")
	}
}

// TestOverflowIsCounted: a server counts what Linux dropped, once: a later datagram tells of it again.
func TestOverflowIsCounted(t *testing.T) {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadBuffer(1); err != nil { // so that some are dropped before the server receives
		t.Fatal(err)
	}
	pipeline, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	h := &udpHarness{T: t, reg: reg, addr: c.LocalAddr().(*net.UDPAddr), served: make(chan error, 1)}
	h.server = NewDatagramServer(pipeline, DefaultConfig(), Options{Registerer: reg})
	sender, err := net.DialUDP("udp", nil, h.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	const sent = 100
	for range sent {
		if _, err := sender.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	go func() { h.served <- h.server.Serve(context.Background(), c, nil) }()
	const received, dropped = "varve_carbon_udp_datagrams_total", "varve_carbon_udp_kernel_dropped_total"
	h.until(func() bool { return h.count(received)[""] > 0 })
	h.send("a 1 100", "a 2 200", "a 3 300")
	h.stop()
	got, lost := h.count(received)[""]-3, h.count(dropped)[""]
	if got == sent {
		t.Skip("NOT RUN: the socket does not overflow here")
	}
	if got+lost != sent {
		t.Errorf("of %d datagrams %v are received, %v counted as dropped", sent, got, lost)
	}
}
