package fastpath

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// gathered is how many bytes of an answer are buffered before any are sent, as in net/http. An
// answer that ends before is sent with its length, together with its header.
const gathered = 2 << 10

// copied is the size up to which a piece of an answer is copied into the buffer, so that one write
// sends both.
const copied = 16 << 10

// An answer is the [http.ResponseWriter] of a request.
//
// The header is written into head when its status is known, and completed when the
// first bytes are sent: only then is it known whether the body is complete, and is
// announced by its length, or must be sent in chunks.
type answer struct {
	lane    *lane
	header  http.Header
	status  int   // 0 until WriteHeader
	length  int64 // of the body that the handler announced; -1: none
	written int64 // bytes of body, so far
	typed   bool  // there is a Content-Type or Content-Encoding
	dated   bool  // there is a Date
	last    bool  // the connection ends with this answer
	begun   bool  // the header was sent
	chunked bool
	failed  error // of a write

	*buffers
}

// buffers are the memory of an answer, which later answers reuse.
type buffers struct {
	head []byte // of the answer, until it was sent
	body []byte // that is not sent yet
	out  []byte // what is sent
}

var spare = sync.Pool{New: func() any { return new(buffers) }}

func newAnswer(l *lane, last bool) *answer {
	b := spare.Get().(*buffers)
	b.head, b.body, b.out = b.head[:0], b.body[:0], b.out[:0]
	return &answer{lane: l, last: last, length: -1, header: make(http.Header, 8), buffers: b}
}

// release gives the memory back. After it nothing can be written.
func (a *answer) release() {
	a.failed = http.ErrBodyNotAllowed
	spare.Put(a.buffers)
	a.buffers = nil
}

// Header returns the header of the answer, which may be changed until
// WriteHeader.
func (a *answer) Header() http.Header { return a.header }

// notCopied are headers that the answer sets itself.
var notCopied = map[string]bool{"Connection": true, "Transfer-Encoding": true}

// WriteHeader fixes the header. Informational answers (1xx) are not sent.
func (a *answer) WriteHeader(status int) {
	if a.status != 0 || status < 200 {
		return
	}
	a.status = status
	h := a.header
	if text := h.Get("Content-Length"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || !hasBody(status) {
			h.Del("Content-Length")
		} else {
			a.length = n
		}
	}
	a.typed = h["Content-Type"] != nil || h.Get("Content-Encoding") != ""
	a.dated = h["Date"] != nil
	a.last = a.last || h.Get("Connection") == "close"

	w := bytes.NewBuffer(append(a.head, "HTTP/1.1 "...))
	w.WriteString(strconv.Itoa(status))
	w.WriteByte(' ')
	w.WriteString(statusText(status))
	w.WriteString("\r\n")
	h.WriteSubset(w, notCopied) // writing to a buffer does not fail
	a.head = w.Bytes()
}

func statusText(status int) string {
	if text := http.StatusText(status); text != "" {
		return text
	}
	return "status code " + strconv.Itoa(status)
}

// hasBody reports whether answers with a status have a body.
func hasBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// Write sends p, or keeps it for later if it is short.
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	switch {
	case a.failed != nil:
		return 0, a.failed
	case len(p) == 0:
		return 0, nil
	case !hasBody(a.status):
		return 0, http.ErrBodyNotAllowed
	case a.length >= 0 && a.written+int64(len(p)) > a.length:
		return 0, http.ErrContentLength
	}
	a.written += int64(len(p))
	if len(a.body)+len(p) <= gathered {
		a.body = append(a.body, p...)
		return len(p), nil
	}
	if err := a.send(p, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush sends what is kept.
func (a *answer) Flush() { a.FlushError() }

// FlushError is Flush, with the error of the connection.
func (a *answer) FlushError() error {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	return a.send(nil, false)
}

// SetReadDeadline sets the deadline of the connection. As with net/http, other
// goroutines may call it.
func (a *answer) SetReadDeadline(t time.Time) error {
	a.lane.moved.Store(true)
	return a.lane.conn.SetReadDeadline(t)
}

// SetWriteDeadline sets the deadline of the connection.
func (a *answer) SetWriteDeadline(t time.Time) error { return a.lane.conn.SetWriteDeadline(t) }

// finish sends the rest of the answer, and reports whether the connection can have
// another one.
func (a *answer) finish() bool {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	whole := a.length < 0 || a.length == a.written || !hasBody(a.status)
	return a.send(nil, true) == nil && whole && !a.last
}

// send sends the header, unless it was sent before, the buffered body, and p. end says
// that p ends the body.
func (a *answer) send(p []byte, end bool) error {
	if a.failed != nil {
		return a.failed
	}
	a.out = a.out[:0]
	if !a.begun {
		a.complete(p, end)
	}
	n := len(a.body) + len(p)
	if a.chunked && n > 0 {
		a.out = strconv.AppendInt(a.out, int64(n), 16)
		a.out = append(a.out, "\r\n"...)
	}
	a.out = append(a.out, a.body...)
	a.body = a.body[:0]
	var tail []byte
	switch {
	case a.chunked && end && n > 0:
		tail = []byte("\r\n0\r\n\r\n")
	case a.chunked && end:
		tail = []byte("0\r\n\r\n")
	case a.chunked && n > 0:
		tail = []byte("\r\n")
	}
	a.failed = a.write(p, tail)
	return a.failed
}

// write sends out, p and tail.
func (a *answer) write(p, tail []byte) (err error) {
	if len(a.out)+len(p)+len(tail) == 0 {
		return nil
	}
	if len(p) <= copied {
		a.out = append(append(a.out, p...), tail...)
		_, err = a.lane.wire.Write(a.out)
		return err
	}
	return a.lane.wire.writePieces(a.out, p, tail)
}

// complete appends the header to out, with the lines that say how the body
// ends.
func (a *answer) complete(p []byte, end bool) {
	a.begun = true
	a.out = append(a.out, a.head...)
	if !a.dated {
		a.out = append(a.out, "Date: "...)
		a.out = time.Now().UTC().AppendFormat(a.out, http.TimeFormat)
		a.out = append(a.out, "\r\n"...)
	}
	if !a.typed && len(a.body)+len(p) > 0 {
		first := append(a.body, p[:min(len(p), gathered)]...)
		a.out = append(append(append(a.out, "Content-Type: "...), http.DetectContentType(first)...), "\r\n"...)
	}
	switch {
	case a.length >= 0 || !hasBody(a.status):
	case end:
		a.out = append(a.out, "Content-Length: "...)
		a.out = strconv.AppendInt(a.out, int64(len(a.body)+len(p)), 10)
		a.out = append(a.out, "\r\n"...)
	default:
		a.chunked = true
		a.out = append(a.out, "Transfer-Encoding: chunked\r\n"...)
	}
	if a.last || a.lane.server.closing.Load() {
		a.last = true
		a.out = append(a.out, "Connection: close\r\n"...)
	}
	a.out = append(a.out, "\r\n"...)
}
