package carbon

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/gate"
	"varve/internal/ingest"
	"varve/internal/ingest/lines"
	"varve/internal/principal"
	"varve/internal/store"
	"varve/internal/stream"
)

// NewPickleServer returns a server for pickles. cfg must be valid.
func NewPickleServer(p *ingest.Pipeline, cfg Config, o Options) *stream.Server {
	return newServer("pickle", cfg, newPickles(p, cfg, o), o)
}

// decoders is how many pickles are decoded and stored at once. A hostile one may take
// 30 times its length. Senders whose pickles wait for a decoder take turns.
const decoders = 8

// Frames up to smallFrame, and as much of longer ones, are read as they arrive. The rest of a longer one
// needs a place, see largeFrames.
const smallFrame = 64 << 10

// Frames that have arrived together are stored together, up to the buffer of the connection: a sync
// to disk costs as much as some hundred points. Since frames may be empty, mostFrames limits them,
// too.
const mostFrames = 256

// mostInVain is how many frames in a row may be without a point before the connection is closed. No
// real sender sends such frames, and one of four bytes costs as much as some hundred points. A
// frame counts once more for each bytesInVain of its length, since long frames cost more, but at
// most half of mostInVain, so that no single frame closes the connection.
const (
	mostInVain  = 1000
	bytesInVain = 2 << 10
)

// The items of a pickle can share texts through its memo: two bytes of a frame of 1 MiB name a path
// of half a megabyte. So that the work stays in proportion to the length of the frame, a path may be
// as long as a line, and one that is longer than shortPath is examined once for all items of a frame
// that are stored together.
const shortPath = 512

// pickles reads the pickles of connections.
type pickles struct {
	p        *ingest.Pipeline
	proto    *ingest.Protocol
	cfg      Config
	log      *slog.Logger
	received prometheus.Counter
	decoding *gate.Gate // decoders
	decoders sync.Pool  // of *pickle; the garbage collector frees large ones once nobody sends large pickles
	large    *largeFrames

	pathTooLong *ingest.Fault
}

func newPickles(p *ingest.Pipeline, cfg Config, o Options) *pickles {
	h := &pickles{p: p, proto: p.Protocol("pickle"), cfg: cfg, log: o.Logger, received: o.received("pickle"), decoding: gate.New(decoders), large: newLargeFrames(),
		pathTooLong: ingest.Faultf(ingest.NameTooLong, "the path is longer than %d bytes, the longest line that the carbon listener takes", cfg.MaxLine)}
	h.decoders.New = func() any { return new(pickle) }
	h.log = cmp.Or(h.log, slog.New(slog.DiscardHandler))
	return h
}

// ServeConn stores the pickles of a connection until its end.
func (h *pickles) ServeConn(ctx context.Context, nc *stream.Conn) {
	c := &pickleConn{h: h, nc: nc, remote: nc.RemoteAddr().String()}
	if a, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		c.network = principal.Network(a.AddrPort().Addr())
	}
	c.room = h.p.NewRoom(c.remote)
	defer c.room.Hold(0)
	c.in = bufio.NewReaderSize(counted{nc, h.received}, lines.FirstBuffer)
	c.adder = newAdder(h.p, h.proto, c.remote)
	c.fill = c.parse
	for c.next(ctx) && c.store(ctx) {
		c.leaveLarge()
	}
	c.leaveLarge()
}

// counted counts the bytes that are read.
type counted struct {
	io.Reader
	bytes prometheus.Counter
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.bytes.Add(float64(n))
	return n, err
}

// A pickleConn is one client connection.
type pickleConn struct {
	adder
	h       *pickles
	nc      *stream.Conn
	in      *bufio.Reader // of nc
	remote  string
	network netip.Prefix // of remote
	room    *ingest.Room // for a buffer larger than the first

	block []byte      // frames that are stored together, one after the other
	ends  []int       // of the frames in block
	large *largeFrame // the one in block, if it needs a place

	pickle *pickle // decodes, while a block is stored
	loaded int     // the frame whose items pickle has, -1 if none
	items  []value
	err    error // why the frame that is loaded has none

	longPaths map[*byte]examined // longer than shortPath, of the frame that is loaded and the batch that is being filled, by their first byte

	stored place // everything before is in the store, or refused
	filled place // the batch that is being filled ends here
	fill   func() error
}

// An examined path leads to a series, or is refused.
type examined struct {
	alias *ingest.Alias
	fault *ingest.Fault
}

// A place is a position in the block: before an item of a frame.
type place struct {
	frame, item int
	points      bool // the frame had points before here, even if only invalid ones
	inVain      int  // see mostInVain; of the frames before this one
}

