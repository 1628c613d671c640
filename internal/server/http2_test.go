package server

import (
	"crypto/tls"
	"errors"
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
