package config

import "testing"

// Connections leave files to the store, and each listener keeps its share.
func TestWithinFiles(t *testing.T) {
	c := Default()
	c.Server.MaxConnections, c.Telnet.MaxConnections, c.Carbon.MaxConnections = 4000, 1000, 500
	for _, tc := range []struct {
		limit                uint64
		http, telnet, carbon int
	}{
		{1 << 62, 4000, 1000, 500},
		{6000 + OtherFiles, 4000, 1000, 500},
		{6000 + OtherFiles - 6, 3996, 999, 499},
		{6000, 2000, 500, 250},
		{1200, 400, 100, 50},
		{4, 1, 1, 1},
		{0, 1, 1, 1},
	} {
		got := c.WithinFiles(tc.limit)
		if got.Server.MaxConnections != tc.http || got.Telnet.MaxConnections != tc.telnet || got.Carbon.MaxConnections != tc.carbon {
			t.Errorf("with %d files: %d by HTTP, %d by telnet, %d of carbon; want %d, %d, %d", tc.limit,
				got.Server.MaxConnections, got.Telnet.MaxConnections, got.Carbon.MaxConnections, tc.http, tc.telnet, tc.carbon)
		}
	}
}

// Connections counts each listener that takes connections of clients.
func TestEveryListenerTakesFiles(t *testing.T) {
	for _, on := range Default().Server.Addresses() {
		if on.Network != "tcp" || on.Key == "pprof_addr" {
			continue
		}
		c := Default()
		l := newLayers(&c)
		for _, each := range c.Server.Addresses() {
			addr := ""
			if each.Key == on.Key {
				addr = "127.0.0.1:1"
			}
			l.set(l.byKey["server."+each.Key], addr, "test")
		}
		if c.Connections() == 0 {
			t.Errorf("Connections leaves out %s: add its listener and its limit to files.go", on.Key)
		}
		all, few := c.Connections(), c.WithinFiles(2).Connections()
		if few >= all {
			t.Errorf("WithinFiles does not lower the limit of %s (files.go): %d connections", on.Key, few)
		}
	}
}

// Listeners that are off take nothing from others, and readers that follow timelines leave
// half of the connections to requests.
func TestWithinFilesOfListeners(t *testing.T) {
	c := Default()
	c.Server.TelnetAddr, c.Server.CarbonAddr, c.Server.PickleAddr = "", "", ""
	if n := c.Connections(); n != uint64(c.Server.MaxConnections) {
		t.Errorf("HTTP alone takes %d connections, want %d", n, c.Server.MaxConnections)
	}
	for limit, want := range map[uint64][2]int{
		1 << 62: {c.Server.MaxConnections, c.Timeline.TailsMax},
		4096:    {2048, c.Timeline.TailsMax},
		1024:    {512, 256},
		2:       {1, 1},
	} {
		got := c.WithinFiles(limit)
		if have := [2]int{got.Server.MaxConnections, got.Timeline.TailsMax}; have != want {
			t.Errorf("with %d files: connections and readers of timelines are %d, want %d", limit, have, want)
		}
	}
}
