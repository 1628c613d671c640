package hostile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// A client is a connection whose owner writes bytes, not requests.
type client struct{ net.Conn }

// connect opens a connection that ends with ctx at the latest.
func connect(ctx context.Context, address string) (client, error) {
	return connectFrom(ctx, "", address)
}

// connectFrom is connect from an address of this machine.
func connectFrom(ctx context.Context, own, address string) (client, error) {
	c, err := (&net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(own)}}).DialContext(ctx, "tcp", address)
	if err != nil {
		return client{}, err
	}
	context.AfterFunc(ctx, func() { c.Close() })
	return client{c}, nil
}

// visit opens a connection for HTTP/1, over TLS where the server speaks it.
func (w *ward) visit(ctx context.Context) (client, error) { return w.visitFrom(ctx, "") }

// visitFrom is visit from an address of this machine.
func (w *ward) visitFrom(ctx context.Context, own string) (client, error) {
	c, err := connectFrom(ctx, own, w.HTTP)
	if err != nil || w.secure == nil {
		return c, err
	}
	over := tls.Client(c.Conn, w.secure)
	if err := over.HandshakeContext(ctx); err != nil {
		c.Close()
		return client{}, err
	}
	return client{over}, nil
}

// say writes text. An error means that the server has cut the connection, which it
// may.
func (c client) say(text string) error {
	c.SetWriteDeadline(time.Now().Add(5 * time.Second))
	_, err := io.WriteString(c, text)
	return err
}

// status reads the status of the next answer, and its body.
func (c client) status(within time.Duration) (int, []byte, error) {
	c.SetReadDeadline(time.Now().Add(within))
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return response.StatusCode, body, err
}

// cut waits until the server has closed the connection, and reads what it sent.
func (c client) cut(within time.Duration) error {
	c.SetReadDeadline(time.Now().Add(within))
	_, err := io.Copy(io.Discard, c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the connection is open after %v", within)
	}
	return nil
}

// crowd runs n attackers and waits for all.
func crowd(n int, attacker func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { attacker(i) })
	}
	all.Wait()
}

// packed returns text in gzip.
func packed(text []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	w.Write(text)
	w.Close()
	return b.Bytes()
}

// post sends a body that may be packed. The client leaves when its patience ends.
func (w *ward) post(ctx context.Context, path string, body []byte, gz bool, patience time.Duration) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, "POST", "http://"+w.HTTP+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if gz {
		request.Header.Set("Content-Type", "application/gzip")
		request.Header.Set("Content-Encoding", "gzip")
	}
	status, answer, err := w.attacker.Send(request)
	w.turnsAway(request.Method, path, status)
	return status, answer, err
}

// blames refuses a 5xx answer without a reason. KairosDB answers 500 with a reason to
// some questions, and so does Varve.
func (w *ward) blames(status int, answer []byte, err error) {
	if err != nil || status < 500 || status == http.StatusServiceUnavailable || bytes.HasPrefix(answer, []byte(`{"errors":["`)) {
		return
	}
	w.t.Errorf("status %d: %.200s", status, answer)
}
