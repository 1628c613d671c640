package store

import (
	"context"
	"sync/atomic"
)

// A Lifetime says whether a store or a View is open. The zero Lifetime is one that is open.
type Lifetime struct{ ended atomic.Bool }

// End is called by Close. A second call returns ErrClosed.
func (l *Lifetime) End() error {
	if !l.ended.CompareAndSwap(false, true) {
		return ErrClosed
	}
	return nil
}

// Ended reports whether End was called.
func (l *Lifetime) Ended() bool { return l.ended.Load() }

// Check returns ErrClosed after End, and ctx's error if it has ended.
func (l *Lifetime) Check(ctx context.Context) error {
	if l.ended.Load() {
		return ErrClosed
	}
	return ctx.Err()
}

// CheckAt is Check before the i-th series of a selection is yielded. It checks ctx only once for
// SelectAhead series.
func (l *Lifetime) CheckAt(ctx context.Context, i int) error {
	if l.ended.Load() {
		return ErrClosed
	}
	if i%SelectAhead == 0 {
		return ctx.Err()
	}
	return nil
}
