package query

import (
	"context"
	"sync/atomic"

	"varve/internal/work"
)

// Parallel calls f for each of 0..n-1, in parallel if processors are free, and repeats the
// call for an index until f reports that the work of this index is done. A call of f does
// at least a part of the work, and returns once the session is Due. Then all goroutines
// end, and the goroutine of the session, which calls Parallel, gives other queries their
// turn. doing describes the work of f in the error that a panic becomes.
//
// All queries together use as many goroutines as may compute at once, or as one query may
// use alone if that is more. So the queries of a tenant stay within the tenant's share of
// the processors: if each query had as many goroutines of its own, four queries on eight
// processors would use 16.
func (s *Session) Parallel(n int, doing string, f func(i int) (done bool, err error)) error {
	if n == 1 {
		return s.alone(doing, f)
	}
	done := make([]bool, n)
	for {
		var some, undone atomic.Bool
		helpers := s.help(n - 1)
		err := work.Parallel(context.Background(), 1+helpers, n, doing, func(_ context.Context, i int) (err error) {
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
		s.engine.slots.helped(helpers)
		if err != nil || !undone.Load() {
			return err
		}
		if err := s.Yield(); err != nil {
			return err
		}
	}
}

// alone is Parallel for one index, which is all that most queries have.
func (s *Session) alone(doing string, f func(i int) (done bool, err error)) error {
	for {
		done := false
		err := work.Do(doing, func() (err error) {
			done, err = f(0)
			return err
		})
		if err != nil || done {
			return err
		}
		if err := s.Yield(); err != nil {
			return err
		}
	}
}

// help returns how many goroutines may work for the session beside its own.
func (s *Session) help(n int) int {
	e := s.engine
	return e.slots.help(min(n, e.workers-1), max(e.workers, e.config.Load().MaxConcurrent))
}