var (
	faultLength = ingest.Faultf(ingest.BodyTooLarge, "the pickle is longer than carbon.max_pickle; the connection was closed")
	faultCut    = ingest.Faultf(ingest.Unterminated, "the connection ended inside this pickle")
	faultSlow   = ingest.Faultf(ingest.Unterminated, "this pickle arrived at less than %d KiB per second while others waited for its place among %d large ones; the connection was closed", largeEnough>>10, maxLarge)
	faultInVain = ingest.Faultf(ingest.BadSyntax, "%d frames in a row, or fewer long ones, had no point; the connection was closed", mostInVain)
)

// lengthBytes is the size of the prefix of a frame: its length, big-endian.
const lengthBytes = 4

// next reads a frame, and all others that have arrived with it. It reports whether there was one.
func (c *pickleConn) next(ctx context.Context) bool {
	if c.in.Size() == lines.FirstBuffer && cap(c.block) > lines.FirstBuffer { // there was no room for more
		c.block = nil
	}
	c.block, c.ends = c.block[:0], c.ends[:0]
	var length [lengthBytes]byte
	if n, err := io.ReadFull(c.in, length[:]); err != nil {
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
	if size > smallFrame {
		return c.nextLarge(ctx, int(size))
	}
	if err := c.read(int(size)); err != nil {
		c.cut(err, faultCut)
		return false
	}
	c.ends = append(c.ends, len(c.block))
	c.readMore()
	return true
}

// nextLarge reads a frame that needs a place. It takes the place once it has read what needs none: a
// client that only announces a frame keeps nobody out.
func (c *pickleConn) nextLarge(ctx context.Context, size int) bool {
	if err := c.read(smallFrame); err != nil {
		c.cut(err, faultCut)
		return false
	}
	if c.large = c.h.large.enter(ctx, c.nc, c.network); c.large == nil {
		return false
	}
	err := c.read(size - smallFrame)
	switch inTime := c.h.large.arrived(c.large, err == nil); {
	case !inTime:
		c.cut(err, faultSlow)
		return false
	case err != nil:
		c.cut(err, faultCut)
		return false
	}
	c.ends = append(c.ends, len(c.block))
	return true
}

func (c *pickleConn) leaveLarge() {
	if c.large != nil {
		c.h.large.leave(c.large)
		c.large, c.block = nil, nil
		c.nc.SetReadDeadline(time.Time{})
	}
}

// cut counts a frame that has not arrived completely.
func (c *pickleConn) cut(err error, f *ingest.Fault) {
	c.h.p.Reject(c.h.proto, c.remote, f, c.block, 1)
	c.noteEnd(err)
}

// read reads size bytes into the block. The block grows with the bytes that arrive, not with the
// announced size.
func (c *pickleConn) read(size int) error {
	end := len(c.block) + size
	for len(c.block) < end {
		if len(c.block) == cap(c.block) {
			c.block = slices.Grow(c.block, max(lines.FirstBuffer, cap(c.block)))
		}
		n, err := c.in.Read(c.block[len(c.block):min(end, cap(c.block))])
		c.block = c.block[:len(c.block)+n]
		if c.large != nil {
			c.large.brought.Add(int64(n))
		}
		if err != nil && len(c.block) < end {
			return err
		}
	}
	return nil
}

// readMore reads the frames that are completely in the buffer.
func (c *pickleConn) readMore() {
	for len(c.ends) < mostFrames && c.in.Buffered() >= lengthBytes {
		length, _ := c.in.Peek(lengthBytes)
		size := int64(binary.BigEndian.Uint32(length))
		if size > int64(c.h.cfg.MaxPickle) || size > int64(c.in.Buffered()-lengthBytes) {
			break
		}
		c.in.Discard(lengthBytes)
		_ = c.read(int(size)) // from the buffer
		c.ends = append(c.ends, len(c.block))
	}
	most := int(c.h.cfg.ReadBuffer)
	if c.in.Size() < most && len(c.block) >= lines.FirstBuffer/2 && c.room.Hold(int64(most)) {
		rest, _ := c.in.Peek(c.in.Buffered())
		c.in = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(rest)), counted{c.nc, c.h.received}), most)
	}
}

// noteEnd logs an unusual end.
func (c *pickleConn) noteEnd(err error) {
	if !errors.Is(err, io.ErrUnexpectedEOF) { // in the middle of a frame, which is counted
		lines.NoteEnd(c.h.log, "pickle", c.remote, err)
	}
}

// store decodes the frames of the block and offers their points to the store until it accepts them.
// It reports whether the connection continues.
func (c *pickleConn) store(ctx context.Context) bool {
	c.nc.Busy()
	defer c.nc.Idle()
	if _, _, err := c.h.decoding.Enter(ctx, c.network, 1); err != nil {
		return false
	}
	c.pickle = c.h.decoders.Get().(*pickle)
	defer c.release()
	c.loaded, c.stored = -1, place{inVain: c.stored.inVain}
	for c.stored.frame < len(c.ends) {
		if !c.offer(ctx) {
			return false
		}
	}
	return c.stored.inVain < mostInVain
}

func (c *pickleConn) frame(i int) []byte {
	if i == 0 {
		return c.block[:c.ends[0]]
	}
	return c.block[c.ends[i-1]:c.ends[i]]
}

