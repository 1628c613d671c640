package cql

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"varve/internal/units"
)

// Config holds the settings of a session.
type Config struct {
	Hosts            []string  `yaml:"hosts" default:"127.0.0.1" doc:"Addresses of some nodes of the cluster, each with :port if it is not 9042. The others are found through them."`
	Keyspace         string    `yaml:"keyspace" default:"kairosdb" doc:"name of the keyspace"`
	Datacenter       string    `yaml:"datacenter" doc:"name of the data centre whose nodes are used; empty uses all"`
	ReadConsistency  string    `yaml:"read_consistency" default:"LOCAL_QUORUM" doc:"replicas that must answer a read: ONE, LOCAL_ONE, LOCAL_QUORUM, QUORUM, ALL, ..."`
	WriteConsistency string    `yaml:"write_consistency" default:"LOCAL_QUORUM" doc:"replicas that must acknowledge a write or a delete"`
	Username         string    `yaml:"username" doc:"user name for Cassandra; empty connects without a login"`
	Password         Secret    `yaml:"password" doc:"password of that user; password_file or the environment is safer"`
	PasswordFile     string    `yaml:"password_file" doc:"file that holds the password, read again at each connection"`
	TLS              TLSConfig `yaml:"tls" doc:"Encryption of the connections to Cassandra."`
	Compression      bool      `yaml:"compression" doc:"Compresses frames with LZ4. Useful between data centres; within a data centre it only costs CPU."`
	ReadsInFlight    int       `yaml:"reads_in_flight" default:"128" want:"1 to 4096" doc:"Most concurrent read statements per node, 1 to 4096. A node gets fewer if 1 in 100 of them takes longer than 500ms."`
	WritesInFlight   int       `yaml:"writes_in_flight" default:"64" want:"1 to 4096" doc:"Most concurrent write statements per node, 1 to 4096. A node gets fewer if 1 in 100 of them takes longer than 500ms."`

	// Constants; tests and benchmarks change them by --tune.

	Connections   int         `tune:"connections" default:"2" want:"1 to 16"`              // number of connections to each node
	BytesInFlight units.Bytes `tune:"bytes_in_flight" default:"4MiB" want:"64KiB to 1GiB"` // maximum bytes of statements in flight per node, separately for reads and writes
	// LatencyGoal is the time in which a node should answer 99 of 100 statements. A
	// node that does not gets fewer concurrent statements.
	LatencyGoal    time.Duration `tune:"latency_goal" default:"500ms" want:"10ms to 1m"`
	ConnectTimeout time.Duration `tune:"connect_timeout" default:"3s" want:"100ms to 1m"` // for connecting to a node
	ScanTimeout    time.Duration `tune:"scan_timeout" default:"30s" want:"1s to 10m"`     // of one attempt of a statement over a whole table, or of a schema change
	// StallAfter is how long a node may answer none of its statements. After
	// that it is avoided until it answers again.
	StallAfter time.Duration `tune:"stall_after" default:"1s" want:"50ms to 1m"`
	// HedgeAfter is the minimum time after which a read is also sent to another
	// replica: see hedge.go. 0s turns that off.
	HedgeAfter time.Duration `tune:"hedge_after" default:"10ms" want:"0s to 1m"`
	// OutageGrace is how long reads wait once no node answers. After that they
	// fail at once.
	OutageGrace time.Duration `tune:"outage_grace" default:"2s" want:"0s to 1m"`
	Attempts    int           `tune:"attempts" default:"6" want:"1 to 100"`        // of a statement before its error is reported
	RetryPause  time.Duration `tune:"retry_pause" default:"20ms" want:"1ms to 2s"` // before the second attempt; it doubles with each, up to maxPause
	// ReadTimeout and WriteTimeout are for one attempt. They are above Cassandra's
	// own 5s and 2s, so that its error arrives, which is more informative than a missing
	// answer.
	ReadTimeout  time.Duration `tune:"read_timeout" default:"6s" want:"100ms to 5m"`
	WriteTimeout time.Duration `tune:"write_timeout" default:"4s" want:"100ms to 5m"`
}

