package spool

import (
	"context"
	"sync"
)

// gate lets goroutines wait for a change that others announce.
type gate struct {
	mu      sync.Mutex
	changed chan struct{}
}

func newGate() *gate { return &gate{changed: make(chan struct{})} }

// announce wakes everyone who waits.
func (g *gate) announce() {
	g.mu.Lock()
	close(g.changed)
	g.changed = make(chan struct{})
	g.mu.Unlock()
}

// wait returns nil once ready holds. It asks again after each announcement.
func (g *gate) wait(ctx context.Context, ready func() bool) error {
	for {
		g.mu.Lock()
		changed := g.changed
		g.mu.Unlock()
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
