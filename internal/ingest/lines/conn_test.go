package lines

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/store/reference"
	"varve/internal/stream"
	"varve/internal/units"
)

// A unreadConn has a client that reads nothing.
type unreadConn struct {
	net.Conn
	writes   int
	deadline time.Time
}

func (c *unreadConn) SetWriteDeadline(at time.Time) error { c.deadline = at; return nil }
func (c *unreadConn) Write([]byte) (int, error)           { c.writes++; return 0, os.ErrDeadlineExceeded }

// A client that does not read its answers is waited for once, not once for each
// answer that it asks for.
func TestUnreadAnswersAreDropped(t *testing.T) {
	reg := prometheus.NewRegistry()
	unread := prometheus.NewCounter(prometheus.CounterOpts{Name: "unread"})
	reg.MustRegister(unread)
	silent := &unreadConn{}
	c := &conn{p: &Protocol{Unread: unread}, nc: &stream.Conn{Conn: silent}}
	c.reply(3)
	c.reply(2)
	if silent.deadline.IsZero() {
		t.Error("an answer was written without a deadline, so it would wait for ever")
	}
	if silent.writes != 1 {
		t.Errorf("%d attempts to answer", silent.writes)
	}
	if n := ingesttest.Counters(t, reg, "unread")[""]; n != 5 {
		t.Errorf("%v answers were dropped", n)
	}
}

// The buffer of a connection holds the line that comes, and no more: it stays at its first
// size while lines are short, doubles for a longer one, and goes back when little comes.
func TestBufferFollowsTheTraffic(t *testing.T) {
	received := prometheus.NewCounter(prometheus.CounterOpts{Name: "received"})
	c := &conn{p: &Protocol{Received: received}}
	read := func(n int) {
		t.Helper()
		c.makeRoom(t.Context())
		if room := len(c.buf) - c.end; room < n {
			t.Fatalf("there is room for %d bytes, want %d", room, n)
		}
		c.end += n
		c.noteRead(n)
	}
	for range 1000 {
		read(100)
		c.end = 0 // all lines were whole
	}
	if len(c.buf) != FirstBuffer {
		t.Errorf("after short lines the buffer has %d bytes", len(c.buf))
	}
	for c.end < 1<<20 { // one line
		read(FirstBuffer / 2)
		if len(c.buf) > max(4*c.end, FirstBuffer) {
			t.Fatalf("with %d bytes of a line the buffer has %d", c.end, len(c.buf))
		}
	}
	grown := len(c.buf)
	c.end = 0
	for i := range quietReads {
		if read(FirstBuffer/2 - 1); i < quietReads-1 && len(c.buf) != grown {
			t.Fatalf("the buffer is given up after %d small reads", i)
		}
		c.end = 0
	}
	if c.makeRoom(t.Context()); len(c.buf) != FirstBuffer {
		t.Errorf("after %d small reads the buffer has %d bytes", quietReads, len(c.buf))
	}
}

// Buffers of many connections take a bounded amount of memory together. Those that get none keep their first
// size, and end at a line that is longer. Connections of one address leave memory for others.
func TestBuffersOfManyConnections(t *testing.T) {
	reg := prometheus.NewRegistry()
	config := ingest.DefaultConfig()
	config.BodyMemory, config.BusyWait = 8*units.MiB, time.Millisecond
	pipeline := ingest.New(reference.New(nil), config, ingest.Options{Registerer: reg})
	defer pipeline.Close()
	p := &Protocol{
		Pipeline: pipeline, Counts: pipeline.Protocol("telnet"), Received: prometheus.NewCounter(prometheus.CounterOpts{Name: "received"}),
		ReadBuffer: 256 * units.KiB, NewParser: func(string) Parser { return nil },
	}
	held := 0
	hold := func(address string, line int) (c *conn, whole bool) {
		c = &conn{p: p, remote: address, room: pipeline.NewRoom(address)}
		for c.end < line {
			if !c.makeRoom(t.Context()) {
				return c, false
			}
			c.end = min(len(c.buf), line)
		}
		return c, true
	}
	var crowd []*conn
	cut := 0
	for range 100 {
		c, whole := hold("192.0.2.1:1", 60_000)
		if !whole {
			cut++
		}
		crowd = append(crowd, c)
		held += len(c.buf) - FirstBuffer
	}
	if cut < 80 || held > int(config.Buffers()) {
		t.Errorf("of 100 connections with long lines %d were cut; the buffers of all take %d bytes beyond their first size", cut, held)
	}
	if n := ingesttest.Counters(t, reg, "varve_ingest_rejected_total")["telnet,unavailable"]; n != float64(cut) {
		t.Errorf("%v lines are counted as refused, %d were", n, cut)
	}
	if _, whole := hold("192.0.2.1:1", FirstBuffer); !whole {
		t.Error("a line that fits into the first buffer is cut")
	}
	other, whole := hold("192.0.2.2:1", 30_000)
	if !whole {
		t.Error("a long line of another address is cut")
	}
	for _, c := range append(crowd, other) {
		c.room.Hold(0)
	}
	if c, whole := hold("192.0.2.1:1", 200_000); !whole || len(c.buf) < 200_000 {
		t.Errorf("afterwards, a buffer grows to %d bytes", len(c.buf))
	}
}