// load decodes a frame, unless that was done.
func (c *pickleConn) load(i int) {
	if c.loaded != i {
		c.loaded = i
		clear(c.longPaths)
		c.items, c.err = c.pickle.load(c.frame(i))
	}
}

// release returns the decoder and its memory to the pool. During a flood, allocating one for each
// pickle would cost ten times as much as decoding.
func (c *pickleConn) release() {
	c.pickle.reset(nil)
	c.h.decoders.Put(c.pickle)
	c.pickle, c.items, c.loaded, c.longPaths = nil, nil, -1, nil
	c.h.decoding.Leave(c.network, 1)
}

// offer stores a batch of points. It reports whether the connection continues.
func (c *pickleConn) offer(ctx context.Context) bool {
	err := c.h.p.Offer(ctx, c.h.cfg.RetryFor, func() error {
		c.filled = c.stored
		_, err := c.w.Ingest(ctx, c.most(), c.fill)
		return err
	})
	part := ingest.PartOf(err)
	switch {
	case err == nil:
	case part != nil:
		c.refuse(ingest.Unavailable, err, part.Refused)
	case errors.As(err, new(*store.InputError)):
		if c.filled == c.stored { // nothing was examined: the next one is the culprit
			c.filled.item++
		}
		c.refuse(ingest.Refused, err, c.count(c.stored, c.filled))
	default:
		rest := c.count(c.stored, place{frame: len(c.ends)})
		c.refuse(ingest.Unavailable, err, rest)
		c.h.log.Error("pickle: points not stored, closing the connection", "remote", c.remote, "points", rest, "error", err)
		return false
	}
	c.stored = c.filled
	return true
}

// most is how many points the next batch may have: each takes more than a byte.
func (c *pickleConn) most() int {
	from := 0
	if c.stored.frame > 0 {
		from = c.ends[c.stored.frame-1]
	}
	return min(len(c.block)-from, ingest.BlockSamples)
}

// count returns how many items there are between two places. A frame that cannot be decoded
// counts as one.
func (c *pickleConn) count(from, to place) (n int) {
	for ; from.frame < to.frame; from = (place{frame: from.frame + 1}) {
		if c.load(from.frame); c.err != nil {
			n++
		}
		n += max(0, len(c.items)-from.item)
	}
	return n + max(0, to.item-from.item)
}

func (c *pickleConn) refuse(r ingest.Reason, err error, points int) {
	c.h.p.Reject(c.h.proto, c.remote, ingest.Faultf(r, "%v", err), c.frame(c.stored.frame), points)
}

// parse adds points to a batch until it is full or the block ends.
func (c *pickleConn) parse() error {
	nowMS := c.h.p.Now().UnixMilli()
	c.filled = c.stored
	clear(c.longPaths) // their series may be void by now
	for at := &c.filled; at.frame < len(c.ends); {
		if c.load(at.frame); c.err != nil {
			c.w.Reject(ingest.Faultf(ingest.BadSyntax, "the pickle is refused: %v", c.err), c.frame(at.frame))
		}
		for ; at.item < len(c.items); at.item++ {
			if c.filled != c.stored && c.w.Full() {
				return nil
			}
			pt, f := c.pickle.point(c.items[at.item], nowMS)
			at.points = at.points || pt.path != nil
			if f != nil {
				c.w.Reject(f, pt.path)
				continue
			}
			if err := c.addPoint(pt); err != nil {
				return err
			}
		}
		c.passFrame()
	}
	return nil
}

// addPoint adds a point to the batch, or refuses it. An error ends the block.
func (c *pickleConn) addPoint(pt point) error {
	switch {
	case len(pt.path) <= shortPath:
		return c.add(pt, pt.path)
	case len(pt.path) > int(c.h.cfg.MaxLine):
		c.w.Reject(c.h.pathTooLong, pt.path)
		return nil
	}
	first := &pt.path[0]
	is, known := c.longPaths[first]
	if !known {
		var err error
		if is.alias, is.fault, err = c.find(pt.path); err != nil {
			return err
		}
		if c.longPaths == nil {
			c.longPaths = map[*byte]examined{}
		}
		c.longPaths[first] = is
	}
	if is.fault != nil {
		c.w.Reject(is.fault, pt.path)
	} else {
		c.addTo(is.alias, pt.ms, pt.value, pt.path)
	}
	return nil
}

// passFrame goes on to the next frame, and to the end of the block if too many had no point.
func (c *pickleConn) passFrame() {
	at := &c.filled
	passed, next := at.frame, place{frame: at.frame + 1}
	if !at.points {
		next.inVain = at.inVain + 1 + min(len(c.frame(passed))/bytesInVain, mostInVain/2)
	}
	if next.inVain >= mostInVain {
		c.w.Reject(faultInVain, c.frame(passed))
		next.frame = len(c.ends)
	}
	*at = next
}
