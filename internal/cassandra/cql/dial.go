package cql

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// dialer connects to nodes. Files of keys and certificates are read again for each connection,
// so that renewed files are used without a restart.
type dialer struct {
	ctx    context.Context // ends when the driver's session is to end
	ended  atomic.Bool     // the driver's session has ended
	config Config
	dial   func(ctx context.Context, network, address string) (net.Conn, error)

	batches *packedBatches
	roster  *roster
	log     *slog.Logger
}

// DialHost is called by the driver. It ends the goroutine of a heartbeat that has outlived its
// session, and would try to connect every second for ever: the driver stops only a heartbeat that
// has begun, and closes a session that fails at once before that.
func (d *dialer) DialHost(ctx context.Context, host *gocql.HostInfo) (*gocql.DialedHost, error) {
	if d.ended.Load() && calledBy(heartbeat) {
		runtime.Goexit()
	}
	ctx, cancel := context.WithTimeout(ctx, d.config.ConnectTimeout)
	defer cancel()
	stop := context.AfterFunc(d.ctx, cancel)
	defer stop()
	conn, err := d.dial(ctx, "tcp", host.ConnectAddressAndPort())
	if err != nil {
		return nil, err
	}
	conn = endingConn{conn, d.ctx}
	if !d.config.TLS.Enabled {
		return d.dialed(conn, host), nil
	}
	name, _, err := net.SplitHostPort(host.HostnameAndPort())
	if err != nil {
		name = strings.Trim(host.ConnectAddress().String(), "[]")
	}
	settings, err := d.config.TLS.client(name)
	if err != nil {
		conn.Close()
		return nil, err
	}
	secure := tls.Client(conn, settings)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("TLS with %s: %w", host.ConnectAddressAndPort(), err)
	}
	return d.dialed(secure, host), nil
}

// heartbeat is the driver's loop that checks the control connection of a session.
const heartbeat = "github.com/apache/cassandra-gocql-driver/v2.(*controlConn).heartBeat"

// calledBy reports whether the goroutine is inside a function, within 32 calls.
func calledBy(function string) bool {
	var callers [32]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for {
		f, more := frames.Next()
		if f.Function == function {
			return true
		}
		if !more {
			return false
		}
	}
}

// An endingConn writes nothing once its context has ended.
type endingConn struct {
	net.Conn
	ctx context.Context
}

func (c endingConn) Write(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// dialed prepares a connection for the driver. It disables the driver's coalescing of frames,
// which saves system calls only if the driver can write several frames at once, and here it
// cannot.
func (d *dialer) dialed(conn net.Conn, host *gocql.HostInfo) *gocql.DialedHost {
	address, expected := host.ConnectAddressAndPort(), host.HostID()
	identified := &identifiedConn{Conn: conn, check: func(id string, peers func() ([]string, error)) error {
		tell, err := d.roster.check(address, id, expected, peers)
		if tell {
			d.log.Error("cassandra: a node of another cluster answered", "error", err)
		}
		return err
	}}
	return &gocql.DialedHost{Conn: &packedConn{Conn: identified, batches: d.batches}, DisableCoalesce: true}
}

// client returns the configuration of crypto/tls for a connection to the node with the given
// name.
func (c TLSConfig) client(name string) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name}
	if c.ServerName != "" {
		t.ServerName = c.ServerName
	}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("tls.ca_file: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls.ca_file: no certificate in %s", c.CAFile)
		}
	}
	if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("tls.cert_file %s and tls.key_file %s: %w", c.CertFile, c.KeyFile, err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	if !c.VerifyHost {
		// The chain is verified nevertheless, only the name is not.
		t.InsecureSkipVerify = true
		t.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return errors.New("the node sent no certificate")
			}
			o := x509.VerifyOptions{Roots: t.RootCAs, Intermediates: x509.NewCertPool()}
			for _, c := range state.PeerCertificates[1:] {
				o.Intermediates.AddCert(c)
			}
			_, err := state.PeerCertificates[0].Verify(o)
			return err
		}
	}
	return t, nil
}

// authenticator is called by the driver for each connection.
func (c Config) authenticator(*gocql.HostInfo) (gocql.Authenticator, error) {
	password := string(c.Password)
	if c.PasswordFile != "" {
		text, err := os.ReadFile(c.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("password_file: %w", err)
		}
		password = strings.TrimRight(string(text), "\r\n")
	}
	return gocql.PasswordAuthenticator{Username: c.Username, Password: password}, nil
}
