package stream

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// TestCrowd: an address holds all places and opens connections as fast as it can. A connection of
// another address that is silent for a while is served, and new ones of it find a place, in a stream
// that refuses connections and in one that lets them wait.
func TestCrowd(t *testing.T) {
	for name, refuse := range map[string]bool{"refusing": true, "waiting": false} {
		t.Run(name, func(t *testing.T) {
			const places = 16
			evicted := make(chan struct{})
			ln := onLoopback(t)
			s := NewServer(Options{Name: "crowd", Limit: places, Refuse: refuse, Metrics: Metrics{Evicted: func(*Conn, string) {
				select {
				case evicted <- struct{}{}:
				default:
				}
			}}}, handle(echo), nil)
			served := serve(t.Context(), s, ln)
			defer shutdown(t, s, served)
			single := dial(t, ln)
			if err := answers(single, "first\n"); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			var crowd sync.WaitGroup
			defer crowd.Wait()
			defer stop()
			for range 4 {
				crowd.Go(func() {
					d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
					var open []net.Conn
					for ctx.Err() == nil {
						c, err := d.DialContext(ctx, "tcp", ln.Addr().String())
						if err != nil {
							continue
						}
						c.(*net.TCPConn).SetLinger(0) // else its port is taken for a while
						if open = append(open, c); len(open) > 2*places {
							open[0].Close()
							open = open[1:]
						}
					}
					for _, c := range open {
						c.Close()
					}
				})
			}
			for i := range 5 {
				for range 3 * places {
					select {
					case <-evicted:
					case <-time.After(time.Minute):
						t.Fatal("no connection of the crowd is replaced")
					}
				}
				if err := answers(single, "again\n"); err != nil {
					t.Fatalf("the connection that was there before the crowd, round %d: %v", i, err)
				}
				c := dial(t, ln)
				if err := answers(c, "new\n"); err != nil {
					t.Fatalf("a new connection, round %d: %v", i, err)
				}
				c.Close()
			}
		})
	}
}
