package carbon

import (
	"net"
	"testing"
	"time"
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
