package config

// OtherFiles are those that are open beside connections: block files, the log, the
// catalogue, connections to Cassandra.
const OtherFiles = 4096

// Connections is how many connections the listeners take at a time, without the profiler's.
func (c Config) Connections() uint64 {
	return uint64(c.Server.MaxConnections) + uint64(c.Telnet.MaxConnections) + 2*uint64(c.Carbon.MaxConnections) // lines, and pickles
}

// WithinFiles returns the settings with no more connections than a process with so many open
// files can hold beside OtherFiles, or beside half of its files if they are fewer. Listeners
// keep their shares. Otherwise clients that only connect would take the last file: no listener
// would accept any more, since none has met its limit and closes idle connections, and the
// store could open none.
func (c Config) WithinFiles(limit uint64) Config {
	all, room := c.Connections(), limit-min(limit/2, OtherFiles)
	if all <= room {
		return c
	}
	for _, n := range []*int{&c.Server.MaxConnections, &c.Telnet.MaxConnections, &c.Carbon.MaxConnections} {
		*n = max(1, int(float64(*n)/float64(all)*float64(room)))
	}
	return c
}
