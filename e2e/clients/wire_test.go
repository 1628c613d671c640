package clients

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A wire is one connection to a server, on which a test determines each byte.
type wire struct {
	t    *testing.T
	conn *net.TCPConn
	in   *bufio.Reader
}

// wireWithin is how long anything on a wire may take.
const wireWithin = time.Minute

func dial(t *testing.T, address string) *wire {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, wireWithin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(wireWithin))
	return &wire{t: t, conn: conn.(*net.TCPConn), in: bufio.NewReader(conn)}
}

func (w *wire) send(text string) {
	w.t.Helper()
	if _, err := io.WriteString(w.conn, text); err != nil {
		w.t.Fatal(err)
	}
}

// request sends a request with a length, if it has a body.
func (w *wire) request(method, path, body string, headers ...string) {
	w.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: 127.0.0.1:21080\r\n", method, path)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	if body != "" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	w.send(b.String() + "\r\n" + body)
}

// A reply is an answer with its body read.
type reply struct {
	*http.Response
	body string
}

// answer reads an answer to a request with a method.
func (w *wire) answer(method string) reply {
	w.t.Helper()
	r, err := http.ReadResponse(w.in, &http.Request{Method: method})
	if err != nil {
		w.t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return reply{r, string(body)}
}

// ask sends a request and reads its answer.
func (w *wire) ask(method, path, body string, headers ...string) reply {
	w.t.Helper()
	w.request(method, path, body, headers...)
	return w.answer(method)
}

// want sends a request and checks the status.
func (w *wire) want(status int, method, path, body string, headers ...string) reply {
	w.t.Helper()
	r := w.ask(method, path, body, headers...)
	if r.StatusCode != status {
		w.t.Errorf("%s %s %.200s: status %d, want %d: %s", method, path, body, r.StatusCode, status, r.body)
	}
	return r
}

// closed reports whether the server has closed the connection without sending
// anything.
func (w *wire) closed() bool {
	w.t.Helper()
	_, err := w.in.ReadByte()
	if err == nil {
		w.t.Error("the server sent something before it closed")
	}
	var timeout net.Error
	return err != nil && !(errors.As(err, &timeout) && timeout.Timeout())
}

// silent reports whether nothing comes for a while.
func (w *wire) silent() bool {
	w.conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	defer w.conn.SetReadDeadline(time.Now().Add(wireWithin))
	_, err := w.in.ReadByte()
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func gzipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, text)
	z.Close()
	return b.String()
}
