//go:build unix

package admin

import (
	"context"
	"errors"
	"log/slog"
	"syscall"
	"testing"

	"varve/internal/config"
)

// A SIGHUP is caught as soon as OnHangup has returned, and not lost before its loop
// runs. Otherwise it would end the process, for example of a server that has just
// reported that it is ready.
func TestHangupBeforeItIsAwaited(t *testing.T) {
	loads := 0
	load := func() (*config.Loaded, error) { loads++; return nil, errors.New("no file") }
	r := NewReloader(config.Default(), load, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	var told []bool
	run := r.OnHangup(func(reloading bool) {
		if told = append(told, reloading); !reloading {
			cancel()
		}
	})
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	run(ctx)
	if loads != 1 || len(told) != 2 || !told[0] {
		t.Errorf("read %d times, told %v", loads, told)
	}
}
