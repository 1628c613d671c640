package server

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Config are the settings of listeners, HTTP connections and stopping.
type Config struct {
	HTTPAddr   string `yaml:"http_addr" doc:"Address of the HTTP API, host:port. Port 0 picks a free one. An empty host means all interfaces."`
	TelnetAddr string `yaml:"telnet_addr" doc:"Address of the telnet protocol (put lines), host:port. Empty turns it off."`
	PprofAddr  string `yaml:"pprof_addr" doc:"Address of Go's profiler, host:port, on a listener of its own. Empty turns it off."`

	AllowedOrigins []string `yaml:"allowed_origins" doc:"Origins whose web pages may use the HTTP API, each as a browser sends it, for example https://grafana.example.org; * lets the pages of all others read, as KairosDB does. Programs other than browsers need no entry. A server on loopback also takes requests whose Host header has the host of one of these origins, as a proxy in front may send them."`

	MaxConnections    int           `yaml:"max_connections" doc:"Open HTTP connections. At the limit, a new connection replaces the one that has been without a complete request header for longest, else the one whose request body arrives most slowly, if that is below 16KiB/s. It waits while the requests of all are being served."`
	ReadHeaderTimeout time.Duration `yaml:"read_header_timeout" doc:"Time for a client to send the headers of a request."`
	StallTimeout      time.Duration `yaml:"stall_timeout" doc:"Closes a connection whose client, during a request, sends no byte for this long, or takes less than 64KiB of an answer in half of this time. A body that arrives at less than 1KiB/s gets five times this long in all."`
	IdleTimeout       time.Duration `yaml:"idle_timeout" doc:"Time after which a connection without a request is closed. Clients of KairosDB count on 120s or more."`

	CloseGrace      time.Duration `yaml:"close_grace" doc:"When stopping: time during which open connections may bring one more request, whose answer announces the close."`
	ShutdownTimeout time.Duration `yaml:"shutdown_timeout" doc:"When stopping: time from the signal to the exit. Half of it is for requests in flight, the rest for the store to write its memory to files."`
}

// DefaultConfig returns a server on loopback with KairosDB's ports.
func DefaultConfig() Config {
	return Config{
		HTTPAddr:          "127.0.0.1:8080",
		TelnetAddr:        "127.0.0.1:4242",
		MaxConnections:    4096,
		ReadHeaderTimeout: 10 * time.Second,
		StallTimeout:      time.Minute,
		IdleTimeout:       180 * time.Second,
		CloseGrace:        time.Second,
		ShutdownTimeout:   10 * time.Second,
	}
}

// Validate reports all settings that have no meaning.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, a := range []struct {
		key, addr string
		optional  bool
	}{
		{"http_addr", c.HTTPAddr, false},
		{"telnet_addr", c.TelnetAddr, true},
		{"pprof_addr", c.PprofAddr, true},
	} {
		if a.addr == "" && a.optional {
			continue
		}
		if scheme, _, ok := strings.Cut(a.addr, "://"); ok {
			bad("%s: %q: want host:port, without %s://", a.key, a.addr, scheme)
		} else if _, _, err := net.SplitHostPort(a.addr); err != nil {
			bad("%s: %q: want host:port, for example 127.0.0.1:8080", a.key, a.addr)
		}
	}
	for _, d := range []struct {
		key   string
		value time.Duration
	}{
		{"read_header_timeout", c.ReadHeaderTimeout},
		{"stall_timeout", c.StallTimeout},
		{"idle_timeout", c.IdleTimeout},
		{"shutdown_timeout", c.ShutdownTimeout},
	} {
		if d.value <= 0 {
			bad("%s: %s: want more than 0", d.key, d.value)
		}
	}
	if c.CloseGrace < 0 || c.CloseGrace > c.ShutdownTimeout/2 {
		bad("close_grace: %s: want 0 to half of shutdown_timeout, %s", c.CloseGrace, c.ShutdownTimeout/2)
	}
	if _, err := newOrigins(c.AllowedOrigins); err != nil {
		errs = append(errs, err)
	}
	if c.MaxConnections < 1 {
		bad("max_connections: %d: want at least 1", c.MaxConnections)
	}
	return errors.Join(errs...)
}
