package lines

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/ingest"
	"varve/internal/store"
	"varve/internal/stream"
	"varve/internal/units"
)

// FirstBuffer is the size of the buffer of a new or quiet connection, in bytes.
const FirstBuffer = 16 << 10

const (
	// quietReads is after how many small reads a grown buffer is given up.
	quietReads = 64

	// replyTimeout bounds the write of a reply. A reply of a few bytes only
	// blocks when the client has not read thousands of them.
	replyTimeout = time.Second
)

// A Protocol says what the lines of a stream are, and how they are processed.
type Protocol struct {
	Name     string // of the stream
	Pipeline *ingest.Pipeline
	Counts   *ingest.Protocol
	Logger   *slog.Logger
	Received prometheus.Counter // bytes

	MaxLine    units.Bytes   // a longer line is skipped and counted
	MaxLineKey string        // the setting of MaxLine, for people; "" if it is a constant
	ReadBuffer units.Bytes   // to which the buffer of a busy connection grows
	RetryFor   time.Duration // how long a block is offered to a store that cannot accept it

	// NewParser returns what parses the lines of one sender.
	NewParser func(remote string) Parser

	// Reply is sent for each line that asked for it, Unread counts those that a client
	// did not read in time. Without a Reply none is ever sent.
	Reply  []byte
	Unread prometheus.Counter
}

// A Parser parses and stores blocks of lines.
type Parser interface {
	// Store takes a block that ends with a line feed. It returns how many lines asked
	// for a reply; they are answered after the samples before them are stored.
	Store(ctx context.Context, block []byte) (replies int, err error)
}

// ServeConn stores the lines of a connection until its end.
func (p *Protocol) ServeConn(ctx context.Context, c *stream.Conn) { newConn(p, c).run(ctx) }

// TooLong is the fault of a line that is longer than MaxLine.
func (p *Protocol) TooLong() *ingest.Fault {
	if p.MaxLineKey == "" {
		return ingest.Faultf(ingest.LineTooLong, "line is longer than %d bytes", p.MaxLine)
	}
	return ingest.Faultf(ingest.LineTooLong, "line is longer than %s, %d bytes", p.MaxLineKey, p.MaxLine)
}

// A conn is one client connection.
type conn struct {
	p      *Protocol
	nc     *stream.Conn
	remote string
	parser Parser
	room   *ingest.Room // for a buffer larger than the first

	buf      []byte // buf[:end] was read and not used yet
	end      int
	begun    bool // the first line does not belong to another protocol
	skipping bool // inside a line that is too long
	small    int  // small reads in a row
	mute     bool // a reply was not read: no more of them
}

func newConn(p *Protocol, nc *stream.Conn) *conn {
	remote := nc.RemoteAddr().String()
	return &conn{p: p, nc: nc, remote: remote, parser: p.NewParser(remote), room: p.Pipeline.NewRoom(remote)}
}

// run reads until the client or the server ends the connection.
func (c *conn) run(ctx context.Context) {
	defer c.room.Hold(0)
	for {
		if !c.makeRoom(ctx) {
			return
		}
		n, err := c.nc.Read(c.buf[c.end:])
		c.noteRead(n)
		if n > 0 {
			c.end += n
			if !c.use(ctx) {
				return
			}
		}
		if err != nil {
			NoteEnd(c.p.Logger, c.p.Name, c.remote, err)
			break
		}
	}
	c.rejectTail()
}

// NoteEnd logs the end of a connection unless it is one of the usual: the client closed, reset,
// or the server stops.
func NoteEnd(log *slog.Logger, name, remote string, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) || isReset(err) {
		return
	}
	log.Info(name+": connection ended", "remote", remote, "error", err)
}

// noteRead lets the buffer follow the traffic.
func (c *conn) noteRead(n int) {
	c.p.Received.Add(float64(n))
	if n >= FirstBuffer/2 {
		c.small = 0
	} else {
		c.small++
	}
}

