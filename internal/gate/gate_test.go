package gate

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// No announcement is missed, however it falls between asking and waiting.
func TestNoAnnouncementIsMissed(t *testing.T) {
	g := New()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var number atomic.Int64
	var waiters sync.WaitGroup
	for range 4 {
		waiters.Go(func() {
			for want := range int64(1000) {
				if err := g.Wait(ctx, func() bool { return number.Load() > want }); err != nil {
					t.Errorf("waiting for more than %d: %v", want, err)
					return
				}
			}
		})
	}
	for range 1000 {
		number.Add(1)
		g.Announce()
	}
	waiters.Wait()
}

func TestWaitEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := New()
	time.AfterFunc(time.Millisecond, cancel)
	if err := g.Wait(ctx, func() bool { return false }); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait() = %v, want context.Canceled", err)
	}
}
