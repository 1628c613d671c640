// Package loglimit keeps clients from filling the log. A client that may send a request
// may send a million, and many requests are worth a line: a delete, an error of the
// store, an answer that was cut off.
//
// A [Handler] wraps the handler that writes. Of each message it passes the first lines
// of a minute and counts the others; a line at the end of the minute says how many were
// suppressed. There is one for the whole process, so that every line is limited, and
// callers need no limits of their own. Debug lines always pass: an operator who turns
// them on wants every line.
package loglimit

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// window is the time over which lines are counted.
	window = time.Minute

	// most is how many lines of one message pass in a window: on average one per second.
	most = 60

	// maxMessages bounds how many messages are counted separately in a window. All
	// further ones are counted together, as otherMessages.
	maxMessages   = 200
	otherMessages = "other messages"

	// keyBytes is how many bytes of a message identify it. The rest may be text of a
	// client.
	keyBytes = 100
)

// A Handler is a slog.Handler that suppresses messages that repeat too often.
type Handler struct {
	slog.Handler
	shared *shared
}

// shared is the state of a handler and of those derived from it by WithAttrs and WithGroup.
type shared struct {
	out  slog.Handler // writes the reports
	left prometheus.Counter

	ending chan struct{} // has an element while end runs

	mu    sync.Mutex
	since time.Time // the start of the window
	lines map[key]*tally
	timer *time.Timer // ends the window; nil if nothing was suppressed
}

type key struct {
	level   slog.Level
	message string
}

// A tally counts the lines of one message in a window: written and suppressed.
type tally struct{ passed, left int }

// NewHandler returns a handler that wraps out. It registers a counter of suppressed lines with r.
func NewHandler(out slog.Handler, r prometheus.Registerer) *Handler {
	h := &Handler{out, &shared{
		out: out,
		left: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_log_lines_left_out_total",
			Help: "Log lines that were not written because their message repeated more than 60 times in a minute. A line of the log names the message.",
		}),
		ending: make(chan struct{}, 1),
		lines:  map[key]*tally{},
	}}
	r.MustRegister(h.shared.left)
	return h
}

// Handle writes a record, or counts it as suppressed.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo && !h.shared.pass(r.Level, r.Message) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{h.Handler.WithAttrs(attrs), h.shared}
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{h.Handler.WithGroup(name), h.shared}
}

// Close reports the lines suppressed since the last report, and returns when a report that has
// begun is written too. The handler keeps working: lines suppressed later are reported at the end of
// their window, if the process still runs.
func (h *Handler) Close() { h.shared.end() }

// pass counts a line and reports whether to write it.
func (s *shared) pass(level slog.Level, message string) bool {
	now := time.Now()
	s.mu.Lock()
	var due map[key]*tally
	if now.Sub(s.since) >= window {
		due = s.restartLocked(now)
	}
	t := s.tallyLocked(key{level, message[:min(len(message), keyBytes)]})
	pass := t.passed < most
	if pass {
		t.passed++
	} else {
		t.left++
		s.left.Inc()
		if s.timer == nil {
			s.timer = time.AfterFunc(s.since.Add(window).Sub(now), s.end)
		}
	}
	s.mu.Unlock()
	s.report(due)
	return pass
}

// tallyLocked returns the tally of a message. s.mu must be held.
func (s *shared) tallyLocked(k key) *tally {
	t, known := s.lines[k]
	if !known && len(s.lines) >= maxMessages {
		k.message = otherMessages
		t, known = s.lines[k]
	}
	if !known {
		t = &tally{}
		s.lines[k] = t
	}
	return t
}

// end ends a window and reports its suppressed lines.
func (s *shared) end() {
	s.ending <- struct{}{}
	defer func() { <-s.ending }()
	s.mu.Lock()
	due := s.restartLocked(time.Now())
	s.mu.Unlock()
	s.report(due)
}

// restartLocked starts a window and returns the tallies of the last one. s.mu must be
// held.
func (s *shared) restartLocked(now time.Time) (due map[key]*tally) {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	due, s.lines, s.since = s.lines, map[key]*tally{}, now
	return due
}

// report logs the number of suppressed lines.
func (s *shared) report(due map[key]*tally) {
	for _, k := range slices.SortedFunc(maps.Keys(due), func(a, b key) int {
		return cmp.Or(cmp.Compare(b.level, a.level), cmp.Compare(a.message, b.message))
	}) {
		if due[k].left == 0 {
			continue
		}
		r := slog.NewRecord(time.Now(), k.level, "further log lines suppressed", 0)
		r.AddAttrs(slog.String("message", k.message), slog.Int("count", due[k].left), slog.Int("written", due[k].passed))
		_ = s.out.Handle(context.Background(), r) // as slog does
	}
}
