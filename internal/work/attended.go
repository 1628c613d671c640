package work

import "sync/atomic"

// tellFrom is how much work is told of at once: each time, two goroutines wait for each other.
const tellFrom = 1 << 12

// Attended runs f in another goroutine, and waits for it. Goroutines that f starts, and that end before
// f does, report their work by tell. The goroutine of the caller passes the work to heed, which may wait.
// tell waits for heed and returns its error. doing is as for [Do], for f and heed.
func Attended(doing string, heed func(work int) error, f func(tell func(work int) error) error) error {
	type told struct {
		work   int
		answer chan error
	}
	tellings, ended := make(chan told), make(chan struct{})
	var sum atomic.Int64
	tell := func(work int) error {
		if sum.Add(int64(work)) < tellFrom {
			return nil
		}
		t := told{int(sum.Swap(0)), make(chan error, 1)}
		tellings <- t
		return <-t.answer
	}
	var group Group
	group.Go(doing, func() error {
		defer close(ended)
		return f(tell)
	})
	for {
		select {
		case t := <-tellings:
			t.answer <- Do(doing, func() error { return heed(t.work) })
		case <-ended:
			return group.Wait()
		}
	}
}
