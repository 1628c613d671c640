package work

import "sync/atomic"

// reportFrom is the least work per report, because for each report two goroutines wait for each other.
const reportFrom = 1 << 12

// Attended runs f in another goroutine, and waits for it. f, and goroutines that it starts and waits
// for, call report with the work that they have done. For each report, the goroutine of the caller calls
// account, which may wait. report waits for account and returns its error. doing is as for [Do], for f
// and account.
func Attended(doing string, account func(work int) error, f func(report func(work int) error) error) error {
	type reported struct {
		work   int
		answer chan error
	}
	reports, ended := make(chan reported), make(chan struct{})
	var sum atomic.Int64
	report := func(work int) error {
		if sum.Add(int64(work)) < reportFrom {
			return nil
		}
		r := reported{int(sum.Swap(0)), make(chan error, 1)}
		reports <- r
		return <-r.answer
	}
	var group Group
	group.Go(doing, func() error {
		defer close(ended)
		return f(report)
	})
	for {
		select {
		case r := <-reports:
			r.answer <- Do(doing, func() error { return account(r.work) })
		case <-ended:
			return group.Wait()
		}
	}
}
