package telnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"varve/internal/ingest"
	"varve/internal/store"
)

const (
	firstBuffer = 16 << 10 // of a new or quiet connection

	// quietReads is after how many small reads a grown buffer is given up.
	quietReads = 64

	// drainIdle is how long a connection may be silent, while the server
	// stops, before it counts as finished.
	drainIdle = 50 * time.Millisecond

	// replyTimeout bounds the write of a reply. A reply of a few bytes only
	// blocks when the client has not read thousands of them.
	replyTimeout = time.Second
)

// A conn is one client connection.
type conn struct {
	s        *Server
	nc       net.Conn
	remote   string
	lines    *lines
	draining atomic.Bool
	lastLine atomic.Int64 // time of the last line, or of the connection; Unix nanoseconds
	storing  atomic.Bool
	leaving  bool // evicted; s.mu guards it
	cancel   atomic.Pointer[context.CancelFunc]

	buf      []byte // buf[:end] was read and not used yet
	end      int
	begun    bool // the first line is one of telnet
	skipping bool // inside a line that is too long
	small    int  // small reads in a row
	mute     bool // a reply was not read: no more of them
}

func newConn(s *Server, nc net.Conn) *conn {
	remote := nc.RemoteAddr().String()
	c := &conn{
		s: s, nc: nc, remote: remote,
		lines: newLines(s.p, s.proto, remote, int(s.cfg.MaxLine)),
	}
	c.lastLine.Store(time.Now().UnixNano())
	return c
}

// drain makes a blocked read return; the connection ends when nothing comes any
// more. The deadline is set first, so that it never undoes the one that run
// sets once it sees that it drains.
func (c *conn) drain() {
	c.nc.SetReadDeadline(time.Now())
	c.draining.Store(true)
}

// abort ends the connection in the middle of what it does.
func (c *conn) abort() {
	if cancel := c.cancel.Load(); cancel != nil {
		(*cancel)()
	}
	c.nc.Close()
}

// run reads until the client or the server ends the connection.
func (c *conn) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.cancel.Store(&cancel)
	defer c.nc.Close()
	for {
		c.makeRoom()
		draining := c.draining.Load()
		if draining {
			c.nc.SetReadDeadline(time.Now().Add(drainIdle))
		}
		n, err := c.nc.Read(c.buf[c.end:])
		c.noteRead(n)
		if n > 0 {
			c.end += n
			if !c.use(ctx) {
				return
			}
		}
		if err == nil {
			if draining && c.pastDrain() {
				break
			}
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && !draining && ctx.Err() == nil {
			continue // woken up to drain
		}
		c.noteEnd(err)
		break
	}
	c.rejectTail()
}

func (c *conn) pastDrain() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return time.Now().After(c.s.mu.deadline)
}

// noteEnd logs an end that is not one of the usual: the client closed, reset,
// or the server stops.
func (c *conn) noteEnd(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) || isReset(err) {
		return
	}
	c.s.log.Info("telnet: connection ended", "remote", c.remote, "error", err)
}

// noteRead lets the buffer follow the traffic.
func (c *conn) noteRead(n int) {
	c.s.received.Add(float64(n))
	if n >= firstBuffer/2 {
		c.small = 0
	} else {
		c.small++
	}
}

// makeRoom leaves room to read into: the buffer doubles when the last read
// filled it, and goes back to its first size when little comes.
func (c *conn) makeRoom() {
	if c.end == 0 && c.small >= quietReads && len(c.buf) > firstBuffer {
		c.buf = nil
	}
	if c.buf == nil {
		c.buf, c.small = make([]byte, firstBuffer), 0
	}
	if c.end < len(c.buf)/2 {
		return
	}
	c.grow()
}

// grow doubles the buffer. Beyond read_buffer it grows only for the sake of one
// line, which is cut off at max_line by use.
func (c *conn) grow() {
	larger := make([]byte, 2*len(c.buf))
	copy(larger, c.buf[:c.end])
	c.buf = larger
}

// use stores the complete lines that are in the buffer and moves the rest to
// the front. It reports whether to go on.
func (c *conn) use(ctx context.Context) bool {
	data := c.buf[:c.end]
	filled := c.end == len(c.buf)
	if !c.begun && !c.begin(data) {
		return false
	}
	if c.skipping {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			c.end = 0
			return true
		}
		data = data[i+1:]
		c.skipping = false
	}
	last := bytes.LastIndexByte(data, '\n')
	ok := last < 0 || c.store(ctx, data[:last+1])
	rest := data[last+1:]
	if len(rest) > int(c.s.cfg.MaxLine) {
		c.s.p.Reject(c.s.proto, c.remote, lineTooLong(int(c.s.cfg.MaxLine)), rest, 1)
		c.skipping, rest = true, nil
	}
	c.end = copy(c.buf, rest)
	if filled && len(c.buf) < int(c.s.cfg.ReadBuffer) {
		c.grow()
	}
	return ok
}

// begin looks at what a connection begins with. It reports whether to go on: the
// connection ends if that is another protocol.
func (c *conn) begin(data []byte) bool {
	fault, known := opening(data, int(c.s.cfg.MaxLine))
	if fault != nil {
		line, _, _ := bytes.Cut(bytes.TrimLeft(data, "\r\n"), []byte{'\n'})
		c.s.p.Reject(c.s.proto, c.remote, fault, line, 1)
		return false
	}
	c.begun = known
	return true
}

// store offers a block of lines to the store until it takes it. It reports
// whether the connection goes on.
func (c *conn) store(ctx context.Context, block []byte) bool {
	c.storing.Store(true)
	defer c.storing.Store(false)
	c.lastLine.Store(time.Now().UnixNano())
	wait := 10 * time.Millisecond
	giveUp := c.s.p.Now().Add(c.s.cfg.RetryFor)
	for {
		versions, err := c.lines.store(ctx, block)
		if err == nil {
			c.reply(versions)
			return true
		}
		var input *store.InputError
		if errors.As(err, &input) {
			c.rejectBlock(ingest.Refused, err, block)
			return true
		}
		if ctx.Err() != nil || ingest.OutcomeOf(err) == ingest.Internal || !c.s.p.Now().Before(giveUp) {
			c.rejectBlock(ingest.Unavailable, err, block)
			c.s.log.Error("telnet: lines not stored, closing the connection", "remote", c.remote,
				"lines", bytes.Count(block, []byte{'\n'}), "error", err)
			return false
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, time.Second)
	}
}

func (c *conn) rejectBlock(r ingest.Reason, err error, block []byte) {
	c.s.p.Reject(c.s.proto, c.remote, ingest.Faultf(r, "%v", err), block, bytes.Count(block, []byte{'\n'}))
}

// reply answers version commands.
func (c *conn) reply(versions int) {
	for range versions {
		if c.mute {
			c.s.unread.Inc()
			continue
		}
		c.nc.SetWriteDeadline(time.Now().Add(replyTimeout))
		if _, err := c.nc.Write(c.s.version); err != nil {
			c.mute = true
			c.s.unread.Inc()
		}
	}
}

// rejectTail counts a last line without its end. It is not executed: it may be
// cut in the middle of a number.
func (c *conn) rejectTail() {
	if tail := c.buf[:c.end]; len(bytes.TrimSpace(tail)) > 0 {
		c.s.p.Reject(c.s.proto, c.remote, ingest.Faultf(ingest.Unterminated, "the connection ended inside this line"), tail, 1)
	}
}
