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
