package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
)

// A request is a question in the form that a server accepts.
type request struct {
	method, url string
	header      http.Header
	body        []byte
}

// do sends r with the client that all stages share.
func (r request) do(ctx context.Context) ([]byte, error) {
	return httpDo(ctx, r.method, r.url, r.header, r.body)
}

// text is r as it is sent over a connection of its own.
func (r request) text() ([]byte, error) {
	sent, err := http.NewRequest(r.method, r.url, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	if r.header != nil {
		sent.Header = r.header
	}
	var text bytes.Buffer
	err = sent.Write(&text)
	return text.Bytes(), err
}

// An asker sends requests over one connection, each after the answer to the previous one. Response
// times are measured with it. net/http passes a request and its answer between goroutines, which
// on two processors can take as long as a small answer itself. An asker waits in read(2), so it
// measures only the server and the kernel.
type asker struct {
	ctx     context.Context // its end ends reads
	addr    string
	conn    *net.TCPConn
	in      *bufio.Reader
	answer  bytes.Buffer
	release func() bool // detaches it from ctx
}

// dialAsker connects to the server of r.
func dialAsker(ctx context.Context, r request) (*asker, error) {
	at, err := url.Parse(r.url)
	if err != nil {
		return nil, err
	}
	a := &asker{ctx: ctx, addr: at.Host}
	return a, a.dial()
}

func (a *asker) dial() error {
	c, err := new(net.Dialer).DialContext(a.ctx, "tcp", a.addr)
	if err != nil {
		return err
	}
	conn := c.(*net.TCPConn)
	if err := makeBlocking(conn); err != nil {
		conn.Close()
		return fmt.Errorf("connection to %s: %w", a.addr, err)
	}
	a.conn, a.in = conn, bufio.NewReaderSize(conn, 64<<10)
	a.release = context.AfterFunc(a.ctx, func() { conn.CloseRead() })
	return nil
}

func (a *asker) close() {
	a.release()
	a.conn.Close()
}

// ask sends the text of a request and returns the body of a successful answer. The body is
// valid until the next call.
func (a *asker) ask(text []byte) ([]byte, error) {
	if _, err := a.conn.Write(text); err != nil {
		return nil, err
	}
	answer, err := http.ReadResponse(a.in, nil)
	if err != nil {
		return nil, err
	}
	a.answer.Reset()
	if _, err := a.answer.ReadFrom(answer.Body); err != nil {
		return nil, err
	}
	if answer.Close { // some servers close the connection now and then
		a.close()
		if err := a.dial(); err != nil {
			return nil, err
		}
	}
	if answer.StatusCode >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("%s: %.500s", answer.Status, a.answer.Bytes())
	}
	return a.answer.Bytes(), nil
}
