package work

import (
	"context"
	"time"
)

// Linger returns a context that ends d after ctx, with the cause of ctx. It is for a step
// that should be finished rather than interrupted. The caller must call stop.
func Linger(ctx context.Context, d time.Duration) (lingering context.Context, stop func()) {
	lingering, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	forget := context.AfterFunc(ctx, func() {
		defer close(ended)
		if Pause(lingering, d) == nil {
			cancel(context.Cause(ctx))
		}
	})
	return lingering, func() {
		cancel(context.Canceled)
		if !forget() {
			<-ended
		}
	}
}
