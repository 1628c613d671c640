package server

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"varve/internal/units"
)

// Config are the settings of listeners, HTTP connections and stopping.
type Config struct {
	HTTPAddr      string `yaml:"http_addr" default:"127.0.0.1:8080" doc:"Address of the HTTP API, host:port. Port 0 picks a free one. An empty host means all interfaces."`
	TelnetAddr    string `yaml:"telnet_addr" default:"127.0.0.1:4242" doc:"Address of the telnet protocol (put lines), host:port. Empty turns it off."`
	CarbonAddr    string `yaml:"carbon_addr" doc:"Address of carbon's line protocol (Graphite), host:port. Empty turns it off. If the default address is in use, for example by a carbon on the same machine, the server starts without this listener and logs that."`
	PickleAddr    string `yaml:"pickle_addr" doc:"Address of carbon's pickle protocol (Graphite), which carbon-relay uses, host:port. Empty turns it off. If the default address is in use, the server starts without this listener and logs that."`
	CarbonUDPAddr string `yaml:"carbon_udp_addr" doc:"Address of carbon's line protocol over UDP, host:port; carbon uses port 2003. Empty turns it off. UDP loses datagrams that arrive too fast, and senders do not notice. TCP loses none."`
	PprofAddr     string `yaml:"pprof_addr" doc:"Address of Go's profiler, host:port, on a listener of its own. Empty turns it off."`

	AllowedOrigins []string `yaml:"allowed_origins" doc:"Origins whose web pages may use the HTTP API, each as a browser sends it, for example https://grafana.example.org. * lets pages of all other origins read, as KairosDB does. Programs other than browsers need no entry. A server on loopback also accepts the hosts of these origins in the Host header, for proxies that forward the original Host."`

	MaxConnections int           `yaml:"max_connections" default:"4096" want:"at least 1" doc:"Most open HTTP connections. At the limit, a new connection replaces a connection of the address that has the most: the one that has gone longest without a complete request header, or else the one whose request body arrives most slowly, below 16KiB/s. If there is no such connection, the new one waits."`
	IdleTimeout    time.Duration `yaml:"idle_timeout" default:"3m" want:"positive" doc:"Closes a connection that has had no request for this long. Clients of KairosDB expect 120s or more."`

	ShutdownTimeout time.Duration `yaml:"shutdown_timeout" default:"10s" want:"positive" doc:"Longest time from the stop signal to the exit. Requests in flight have half of it. The store has the rest to write its memory to files."`

	Insecure bool `yaml:"insecure" doc:"Allows listeners that other machines can reach even if auth.enabled is not set. Anyone who can connect can then do everything. Each start logs this, and the health status shows it."`

	TLS TLSConfig `yaml:"tls" doc:"TLS of the listeners. Without cert_file, no listener uses TLS."`

	// Constants; tests and benchmarks change them by --tune.

	ReadHeaderTimeout time.Duration `tune:"read_header_timeout" default:"10s" want:"positive"` // time for a client to send the headers of a request
	// StallTimeout closes a connection whose client, during a request, sends no byte for this long,
	// or accepts less than 64 KiB of an answer in half of this time. A body that arrives at less
	// than 1 KiB/s gets five times this long in total.
	StallTimeout time.Duration `tune:"stall_timeout" default:"1m" want:"positive"`
	// CloseGrace is how long open connections may still send one more request while the server
	// stops, at most half of ShutdownTimeout. Its answer announces the close.
	CloseGrace time.Duration `tune:"close_grace" default:"1s" want:"not negative"`
}

// Carbon's ports, which a carbon on the same machine may be using.
const (
	carbonAddr = "127.0.0.1:2003"
	pickleAddr = "127.0.0.1:2004"
)

// DefaultConfig returns a server on loopback with KairosDB's ports.
func DefaultConfig() Config { return units.Defaults[Config]() }

// SetDefaults sets the addresses that a server may do without, see streams.
func (c *Config) SetDefaults() { c.CarbonAddr, c.PickleAddr = carbonAddr, pickleAddr }

// streams lists what the server listens for. A protocol is added by its line here, its
// address in Config, and its handler in front.streams of cmd/varve/wire.go.
func (c Config) streams() []*listening {
	return []*listening{
		{name: "http", addr: c.HTTPAddr, can: "read, write and delete all data"},
		{name: "telnet", addr: c.TelnetAddr, can: "write"},
		{name: "carbon", addr: c.CarbonAddr, can: "write", optional: c.CarbonAddr == carbonAddr},
		{name: "pickle", addr: c.PickleAddr, can: "write", optional: c.PickleAddr == pickleAddr},
		{name: "carbon_udp", addr: c.CarbonUDPAddr, can: "write", datagrams: true},
		{name: "pprof", addr: c.PprofAddr, can: "read parts of the server's memory and slow it down"},
	}
}

// StreamNames lists the names of all streams.
func StreamNames() (names []string) {
	for _, st := range (Config{}).streams() {
		names = append(names, st.name)
	}
	return names
}

// An Address is one at which the server listens with the given settings.
type Address struct {
	Key     string // of the setting, without its section
	Network string // tcp or udp
	Addr    string // "" turns the stream off

	// Optional says that the server runs without the stream if another program has the address.
	Optional bool
}

// Addresses lists those of all streams.
func (c Config) Addresses() (all []Address) {
	for _, st := range c.streams() {
		a := Address{st.key(), "tcp", st.addr, st.optional}
		if st.datagrams {
			a.Network = "udp"
		}
		all = append(all, a)
	}
	return all
}

// sharePort reports whether only one of two addresses can be listened at. Names of hosts are not
// looked up.
func sharePort(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	everywhere := func(host string) bool {
		ip := net.ParseIP(host)
		return host == "" || ip != nil && ip.IsUnspecified()
	}
	return errA == nil && errB == nil && portA == portB && portA != "0" && (hostA == hostB || everywhere(hostA) || everywhere(hostB))
}

// Validate reports all settings that have no meaning.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, st := range c.streams() {
		if st.addr == "" && st.name != "http" {
			continue
		}
		if scheme, _, ok := strings.Cut(st.addr, "://"); ok {
			bad("%s: %q: want host:port, without %s://", st.key(), st.addr, scheme)
		} else if _, _, err := net.SplitHostPort(st.addr); err != nil {
			bad("%s: %q: want host:port, for example 127.0.0.1:8080", st.key(), st.addr)
		}
	}
	for i, st := range c.streams() {
		for _, other := range c.streams()[:i] {
			if !st.optional && !other.optional && st.datagrams == other.datagrams && sharePort(st.addr, other.addr) {
				bad("%s: %q: server.%s has this port already; two listeners cannot share a port", st.key(), st.addr, other.key())
			}
		}
	}
	if _, err := newOrigins(c.AllowedOrigins); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, units.Bounds("", c), c.TLS.validate())...)
}
