package server

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"varve/internal/server/tlstest"
)

// A connection of HTTP/2 that sends pings and no requests ends as one that sends nothing.
func TestPingsKeepNoConnection(t *testing.T) {
	patiently(t, 200*time.Millisecond, pingOn)
}

func pingOn(t *testing.T, idle time.Duration) error {
	ca := tlstest.NewAuthority(t)
	s, _ := secured(t, ca, func(o *Options) { o.Config.IdleTimeout = idle })
	config := ca.Client("")
	config.NextProtos = []string{http2}
	c, err := tls.Dial("tcp", s.Addr("http"), config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const settings, ping = "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x08\x06\x00\x00\x00\x00\x00one more"
	if _, err := c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b := make([]byte, 4096)
		for {
			if _, err := c.Read(b); err != nil {
				return
			}
		}
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	patience := time.After(time.Minute)
	for pings := 0; ; pings++ {
		select {
		case <-ended:
			if pings == 0 {
				return errors.New("the connection ended before the first ping")
			}
			return nil
		case <-tick.C:
			_, _ = c.Write([]byte(ping)) // the reader notices the end
		case <-patience:
			t.Fatalf("the connection is open after %d pings", pings)
		}
	}
}

// Clients of HTTP/2 leave room for others: once they have their part of the connections, handshakes
// agree on HTTP/1.1. Handshakes that fail keep none of it.
func TestFewConnectionsOfHTTP2(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	s, _ := secured(t, ca, func(o *Options) {
		o.Config.MaxConnections = 4 * http2Streams
		withRoutes(route("GET", "/hello", hello))(o)
	})
	dial := func(accept func(tls.ConnectionState) error) (*tls.Conn, error) {
		config := ca.Client("")
		config.NextProtos = []string{http2, http1}
		config.VerifyConnection = accept
		return tls.Dial("tcp", s.Addr("http"), config)
	}
	open := func() *tls.Conn {
		t.Helper()
		c, err := dial(nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for range http2Streams + 1 {
		if _, err := dial(func(tls.ConnectionState) error { return errors.New("no") }); err == nil {
			t.Fatal("the client agreed")
		}
	}
	all := s.api.router.crowd
	waitFor(t, "the failed handshakes are gone", func() bool { return all.conns.Load() == 0 })
	var second []*tls.Conn
	for range http2Streams {
		c := open()
		if got := c.ConnectionState().NegotiatedProtocol; got != http2 {
			t.Fatalf("connection %d speaks %q", len(second), got)
		}
		second = append(second, c)
	}
	c := open()
	if got := c.ConnectionState().NegotiatedProtocol; got != http1 {
		t.Fatalf("one too many speaks %q", got)
	}
	if _, err := io.WriteString(c, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer, err)
	}
	second[0].Close()
	waitFor(t, "the closed connection is gone", func() bool { return all.conns.Load() < http2Streams })
	if got := open().ConnectionState().NegotiatedProtocol; got != http2 {
		t.Errorf("after the end of one, the next speaks %q", got)
	}
}

// waitFor waits until something is so.
func waitFor(t *testing.T, what string, so func() bool) {
	t.Helper()
	for patience := time.Now().Add(time.Minute); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(patience) {
			t.Fatalf("waited for a minute: %s", what)
		}
	}
}
