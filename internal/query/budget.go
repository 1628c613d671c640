package query

import (
	"sync/atomic"

	"varve/internal/store"
)

// A budget bounds the memory of one query. It is safe for many goroutines.
type budget struct {
	max  int64
	used atomic.Int64
}

// take reserves n bytes or fails with a *store.LimitError.
func (b *budget) take(n int64) error {
	if used := b.used.Add(n); used > b.max {
		b.used.Add(-n)
		return &store.LimitError{
			Limit: "query.max_memory", Max: b.max, Need: used,
			What: "hold the samples, buckets and points of a query; narrow the time range or the tags, or sample more coarsely",
		}
	}
	return nil
}

func (b *budget) give(n int64) { b.used.Add(-n) }

// A lease is what one owner took from a budget. It is safe for many goroutines.
type lease struct {
	budget *budget
	held   atomic.Int64
}

func (l *lease) take(n int64) error {
	if err := l.budget.take(n); err != nil {
		return err
	}
	l.held.Add(n)
	return nil
}

// release gives everything back.
func (l *lease) release() { l.budget.give(l.held.Swap(0)) }
