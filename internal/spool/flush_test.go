package spool

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/store"
)

// TestFlushOfAFailedLog: a flush fails if the generation for which it waits can no longer be
// cut because the log has failed. A flush whose generation was cut before continues.
func TestFlushOfAFailedLog(t *testing.T) {
	var broken atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return errorfs.ErrInjected
		}
		return nil
	}))
	cfg := tinyConfig()
	cfg.Linger = time.Hour
	cfg.GenerationSamples = 1 << 20
	sink := newRemote()
	sink.gate = make(chan struct{})
	s := mustOpen(t, fs, cfg, quickRetries(Options{Sink: sink}))
	ended := func(err <-chan error) bool {
		select {
		case <-err:
			return true
		default:
			return false
		}
	}
	flush := func() chan error {
		done := make(chan error, 1)
		go func() {
			_, err := s.Flush(within(t))
			done <- err
		}()
		return done
	}
	put(t, s, testSeries("load", 1), 1, 1)
	first := flush()
	await := func(what string, is func() bool) {
		t.Helper()
		for end := within(t); !is(); time.Sleep(time.Millisecond) {
			if end.Err() != nil {
				t.Fatal(what)
			}
		}
	}
	await("nothing was cut", func() bool { n, _ := s.queued(); return n > 0 })
	put(t, s, testSeries("load", 1), 2, 2)
	second := flush()
	await("the second flush does not wait", s.hurried.Load)
	if ended(first) || ended(second) {
		t.Fatal("a flush has ended while the sink takes nothing")
	}
	broken.Store(true)
	if err := tryPut(s, testSeries("load", 1), 3, 3); err == nil {
		t.Fatal("a sample is taken without a log")
	}
	var unavailable *store.UnavailableError
	select {
	case err := <-second:
		if !errors.As(err, &unavailable) {
			t.Errorf("a flush of what cannot be cut: %v", err)
		}
	case <-within(t).Done():
		t.Error("a flush waits for what cannot be cut")
	}
	if ended(first) {
		t.Error("a flush of what was cut has ended before the sink took it")
	}
	close(sink.gate)
	if err := <-first; err != nil && errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a flush of what was cut: %v", err)
	}
	s.Close()
}

// lateEnd is a context that ends after its first look.
type lateEnd struct {
	context.Context
	looks atomic.Int32
}

func (c *lateEnd) Err() error {
	if c.looks.Add(1) > 1 {
		return context.Canceled
	}
	return nil
}

// TestFlushThatEndsWhileSeriesAreFound: a flush of some metrics that could not find out which
// series these are does not say that they are written.
func TestFlushThatEndsWhileSeriesAreFound(t *testing.T) {
	cfg := tinyConfig()
	cfg.Linger = time.Hour
	cfg.GenerationSamples = 1 << 20
	sink := newRemote()
	sink.gate = make(chan struct{})
	s := mustOpen(t, vfs.NewMem(), cfg, quickRetries(Options{Sink: sink}))
	put(t, s, testSeries("load", 1), 1, 1)
	if _, err := s.Flush(&lateEnd{Context: within(t)}, "load", "other"); !errors.Is(err, context.Canceled) {
		t.Errorf("a flush that was given up: %v", err)
	}
	close(sink.gate)
	s.Close()
}

// TestFlushThatIsGivenUp: a flush ends with its context, also if the remote store has not failed.
func TestFlushThatIsGivenUp(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), tinyConfig(), Options{}) // the remote store has not been reached yet
	defer s.Close()
	put(t, s, testSeries("load", 1), 1, 1)
	ctx, cancel := context.WithCancel(within(t))
	ended := make(chan error, 1)
	go func() {
		_, err := s.Flush(ctx)
		ended <- err
	}()
	until(t, "what the flush waits for is cut", func() bool { return s.Health().Generations > 0 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "wait until the remote store has all samples") {
		t.Errorf("got error %v", err)
	}
}
