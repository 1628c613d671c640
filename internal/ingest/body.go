package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"

	"varve/internal/gate"
	"varve/internal/principal"
	"varve/internal/store"
)

// notGzip is KairosDB's text for a body that is declared as compressed but is not.
const notGzip = "Not in GZIP format"

// A Body is a request's body in memory, unpacked.
type Body struct {
	Bytes []byte
	share *Share
}

// Release gives the memory back. Bytes must not be used after it.
func (b *Body) Release() {
	b.share.Release()
	keepBuffer(b.Bytes)
	b.Bytes = nil
}

// A Share is what one request holds of body_memory. A front end that reads a body in pieces holds
// one. It is for use by one goroutine.
type Share struct {
	p      *Pipeline
	sender netip.Prefix
	gate   *gate.Gate // where taken comes from: small until the share outgrows it or finds it full
	taken  int64
}

// NewShare returns a share of a sender, given by address and port, that holds nothing. It must be
// released.
func (p *Pipeline) NewShare(remote string) *Share {
	return &Share{p: p, sender: principal.NetworkOf(remote), gate: p.smallBodies}
}

// Grow makes the share hold bytes in all, if it holds less. It waits for room for at most
// busy_wait, and then returns ErrBusy.
func (s *Share) Grow(ctx context.Context, bytes int64) error {
	_, err := s.grow(ctx, bytes)
	return err
}

func (s *Share) grow(ctx context.Context, bytes int64) (waited bool, err error) {
	if bytes <= s.taken {
		return false, nil
	}
	if s.gate == s.p.smallBodies {
		if bytes <= s.p.smallBody && s.gate.TryEnter(s.sender, bytes-s.taken) {
			s.taken = bytes
			return false, nil
		}
		return s.moveOn(ctx, bytes)
	}
	taken, waited, err := s.take(ctx, bytes-s.taken)
	s.taken += taken
	return waited, err
}

// moveOn takes all bytes from the gate of bodies of any size, and returns those taken from the gate
// of small ones.
func (s *Share) moveOn(ctx context.Context, bytes int64) (waited bool, err error) {
	taken, waited, err := s.take(ctx, bytes)
	if err != nil {
		return waited, err
	}
	s.Release()
	s.gate, s.taken = s.p.bodies, taken
	return waited, nil
}

func (s *Share) take(ctx context.Context, n int64) (taken int64, waited bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.p.cfg.BusyWait)
	defer cancel()
	taken, waited, err = s.p.bodies.Enter(ctx, s.sender, n)
	if waited {
		s.p.metrics.waits.WithLabelValues("bodies").Inc()
	}
	if err != nil {
		return 0, waited, ErrBusy
	}
	return taken, waited, nil
}

// Release gives the memory back.
func (s *Share) Release() {
	s.gate.Leave(s.sender, s.taken)
	s.gate, s.taken = s.p.smallBodies, 0
}

// Buffers of these sizes are pooled. A body begins with the first size and takes the
// next one when its buffer is full, so it holds at most four times the bytes that
// have arrived; beyond the last size, twice.
var (
	bufferSizes = [...]int{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}
	bufferPools [len(bufferSizes)]sync.Pool
	gzipPool    sync.Pool // of *gzip.Reader
)

// newBuffer returns an empty buffer of at least size bytes.
func newBuffer(size int) []byte {
	for i, n := range bufferSizes {
		if size > n {
			continue
		}
		if b, ok := bufferPools[i].Get().(*[]byte); ok {
			return *b
		}
		return make([]byte, 0, n)
	}
	return make([]byte, 0, size)
}

func keepBuffer(b []byte) {
	for i, n := range bufferSizes {
		if cap(b) == n {
			b = b[:0]
			bufferPools[i].Put(&b)
		}
	}
}

