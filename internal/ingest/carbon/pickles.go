package carbon

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/ingest"
	"varve/internal/ingest/lines"
	"varve/internal/store"
	"varve/internal/stream"
)

// NewPickleServer returns a server that takes pickles. cfg must be valid.
func NewPickleServer(p *ingest.Pipeline, cfg Config, o Options) *stream.Server {
	return newServer("pickle", cfg, newPickles(p, cfg, o), o)
}

// decoders is how many pickles are decoded and stored at once. A hostile one may take
// 30 times its length.
const decoders = 8

// Frames up to smallFrame are read as they come. Of longer ones at most maxLarge are in
// memory at once, and each has to arrive in arriveWithin; others wait in their sockets.
const (
	smallFrame   = 64 << 10
	maxLarge     = 64
	arriveWithin = 30 * time.Second
)

// mostInVain is after how many frames in a row without a point a connection is closed. No
// sender has such frames, and four bytes of one cost as much as some hundred of points.
const mostInVain = 1000

// pickles takes the pickles of connections.
type pickles struct {
	p        *ingest.Pipeline
	proto    *ingest.Protocol
	cfg      Config
	log      *slog.Logger
	received prometheus.Counter
	free     chan *pickle  // decoders that are not in use
	large    chan struct{} // has an element for each large frame that is in memory
}

func newPickles(p *ingest.Pipeline, cfg Config, o Options) *pickles {
	h := &pickles{p: p, proto: p.Protocol("pickle"), cfg: cfg, log: o.Logger, received: o.received("pickle"), free: make(chan *pickle, decoders), large: make(chan struct{}, maxLarge)}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	for range decoders {
		h.free <- new(pickle)
	}
	return h
}

// ServeConn stores the pickles of a connection until its end.
func (h *pickles) ServeConn(ctx context.Context, nc *stream.Conn) {
	c := &pickleConn{h: h, nc: nc, remote: nc.RemoteAddr().String()}
	c.adder = newAdder(h.p, h.proto, c.remote)
	c.fill = c.parse
	for c.next(ctx) && c.store(ctx) {
		c.leaveLarge()
	}
	c.leaveLarge()
}

// enterLarge waits until a large frame may be read. It reports whether it may.
func (c *pickleConn) enterLarge(ctx context.Context) bool {
	select {
	case c.h.large <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	c.isLarge = true
	c.nc.SetReadDeadline(time.Now().Add(arriveWithin))
	return true
}

func (c *pickleConn) leaveLarge() {
	if c.isLarge {
		c.isLarge, c.frame = false, nil
		<-c.h.large
		c.nc.SetReadDeadline(time.Time{})
	}
}

// A pickleConn is one client connection.
type pickleConn struct {
	adder
	h      *pickles
	nc     *stream.Conn
	remote string
	frame  []byte

	isLarge bool // c holds a place of h.large
	inVain  int  // frames without a point since the last with one

	pickle *pickle // while a frame is stored
	items  []value // of it, those that are not stored yet
	done   int     // of items: in the batch that is being filled, or refused
	fill   func() error
}

var (
	faultLength = ingest.Faultf(ingest.BodyTooLarge, "the pickle is longer than carbon.max_pickle; the connection was closed")
	faultCut    = ingest.Faultf(ingest.Unterminated, "the connection ended inside this pickle")
)

// next reads a frame. It reports whether there was one.
func (c *pickleConn) next(ctx context.Context) bool {
	var length [4]byte
	n, err := io.ReadFull(c.nc, length[:])
	c.h.received.Add(float64(n))
	if err != nil {
		if n > 0 {
			c.h.p.Reject(c.h.proto, c.remote, faultCut, length[:n], 1)
		}
		c.noteEnd(err)
		return false
	}
	size := int64(binary.BigEndian.Uint32(length[:]))
	if size > int64(c.h.cfg.MaxPickle) {
		c.h.p.Reject(c.h.proto, c.remote, faultLength, length[:], 1)
		return false
	}
	if size > smallFrame && !c.enterLarge(ctx) {
		return false
	}
	if err := c.read(int(size)); err != nil {
		c.h.p.Reject(c.h.proto, c.remote, faultCut, c.frame, 1)
		c.noteEnd(err)
		return false
	}
	return true
}

// read reads a frame of a size. Its buffer grows with what arrives, not with what was
// announced.
func (c *pickleConn) read(size int) error {
	c.frame = c.frame[:0]
	for len(c.frame) < size {
		if len(c.frame) == cap(c.frame) {
			c.frame = slices.Grow(c.frame, max(lines.FirstBuffer, cap(c.frame)))
		}
		n, err := c.nc.Read(c.frame[len(c.frame):min(size, cap(c.frame))])
		c.h.received.Add(float64(n))
		c.frame = c.frame[:len(c.frame)+n]
		if err != nil && len(c.frame) < size {
			return err
		}
	}
	return nil
}

// noteEnd logs an end that is not one of the usual.
func (c *pickleConn) noteEnd(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) || lines.IsReset(err) {
		return
	}
	c.h.log.Info("pickle: connection ended", "remote", c.remote, "error", err)
}

