package process

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
)

// FreeAddress returns an address on this machine where nothing listens, for a program that must be
// told where to listen. Nothing else takes it before the program does: ports are handed out at
// 127.0.0.1, and this is another address.
func FreeAddress(t *testing.T, network string) (host, port string) {
	t.Helper()
	own := fmt.Sprintf("127.77.%d.%d:0", rand.N(256), 1+rand.N(254))
	open, address, err := listen(network, own)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	return HostPort(t, address.String())
}

func listen(network, address string) (io.Closer, net.Addr, error) {
	if network == "udp" {
		c, err := net.ListenPacket(network, address)
		if err != nil {
			return nil, nil, err
		}
		return c, c.LocalAddr(), nil
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, nil, err
	}
	return l, l.Addr(), nil
}