// nextSize returns the size of the buffer after one of size bytes, for a body of at most the given
// length. One byte more is needed to notice the end.
func nextSize(size int, most int64) int {
	next := 2 * int64(size)
	for _, n := range bufferSizes {
		if n > size {
			next = int64(n)
			break
		}
	}
	return int(max(int64(size)+1, min(next, most+1)))
}

// ReadBody reads a request's body whole, unpacking it when gzipped. The announced
// length serves only to refuse a body: memory is taken for bytes that have arrived.
// A gzipped body is unpacked once all of it has arrived, so that a slow sender does
// not hold the unpacked memory. Errors are a *Fault (too large, too slow, not gzip,
// cut off), or ErrBusy when body_memory is used up.
func (p *Pipeline) ReadBody(w http.ResponseWriter, r *http.Request, gzipped bool) (*Body, error) {
	most := int64(p.cfg.MaxBody())
	if r.ContentLength > most {
		return nil, p.bodyFault(&tooLong{bodyBytes, most, r.ContentLength, readingBody}, false)
	}
	limit := &tooLong{bodyBytes, most, most + 1, readingBody}
	if !gzipped && most > int64(p.cfg.maxUnpacked()) {
		limit = p.unpackedTooLong()
	}
	pace := newPace(r.Body, http.NewResponseController(w))
	defer pace.stop()
	length := r.ContentLength
	if length < 0 {
		length = limit.max
	}
	wire, err := p.fill(r.Context(), r.RemoteAddr, pace, length, limit)
	if err != nil {
		return nil, p.bodyFault(err, false)
	}
	if !gzipped {
		return wire, nil
	}
	pace.stop()
	defer wire.Release()
	return p.unpack(r.Context(), r.RemoteAddr, wire.Bytes)
}

func (p *Pipeline) unpack(ctx context.Context, remote string, packed []byte) (*Body, error) {
	zr, err := newGzipReader(bytes.NewReader(packed))
	if err != nil {
		return nil, &Fault{Reason: BadSyntax, Text: notGzip}
	}
	defer gzipPool.Put(zr)
	limit := p.unpackedTooLong()
	b, err := p.fill(ctx, remote, zr, limit.max, limit)
	if err != nil {
		return nil, p.bodyFault(err, true)
	}
	return b, nil
}

func newGzipReader(src io.Reader) (*gzip.Reader, error) {
	if zr, ok := gzipPool.Get().(*gzip.Reader); ok {
		if err := zr.Reset(src); err != nil {
			gzipPool.Put(zr)
			return nil, err
		}
		return zr, nil
	}
	return gzip.NewReader(src)
}

// A tooLong is a body beyond a limit.
type tooLong struct {
	limit     string
	max, need int64
	doing     string
}

// Limits of bodies.
const (
	bodyBytes     = "bytes of a body"
	unpackedBytes = "bytes of an unpacked body"
)

const readingBody = "reading the request body, which may take a quarter of ingest.body_memory; send it in smaller pieces"

func (e *tooLong) Error() string { return e.limit }

func (p *Pipeline) unpackedTooLong() *tooLong {
	most := int64(p.cfg.maxUnpacked())
	return &tooLong{unpackedBytes, most, most + 1, "unpacking the request body, which may take half of ingest.body_memory; send it in smaller pieces"}
}

// fill reads src, from a sender, into memory. most is the expected length, limit the largest.
func (p *Pipeline) fill(ctx context.Context, remote string, src io.Reader, most int64, limit *tooLong) (*Body, error) {
	b := &Body{share: p.NewShare(remote)}
	if _, err := b.grow(ctx, bufferSizes[0]); err != nil {
		return nil, err
	}
	for {
		if len(b.Bytes) == cap(b.Bytes) {
			waited, err := b.grow(ctx, nextSize(cap(b.Bytes), min(most, limit.max)))
			if err != nil {
				b.Release()
				return nil, err
			}
			if pace, ok := src.(*pace); ok && waited {
				pace.restart() // the sender did not cause the wait
			}
		}
		n, err := src.Read(b.Bytes[len(b.Bytes):cap(b.Bytes)])
		b.Bytes = b.Bytes[:len(b.Bytes)+n]
		if int64(len(b.Bytes)) > limit.max {
			err = limit
		}
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			b.Release()
			return nil, err
		}
	}
}

