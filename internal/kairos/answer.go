package kairos

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"varve/internal/httpapi"
	"varve/internal/kairos/agg"
)

const (
	// minGzipSize: smaller answers stay plain, as KairosDB leaves them.
	minGzipSize = 64

	// flushSize is how much of an answer that is being sent is gathered first.
	flushSize = 64 << 10
)

// An answer is a JSON body under construction. It is held back until it is
// complete or larger than max, from when on it is sent as it grows.
type answer struct {
	w    http.ResponseWriter
	gzip bool // the client takes it
	max  int
	buf  []byte
	gone int64    // bytes that left buf
	run  *agg.Run // an early end of it ends the sending; nil without a query, and after its end

	sent bool // the header is out
	zip  *gzip.Writer

	reserved reservation
}

func newAnswer(w http.ResponseWriter, r *http.Request, maxBuffer int) *answer {
	return &answer{w: w, gzip: acceptsGzip(r.Header.Get("Accept-Encoding")), max: maxBuffer}
}

// keptBuffer is the largest buffer that is used again, for another answer.
const keptBuffer = 1 << 20

// Buffers and compressors for answers, which without use are garbage soon.
var (
	buffers     = sync.Pool{New: func() any { return new([]byte) }}
	compressors = sync.Pool{New: func() any {
		z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
		return z
	}}
)

// borrow gives a an old buffer, until release.
func (a *answer) borrow() { a.buf = (*buffers.Get().(*[]byte))[:0] }

func (a *answer) release() {
	a.reserved.free()
	if cap(a.buf) <= keptBuffer {
		kept := a.buf
		buffers.Put(&kept)
	}
	if a.zip != nil {
		compressors.Put(a.zip)
		a.zip = nil
	}
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
func (a *answer) total() int64 { return a.gone + int64(len(a.buf)) }

// full reports that the buffer should be handed on by spill.
func (a *answer) full() bool {
	return len(a.buf) > a.max || (a.sent && len(a.buf) >= flushSize)
}

// advance reserves the memory by which the buffer has grown. It sends a full buffer,
// else it lets other queries have their turn.
func (a *answer) advance() error {
	if err := a.charge(); err != nil {
		return err
	}
	if a.full() {
		return a.spill()
	}
	if a.run != nil {
		return a.run.Yield()
	}
	return nil
}

// spill begins to send, or goes on sending.
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
		a.zip = compressors.Get().(*gzip.Writer)
		a.zip.Reset(a.w)
	}
	a.watch()
	a.w.WriteHeader(http.StatusOK)
}

// watch ends the sending of an answer when the operator or the timeout ends its
// query: else a client that does not read would keep the query's place. An answer
// whose query has ended in the regular way is sent to its end.
func (a *answer) watch() {
	if a.run == nil {
		return
	}
	run, w := a.run.Context(), a.w
	context.AfterFunc(run, func() {
		if context.Cause(run) != context.Canceled {
			http.NewResponseController(w).SetWriteDeadline(time.Now())
		}
	})
}

// flush sends what is gathered. While a query waits for its client to take it,
// another one has its place.
func (a *answer) flush() error {
	if a.run != nil {
		return a.run.Aside(a.write)
	}
	return a.write()
}

func (a *answer) write() error {
	var err error
	if a.zip != nil {
		_, err = a.zip.Write(a.buf)
	} else {
		_, err = a.w.Write(a.buf)
	}
	a.gone += int64(len(a.buf))
	a.buf = a.buf[:0]
	return err
}

// finish sends what is left.
func (a *answer) finish() error {
	if !a.sent {
		compressed := a.gzip && len(a.buf) >= minGzipSize
		if !compressed {
			a.w.Header().Set("Content-Length", strconv.Itoa(len(a.buf)))
		}
		a.begin(compressed)
	}
	if err := a.flush(); err != nil {
		return err
	}
	if a.zip != nil {
		return a.zip.Close()
	}
	return nil
}
