package stream

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"varve/internal/gate"
)

// An incomplete message of a certificate, which crypto/tls collects up to 256 KiB of.
var incomplete = "\x0b\x03\xff\xff" + strings.Repeat("x", 200<<10)

// pieces calls send with incomplete in pieces of the size of a record, until send fails.
func pieces(send func(piece string) error) (sent int, err error) {
	for rest := incomplete; rest != "" && err == nil; {
		piece := rest[:min(len(rest), 16<<10)]
		rest = rest[len(piece):]
		if err = send(piece); err == nil {
			sent += len(piece)
		}
	}
	return sent, err
}

// firstFlight returns what a client of TLS 1.2 sends first.
func firstFlight(t *testing.T) []byte {
	client, server := net.Pipe()
	defer client.Close()
	go tls.Client(server, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}).Handshake()
	p := make([]byte, 4<<10)
	n, err := client.Read(p)
	if err != nil {
		t.Fatal(err)
	}
	return p[:n]
}

// A client cannot make the server hold a large message of a handshake, which needs no credential.
func TestLargeHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		test := newTLSTest(t)
		failed := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "failed"}, []string{"stream", "reason"})
		test.door.TLS.Failed = failed
		l := NewListener(test.door, Options{Name: "test", Limit: 1})
		hello, shaken := firstFlight(t), shakeOne(l)
		client := test.pipes.dial()
		defer client.Close()
		go io.Copy(io.Discard, client)
		if _, err := client.Write(hello); err != nil {
			t.Fatal(err)
		}
		sent, _ := pieces(func(piece string) error {
			head := binary.BigEndian.AppendUint16([]byte{22, 3, 3}, uint16(len(piece)))
			_, err := client.Write(append(head, piece...))
			return err
		})
		client.Close()
		if err := <-shaken; !errors.Is(err, errSilent) || sent > 48<<10 {
			t.Errorf("the server read %d bytes of a certificate; %v", sent, err)
		}
		var counted dto.Metric
		failed.WithLabelValues("test", handshakeLarge).Write(&counted)
		if n := counted.GetCounter().GetValue(); n != 1 {
			t.Errorf("%v handshakes are counted as too large", n)
		}
	})
}

// The same holds after the handshake. Data may arrive in any amount.
func TestLargeMessageAfterHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		test := newTLSTest(t)
		c, client, u := test.conn()
		defer client.Close()
		defer c.Close()
		read := make(chan error)
		go func() {
			_, err := io.Copy(io.Discard, c)
			read <- err
			c.Close()
		}()
		for range 4 * mostSilent >> 10 {
			if _, err := client.Write(u.Data(strings.Repeat("x", 1<<10))); err != nil {
				t.Fatal(err)
			}
		}
		go io.Copy(io.Discard, client)
		sent, _ := pieces(func(piece string) error {
			client.SetWriteDeadline(time.Now().Add(time.Minute))
			_, err := client.Write(u.Message(piece))
			return err
		})
		client.Close()
		if err := <-read; !errors.Is(err, errSilent) || sent > 48<<10 {
			t.Errorf("the server read %d bytes of a certificate; %v", sent, err)
		}
	})
}

// shakeOne accepts a connection of l, and sends the result of its handshake.
func shakeOne(l *Listener) <-chan error {
	shaken := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = c.(*Conn).Handshake(context.Background())
			c.Close()
		}
		shaken <- err
	}()
	return shaken
}

// A handshake waits for its turn before it computes, and gives its place back while it waits for its
// client.
func TestHandshakesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		test := newTLSTest(t)
		turns, other := gate.New(1), netip.MustParsePrefix("192.0.2.1/32")
		test.door.TLS.Turns = turns
		l := NewListener(test.door, Options{Name: "test", Limit: 2})
		turns.TryEnter(other, 1)
		hello, first := firstFlight(t), shakeOne(l)
		silent := test.pipes.dial()
		silent.Write(hello)
		answered := make(chan error, 1)
		go func() {
			_, err := silent.Read(make([]byte, 1))
			answered <- err
		}()
		synctest.Wait()
		select {
		case err := <-answered:
			t.Errorf("a handshake does not wait for its turn: %v", err)
		default:
		}
		turns.Leave(other, 1)
		if err := <-answered; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := turns.InUse(); n != 0 {
			t.Errorf("%d handshakes wait for their clients and keep others waiting", n)
		}
		second := shakeOne(l)
		client := test.pipes.dial()
		if err := tls.Client(client, test.client).Handshake(); err != nil {
			t.Error(err)
		}
		if err := <-second; err != nil {
			t.Error(err)
		}
		client.Close()
		silent.Close()
		if err := <-first; err == nil {
			t.Error("the handshake of a client that has left has succeeded")
		}
		if n := turns.InUse(); n != 0 {
			t.Errorf("%d places are lost", n)
		}
	})
}

// A connection that is closed to make room for another one ends at once, also while its handshake waits
// for its turn.
func TestEvictedHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		test := newTLSTest(t)
		turns := gate.New(1)
		test.door.TLS.Turns = turns
		l := NewListener(test.door, Options{Name: "test", Limit: 1})
		turns.TryEnter(netip.MustParsePrefix("192.0.2.1/32"), 1)
		hello, first := firstFlight(t), shakeOne(l)
		waits := test.pipes.dial()
		waits.Write(hello)
		synctest.Wait()
		began, second := time.Now(), shakeOne(l)
		late := test.pipes.dial()
		if err := <-first; err == nil || time.Since(began) > time.Second {
			t.Errorf("an evicted connection ended after %v: %v", time.Since(began), err)
		}
		late.Close()
		waits.Close()
		<-second
	})
}

// A pausing connection waits before its second write.
type pausing struct {
	net.Conn
	writes int
	resume chan struct{}
}

func (p *pausing) Write(b []byte) (int, error) {
	if p.writes++; p.writes == 2 {
		<-p.resume
	}
	return p.Conn.Write(b)
}

// A connection that is drained because another one needs its place may end its handshake if that needs no turn
// of others.
func TestDrainedHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		test := newTLSTest(t)
		test.door.TLS.Turns = gate.New(1)
		l := NewListener(test.door, Options{Name: "test", Limit: 1, Drain: true})
		first := shakeOne(l)
		client := &pausing{Conn: test.pipes.dial(), resume: make(chan struct{})}
		go tls.Client(client, test.client).Handshake()
		synctest.Wait()
		second := shakeOne(l)
		late := test.pipes.dial()
		synctest.Wait()
		close(client.resume)
		if err := <-first; err != nil {
			t.Error(err)
		}
		client.Close()
		late.Close()
		<-second
	})
}
