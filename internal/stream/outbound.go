package stream

import (
	"net"
	"sync"
	"time"
)

// An outbound is the sending side of a connection over TLS. It bounds the time of each write.
//
// crypto/tls also writes while it reads: it answers key updates, and reports what is wrong. These
// answers are small, and a client may ask for as many as it likes without reading any, at a time
// when no request has set a deadline. Once the kernel takes no more, such a write would hold the
// goroutine that reads, past the deadline for reading and the eviction of the connection, and also
// a lock for which Close waits.
type outbound struct {
	mu      sync.Mutex
	bounded bool      // a deadline for writes was set with bound
	last    time.Time // when the last write must have ended; zero unless the connection is being closed
	writing bool      // a write is in progress; TLS makes one at a time
	torn    bool      // a write has failed, perhaps within a record, so nothing can follow
}

const (
	// ownWrite is the timeout of writes without a deadline, which are those of TLS itself. They
	// wait only if the client has not read thousands of answers.
	ownWrite = time.Second

	// farewell is the timeout of the alert by which Close tells the client that the connection
	// ends. There is room for its few bytes unless the client does not read. The timeout of
	// crypto/tls is five seconds, and net/http closes connections one after the other when it stops.
	farewell = 100 * time.Millisecond
)

// bound sets the deadline for writes on the connection below TLS.
func (o *outbound) bound(below net.Conn, t time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bounded = !t.IsZero()
	if !o.last.IsZero() && (t.IsZero() || t.After(o.last)) {
		t = o.last
	}
	return below.SetWriteDeadline(t)
}

// free removes the deadline that bound has set.
func (o *outbound) free() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bounded = false
}

// end gives later writes at most this long, and makes a write in progress fail
// at once.
func (o *outbound) end(below net.Conn, most time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writing {
		most = 0
	}
	o.bounded, o.last = true, time.Now().Add(most)
	below.SetWriteDeadline(o.last)
}

// write writes a record.
func (o *outbound) write(below net.Conn, p []byte) (int, error) {
	if !o.begin(below) {
		return 0, net.ErrClosed
	}
	n, err := below.Write(p)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing, o.torn = false, err != nil
	return n, err
}

// begin makes sure that a write has a deadline. It returns false if nothing more can be written.
func (o *outbound) begin(below net.Conn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.torn {
		return false
	}
	if !o.bounded {
		below.SetWriteDeadline(time.Now().Add(ownWrite))
	}
	o.writing = true
	return true
}
