// Package notify lets goroutines wait for a change that others announce, such as
// that there is room again.
package notify

import (
	"context"
	"sync"
)

// A Notifier wakes goroutines that wait for a change. Make one with New.
type Notifier struct {
	mu      sync.Mutex
	changed chan struct{}
}

// New returns a Notifier for which nobody waits.
func New() *Notifier { return &Notifier{changed: make(chan struct{})} }

// Notify wakes all goroutines that wait.
func (n *Notifier) Notify() {
	n.mu.Lock()
	close(n.changed)
	n.changed = make(chan struct{})
	n.mu.Unlock()
}

// Next returns a channel that is closed by the next notification.
func (n *Notifier) Next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

// Wait returns nil once ready holds. It asks again after each notification. If
// ctx ends first it returns the context's error.
func (n *Notifier) Wait(ctx context.Context, ready func() bool) error {
	for {
		changed := n.Next()
		if ready() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Wake wakes the goroutine that receives from c, which has room for one, unless it is about
// to run anyway.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