// TLSConfig holds the settings of encrypted connections.
type TLSConfig struct {
	Enabled    bool   `yaml:"enabled" doc:"encrypts connections to Cassandra"`
	CAFile     string `yaml:"ca_file" doc:"PEM file of the authorities that sign the nodes' certificates; empty uses the system's authorities"`
	CertFile   string `yaml:"cert_file" doc:"PEM file of the client certificate and its chain, if the nodes ask for one"`
	KeyFile    string `yaml:"key_file" doc:"PEM file of the client certificate's key"`
	VerifyHost bool   `yaml:"verify_host" default:"true" doc:"checks that a node's certificate names the address that was connected to; without it only the signature is checked"`
	ServerName string `yaml:"server_name" doc:"name that every node's certificate must contain, instead of the node's address"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config { return units.Defaults[Config]() }

// Validate reports all invalid settings.
func (c Config) Validate() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf(key+": "+format, args...))
	}
	if len(c.Hosts) == 0 {
		bad("hosts", "empty; name at least one node")
	}
	for _, h := range c.Hosts {
		if _, _, err := splitHost(h); err != nil {
			bad("hosts", "%v", err)
		}
	}
	if !validName(c.Keyspace) {
		bad("keyspace", "%q: want 1 to 48 letters, digits and underscores", c.Keyspace)
	}
	for _, x := range []struct{ key, value string }{{"read_consistency", c.ReadConsistency}, {"write_consistency", c.WriteConsistency}} {
		if _, err := parseConsistency(x.value); err != nil {
			bad(x.key, "%v", err)
		}
	}
	if c.ReadConsistency == "ANY" {
		bad("read_consistency", "ANY is for writes; use ONE")
	}
	if c.Password != "" && c.PasswordFile != "" {
		bad("password_file", "password is set too; keep one of them")
	}
	if c.Username == "" && (c.Password != "" || c.PasswordFile != "") {
		bad("username", "empty, although there is a password")
	}
	errs = append(errs, c.TLS.validate()...)
	return errors.Join(append(errs, units.Bounds("", c))...)
}

// Unused returns an error if settings are given that nothing uses.
func (c TLSConfig) Unused() error {
	if !c.Enabled && (c.CAFile != "" || c.CertFile != "" || c.ServerName != "") {
		return errors.New("tls.enabled: false, although other settings of tls are given; set it to true")
	}
	return nil
}

func (c TLSConfig) validate() []error {
	var errs []error
	if (c.CertFile == "") != (c.KeyFile == "") {
		errs = append(errs, errors.New("tls.cert_file and tls.key_file: give both or none"))
	}
	for _, x := range []struct{ key, file string }{{"ca_file", c.CAFile}, {"cert_file", c.CertFile}, {"key_file", c.KeyFile}} {
		if x.file == "" {
			continue
		}
		if _, err := os.Stat(x.file); err != nil {
			errs = append(errs, fmt.Errorf("tls.%s: %w", x.key, err))
		}
	}
	return errs
}

// validName reports whether s is a valid name of a keyspace. Upper case is allowed, because
// this package quotes names, so that Cassandra does not fold them to lower case.
func validName(s string) bool {
	if s == "" || len(s) > 48 {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

const defaultPort = 9042

// splitHost parses an address with or without a port.
func splitHost(s string) (host string, port int, err error) {
	if strings.Count(s, ":") > 1 && !strings.HasPrefix(s, "[") { // a bare IPv6 address
		s = "[" + s + "]"
	}
	if strings.HasSuffix(s, "]") || !strings.Contains(s, ":") {
		s += ":" + strconv.Itoa(defaultPort)
	}
	host, digits, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, err
	}
	port, err = strconv.Atoi(digits)
	if err != nil || port < 1 || port > 65535 || host == "" {
		return "", 0, fmt.Errorf("%q: want an address, or address:port", s)
	}
	return host, port, nil
}

// ShareHost reports whether two lists of hosts have one in common, however it is written.
func ShareHost(a, b []string) bool {
	return slices.ContainsFunc(a, func(one string) bool {
		return slices.ContainsFunc(b, func(other string) bool { return fullHost(one) == fullHost(other) })
	})
}

// fullHost returns an address in lower case, with its port.
func fullHost(s string) string {
	host, port, err := splitHost(s)
	if err != nil {
		return s
	}
	return net.JoinHostPort(strings.ToLower(host), strconv.Itoa(port))
}

func parseConsistency(s string) (gocql.Consistency, error) {
	c, err := gocql.ParseConsistencyWrapper(s)
	if err != nil || c == gocql.Serial || c == gocql.LocalSerial {
		return 0, fmt.Errorf("%q: want ONE, TWO, THREE, QUORUM, ALL, LOCAL_ONE, LOCAL_QUORUM or EACH_QUORUM", s)
	}
	return c, nil
}

// A Secret is text that is not shown.
type Secret string

const hidden = "(hidden)"

// String hides the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString hides the secret.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalText hides the secret.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText sets the secret.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = Secret(text)
	return nil
}
