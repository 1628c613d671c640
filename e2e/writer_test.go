package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"varve/e2e/process"
)

// A writer sends points of one metric to a server until the server ends. It
// performs one operation at a time, so that its ledger knows the pending one.
type writer struct {
	ledger *ledger
	telnet bool // new points go over telnet, else over HTTP
	random *rand.Rand

	server *process.Server
	conn   net.Conn
	open   span // sent over conn and not yet known to be stored
	stored int  // points this connection is known to have stored
	checks int  // comparisons with an answer while others write
}

const (
	liveMost   = 30_000 // points of a writer beyond which it deletes the oldest
	blockMost  = 600    // points that are sent at once
	streamMost = 8_000  // points sent over telnet between two barriers
)

func newWriter(number int, telnet bool, seed uint64) *writer {
	return &writer{
		ledger: &ledger{metric: fmt.Sprintf("e2e.writer%d", number), series: 7},
		telnet: telnet,
		random: rand.New(rand.NewPCG(seed, uint64(number))),
	}
}

// run writes until ctx ends or something fails, which is normal when the server
// is ended.
func (w *writer) run(ctx context.Context, s *process.Server) error {
	w.server, w.open, w.stored = s, span{}, 0
	defer w.hangUp()
	for ctx.Err() == nil {
		if err := w.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) hangUp() {
	if w.conn != nil {
		w.conn.Close()
		w.conn = nil
	}
	w.ledger.streamed = w.open
}

// step performs one operation.
func (w *writer) step(ctx context.Context) error {
	end := len(w.ledger.beliefs)
	if w.ledger.count() > liveMost {
		return w.trim(ctx)
	}
	dice := w.random.IntN(1000)
	if dice < 820 || end == 0 {
		next := span{end, end + 1 + w.random.IntN(blockMost)}
		if w.telnet {
			return w.stream(ctx, next)
		}
		return w.post(ctx, next)
	}
	if err := w.barrier(ctx); err != nil {
		return err
	}
	switch from := w.random.IntN(end); {
	case dice < 910: // late points: some replace older values, some were deleted before
		return w.post(ctx, span{from, min(end, from+1+w.random.IntN(blockMost))})
	case dice < 955:
		return w.delete(ctx, span{from, min(end, from+1+w.random.IntN(2*blockMost))}, w.random.IntN(2*w.ledger.series))
	case dice < 958:
		return w.drop(ctx)
	}
	return w.check(ctx)
}

// post sends points as KairosDB JSON. 204 means that they are stored.
func (w *writer) post(ctx context.Context, s span) error {
	w.ledger.sending(s)
	if err := w.postNow(ctx, s); err != nil {
		return err
	}
	w.ledger.sent(s)
	return nil
}

func (w *writer) postNow(ctx context.Context, s span) error {
	_, err := w.server.Want(ctx, http.StatusNoContent, "POST", "/api/v1/datapoints", w.ledger.body(s))
	return err
}

// stream sends points as telnet lines, and now and then waits until they are
// stored.
func (w *writer) stream(ctx context.Context, s span) error {
	if w.conn == nil {
		conn, err := w.server.Dial(ctx)
		if err != nil {
			return err
		}
		w.conn = conn
	}
	w.ledger.sending(s)
	if w.open.len() == 0 {
		w.open.from = s.from
	}
	w.open.to = s.to
	var lines []byte
	for n := s.from; n < s.to; n++ {
		lines = w.ledger.line(lines, n)
	}
	if err := w.conn.SetWriteDeadline(time.Now().Add(process.AnswerWithin)); err != nil {
		return err
	}
	if _, err := w.conn.Write(lines); err != nil {
		return err
	}
	if w.open.len() > streamMost || w.random.IntN(20) == 0 {
		return w.barrier(ctx)
	}
	return nil
}

// barrier waits until all points sent over telnet are durable. Once the last
// point is visible, it is in the log, and a later acknowledged write over HTTP
// shows that the log is durable up to there.
func (w *writer) barrier(ctx context.Context) error {
	if w.open.len() == 0 {
		return nil
	}
	last := w.open.to - 1
	ms := w.ledger.timeMS(last)
	question := fmt.Sprintf(`{"start_absolute":%d,"end_absolute":%d,"metrics":[{"name":%q,"tags":{"series":%q}}]}`,
		ms, ms, w.ledger.metric, w.ledger.tag(last))
	err := process.Until(ctx, "see what was sent by telnet", func() (bool, error) {
		results, err := w.server.Query(ctx, question)
		return len(results) > 0 && len(results[0].Values) > 0, err
	})
	if err != nil {
		return err
	}
	// The last point again, with the same value.
	if err := w.postNow(ctx, span{last, last + 1}); err != nil {
		return err
	}
	w.ledger.sent(w.open)
	w.stored += w.open.len()
	w.open = span{}
	return nil
}

// delete deletes the points of a span of time, of one series or of all.
func (w *writer) delete(ctx context.Context, s span, series int) error {
	l := w.ledger
	first, last := s.from/l.series, (s.to-1)/l.series // whole steps of time
	filter := ""
	if series < l.series {
		filter = fmt.Sprintf(`,"tags":{"series":"%d"}`, series)
	}
	var numbers []int
	for n := first * l.series; n < min((last+1)*l.series, len(l.beliefs)); n++ {
		if filter == "" || n%l.series == series {
			numbers = append(numbers, n)
		}
	}
	question := fmt.Sprintf(`{"start_absolute":%d,"end_absolute":%d,"metrics":[{"name":%q%s}]}`,
		firstMS+int64(first)*stepMS, firstMS+int64(last+1)*stepMS-1, l.metric, filter)
	return w.erase(ctx, numbers, "POST", "/api/v1/datapoints/delete", question)
}

// trim deletes the older half of the points.
func (w *writer) trim(ctx context.Context) error {
	if err := w.barrier(ctx); err != nil {
		return err
	}
	seen := 0
	for n, b := range w.ledger.beliefs {
		if b.now != absent {
			seen++
		}
		if seen > liveMost/2 {
			return w.delete(ctx, span{0, n}, w.ledger.series)
		}
	}
	return nil
}

// drop deletes the metric with all its series.
func (w *writer) drop(ctx context.Context) error {
	var numbers []int
	for n := range w.ledger.beliefs {
		numbers = append(numbers, n)
	}
	return w.erase(ctx, numbers, "DELETE", "/api/v1/metric/"+w.ledger.metric, "")
}

func (w *writer) erase(ctx context.Context, numbers []int, method, path, body string) error {
	w.ledger.erasing(numbers)
	if _, err := w.server.Want(ctx, http.StatusNoContent, method, path, body); err != nil {
		return err
	}
	w.ledger.erased(numbers)
	return nil
}

// check compares everything the writer knows with what the server answers.
func (w *writer) check(ctx context.Context) error {
	results, err := w.server.Query(ctx, w.ledger.question())
	if err != nil {
		return err
	}
	w.checks++
	if err := w.ledger.compare(results); err != nil {
		return &findingError{err}
	}
	return nil
}

// A findingError says that the content of the server is wrong. Unlike other
// errors, it is never caused by ending the server.
type findingError struct{ err error }

func (e *findingError) Error() string { return e.err.Error() }
func (e *findingError) Unwrap() error { return e.err }

// excusable reports whether an error of a writer may come from the end of its
// server: broken connections and, when it stops in order, 503.
func excusable(err error, inOrder bool) bool {
	var status *process.StatusError
	var finding *findingError
	switch {
	case errors.As(err, &finding):
		return false
	case errors.As(err, &status):
		return inOrder && status.Got == http.StatusServiceUnavailable
	}
	return true
}
