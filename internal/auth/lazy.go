package auth

import (
	"context"
	"sync"
	"sync/atomic"
)

// A lazyContext is a context that can be cancelled. It calls [context.WithCancelCause]
// at the first call of Done. Most requests end before that, and the call costs five
// allocations and 0.7 µs, nearly as much as all other work for a token.
type lazyContext struct {
	context.Context // the parent

	once sync.Once
	made atomic.Pointer[cancelContext] // nil before the first call of Done or cancel
}

type cancelContext struct {
	context.Context
	cancel context.CancelCauseFunc
}

// cancellable returns the context on which Done waits.
func (c *lazyContext) cancellable() *cancelContext {
	c.once.Do(func() {
		m := &cancelContext{}
		m.Context, m.cancel = context.WithCancelCause(c.Context)
		c.made.Store(m)
	})
	return c.made.Load()
}

// cancel ends c with a cause.
func (c *lazyContext) cancel(cause error) { c.cancellable().cancel(cause) }

// release frees what Done has registered with the parent.
func (c *lazyContext) release() {
	if m := c.made.Load(); m != nil {
		m.cancel(nil)
	}
}

// cause returns the argument of cancel, nil if it has not been called.
func (c *lazyContext) cause() error {
	if m := c.made.Load(); m != nil {
		return context.Cause(m)
	}
	return nil
}

// Done implements [context.Context].
func (c *lazyContext) Done() <-chan struct{} { return c.cancellable().Done() }

// Err implements [context.Context].
func (c *lazyContext) Err() error {
	if m := c.made.Load(); m != nil {
		return m.Err()
	}
	return c.Context.Err()
}

// Value implements [context.Context]. Package context finds the cancellable context through it,
// for [context.Cause] and to cancel children without a goroutine each.
func (c *lazyContext) Value(key any) any {
	if m := c.made.Load(); m != nil {
		return m.Value(key)
	}
	return c.Context.Value(key)
}
