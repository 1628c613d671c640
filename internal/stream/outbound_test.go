package stream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/server/tlstest"
)

// piped accepts the ends of pipes. A write to one end waits until the other end reads.
type piped struct {
	ends   chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *piped) Accept() (net.Conn, error) {
	select {
	case c := <-p.ends:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *piped) Addr() net.Addr { return &net.TCPAddr{} }

func (p *piped) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// dial connects, and returns the end of the client.
func (p *piped) dial() net.Conn {
	client, server := net.Pipe()
	p.ends <- server
	return client
}

// A tlsTest is a listener over TLS for pipes.
type tlsTest struct {
	*testing.T
	pipes  *piped
	door   *Door
	client *tls.Config
}

func newTLSTest(t *testing.T) *tlsTest {
	t.Helper()
	ca := tlstest.NewAuthority(t)
	cert, err := tls.X509KeyPair(ca.Issue("server"))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, SessionTicketsDisabled: true}
	pipes := &piped{ends: make(chan net.Conn, 1), closed: make(chan struct{})}
	client := ca.Client("")
	client.ServerName = "localhost"
	return &tlsTest{t, pipes, &Door{Listener: pipes, TLS: &TLS{Config: func() *tls.Config { return config }, Timeout: 10 * time.Second}}, client}
}

// updater connects with a client that sends key updates and reads no answers.
func (t *tlsTest) updater() (net.Conn, *tlstest.Updater) {
	t.Helper()
	client := t.pipes.dial()
	u, err := tlstest.NewUpdater(client, t.client)
	if err != nil {
		t.Fatal(err)
	}
	return client, u
}

// conn returns a connection whose client is an updater, and the end of the client.
func (t *tlsTest) conn() (*Conn, net.Conn, *tlstest.Updater) {
	t.Helper()
	l := NewListener(t.door, Options{Limit: 1})
	shaken := make(chan *Conn)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
			close(shaken)
			return
		}
		if err := c.(*Conn).Handshake(context.Background()); err != nil {
			t.Error(err)
		}
		shaken <- c.(*Conn)
	}()
	client, u := t.updater()
	return <-shaken, client, u
}

// ask sends a key update and returns once the server waits for the client to read its answer.
func (t *tlsTest) ask(client net.Conn, u *tlstest.Updater) {
	t.Helper()
	update, err := u.Update()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Write(update); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// reads is a handler that only reads.
type reads struct{}

func (reads) ServeConn(_ context.Context, c *Conn) { io.Copy(io.Discard, c) }

// A client that asks for key updates and reads none of the answers can be evicted like any other idle
// client.
func TestEvictionDespiteUnreadUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		test := newTLSTest(t)
		s := NewServer(Options{Name: "test", Limit: 1}, reads{}, nil)
		served := make(chan error)
		go func() { served <- s.Serve(t.Context(), test.door) }()
		client, u := test.updater()
		test.ask(client, u)
		began := time.Now()
		other, _ := test.updater() // evicts the first one
		var err error
		for range 2 { // what was sent before the eviction is still read
			_, err = client.Write(u.Data("x"))
		}
		if !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the server still reads: %v", err)
		}
		if d := time.Since(began); d > ownWrite {
			t.Errorf("the evicted connection ended after %v", d)
		}
		other.Close()
		s.Shutdown(t.Context())
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// Unread answers to key updates do not keep a reader past its deadline.
func TestDeadlineDespiteUnreadUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		test := newTLSTest(t)
		c, client, u := test.conn()
		defer client.Close()
		defer c.Close()
		c.SetReadDeadline(time.Now().Add(ownWrite / 2))
		began, read := time.Now(), make(chan error)
		go func() {
			_, err := c.Read(make([]byte, 10))
			read <- err
		}()
		test.ask(client, u)
		if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) > ownWrite {
			t.Errorf("Read ended after %v: %v", time.Since(began), err)
		}
	})
}

// Close does not wait for a client that reads nothing.
func TestCloseDespiteUnreadUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		test := newTLSTest(t)
		c, client, u := test.conn()
		defer client.Close()
		read := make(chan error)
		go func() {
			_, err := c.Read(make([]byte, 10))
			read <- err
		}()
		test.ask(client, u)
		began := time.Now()
		c.Close()
		if d := time.Since(began); d > farewell {
			t.Errorf("Close took %v", d)
		}
		if err := <-read; err == nil {
			t.Error("Read succeeded")
		}
	})
}

// Sending the close_notify of TLS does not wait for a client that reads nothing, either.
func TestFarewell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client, _ := newTLSTest(t).conn()
		defer client.Close()
		began := time.Now()
		if c.Close(); time.Since(began) > farewell {
			t.Errorf("Close took %v", time.Since(began))
		}
	})
}

// An answer that the client does not read ends at its deadline.
func TestAnswerThatIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client, _ := newTLSTest(t).conn()
		defer client.Close()
		defer c.Close()
		began := time.Now()
		c.SetWriteDeadline(began.Add(time.Minute))
		if _, err := c.Write([]byte("an answer")); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("the write ended after %v with %v", time.Since(began), err)
		}
	})
}

// A deadline that was set for an answer applies to that answer, even if it is a long one, and not to
// what TLS itself sends when the connection is idle again.
func TestDeadlineOfAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		test := newTLSTest(t)
		c, client, u := test.conn()
		defer client.Close()
		defer c.Close()
		const slow = 30 * ownWrite
		c.SetWriteDeadline(time.Now().Add(2 * slow))
		written := make(chan error)
		write := func() {
			_, err := c.Write([]byte("an answer"))
			written <- err
		}
		go write()
		time.Sleep(slow)
		take := func() {
			t.Helper()
			if _, err := client.Read(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
		}
		take()
		if err := <-written; err != nil {
			t.Fatal("a client that reads slowly: ", err)
		}

		c.Idle()
		time.Sleep(2 * slow)
		go c.Read(make([]byte, 10))
		test.ask(client, u)
		take()
		c.SetWriteDeadline(time.Now().Add(2 * slow))
		go write()
		take()
		if err := <-written; err != nil {
			t.Error("an answer after a key update: ", err)
		}
	})
}
