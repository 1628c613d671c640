package principal

import (
	"net/netip"
	"testing"
)

func TestNetwork(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1":         "192.0.2.1/32",
		"::ffff:192.0.2.1":  "192.0.2.1/32",
		"2001:db8:1:2:3::4": "2001:db8:1:2::/64",
		"fe80::1:2%eth0":    "fe80::/64",
		"2001:db8:1:3:3::4": "2001:db8:1:3::/64",
		"::":                "::/64",
		"255.255.255.255":   "255.255.255.255/32",
	} {
		if got := Network(netip.MustParseAddr(address)).String(); got != want {
			t.Errorf("%s is of %s, want %s", address, got, want)
		}
	}
	if got := Network(netip.Addr{}); got.IsValid() {
		t.Errorf("no address is of %s", got)
	}
}

func TestNetworkOf(t *testing.T) {
	for remote, want := range map[string]netip.Prefix{
		"192.0.2.1:80":           netip.MustParsePrefix("192.0.2.1/32"),
		"[2001:db8:1:2:3::4]:80": netip.MustParsePrefix("2001:db8:1:2::/64"),
		"192.0.2.1":              {},
		"":                       {},
	} {
		if got := NetworkOf(remote); got != want {
			t.Errorf("%s is of %s, want %s", remote, got, want)
		}
	}
}
