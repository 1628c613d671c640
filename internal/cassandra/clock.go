package cassandra

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/store"
	"varve/internal/work"
)

const (
	// clockHold is for how long after a start the store waits for the clock to be set. Time
	// services take seconds or minutes.
	clockHold = 10 * time.Minute

	// clockEvery is how long the result of one comparison is used.
	clockEvery = time.Second
)

// A startClock finds out whether the machine's clock is set. A machine may start with a clock
// that is wrong by years until a time service has set it. What is written to Cassandra meanwhile
// does lasting damage: samples that seem to have expired are written as deletions, and timestamps in
// the future hide all later writes and deletes.
//
// So after a start nothing is changed in Cassandra until the clock agrees with those of the nodes,
// or for clockHold at most. Samples wait in the spool, and deletes and changes of key-values get an
// error. Once the clocks have agreed, they are not compared again.
type startClock struct {
	clocks func(context.Context) ([]cql.Clock, error)
	log    *slog.Logger
	opened time.Time // with a monotonic reading, which does not follow the clock
	agreed func()    // called once, before check returns nil for the first time

	over atomic.Bool // nothing waits any more

	mu     sync.Mutex
	looked time.Time
	err    error // of the last comparison
	warned bool
}

// check returns nil if the clock is set, or if the store no longer waits for that.
func (c *startClock) check(ctx context.Context) error {
	if c.over.Load() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over.Load() {
		return nil
	}
	if c.err != nil && time.Since(c.looked) < clockEvery {
		return c.err
	}
	err := c.compare(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c.looked, c.err = time.Now(), err
	switch {
	case err == nil:
		if c.warned {
			c.log.Info("the clock of this machine agrees with those of Cassandra's nodes; samples are written")
		}
	case time.Since(c.opened) >= clockHold:
		c.log.Error("the clock of this machine could not be confirmed; samples are written anyway", "waited", clockHold, "error", err)
	default:
		if !c.warned {
			c.log.Warn("samples wait in the spool and deletes are refused until the clock of this machine is confirmed, for ten minutes after the start at most", "error", err)
		}
		c.warned = true
		return err
	}
	c.err = nil
	c.over.Store(true)
	c.agreed()
	return nil
}

// trusted reports whether the clock is set, or the store no longer waits for that.
func (c *startClock) trusted() bool { return c.over.Load() }

// wait returns when the clock is set, or when the store no longer waits for that. It returns an
// error if ctx has ended.
func (c *startClock) wait(ctx context.Context) error {
	for c.check(ctx) != nil {
		if err := work.Pause(ctx, 5*clockEvery); err != nil {
			return err
		}
	}
	return nil
}

// compare returns an error if the clock differs from those of most nodes.
func (c *startClock) compare(ctx context.Context) error {
	err := cql.CompareClocks(c.clocks(ctx))
	if err == nil {
		return nil
	}
	return &store.UnavailableError{Reason: "nothing is changed in Cassandra until the clock of this machine is confirmed, for ten minutes after the start at most", Err: err}
}
