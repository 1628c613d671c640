package loglimit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// A text is what was written, also by a timer.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (x *text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(p)
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

func (x *text) Reset() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.b.Reset()
}

// newLog returns a logger whose lines have no time, and the text that it writes.
func newLog() (*slog.Logger, *Handler, *text) {
	var out text
	h := NewHandler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}), prometheus.NewRegistry())
	return slog.New(h), h, &out
}

// leftOut is how many lines are counted.
func leftOut(t *testing.T, h *Handler) float64 {
	t.Helper()
	var m dto.Metric
	if err := h.shared.left.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.Counter.GetValue()
}

// Of each message the first lines of a minute are written, and then how many were
// left out.
func TestLinesThatRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, h, out := newLog()
		defer h.Close()
		for i := range 100 {
			log.Info("points deleted", "n", i)
			log.With("a", "b").WithGroup("g").Warn("request failed", "n", i)
		}
		log.Info("rare")
		if got := strings.Count(out.String(), "points deleted"); got != most || strings.Count(out.String(), "request failed") != most || !strings.Contains(out.String(), "rare") {
			t.Errorf("%d deletes in\n%s", got, out)
		}
		out.Reset()
		time.Sleep(window)
		synctest.Wait()
		const report = `level=WARN msg="further log lines suppressed" message="request failed" count=40 written=60
level=INFO msg="further log lines suppressed" message="points deleted" count=40 written=60
`
		if got := out.String(); got != report {
			t.Errorf("reported\n%swant\n%s", got, report)
		}
		if n := leftOut(t, h); n != 80 {
			t.Errorf("%v lines are counted", n)
		}
		out.Reset()
		log.Info("points deleted")
		if got := out.String(); got != "level=INFO msg=\"points deleted\"\n" {
			t.Errorf("in the next minute: %s", got)
		}
		out.Reset()
		time.Sleep(3 * window)
		if got := out.String(); got != "" {
			t.Errorf("nothing was left out, and reported is\n%s", got)
		}
		for range 3 { // each minute is reported
			for range most + 5 {
				log.Info("again")
			}
			time.Sleep(window)
			synctest.Wait()
		}
		if got := strings.Count(out.String(), "message=again count=5 written=60"); got != 3 {
			t.Errorf("%d reports of 3 minutes in\n%s", got, out)
		}
	})
}

// What is left out before the process ends is reported by Close.
func TestClose(t *testing.T) {
	log, h, out := newLog()
	for range most + 1 {
		log.Info("again")
	}
	h.Close()
	h.Close()
	if got := strings.Count(out.String(), "message=again count=1 "); got != 1 {
		t.Errorf("%d reports in\n%s", got, out)
	}
}

// A window lasts exactly a minute, also one that Close began within the last one.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, h, out := newLog()
		defer h.Close()
		write := func(n int) {
			for range n {
				log.Info("again")
			}
		}
		write(most)
		time.Sleep(window)
		write(most)
		if got := strings.Count(out.String(), "\n"); got != 2*most {
			t.Errorf("%d lines of two minutes are written, want %d", got, 2*most)
		}
		write(1)
		time.Sleep(window / 2)
		h.Close()
		write(most + 2)
		time.Sleep(window / 2)
		synctest.Wait()
		const first, second = "message=again count=1 written=60", "message=again count=2 written=60"
		if got := out.String(); strings.Count(got, first) != 1 || strings.Contains(got, second) {
			t.Errorf("half a minute after Close the log is\n%s", got)
		}
		time.Sleep(window / 2)
		synctest.Wait()
		if got := out.String(); strings.Count(got, second) != 1 {
			t.Errorf("a minute after Close the log is\n%s", got)
		}
	})
}

// Messages with the text of a client are bounded as well, and so is the memory for
// them. Debug lines pass.
func TestMessagesWithoutEnd(t *testing.T) {
	log, h, out := newLog()
	defer h.Close()
	for i := range 10_000 {
		log.Info(fmt.Sprint(i, " is the text of a client"))
		log.Info(strings.Repeat("long ", 100) + fmt.Sprint(i))
	}
	if got := strings.Count(out.String(), "\n"); got > maxMessages+2*most {
		t.Errorf("%d lines", got)
	}
	if n := len(h.shared.lines); n > maxMessages+1 {
		t.Errorf("%d messages are kept", n)
	}
	out.Reset()
	for range 2 * most {
		log.Debug("request")
	}
	if got := strings.Count(out.String(), "\n"); got != 2*most {
		t.Errorf("%d of %d debug lines", got, 2*most)
	}
}

// Many goroutines write at once; each line is written or counted.
func TestLinesAtOnce(t *testing.T) {
	h := NewHandler(slog.NewTextHandler(io.Discard, nil), prometheus.NewRegistry())
	defer h.Close()
	log := slog.New(h)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				log.Info("again")
			}
		})
	}
	all.Wait()
	if n := leftOut(t, h); n != 8000-most {
		t.Errorf("%v lines are left out", n)
	}
}

// Close waits for a report that the timer has begun to write: the process may end after it, and
// the line with it.
func TestCloseWaitsForAReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := held{Handler: slog.DiscardHandler, begun: make(chan struct{}), goOn: make(chan struct{})}
		h := NewHandler(out, prometheus.NewRegistry())
		log := slog.New(h)
		for range most + 1 {
			log.Info("again")
		}
		<-out.begun // the window is over
		closed := make(chan struct{})
		go func() { defer close(closed); h.Close() }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed, although a report is being written")
		default:
		}
		close(out.goOn)
		<-closed
	})
}

// A held handler announces a report, and writes it when it is told to.
type held struct {
	slog.Handler
	begun, goOn chan struct{}
}

func (held) Enabled(context.Context, slog.Level) bool { return true }

func (h held) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "further log lines suppressed" {
		close(h.begun)
		<-h.goOn
	}
	return nil
}
