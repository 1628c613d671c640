package stream

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// A scarce listener fails to accept a number of times, and succeeds from then on.
type scarce struct {
	net.Listener
	failures int
}

func (s *scarce) Accept() (net.Conn, error) {
	if s.failures--; s.failures >= 0 {
		return nil, errors.New("too many open files")
	}
	c, _ := net.Pipe()
	return c, nil
}

func (*scarce) Addr() net.Addr { return &net.TCPAddr{} }
func (*scarce) Close() error   { return nil }

// Failures to accept are counted. Few of them are logged, and the pauses after them grow up to a second.
func TestFailuresToAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		failed := prometheus.NewCounter(prometheus.CounterOpts{Name: "failed"})
		l := NewListener(&scarce{failures: 130}, Options{Limit: 9, Metrics: Metrics{Failed: failed}})
		began := time.Now()
		c, err := l.AcceptConn(t.Context(), slog.New(slog.NewTextHandler(&text, nil)))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if d := time.Since(began); d < 120*time.Second || d > 130*time.Second {
			t.Errorf("130 failures took %v", d)
		}
		var m dto.Metric
		if failed.Write(&m); m.GetCounter().GetValue() != 130 {
			t.Errorf("counted %v failures", m.GetCounter().GetValue())
		}
		if lines := strings.Count(text.String(), "too many open files"); lines != 3 {
			t.Errorf("%d lines of the log:\n%s", lines, text.String())
		}
	})
}

// A pause ends with the listener or the context.
func TestRestEnds(t *testing.T) {
	for name, end := range map[string]func(l *Listener, cancel func()){
		"listener": func(l *Listener, _ func()) { l.Close() },
		"context":  func(_ *Listener, cancel func()) { cancel() },
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := NewListener(&scarce{failures: 1 << 30}, Options{Limit: 9})
			done := make(chan error)
			go func() {
				_, err := l.AcceptConn(ctx, slog.New(slog.DiscardHandler))
				done <- err
			}()
			time.Sleep(time.Minute + time.Millisecond)
			synctest.Wait()
			before := time.Now()
			end(l, cancel)
			if err := <-done; err == nil || time.Since(before) > 0 {
				t.Errorf("%s: %v after %v", name, err, time.Since(before))
			}
		})
	}
}
