package work

import (
	"context"
	"sync/atomic"
)

// Parallel calls f for 0 to n-1, at most limit at once, and returns the first error
// after all have ended. After an error no more calls are begun, and those in flight see
// their context end. doing says what f does, for the error that a panic becomes.
func Parallel(ctx context.Context, limit, n int, doing string, f func(ctx context.Context, i int) error) error {
	call := func(ctx context.Context, i int) error {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		return Do(doing, func() error { return f(ctx, i) })
	}
	if limit = min(limit, n); limit <= 1 {
		for i := range n {
			if err := call(ctx, i); err != nil {
				return err
			}
		}
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var group Group
	for range limit {
		group.Go(doing, func() error {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := call(ctx, i); err != nil {
					cancel(err)
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx) // a call that saw its context end may have returned first
	}
	return err
}
