package hostile

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// http2Frame is a frame of HTTP/2 on a stream below 256.
func http2Frame(kind, flags, stream byte, payload string) string {
	n := len(payload)
	return string([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, 0, 0, 0, stream}) + payload
}

// Frames of HTTP/2 that ask for nothing keep nobody out, and the server is done with them soon
// after their senders have left, however many the kernel would have kept for it.
func TestHTTP2Floods(t *testing.T) {
	w, s := guardSecured(t)
	const (
		data, headers, priority, settings, ping, update, unknown = 0, 1, 2, 4, 6, 8, 0xee
		endHeaders                                               = 4
	)
	const fields = "\x83\x87\x41\x01x\x44\x12/api/v1/datapoints" // a POST, by the static table of HPACK
	post := http2Frame(headers, endHeaders, 1, fields)
	for name, c := range map[string]struct{ first, more string }{
		"unknown frames":         {"", http2Frame(unknown, 0, 0, "")},
		"empty data":             {post, http2Frame(data, 0, 1, "")},
		"priorities":             {"", http2Frame(priority, 0, 1, "\x00\x00\x00\x00\x03")},
		"updates of the window":  {"", http2Frame(update, 0, 0, "\x00\x00\x00\x01")},
		"pings":                  {"", http2Frame(ping, 0, 0, "12345678")},
		"settings":               {"", http2Frame(settings, 0, 0, "\x00\x04\x00\x00\x10\x00")},
		"headers without an end": {http2Frame(headers, 0, 1, fields), http2Frame(9, 0, 1, "")},
	} {
		flood := strings.Repeat(c.more, 64<<10/len(c.more))
		w.part(name, 200*mib, func(ctx context.Context) {
			config := s.CA.Client("collector-1")
			config.NextProtos = []string{"h2"}
			config.ServerName, _, _ = net.SplitHostPort(w.HTTP)
			until := time.Now().Add(*attackFor)
			crowd(32, func(int) {
				for time.Now().Before(until) { // a new connection for one that was cut
					floodHTTP2(ctx, w.HTTP, config, c.first, flood, until)
					pause(ctx, askEvery)
				}
			})
		})
	}
}

// floodHTTP2 sends what comes first and then more of a text, until the connection or its time
// ends. It does not read the answers.
func floodHTTP2(ctx context.Context, address string, config *tls.Config, first, more string, until time.Time) {
	plain, err := connect(ctx, address)
	if err != nil {
		return
	}
	defer plain.Close()
	c := tls.Client(plain.Conn, config)
	plain.SetDeadline(until)
	if _, err := c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2Frame(4, 0, 0, "") + first)); err != nil {
		return
	}
	for err == nil {
		_, err = c.Write([]byte(more))
	}
}

// Many connections of HTTP/2 with one request each, which has a large header and half a body, take little
// memory: further ones speak HTTP/1.1.
func TestHTTP2Crowd(t *testing.T) {
	w, s := guardSecured(t)
	const (
		data, headers, more = 0, 1, 9
		endHeaders          = 4
		fields              = "\x83\x87\x41\x01x\x44\x12/api/v1/datapoints"
		large               = "\x00\x01x\x7f\x81\x6d" // a header x with a value of 14,080 bytes
	)
	value := strings.Repeat("v", 14_080)
	half := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2Frame(4, 0, 0, "") + http2Frame(headers, 0, 1, fields+large+value) +
		http2Frame(more, endHeaders, 1, large+value) + strings.Repeat(http2Frame(data, 0, 1, strings.Repeat(" ", 15_000)), 4)
	config := s.CA.Client("collector-1")
	config.NextProtos = []string{"h2", "http/1.1"}
	config.ServerName, _, _ = net.SplitHostPort(w.HTTP)
	w.under(200*mib, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, max(*attackFor, 10*time.Second))
		defer cancel()
		var speak atomic.Int64
		crowd(1500, func(int) {
			plain, err := connectFrom(ctx, crowdAddress, w.HTTP)
			if err != nil {
				return
			}
			defer plain.Close()
			c := tls.Client(plain.Conn, config)
			if c.HandshakeContext(ctx) == nil && c.ConnectionState().NegotiatedProtocol == "h2" {
				speak.Add(1)
				go io.Copy(io.Discard, c)
				c.Write([]byte(half))
			}
			<-ctx.Done()
		})
		t.Logf("%d connections spoke HTTP/2", speak.Load())
	})
}

// Requests of HTTP/2 that are reset as soon as they are sent keep nobody out.
func TestHTTP2Resets(t *testing.T) {
	w, s := guardSecured(t)
	w.under(200*mib, func(ctx context.Context) {
		config := s.CA.Client("collector-1")
		config.NextProtos = []string{"h2"}
		config.ServerName, _, _ = net.SplitHostPort(w.HTTP)
		until := time.Now().Add(*attackFor)
		crowd(32, func(int) {
			for time.Now().Before(until) {
				resetHTTP2(ctx, w.HTTP, config, until)
				pause(ctx, askEvery)
			}
		})
	})
}

// resetHTTP2 sends requests and resets each, until the connection or its time ends.
func resetHTTP2(ctx context.Context, address string, config *tls.Config, until time.Time) {
	plain, err := connect(ctx, address)
	if err != nil {
		return
	}
	defer plain.Close()
	c := tls.Client(plain.Conn, config)
	plain.SetDeadline(until)
	_, err = c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2Frame(4, 0, 0, "")))
	const (
		headers, reset = 1, 3
		endOfBoth      = 5 // of the stream and of the headers
		fields         = "\x82\x87\x41\x01x\x44\x13/api/v1/metricnames"
	)
	var some []byte
	for stream := uint32(1); err == nil && stream < 1<<30; {
		for some = some[:0]; len(some) < 64<<10; stream += 2 {
			for _, frame := range []string{http2Frame(headers, endOfBoth, 0, fields), http2Frame(reset, 0, 0, "\x00\x00\x00\x08")} {
				at := len(some)
				some = append(some, frame...)
				binary.BigEndian.PutUint32(some[at+5:], stream)
			}
		}
		_, err = c.Write(some)
	}
}
