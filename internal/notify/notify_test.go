package notify

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// No notification is missed, however it falls between asking and waiting.
func TestNoNotificationIsMissed(t *testing.T) {
	n := New()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var number atomic.Int64
	var waiters sync.WaitGroup
	for range 4 {
		waiters.Go(func() {
			for want := range int64(1000) {
				if err := n.Wait(ctx, func() bool { return number.Load() > want }); err != nil {
					t.Errorf("waiting for more than %d: %v", want, err)
					return
				}
			}
		})
	}
	for range 1000 {
		number.Add(1)
		n.Notify()
	}
	waiters.Wait()
}

func TestWaitEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := New()
	time.AfterFunc(time.Millisecond, cancel)
	if err := n.Wait(ctx, func() bool { return false }); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait() = %v, want context.Canceled", err)
	}
}
