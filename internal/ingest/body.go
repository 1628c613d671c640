package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"

	"varve/internal/store"
)

// notGzip is KairosDB's text for a body that is said to be compressed and is
// not.
const notGzip = "Not in GZIP format"

// A Body is a request's body in memory, unpacked.
type Body struct {
	Bytes []byte
	p     *Pipeline
	taken int64 // of the gate
}

// Release gives the memory back. Bytes must not be used after it.
func (b *Body) Release() {
	b.p.bodies.leave(b.taken)
	if cap(b.Bytes) <= bodyKept {
		buf := b.Bytes[:0]
		bodyPool.Put(&buf)
	}
	b.Bytes, b.taken = nil, 0
}

const (
	bodyStep = 64 << 10 // first buffer; it doubles from there
	bodyKept = 1 << 20  // larger buffers go back to the heap
)

var (
	bodyPool = sync.Pool{New: func() any { buf := make([]byte, 0, bodyStep); return &buf }}
	gzipPool sync.Pool // of *gzip.Reader
)

// ReadBody reads a request's body whole, unpacking it when gzipped. Errors are
// a *Fault (too large, not gzip, cut off), or ErrBusy when body_memory is used
// up.
func (p *Pipeline) ReadBody(w http.ResponseWriter, r *http.Request, gzipped bool) (*Body, error) {
	src := io.Reader(http.MaxBytesReader(w, r.Body, int64(p.cfg.MaxBodyBytes)))
	if gzipped {
		zr, err := newGzipReader(src)
		if err != nil {
			return nil, p.bodyFault(err, true)
		}
		defer gzipPool.Put(zr)
		src = zr
	}
	b, err := p.newBody(r.Context(), r.ContentLength, gzipped)
	if err != nil {
		return nil, err
	}
	if err := b.fill(src); err != nil {
		b.Release()
		return nil, p.bodyFault(err, gzipped)
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

// newBody makes room for the length that the client announces, which is not
// believed beyond the limit.
func (p *Pipeline) newBody(ctx context.Context, length int64, gzipped bool) (*Body, error) {
	size := int64(bodyStep)
	if !gzipped && length > 0 {
		size = min(length+1, int64(p.cfg.MaxUnpackedBytes))
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.BusyWait)
	defer cancel()
	taken, waited, err := p.bodies.enter(ctx, size)
	if waited {
		p.metrics.waits.WithLabelValues("bodies").Inc()
	}
	if err != nil {
		return nil, ErrBusy
	}
	b := &Body{p: p, taken: taken}
	b.Bytes = *bodyPool.Get().(*[]byte)
	if int64(cap(b.Bytes)) < size {
		b.Bytes = make([]byte, 0, size)
	}
	return b, nil
}

// errTooLong is the fault of unpacking beyond max_unpacked_bytes.
var errTooLong = errors.New("unpacked body is too long")

func (b *Body) fill(src io.Reader) error {
	limit := int64(b.p.cfg.MaxUnpackedBytes)
	for {
		if len(b.Bytes) == cap(b.Bytes) {
			if err := b.grow(); err != nil {
				return err
			}
		}
		n, err := src.Read(b.Bytes[len(b.Bytes):cap(b.Bytes)])
		b.Bytes = b.Bytes[:len(b.Bytes)+n]
		if int64(len(b.Bytes)) > limit {
			return errTooLong
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (b *Body) grow() error {
	larger := 2 * cap(b.Bytes)
	if need := int64(larger) - b.taken; need > 0 {
		if !b.p.bodies.tryGrow(need) {
			return ErrBusy
		}
		b.taken += need
	}
	buf := make([]byte, len(b.Bytes), larger)
	copy(buf, b.Bytes)
	b.Bytes = buf
	return nil
}

// bodyFault tells the sender's faults from broken connections.
func (p *Pipeline) bodyFault(err error, gzipped bool) error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, ErrBusy):
		return err
	case errors.As(err, &tooLarge):
		return limitFault(BodyTooLarge, "ingest.max_body_bytes", tooLarge.Limit, tooLarge.Limit+1, "reading the request body; send it in smaller pieces")
	case errors.Is(err, errTooLong):
		limit := int64(p.cfg.MaxUnpackedBytes)
		return limitFault(BodyTooLarge, "ingest.max_unpacked_bytes", limit, limit+1, "unpacking the request body; send it in smaller pieces")
	case gzipped && (errors.Is(err, gzip.ErrHeader) || errors.Is(err, io.EOF)):
		return &Fault{Reason: BadSyntax, Text: notGzip}
	case gzipped && (errors.Is(err, gzip.ErrChecksum) || errors.Is(err, io.ErrUnexpectedEOF) || isCorrupt(err)):
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

// An Outcome says how a front end answers an error of Ingest or ReadBody.
type Outcome int

const (
	Busy     Outcome = iota // 503: try again
	Caller                  // 4xx: the sender's fault
	Internal                // 500
)

// Fail counts a request that ended with err, whose body is refused as a whole,
// and says how to answer it.
func (p *Pipeline) Fail(proto *Protocol, r *http.Request, err error) Outcome {
	outcome := OutcomeOf(err)
	var f *Fault
	if !errors.As(err, &f) {
		f = &Fault{Reason: Unavailable, Text: err.Error(), Err: err}
		if outcome == Caller {
			f.Reason = Refused
		}
	}
	p.Reject(proto, r.RemoteAddr, f, nil, 1)
	return outcome
}

// OutcomeOf sorts errors by whose fault they are.
func OutcomeOf(err error) Outcome {
	var (
		fault       *Fault
		input       *store.InputError
		limit       *store.LimitError
		unavailable *store.UnavailableError
	)
	switch {
	case errors.As(err, &fault), errors.As(err, &input):
		return Caller
	case errors.Is(err, ErrBusy), errors.Is(err, store.ErrClosed), errors.As(err, &unavailable), errors.As(err, &limit),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Busy
	}
	return Internal
}

func isCorrupt(err error) bool {
	var corrupt flate.CorruptInputError
	return errors.As(err, &corrupt)
}
