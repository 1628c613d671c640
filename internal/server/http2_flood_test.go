package server

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"varve/internal/server/tlstest"
)

// A connection of HTTP/2 ends whose client goes on to send frames that belong to no request.
func TestFloodOfHTTP2(t *testing.T) {
	for name, frame := range map[string]string{
		"updates of the window": "\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x01",
		"unknown frames":        "\x00\x00\x00\xee\x00\x00\x00\x00\x00",
		"settings":              "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x00\x10\x00",
	} {
		t.Run(name, func(t *testing.T) {
			ca := tlstest.NewAuthority(t)
			s, _ := secured(t, ca, nil)
			config := ca.Client("")
			config.NextProtos = []string{http2}
			c, err := tls.Dial("tcp", s.Addr("http"), config)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			go io.Copy(io.Discard, c)
			c.SetDeadline(time.Now().Add(time.Minute)) // else it goes on for ever
			_, err = c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
			flood := []byte(strings.Repeat(frame, 16<<10/len(frame)))
			for sent := 0; err == nil && sent < 64<<20; sent += len(flood) {
				_, err = c.Write(flood)
			}
			if got := counted(t, s.metrics.floods); got != 1 {
				t.Errorf("%v connections were closed, the client's write says %v", got, err)
			}
			if paced := counted(t, s.metrics.paced); paced < 32 {
				t.Errorf("%v reads were paced, want most of 1 MiB", paced)
			}
		})
	}
}

// Clients that send requests and bodies are not paced, whatever these are.
func TestRequestsOfHTTP2AreNotPaced(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	ticks := make(chan struct{})
	s, _ := secured(t, ca, func(o *Options) {
		o.Routes = append(o.Routes,
			route("POST", "/take", func(w http.ResponseWriter, r *http.Request) {
				n, _ := io.Copy(io.Discard, r.Body)
				if n == 0 {
					w.WriteHeader(http.StatusBadRequest)
				}
			}),
			route("GET", "/follow", func(w http.ResponseWriter, r *http.Request) {
				for range ticks {
					io.WriteString(w, "one more event\n")
					w.(http.Flusher).Flush()
				}
			}),
			route("GET", "/much", func(w http.ResponseWriter, r *http.Request) {
				piece := make([]byte, 64<<10)
				for range 256 {
					w.Write(piece)
				}
			}))
	})
	c := client(t, ca.Client(""), true)
	base := "https://" + s.Addr("http")
	post := func(body io.Reader) {
		t.Helper()
		answer, err := c.Post(base+"/take", "text/plain", body)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK || answer.ProtoMajor != 2 {
			t.Fatalf("%s by %s", answer.Status, answer.Proto)
		}
	}
	for range 3000 {
		post(strings.NewReader("a"))
	}
	post(strings.NewReader(strings.Repeat("x", 8<<20)))
	r, w := io.Pipe()
	go func() {
		for range 2000 { // each is a frame
			io.WriteString(w, strings.Repeat("x", 100))
		}
		w.Close()
	}()
	post(r)
	if answer, body := get(t, c, base+"/much"); len(body) != 16<<20 {
		t.Fatalf("%s with %d bytes", answer.Status, len(body))
	}
	go func() {
		defer close(ticks)
		for range 5000 {
			ticks <- struct{}{}
		}
	}()
	get(t, c, base+"/follow")
	if floods := counted(t, s.metrics.floods); floods != 0 {
		t.Errorf("%v connections were closed as floods", floods)
	}
	if paced := counted(t, s.metrics.paced); paced > 100 { // some are, if a handler gets no CPU for a while
		t.Errorf("%v reads were paced", paced)
	}
}

// A frame of HTTP/2.
func frame(kind, flags byte, stream uint32, text string) []byte {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(text))<<8|uint32(kind))
	return append(binary.BigEndian.AppendUint32(append(head, flags), stream), text...)
}

// The requests of clients that let the server send no byte of an answer are in the crowd, however
// short the answers are.
func TestUnreadAnswersOfHTTP2(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	s, _ := secured(t, ca, func(o *Options) {
		o.Config.MaxConnections = 8
		withRoutes(route("GET", "/hello", hello))(o)
	})
	const (
		settings, headers      = 4, 1
		endOfHeader, endOfBody = 4, 1
		request                = "\x82\x87\x04\x06/hello\x41\x09localhost" // GET, https, a path, an authority
		statusOK               = 0x88                                      // how the header of an answer begins
	)
	var clients []*tls.Conn
	for range 3 {
		config := ca.Client("")
		config.NextProtos = []string{http2}
		c, err := tls.Dial("tcp", s.Addr("http"), config)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
		noRoom := frame(settings, 0, 0, "\x00\x04\x00\x00\x00\x00") // for bodies
		if _, err := c.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), noRoom...)); err != nil {
			t.Fatal(err)
		}
		readFrame(t, c) // so net/http has the connection
		clients = append(clients, c)
	}
	served := 0
	for _, c := range clients {
		var p []byte
		for i := range uint32(http2Streams) {
			p = append(p, frame(headers, endOfHeader|endOfBody, 2*i+1, request)...)
		}
		if _, err := c.Write(p); err != nil {
			t.Fatal(err)
		}
		for answers := 0; answers < http2Streams; {
			if kind, text := readFrame(t, c); kind == headers {
				answers++
				if text[0] == statusOK {
					served++
				}
			}
		}
	}
	if most := http2Streams + len(clients); served < http2Streams || served > most {
		t.Errorf("%d requests whose answers nobody reads were served, want %d to %d", served, http2Streams, most)
	}
}

// readFrame reads a frame.
func readFrame(t *testing.T, c io.Reader) (kind byte, text []byte) {
	t.Helper()
	head := make([]byte, 9)
	_, err := io.ReadFull(c, head)
	if err == nil {
		text = make([]byte, binary.BigEndian.Uint32(head)>>8)
		_, err = io.ReadFull(c, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return head[3], text
}