// makeRoom leaves room to read into: the buffer doubles when the last read
// filled it, and goes back to its first size when little comes. makeRoom reports whether to continue: the
// connection ends if a long line needs memory that others have.
func (c *conn) makeRoom(ctx context.Context) bool {
	if c.end == 0 && c.small >= quietReads && len(c.buf) > FirstBuffer {
		c.buf = nil
		c.room.Hold(0)
	}
	if c.buf == nil {
		c.buf, c.small = make([]byte, FirstBuffer), 0
	}
	if c.end < len(c.buf)/2 {
		return true
	}
	if c.grow(); c.end < len(c.buf) {
		return true
	}
	if err := c.room.Wait(ctx, 2*int64(len(c.buf))); err != nil {
		c.rejectBlock(ingest.Unavailable, err, c.buf, 1)
		return false
	}
	c.grow()
	return true
}

// grow doubles the buffer, if there is memory. It grows beyond ReadBuffer only for a single line, which use
// cuts off at MaxLine.
func (c *conn) grow() {
	if !c.room.Hold(2 * int64(len(c.buf))) {
		return
	}
	larger := make([]byte, 2*len(c.buf))
	copy(larger, c.buf[:c.end])
	c.buf = larger
}

// use stores the complete lines that are in the buffer and moves the rest to the front. It reports
// whether to continue.
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
	if len(rest) > int(c.p.MaxLine) {
		c.p.Pipeline.Reject(c.p.Counts, c.remote, c.p.TooLong(), rest, 1)
		c.skipping, rest = true, nil
	}
	c.end = copy(c.buf, rest)
	if filled && len(c.buf) < int(c.p.ReadBuffer) {
		c.grow()
	}
	return ok
}

// begin examines the first bytes of a connection. It reports whether to continue: the connection
// ends if they belong to another protocol.
func (c *conn) begin(data []byte) bool {
	fault, known := opening(data, int(c.p.MaxLine))
	if fault != nil {
		line, _, _ := bytes.Cut(bytes.TrimLeft(data, "\r\n"), []byte{'\n'})
		c.p.Pipeline.Reject(c.p.Counts, c.remote, fault, line, 1)
		return false
	}
	c.begun = known
	return true
}

// store offers a block of lines to the store until the store accepts it. It reports whether the
// connection continues.
func (c *conn) store(ctx context.Context, block []byte) bool {
	c.nc.Busy()
	defer c.nc.Idle()
	var replies int
	err := c.p.Pipeline.Offer(ctx, c.p.RetryFor, func() (err error) { replies, err = c.parser.Store(ctx, block); return err })
	count := bytes.Count(block, []byte{'\n'})
	part := ingest.PartOf(err)
	switch {
	case err == nil:
		c.reply(replies)
	case part != nil:
		c.rejectBlock(ingest.Unavailable, err, block, part.Refused)
		c.reply(replies)
	case errors.As(err, new(*store.InputError)):
		c.rejectBlock(ingest.Refused, err, block, count)
	default:
		c.rejectBlock(ingest.Unavailable, err, block, count)
		c.p.Logger.Error(c.p.Name+": lines not stored, closing the connection", "remote", c.remote,
			"lines", count, "error", err)
		return false
	}
	return true
}

// rejectBlock counts n lines of a block as refused.
func (c *conn) rejectBlock(r ingest.Reason, err error, block []byte, n int) {
	c.p.Pipeline.Reject(c.p.Counts, c.remote, ingest.Faultf(r, "%v", err), block, n)
}

// reply answers the lines that asked for it.
func (c *conn) reply(n int) {
	for range n {
		if c.mute {
			c.p.Unread.Inc()
			continue
		}
		c.nc.SetWriteDeadline(time.Now().Add(replyTimeout))
		if _, err := c.nc.Write(c.p.Reply); err != nil {
			c.mute = true
			c.p.Unread.Inc()
		}
	}
}

// rejectTail counts a last line without its end. It is not executed: it may be
// cut in the middle of a number.
func (c *conn) rejectTail() {
	if tail := c.buf[:c.end]; len(bytes.TrimSpace(tail)) > 0 {
		c.p.Pipeline.Reject(c.p.Counts, c.remote, ingest.Faultf(ingest.Unterminated, "the connection ended inside this line"), tail, 1)
	}
}
