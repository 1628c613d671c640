package config

// OtherFiles is the number of open files other than client connections: block
// files, the log, the catalogue, connections to Cassandra.
const OtherFiles = 4096

// Connections is how many connections the enabled listeners accept at a time, without the
// profiler's.
func (c Config) Connections() (n uint64) {
	for _, l := range []struct {
		addr  string
		limit int
	}{
		{c.Server.HTTPAddr, c.Server.MaxConnections}, {c.Server.TelnetAddr, c.Telnet.MaxConnections},
		{c.Server.CarbonAddr, c.Carbon.MaxConnections}, {c.Server.PickleAddr, c.Carbon.MaxConnections},
	} {
		if l.addr != "" {
			n += uint64(l.limit)
		}
	}
	return n
}

// WithinFiles returns the settings with the number of connections reduced to what a process may
// open besides OtherFiles, or besides half of limit if that is less. The listeners keep their
// shares, and readers that follow timelines get at most half of the connections of HTTP. Without
// this, clients that only connect could take the last file. No listener could then accept a
// connection: none would have reached its limit, so none would close idle connections. And the
// store could open no file.
func (c Config) WithinFiles(limit uint64) Config {
	all, room := c.Connections(), limit-min(limit/2, OtherFiles)
	if all <= room {
		return c
	}
	for _, n := range []*int{&c.Server.MaxConnections, &c.Telnet.MaxConnections, &c.Carbon.MaxConnections} {
		*n = max(1, int(float64(*n)/float64(all)*float64(room)))
	}
	c.Timeline.TailsMax = min(c.Timeline.TailsMax, max(1, c.Server.MaxConnections/2))
	return c
}
