package principal

import "net/netip"

// networkBits is the length of the IPv6 prefix that counts as one sender: a single machine may have
// all of its addresses.
const networkBits = 64

// NetworkOf applies Network to the address in "address:port". It returns the zero Prefix
// if there is none.
func NetworkOf(remote string) netip.Prefix {
	a, _ := netip.ParseAddrPort(remote)
	return Network(a.Addr())
}

// Network returns the range to which limits per address apply: an IPv4 address itself, or the /64
// network of an IPv6 address.
func Network(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = networkBits
	}
	network, err := a.Prefix(bits)
	if err != nil { // a is not valid
		return netip.Prefix{}
	}
	return network
}
