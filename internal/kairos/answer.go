package kairos

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"

	"varve/internal/failure"
	"varve/internal/httpapi"
	"varve/internal/kairos/agg"
	"varve/internal/query"
)

const (
	// minGzipSize is the size from which answers are compressed, as in KairosDB.
	minGzipSize = 64

	// flushSize is how much of an answer is buffered between sends.
	flushSize = 64 << 10

	// partSize is the length of the parts of an answer that is held back. A single
	// buffer that grows to 16 MiB would leave as much garbage behind, and collecting it
	// would delay other requests.
	partSize = 256 << 10

	// partRoom is left free at the end of a part, for what is written between two
	// checks of the buffer.
	partRoom = 2 * encodedAtOnce * pointRoom
)

// An answer is a JSON body under construction. It is held back until it is complete or
// larger than max; from then on it is sent as it grows.
type answer struct {
	w    http.ResponseWriter
	gzip bool // the client accepts gzip
	max  int
	full [][]byte // parts held back, before buf
	held int64    // bytes in full
	buf  []byte
	gone int64    // bytes sent
	run  *agg.Run // if it ends early, sending ends too; nil without a query, and after its end

	sent   bool      // the header was sent
	out    io.Writer // writes to w, once the header was sent
	zip    *gzip.Writer
	zipped *bufio.Writer
	packed bool  // the held-back part is compressed
	plain  int64 // length before compression

	memory query.Unsent // memory that the answer holds until it is sent
}

func newAnswer(w http.ResponseWriter, r *http.Request, maxBuffer int) *answer {
	return &answer{w: w, gzip: acceptsGzip(r.Header.Get("Accept-Encoding")), max: maxBuffer}
}

// keptBuffer is the largest buffer that is reused for another answer.
const keptBuffer = 2 * partSize

// Buffers and compressors of answers are pooled, since without reuse they soon become
// garbage. An answer begins with a small buffer: with a large pooled buffer, a small answer would have to wait
// for memory that it does not need.
var (
	smalls      = sync.Pool{New: func() any { return new([]byte) }} // of at most freeBuffer
	buffers     = sync.Pool{New: func() any { b := make([]byte, 0, partSize); return &b }}
	compressors = sync.Pool{New: func() any {
		z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
		return z
	}}
)

// borrow gives a a small pooled buffer, until release.
func (a *answer) borrow() { a.buf = (*smalls.Get().(*[]byte))[:0] }

// borrowPart gives a a buffer for a part.
func (a *answer) borrowPart() { a.buf = (*buffers.Get().(*[]byte))[:0] }

func (a *answer) release() {
	a.memory.Free()
	for _, part := range a.full {
		keep(part)
	}
	keep(a.buf)
	a.full, a.buf = nil, nil
	if a.zip != nil {
		compressors.Put(a.zip)
		a.zip = nil
	}
}

func keep(buffer []byte) {
	switch n := cap(buffer); {
	case n == 0 || n > keptBuffer:
	case n <= freeBuffer:
		smalls.Put(&buffer)
	case n >= partSize:
		buffers.Put(&buffer)
	}
}

// cut begins a new part if the current one is nearly full.
func (a *answer) cut() {
	if a.sent || len(a.buf) < partSize-partRoom {
		a.grow(groupRoom)
		return
	}
	a.full, a.held = append(a.full, a.buf), a.held+int64(len(a.buf))
	a.borrowPart()
}

// groupRoom is more than most groups need besides their points. Each check of the buffer leaves this much
// room.
const groupRoom = 1 << 10

// grow makes room for n more bytes. A small buffer doubles until it has exactly freeBuffer bytes, which copies
// each byte once or twice, and is then replaced by a buffer for a part. append would grow it to other sizes,
// and buffers of sizes in between are not reused.
func (a *answer) grow(n int) {
	size := len(a.buf) + n
	switch small := a.buf; {
	case size <= cap(a.buf):
	case size <= freeBuffer:
		a.buf = append(make([]byte, 0, min(2*size, freeBuffer)), small...)
	case cap(a.buf) < partSize:
		a.borrowPart()
		a.buf = append(a.buf, small...)
		keep(small)
	default:
		a.buf = slices.Grow(a.buf, size)
	}
}

// A position is a place in an answer that is held back.
type position struct{ part, at int }

func (a *answer) position() position { return position{len(a.full), len(a.buf)} }

// insert puts text at a position.
func (a *answer) insert(p position, text []byte) {
	to := &a.buf
	if p.part < len(a.full) {
		to = &a.full[p.part]
		a.held += int64(len(text))
	}
	*to = slices.Insert(*to, p.at, text...)
}

// freeBuffer is the size up to which an answer's buffer is not charged: most answers
// need no more.
const freeBuffer = 64 << 10

// charge reserves the memory by which the answer has grown.
func (a *answer) charge() error {
	size := a.held + int64(cap(a.buf))
	switch {
	case size <= freeBuffer:
		return nil
	case a.run != nil:
		return a.memory.AtLeastOf(a.run.Session, size)
	}
	return a.memory.AtLeast(size)
}

// since returns the parts from a position on.
func (a *answer) since(p position) [][]byte {
	parts := append(slices.Clone(a.full[p.part:]), a.buf)
	parts[0] = parts[0][p.at:]
	return parts
}

