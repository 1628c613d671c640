package lines

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/ingest/ingesttest"
	"varve/internal/stream"
)

// A unreadConn has a client that reads nothing.
type unreadConn struct {
	net.Conn
	writes int
}

func (c *unreadConn) SetWriteDeadline(time.Time) error { return nil }
func (c *unreadConn) Write([]byte) (int, error)        { c.writes++; return 0, os.ErrDeadlineExceeded }

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
	if silent.writes != 1 {
		t.Errorf("%d attempts to answer", silent.writes)
	}
	if n := ingesttest.Counters(t, reg, "unread")[""]; n != 5 {
		t.Errorf("%v answers were dropped", n)
	}
}
