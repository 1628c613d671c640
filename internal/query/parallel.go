package query

import (
	"sync/atomic"

	"varve/internal/work"
)

// parallel calls f for 0..n-1 from at most `workers` goroutines and returns the
// first error, after all have ended. doing says what f does, for the error that
// a panic becomes.
func parallel(workers, n int, doing string, f func(i int) error) error {
	if workers = min(workers, n); workers <= 1 {
		return work.Do(doing, func() error {
			for i := range n {
				if err := f(i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	var (
		next  atomic.Int64
		fail  atomic.Bool
		group work.Group
	)
	for range workers {
		group.Go(doing, func() error {
			done := false
			defer func() {
				if !done { // f failed or panicked
					fail.Store(true)
				}
			}()
			for !fail.Load() {
				i := int(next.Add(1)) - 1
				if i >= n {
					break
				}
				if err := f(i); err != nil {
					return err
				}
			}
			done = true
			return nil
		})
	}
	return group.Wait()
}

// Parallel calls f for 0..n-1 side by side, as often as it takes until each call has
// reported that its work is done. A call of f does at least a part of its work, and
// ends when others are Due. Then all goroutines end, and the goroutine of the session,
// which calls Parallel, lets other queries have their turn. doing says what f does, for
// the error that a panic becomes.
func (s *Session) Parallel(n int, doing string, f func(i int) (done bool, err error)) error {
	done := make([]bool, n)
	for {
		var some, undone atomic.Bool
		err := parallel(s.engine.workers, n, doing, func(i int) (err error) {
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
