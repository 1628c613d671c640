package work

import (
	"context"
	"sync"
)

// Parallel calls f for 0 to n-1, at most limit at once, and returns the first
// error. After an error no more calls are begun, and those in flight see their
// context end.
func Parallel(ctx context.Context, limit, n int, f func(ctx context.Context, i int) error) error {
	call := func(ctx context.Context, i int) error {
		return Do("work on a part of a request", func() error { return f(ctx, i) })
	}
	if n == 1 {
		return call(ctx, 0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var first error
	next := 0
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == n || first != nil {
			return 0, false
		}
		if err := context.Cause(ctx); err != nil {
			first = err
			return 0, false
		}
		next++
		return next - 1, true
	}
	var group sync.WaitGroup
	for range min(limit, n) {
		group.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				if err := call(ctx, i); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
					cancel(err)
				}
			}
		})
	}
	group.Wait()
	return first
}
