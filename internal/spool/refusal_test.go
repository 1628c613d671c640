package spool

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/store"
)

// A batch without samples is accepted in every state of the spool except closed, and writes
// nothing.
func TestEmptyBatch(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), tinyConfig(), Options{})
	before := s.Health().LogBytes
	if err := s.Append(t.Context(), &store.Batch{Epoch: s.Epoch()}); err != nil || s.Health().LogBytes != before {
		t.Errorf("%v, the log grew from %d to %d bytes", err, before, s.Health().LogBytes)
	}
	s.Refuse(errors.New("somebody else has taken over"))
	if err := s.Append(t.Context(), &store.Batch{Epoch: s.Epoch()}); err != nil {
		t.Errorf("while it refuses samples: %v", err)
	}
	if err := tryPut(s, testSeries("load", 1), 1, 1); err == nil || !strings.Contains(err.Error(), "somebody else has taken over") {
		t.Errorf("a sample: %v", err)
	}
	if err := s.Close(); err != nil && !strings.Contains(err.Error(), "somebody else has taken over") {
		t.Error(err)
	}
	if err := s.Append(t.Context(), &store.Batch{Epoch: s.Epoch()}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after its end: %v", err)
	}
	if _, err := s.Flush(t.Context()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("flush after its end: %v", err)
	}
}

// A directory that is in use is not opened twice, and the error says what to do.
func TestSpoolInUse(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, fs, tinyConfig(), Options{})
	defer s.Close()
	other, err := Open(fs, "spool", tinyConfig(), Options{})
	var locked *LockedError
	if !errors.As(err, &locked) || locked.Dir != "spool" || !strings.Contains(err.Error(), "spool directory spool is in use by another process") || errors.Unwrap(locked) == nil {
		t.Errorf("%v", err)
	}
	if other != nil {
		other.Close()
	}
}

// A lock that cannot be opened is not reported as that of another process.
func TestSpoolLockThatCannotBeOpened(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	if err := os.MkdirAll(filepath.Join(dir, lockName), 0o750); err != nil {
		t.Fatal(err)
	}
	s, err := Open(vfs.Default, dir, tinyConfig(), Options{})
	if err == nil || errors.As(err, new(*LockedError)) || !strings.HasPrefix(err.Error(), "lock the spool: ") {
		t.Errorf("%v", err)
	}
	if s != nil {
		s.Close()
	}
}

// stuckLock is a lock that cannot be released.
type stuckLock struct{ io.Closer }

var errStuck = errors.New("the lock is stuck")

func (l stuckLock) Close() error { return errors.Join(errStuck, l.Closer.Close()) }

// Close reports that the next process may find the spool locked.
func TestLockThatIsNotReleased(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), tinyConfig(), Options{})
	s.lock = stuckLock{s.lock}
	if err := s.Close(); !errors.Is(err, errStuck) {
		t.Errorf("%v", err)
	}
}

// The settings of the log are checked with those of the spool.
func TestSettingsOfTheLog(t *testing.T) {
	c := tinyConfig()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	c.Log.SyncInterval = -1
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "log: ") {
		t.Errorf("%v", err)
	}
}

// The lowest write timestamp of a generation is that of its first sample, and never above the highest.
func TestFirstStamp(t *testing.T) {
	for _, tc := range []struct{ first, stamp, want int64 }{{0, 100, 100}, {90, 100, 90}, {100, 100, 100}, {110, 100, 100}} {
		g := &Generation{firstMS: tc.first}
		g.stampMS.Store(tc.stamp)
		if got := g.FirstStampMS(); got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
	}
}

// Why samples are refused depends on the remote store: it was never there, it is away, or it is slow.
func TestReasonsOfRefusals(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), tinyConfig(), Options{})
	defer s.Close()
	away := errors.New("no host is up")
	since := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	for want, change := range map[string]func(){
		"full; the remote store has not been reached yet":                        func() {},
		"full; the remote store has accepted nothing since 2026-05-04T12:00:00Z": func() { s.sinkErr, s.sinkSince = away, since },
		"full; the remote store is slower than the input":                        func() { s.sink = newRemote() },
	} {
		s.mu.Lock()
		sink, sinkErr := s.sink, s.sinkErr
		change()
		s.mu.Unlock()
		err := s.refusal("full")
		s.mu.Lock()
		gone := s.sinkErr
		s.sink, s.sinkErr = sink, sinkErr
		s.mu.Unlock()
		var unavailable *store.UnavailableError
		if !errors.As(err, &unavailable) || unavailable.Reason != want || !errors.Is(unavailable.Err, gone) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A sender that waits for the store gets an error when the wait has ended, with the reason.
func TestWaitForTheStoreEnds(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), tinyConfig(), Options{})
	g := &Generation{state: frozen}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.waitForStore(ctx, g, new(store.Batch)); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "may arrive later") {
		t.Errorf("a sender that left: %v", err)
	}
	s.cfg.AcknowledgeTimeout = time.Millisecond
	var unavailable *store.UnavailableError
	if err := s.waitForStore(t.Context(), g, new(store.Batch)); !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "has not confirmed the samples within 1ms; they may arrive later") {
		t.Errorf("a store that is slow: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.cfg.AcknowledgeTimeout = time.Hour
	if err := s.waitForStore(t.Context(), g, new(store.Batch)); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a spool that was closed: %v", err)
	}
	s = mustOpen(t, vfs.NewMem(), tinyConfig(), Options{})
	defer s.Close()
	g.state = written
	if err := s.waitForStore(t.Context(), g, new(store.Batch)); err != nil {
		t.Errorf("a store that has the samples: %v", err)
	}
}
