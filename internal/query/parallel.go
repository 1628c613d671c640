package query

import (
	"context"
	"sync/atomic"

	"varve/internal/work"
)

// Parallel calls f for 0..n-1 side by side, as often as it takes until each call has
// reported that its work is done. A call of f does at least a part of its work, and
// ends when others are Due. Then all goroutines end, and the goroutine of the session,
// which calls Parallel, lets other queries have their turn. doing says what f does, for
// the error that a panic becomes.
func (s *Session) Parallel(n int, doing string, f func(i int) (done bool, err error)) error {
	done := make([]bool, n)
	for {
		var some, undone atomic.Bool
		err := work.Parallel(context.Background(), s.engine.workers, n, doing, func(_ context.Context, i int) (err error) {
			switch {
			case done[i]:
				return nil
			case some.Load() && s.Due():
				undone.Store(true)
				return nil
			}
			if done[i], err = f(i); !done[i] {
				undone.Store(true)
			}
			some.Store(true)
			return err
		})
		if err != nil || !undone.Load() {
			return err
		}
		if err := s.Yield(); err != nil {
			return err
		}
	}
}
