// Package gate lets goroutines wait for a change that others announce, such as
// that there is room again.
package gate

import (
	"context"
	"sync"
)

// A Gate is what is waited at. Make one with New.
type Gate struct {
	mu      sync.Mutex
	changed chan struct{}
}

// New returns a Gate at which nobody waits.
func New() *Gate { return &Gate{changed: make(chan struct{})} }

// Announce wakes everyone who waits.
func (g *Gate) Announce() {
	g.mu.Lock()
	close(g.changed)
	g.changed = make(chan struct{})
	g.mu.Unlock()
}

// Next returns a channel that is closed by the next announcement.
func (g *Gate) Next() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed
}

// Wait returns nil once ready holds. It asks again after each announcement. If
// ctx ends first it returns the context's error.
func (g *Gate) Wait(ctx context.Context, ready func() bool) error {
	for {
		changed := g.Next()
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
