package config

// OtherFiles are those that are open beside connections: block files, the log, the
// catalogue, connections to Cassandra.
const OtherFiles = 4096

// Connections is how many connections the listeners that are on take at a time, without the
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

// WithinFiles returns the settings with no more connections than a process with so many open
// files can hold beside OtherFiles, or beside half of its files if they are fewer. Listeners
// keep their shares, and readers that follow timelines take no more than half of those of HTTP.
// Otherwise clients that only connect would take the last file: no listener would accept any
// more, since none has met its limit and closes idle connections, and the store could open none.
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
