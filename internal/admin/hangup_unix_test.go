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

// A SIGHUP that arrives before reloads begin causes one when they do. One that arrives after they have
// ended, while the server stops, does not end the process.
func TestHangups(t *testing.T) {
	loads := 0
	load := func() (*config.Loaded, error) { loads++; return nil, errors.New("no file") }
	r := NewReloader(config.Default(), load, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	var told []bool
	hangups := CatchHangups()
	hangUp := func() {
		t.Helper()
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	hangUp()
	r.ReloadAt(ctx, hangups, func(reloading bool) {
		if told = append(told, reloading); !reloading {
			cancel()
		}
	})
	if loads != 1 || len(told) != 2 || !told[0] {
		t.Errorf("read %d times, told %v", loads, told)
	}
	hangUp()
	<-hangups
}