// store decodes a frame and offers its points to the store until it takes them. It
// reports whether the connection goes on.
func (c *pickleConn) store(ctx context.Context) bool {
	c.nc.Busy()
	defer c.nc.Idle()
	select {
	case c.pickle = <-c.h.free:
	case <-ctx.Done():
		return false
	}
	defer c.giveBack()
	items, err := c.pickle.load(c.frame)
	if err != nil || len(items) == 0 {
		return c.passOver(err)
	}
	c.inVain = 0
	for c.items = items; len(c.items) > 0; c.items = c.items[c.done:] {
		if !c.offer(ctx) {
			return false
		}
	}
	return true
}

// passOver leaves out a frame without points, which err refuses if it is not nil. It
// reports whether the connection goes on.
func (c *pickleConn) passOver(err error) bool {
	c.inVain++
	f := ingest.Faultf(ingest.BadSyntax, "the pickle is refused: %v", err)
	switch {
	case c.inVain == mostInVain:
		f = ingest.Faultf(ingest.BadSyntax, "%d frames in a row had no point; the connection was closed", mostInVain)
	case err == nil:
		return true
	}
	c.h.p.Reject(c.h.proto, c.remote, f, c.frame, 1)
	return c.inVain < mostInVain
}

// largestKept bounds the decoders that are kept, in values.
const largestKept = 1 << 16

func (c *pickleConn) giveBack() {
	p := c.pickle
	if cap(p.stack)+cap(p.memo)+cap(p.slab)+cap(p.lists) > largestKept {
		p = new(pickle)
	}
	p.b = nil
	c.pickle, c.items = nil, nil
	c.h.free <- p
}

// offer stores a batch of items. It reports whether the connection goes on.
func (c *pickleConn) offer(ctx context.Context) bool {
	wait := 10 * time.Millisecond
	giveUp := c.h.p.Now().Add(c.h.cfg.RetryFor)
	for {
		c.done = 0
		_, err := c.w.Ingest(ctx, min(len(c.items), ingest.BlockSamples), c.fill)
		if err == nil {
			return true
		}
		if input := (*store.InputError)(nil); errors.As(err, &input) {
			c.done = max(c.done, 1)
			c.refuse(ingest.Refused, err, c.done)
			return true
		}
		if ctx.Err() != nil || ingest.OutcomeOf(err) == ingest.Internal || !c.h.p.Now().Before(giveUp) {
			c.refuse(ingest.Unavailable, err, len(c.items))
			c.h.log.Error("pickle: points not stored, closing the connection", "remote", c.remote, "points", len(c.items), "error", err)
			return false
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, time.Second)
	}
}

func (c *pickleConn) refuse(r ingest.Reason, err error, points int) {
	c.h.p.Reject(c.h.proto, c.remote, ingest.Faultf(r, "%v", err), c.frame, points)
}

// parse adds items to a batch until it is full.
func (c *pickleConn) parse() error {
	nowMS := c.h.p.Now().UnixMilli()
	for c.done = 0; c.done < len(c.items) && (c.done == 0 || !c.w.Full()); c.done++ {
		pt, f := c.pickle.point(c.items[c.done], nowMS)
		if f != nil {
			c.w.Reject(f, pt.path)
			continue
		}
		if err := c.add(pt, pt.path); err != nil {
			return err
		}
	}
	return nil
}
