package work

import (
	"context"
	"time"
)

// Linger returns a context that ends d after ctx, with its cause: for a step that is better
// finished than cut off. The caller must call stop.
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
