package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"varve/internal/httpapi"
	"varve/internal/principal"
	"varve/internal/timeline"
)

const (
	// heartbeat is how often an idle reader gets a comment. It keeps proxies from cutting the
	// connection, and each end notices if the other is gone.
	heartbeat = 15 * time.Second

	// tailPatience is how long a reader may take to receive a single write.
	tailPatience = 10 * time.Second

	// tailMemory bounds the events that are being sent to all readers that follow. A reader whose
	// events would exceed it is disconnected; it can continue where it was. 1/tailShare of it is
	// reserved for senders that hold no more than that, so that a sender with many slow readers cannot
	// keep the others out.
	tailMemory = 64 << 20
	tailShare  = 4

	// eventFrame is about what the text of an event has beside its data.
	eventFrame = 256

	// tailRetry is how long a browser waits before it connects again.
	tailRetry = time.Second
)

// tail answers GET /api/v1/timelines/NAME/tail with server-sent events, see
// https://html.spec.whatwg.org/multipage/server-sent-events.html. The id of each event is the
// cursor after it.
func (a *API) tail(w http.ResponseWriter, r *http.Request) error {
	q, err := tailQuery(r)
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		beginTail(w)
		return nil
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := httpapi.Stopping(ctx)
	ended := make(chan struct{})
	defer func() { <-ended }()
	defer cancel(nil)
	go func() { // ends with the request
		defer close(ended)
		select {
		case <-stop:
			cancel(errStopping)
		case <-ctx.Done():
		}
	}()
	s, err := a.engine.Tail(ctx, q)
	if err != nil {
		return err
	}
	defer s.Close()
	t := &tailing{api: a, sender: q.Sender, w: w, control: http.NewResponseController(w)}
	beginTail(w)
	t.buf = fmt.Appendf(t.buf, "retry: %d\nid: %s\n\n", tailRetry.Milliseconds(), s.Cursor())
	t.run(ctx, s)
	return nil
}

// tailQuery reads what to follow. Last-Event-ID takes precedence over the cursor in the URL: a
// browser that connects again sends the old URL with it.
func tailQuery(r *http.Request) (q timeline.TailQuery, err error) {
	if q.Timeline, err = nameOf(r); err != nil {
		return q, err
	}
	q.Sender = principal.NetworkOf(r.RemoteAddr)
	p, err := parametersOf(r, "")
	if err != nil {
		return q, err
	}
	var err1, err2 error
	q.Type, _, err1 = p.text("type")
	q.Cursor, _, err2 = p.text("cursor")
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		q.Cursor = last
	}
	return q, errors.Join(err1, err2)
}

func beginTail(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // else nginx buffers events
	w.WriteHeader(http.StatusOK)
}

// A tailing is the answer to one reader.
type tailing struct {
	api     *API
	sender  netip.Prefix
	w       http.ResponseWriter
	control *http.ResponseController
	buf     []byte // not written yet
}

// run sends arrivals until the reader leaves, is too slow, or the server stops.
func (t *tailing) run(ctx context.Context, s *timeline.Subscription) {
	for t.flush() {
		some, err := t.next(ctx, s)
		switch {
		case err == nil && !t.send(some):
			return
		case err == nil:
		case context.Cause(ctx) == errStopping:
			t.buf = append(t.buf, ": the server stops\n\n"...)
			t.flush()
			return
		case ctx.Err() != nil:
			return
		case errors.Is(err, context.DeadlineExceeded):
			t.buf = fmt.Appendf(t.buf, ": nothing has arrived\nid: %s\n\n", s.Cursor())
		default:
			t.report(err)
			return
		}
	}
}

// next waits for arrivals until it is time for a heartbeat.
func (t *tailing) next(ctx context.Context, s *timeline.Subscription) ([]timeline.TailEvent, error) {
	ctx, cancel := context.WithTimeout(ctx, t.api.beat)
	defer cancel()
	return s.Next(ctx)
}

// send writes events and reports whether the answer continues.
func (t *tailing) send(some []timeline.TailEvent) bool {
	var bytes int64
	for i := range some {
		bytes += int64(len(some[i].Data) + eventFrame)
	}
	if !t.api.flying.TryEnter(t.sender, bytes) {
		t.api.cut.WithLabelValues("memory").Inc()
		return false
	}
	defer t.api.flying.Leave(t.sender, bytes)
	for i := range some {
		e := &some[i]
		t.buf = slices.Grow(t.buf, len(e.Data)+eventFrame) // at once: growing by parts takes up to twice as much
		t.buf = append(t.buf, "id: "...)
		t.buf = append(t.buf, e.Cursor...)
		t.buf = append(t.buf, "\ndata: "...)
		t.buf = appendEvent(t.buf, "", &e.Event, e.Missing)
		t.buf = append(t.buf, "\n\n"...)
		e.Data = nil
		if len(t.buf) >= pieceBytes && !t.flush() {
			return false
		}
	}
	t.api.sent.Add(float64(len(some)))
	return true
}

// flush writes the buffer and reports whether the reader has received it in time.
func (t *tailing) flush() bool {
	began := time.Now()
	err := t.control.SetWriteDeadline(began.Add(t.api.patience))
	if err == nil {
		_, err = t.w.Write(t.buf)
	}
	if err == nil {
		err = t.control.Flush() // net/http keeps an error and returns it from the next Write
	}
	if cap(t.buf) > 2*pieceBytes {
		t.buf = nil // it was for a large event
	}
	t.buf = t.buf[:0]
	slow := time.Since(began) >= t.api.patience
	if slow {
		t.api.cut.WithLabelValues("slow").Inc()
	}
	return err == nil && !slow
}

// report sends the reader the error that ends the answer. A browser then connects again and gets
// a status.
func (t *tailing) report(err error) {
	t.buf = append(t.buf, "event: error\ndata: "...)
	t.buf = append(t.buf, httpapi.ErrorBody(messageOf(err))...)
	t.buf = append(t.buf, "\n\n"...)
	t.flush()
}
