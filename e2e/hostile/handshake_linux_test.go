package hostile

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/e2e/process"
	"varve/internal/server/tlstest"
)

// guardSecured is guard for a server that speaks TLS and asks for tokens; the bystander has
// one.
func guardSecured(t *testing.T, flags ...string) (*ward, *process.Secured) {
	t.Helper()
	skip(t)
	dir, flags := t.TempDir(), withStore(t, flags)
	s := process.StartSecured(t, dir, "cn=collector role=write", flags...)
	w := watch(t, s.Server, dir, flags)
	w.secure = clientOf(s, w.HTTP, "http/1.1")
	return w, s
}

// clientOf returns how clients with the certificate of a collector speak a protocol, or
// one without a name.
func clientOf(s *process.Secured, address, protocol string) *tls.Config {
	config := s.CA.Client("collector")
	if protocol != "" {
		config.NextProtos = []string{protocol}
	}
	config.ServerName, _, _ = net.SplitHostPort(address)
	return config
}

// hello begins a handshake: the header of a record of 512 bytes, and a part of it.
const hello = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"

// Handshakes that never come to their end, on more connections than telnet may have, keep
// nobody out and end in time; nor do bytes that are not a handshake.
func TestHandshakes(t *testing.T) {
	w, s := guardSecured(t, append(quick, "--server-max-connections=400", "--telnet-max-connections=100")...)
	attack := func(address, text string, slowly bool) func(context.Context) {
		return func(ctx context.Context) {
			crowd(300, func(int) {
				c, err := connect(ctx, address)
				if err != nil {
					return // the queue of the operating system is full
				}
				defer c.Close()
				for i := range text {
					if !slowly {
						c.say(text)
						break
					}
					if c.say(text[i:i+1]) != nil {
						break
					}
					pause(ctx, 100*time.Millisecond)
				}
				if err := c.cut(20 * time.Second); err != nil {
					t.Error(err)
				}
			})
		}
	}
	w.part("nothing", 100*mib, attack(w.HTTP, "", false))
	w.part("half a hello", 100*mib, attack(w.HTTP, hello, false))
	w.part("a slow hello", 100*mib, attack(w.HTTP, hello+strings.Repeat("x", 50), true))
	w.part("plain HTTP", 100*mib, attack(w.HTTP, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", false))
	w.part("noise", 100*mib, attack(w.HTTP, strings.Repeat("\xff", 1000), false))
	w.part("half a hello by telnet", 100*mib, attack(s.Telnet, hello, false))
	w.part("plain lines by telnet", 100*mib, attack(s.Telnet, "put a 1 1 h=a\n", false))
	w.part("a stranger's lines", 100*mib, func(ctx context.Context) {
		crowd(50, func(int) {
			c, err := s.DialTelnet("stranger")
			if err != nil {
				return
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(20 * time.Second))
			fmt.Fprint(c, "put stranger 1 1 h=a\nversion\n")
			if n, _ := c.Read(make([]byte, 100)); n > 0 {
				t.Error("a stranger is answered")
			}
		})
	})
}

// A flood of tokens that are not known slows nobody down, fills no log and gets nowhere.
func TestTokensTried(t *testing.T) {
	w, s := guardSecured(t)
	client := &http.Client{Timeout: process.AnswerWithin, Transport: &http.Transport{TLSClientConfig: s.CA.Client(""), MaxIdleConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	w.under(100*mib, func(ctx context.Context) {
		until := time.Now().Add(*attackFor)
		crowd(8, func(i int) {
			for n := 0; time.Now().Before(until); n++ {
				request, err := http.NewRequestWithContext(ctx, "POST", "https://"+w.HTTP+"/api/v1/datapoints/delete", strings.NewReader(`{"metrics":[{"name":"bystander"}],"start_absolute":0}`))
				if err != nil {
					t.Error(err)
					return
				}
				request.Header.Set("Authorization", fmt.Sprintf("Bearer varve_%012x_%s", n, strings.Repeat("A", 43)))
				response, err := client.Do(request)
				if err != nil {
					continue
				}
				io.Copy(io.Discard, response.Body)
				response.Body.Close()
				if response.StatusCode != http.StatusUnauthorized {
					t.Error(response.Status)
				}
			}
		})
	})
	if n := w.Log.Count("auth: refused"); n > 200 {
		t.Errorf("%d lines in the log", n)
	}
}

// Key updates that ask for answers which nobody reads keep nobody out, and do not keep the server
// from stopping.
func TestKeyUpdates(t *testing.T) {
	w, s := guardSecured(t, "--telnet-max-connections=100")
	floods := map[string]struct{ address, protocol, first, more string }{
		"HTTP/1": {w.HTTP, "http/1.1", "GET / HTTP/1.1\r\nX: ", "x"},
		"HTTP/2": {w.HTTP, "h2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2Frame(4, 0, 0, ""), http2Frame(0xee, 0, 0, "")},
		"telnet": {s.Telnet, "", "put ", "x"},
	}
	flood := func(ctx context.Context, name string, n int) {
		f := floods[name]
		config := clientOf(s, f.address, f.protocol)
		crowd(n, func(int) {
			for ctx.Err() == nil { // a new connection for one that was cut
				if err := floodUpdates(ctx, f.address, config, f.first, f.more); err != nil {
					t.Error(err)
				}
				pause(ctx, askEvery)
			}
		})
	}
	for name := range floods {
		w.part(name, 200*mib, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, *attackFor)
			defer cancel()
			flood(ctx, name, 32)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var flooding sync.WaitGroup
	for name := range floods {
		flooding.Go(func() { flood(ctx, name, 1) })
	}
	pause(ctx, max(*attackFor, 5*time.Second))
	w.Stop(t)
	cancel()
	flooding.Wait()
}

// floodUpdates sends as many key updates as are allowed between bytes of a request, and reads
// nothing, until the connection or ctx ends.
func floodUpdates(ctx context.Context, address string, config *tls.Config, first, more string) error {
	const inARow = 15 // crypto/tls counts records without data
	plain, err := connect(ctx, address)
	if err != nil {
		return nil // the server is stopping, or too many wait
	}
	defer plain.Close()
	u, err := tlstest.NewUpdater(plain.Conn, config)
	if err != nil {
		return nil // likewise
	}
	flood := u.Data(first)
	for ctx.Err() == nil {
		for range 64 {
			for range inARow {
				update, err := u.Update()
				if err != nil {
					return err
				}
				flood = append(flood, update...)
			}
			flood = append(flood, u.Data(more)...)
		}
		if _, err := plain.Write(flood); err != nil {
			return nil // it was cut
		}
		flood = flood[:0]
	}
	return nil
}
