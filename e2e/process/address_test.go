package process

import (
	"net"
	"testing"
)

// A free address stays free, although others get its port at the address that all use.
func TestFreeAddress(t *testing.T) {
	for _, network := range []string{"tcp", "udp"} {
		host, port := FreeAddress(t, network)
		other, _, err := listen(network, net.JoinHostPort("127.0.0.1", port))
		if err == nil { // else somebody has it already
			defer other.Close()
		}
		own, _, err := listen(network, net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		own.Close()
	}
}