// acceptsGzip reads an Accept-Encoding header.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(part, ";")
		if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
			continue
		}
		_, q, has := strings.Cut(params, "q=")
		if !has {
			return true
		}
		weight, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
		return err == nil && weight > 0
	}
	return false
}

// total is the size of the answer so far, before compression.
func (a *answer) total() int64 {
	if a.packed {
		return a.plain
	}
	return a.gone + a.unsent()
}

func (a *answer) unsent() int64 { return a.held + int64(len(a.buf)) }

// spills reports whether enough is buffered for spill.
func (a *answer) spills() bool {
	return a.unsent() > int64(a.max) || (a.sent && len(a.buf) >= flushSize)
}

// advance charges the memory by which the answer has grown. It sends the answer if that
// is due; otherwise it lets other queries have their turn.
func (a *answer) advance() error {
	a.cut()
	if err := a.charge(); err != nil {
		return err
	}
	if a.spills() {
		return a.spill()
	}
	if a.run != nil {
		return a.run.Yield()
	}
	return nil
}

// spill begins or continues to send.
func (a *answer) spill() error {
	a.begin(a.gzip)
	return a.flush()
}

func (a *answer) begin(compressed bool) {
	if a.sent {
		return
	}
	a.sent = true
	h := a.w.Header()
	httpapi.SetHeaders(h)
	h.Set("Vary", "Accept-Encoding, User-Agent")
	if compressed {
		h.Set("Content-Encoding", "gzip")
		if !a.packed {
			a.zip = compressors.Get().(*gzip.Writer)
			a.zipped = bufio.NewWriterSize(sink(a.send), flushSize/2) // gzip writes some bytes at a time
			a.zip.Reset(a.zipped)
		}
	}
	a.watch()
	a.w.WriteHeader(http.StatusOK)
}

// watch prepares the sending of an answer. From now on its query is not refused as
// overload. If the operator or the timeout ends the query, sending ends too: otherwise
// a client that does not read would keep the query's slot. The answer to a query that has
// ended normally is sent completely, unless other queries wait for memory and the client
// reads slowly.
func (a *answer) watch() {
	cut := httpapi.Cut(a.w)
	a.out = a.memory.Writer(a.w, cut)
	if a.run == nil {
		return
	}
	a.run.Settle()
	run := a.run.Context()
	context.AfterFunc(run, func() {
		if context.Cause(run) != context.Canceled {
			cut()
		}
	})
}

// flush sends the buffer. While a query waits for its client to read, another query
// has its slot.
func (a *answer) flush() error {
	for i, part := range a.full {
		if err := a.hand(part); err != nil {
			return err
		}
		keep(part)
		a.full[i], a.held = nil, a.held-int64(len(part))
		if a.run == nil {
			continue
		}
		if err := a.run.Yield(); err != nil { // compressing many parts takes long
			return err
		}
	}
	a.full = a.full[:0]
	err := a.hand(a.buf)
	a.buf = a.buf[:0]
	return err
}

// hand sends a part, compressed if the answer is.
func (a *answer) hand(part []byte) error {
	a.gone += int64(len(part))
	if a.zip == nil {
		return a.send(part)
	}
	_, err := a.zip.Write(part)
	return err
}

// send writes to the client.
func (a *answer) send(p []byte) error {
	write := func() error { _, err := a.out.Write(p); return err }
	if a.run != nil {
		return a.run.Aside(write)
	}
	return write()
}

// A sink is a function that implements io.Writer.
type sink func(p []byte) error

func (f sink) Write(p []byte) (int, error) { return len(p), f(p) }

// pack compresses an answer that is held back, if the client accepts that, while its
// query has a slot: without a slot, answers would be compressed on all processors at
// once.
func (a *answer) pack() error {
	if a.sent || a.packed || !a.gzip || a.unsent() < minGzipSize {
		return nil
	}
	plain, size := append(a.full, a.buf), a.total()
	a.full, a.held = nil, 0
	a.borrow()
	zip := compressors.Get().(*gzip.Writer)
	defer compressors.Put(zip)
	zip.Reset(sink(func(p []byte) error {
		a.buf = append(a.buf, p...)
		a.cut()
		return nil
	}))
	for _, part := range plain {
		if _, err := zip.Write(part); err != nil {
			return err
		}
		keep(part)
		if err := a.run.Yield(); err != nil {
			return err
		}
	}
	err := zip.Close()
	a.packed, a.plain = true, size
	return err
}

// finish sends the rest.
func (a *answer) finish() error {
	if !a.sent {
		compressed := a.packed || a.gzip && a.unsent() >= minGzipSize
		if a.packed || !compressed {
			a.w.Header().Set("Content-Length", strconv.FormatInt(a.unsent(), 10))
		}
		a.begin(compressed)
	}
	if err := a.flush(); err != nil {
		return err
	}
	if a.zip == nil {
		return nil
	}
	if err := a.zip.Close(); err != nil {
		return err
	}
	return a.zipped.Flush()
}

// fault marks an error that prevents the completion of an answer that has begun.
func (a *answer) fault(err error) error {
	if a.sent {
		return failure.Sent(err)
	}
	return err
}
