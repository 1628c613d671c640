package stream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/gate"
)

// TLS says how the connections of a stream are secured.
type TLS struct {
	// Config returns the configuration of a new connection. It may differ each time, so
	// that certificates can change while connections are open.
	Config func() *tls.Config

	// Timeout bounds a handshake.
	Timeout time.Duration

	// Turns limits the handshakes that compute at the same time. Their senders take turns, so that a flood
	// of handshakes delays those of its own sender. nil does not limit them.
	Turns *gate.Gate

	// Failed counts handshakes that failed, by stream and reason. nil counts none.
	Failed *prometheus.CounterVec
}

// A side is the connection below TLS.
type side struct{ *Conn }

func (s side) Write(p []byte) (int, error) {
	s.handshake.Load().pause()
	return s.out.write(s.Conn.Conn, p)
}

func (s side) Close() error { return s.Conn.close() }

// Read reads at most one record.
func (s side) Read(p []byte) (int, error) {
	if s.silent > mostSilent && s.meter.Load() == nil {
		return 0, errSilent
	}
	n, err := s.in.next(p, s.Conn)
	s.silent += n
	return n, err
}

// mostSilent is how many bytes a client may send for a handshake, and later between two records with
// data. crypto/tls collects a message of a handshake before it looks at it, up to 256 KiB of a
// certificate, even if it has not requested one or the handshake is over: with all connections of
// the default limits, clients without a credential could make it hold more than 4 GB. A handshake
// takes about 2 KiB, and as much again for each certificate of the client's chain. A [Pace] limits
// connections of HTTP/2, whose data this package does not see.
const mostSilent = 32 << 10

var errSilent = errors.New("the client sent more than 32 KiB of TLS messages without data")

// readMetered reads from the network, at the pace of c.
func (c *Conn) readMetered(p []byte) (int, error) {
	h := c.handshake.Load()
	h.pause()
	n, err := c.meter.Load().read(p, c.readRaw)
	if n > 0 {
		if err := h.compute(); err != nil {
			return 0, err
		}
	}
	return n, err
}

// A handshake has a place in [TLS.Turns] while it computes, and none while it waits for
// its client. nil is one without a gate.
type handshake struct {
	wait   context.Context // for a place
	end    context.CancelFunc
	turns  *gate.Gate
	sender netip.Prefix
	inside atomic.Bool
}

// compute waits for a place. Only the goroutine of the handshake calls it.
func (h *handshake) compute() error {
	if h == nil {
		return nil
	}
	_, _, err := h.turns.Enter(h.wait, h.sender, 1)
	h.inside.Store(err == nil)
	return err
}

// pause gives the place back. The goroutine that closes the connection may
// call it, too.
func (h *handshake) pause() {
	if h != nil && h.inside.Swap(false) {
		h.turns.Leave(h.sender, 1)
	}
}

// endHandshakeWait makes a handshake of c fail if it waits for a place, because c is to be closed.
func (c *Conn) endHandshakeWait() {
	if h := c.handshake.Load(); h != nil {
		h.end()
	}
}

// readTLS reads the next record, and the records after it that have completely arrived.
func (c *Conn) readTLS(p []byte) (int, error) {
	c.silent = 0
	n, err := c.tls.Read(p)
	for err == nil && n < len(p) && c.in.whole() {
		var more int
		c.silent = 0
		more, err = c.tls.Read(p[n:])
		n += more
	}
	if n > 0 {
		return n, nil // package tls returns an error again
	}
	return n, err
}

// Of returns nc if it is a Conn, or the Conn below nc if nc is a *tls.Conn;
// otherwise nil.
func Of(nc net.Conn) *Conn {
	switch c := nc.(type) {
	case *Conn:
		return c
	case *tls.Conn:
		if s, ok := c.NetConn().(side); ok {
			return s.Conn
		}
	}
	return nil
}

// TLS returns the *tls.Conn that net/http needs for HTTP/2, nil if c is plain.
func (c *Conn) TLS() *tls.Conn { return c.tls }

// Certificate returns the client's certificate, nil if it has sent none. It was verified in the
// handshake; see Trusted.
func (c *Conn) Certificate() *x509.Certificate {
	if c.tls == nil {
		return nil
	}
	state := c.tls.ConnectionState()
	if len(state.VerifiedChains) == 0 {
		return nil
	}
	return state.PeerCertificates[0]
}

// A trust is whether some authorities vouch for the certificate of a client.
type trust struct {
	authorities *x509.CertPool // nil: there are none
	given       bool
}

// Trusted reports whether an authority that is configured now vouches for Certificate. The
// authorities may have changed since the handshake.
func (c *Conn) Trusted() bool {
	if c.tls == nil {
		return false
	}
	authorities, t := c.listener.o.tls.Config().ClientCAs, c.trust.Load()
	if t.authorities != authorities {
		t = &trust{authorities, vouch(authorities, c.tls.ConnectionState().PeerCertificates)}
		c.trust.Store(t)
	}
	return t.given
}

// vouch reports whether one of the authorities vouches for a certificate. chain is what the
// client has sent: the certificate, then the intermediate ones.
func vouch(authorities *x509.CertPool, chain []*x509.Certificate) bool {
	if authorities == nil || len(chain) == 0 { // with nil, package x509 would use the system's authorities
		return false
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: authorities, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}

// Handshake does the TLS handshake, within [TLS.Timeout]. It does nothing on a plain
// connection. A handshake that fails is counted.
func (c *Conn) Handshake(ctx context.Context) error {
	if c.tls == nil {
		return nil
	}
	o := c.listener.o.tls
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	c.SetWriteDeadline(time.Now().Add(o.Timeout))
	if o.Turns != nil {
		wait, end := context.WithCancel(ctx)
		defer end()
		h := &handshake{wait: wait, end: end, turns: o.Turns, sender: c.network}
		c.handshake.Store(h)
		defer func() {
			h.pause()
			c.handshake.Store(nil)
		}()
	}
	err := c.tls.HandshakeContext(ctx)
	c.out.free()
	if err != nil && o.Failed != nil {
		o.Failed.WithLabelValues(c.listener.o.Name, handshakeFault(err)).Inc()
	}
	return err
}

// Reasons of failed handshakes.
const (
	handshakePlain       = "not_tls"
	handshakeTime        = "timeout"
	handshakeEnded       = "ended"
	handshakeCertificate = "certificate"
	handshakeLarge       = "too_large"
	handshakeOther       = "other"
)

// HandshakeFaults are the reasons by which [TLS.Failed] counts.
var HandshakeFaults = []string{handshakePlain, handshakeTime, handshakeEnded, handshakeCertificate, handshakeLarge, handshakeOther}

// handshakeFault returns the reason of a failed handshake.
func handshakeFault(err error) string {
	switch {
	case errors.As(err, new(tls.RecordHeaderError)):
		return handshakePlain
	case errors.Is(err, errSilent):
		return handshakeLarge
	case errors.As(err, new(*tls.CertificateVerificationError)), strings.Contains(err.Error(), "certificate"):
		return handshakeCertificate
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return handshakeTime
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.Is(err, context.Canceled):
		return handshakeEnded
	}
	return handshakeOther
}