// grow gives b a buffer of size bytes. It waits for room for at most busy_wait.
func (b *Body) grow(ctx context.Context, size int) (waited bool, err error) {
	if waited, err = b.share.grow(ctx, int64(size)); err != nil {
		return waited, err
	}
	larger := append(newBuffer(size), b.Bytes...)
	keepBuffer(b.Bytes)
	b.Bytes = larger
	return waited, nil
}

// Each paceBytes of a body must arrive within paceTime, so that slow senders do not
// hold memory that others need. The last piece may be shorter.
const (
	paceBytes = 32 << 10
	paceTime  = 10 * time.Second
)

// errSlow is the fault of a body that arrives more slowly.
var errSlow = fmt.Errorf("less than %d KiB of the request body arrived in %s", paceBytes>>10, paceTime)

// A pace reads a body, and fails if the sender is too slow.
type pace struct {
	src     io.Reader
	control *http.ResponseController
	left    int // bytes until the time starts again
	timer   *time.Timer

	mu      sync.Mutex
	late    bool
	stopped bool
}

func newPace(src io.Reader, control *http.ResponseController) *pace {
	p := &pace{src: src, control: control, left: paceBytes}
	p.timer = time.AfterFunc(paceTime, p.expire)
	return p
}

// expire makes a blocked Read return. After stop it does nothing, because the connection may serve
// another request by then.
func (p *pace) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.late = true
		p.control.SetReadDeadline(time.Now())
	}
}

func (p *pace) isLate() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late
}

func (p *pace) Read(b []byte) (int, error) {
	n, err := p.src.Read(b)
	if err != io.EOF && p.isLate() {
		return n, errSlow
	}
	if p.left -= n; p.left <= 0 {
		p.restart()
	}
	return n, err
}

func (p *pace) restart() {
	p.left = paceBytes
	if p.timer.Stop() {
		p.timer.Reset(paceTime)
	}
}

// stop ends the supervision. It may be called twice.
func (p *pace) stop() {
	p.timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.late && !p.stopped {
		p.control.SetReadDeadline(time.Time{}) // expire has set one just as the body ended
	}
	p.stopped = true
}

// bodyFault tells the sender's faults from broken connections.
func (p *Pipeline) bodyFault(err error, unpacking bool) error {
	var limit *tooLong
	switch {
	case errors.Is(err, ErrBusy):
		return err
	case errors.As(err, &limit):
		return limitFault(BodyTooLarge, limit.limit, limit.max, limit.need, limit.doing)
	case errors.Is(err, errSlow):
		return &Fault{Reason: TooSlow, Text: err.Error()}
	case unpacking && (errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(flate.CorruptInputError))):
		return Faultf(BadSyntax, "compressed body is damaged: %v", err)
	}
	return &Fault{Reason: Unterminated, Text: fmt.Sprintf("read request body: %v", err), Err: err}
}

// StoreContext is the context in which a request whose body has arrived is
// stored: a client that closes its connection after the last byte loses
// nothing. It ends after store_wait.
func (p *Pipeline) StoreContext(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), p.cfg.StoreWait)
}

// Fail counts a request that ended with err, whose body is refused as a whole.
func (p *Pipeline) Fail(proto *Protocol, r *http.Request, err error) {
	var f *Fault
	if !errors.As(err, &f) {
		f = &Fault{Reason: Unavailable, Text: err.Error(), Err: err}
		if errors.As(err, new(*store.InputError)) {
			f.Reason = Refused
		}
	}
	p.Reject(proto, r.RemoteAddr, f, nil, 1)
}
