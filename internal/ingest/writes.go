package ingest

import (
	"fmt"
	"sync/atomic"
	"time"

	"varve/internal/congestion"
	"varve/internal/store"
)

// leastWrites is how many blocks of HTTP requests wait for the store even while the line is
// congested, so that the store does not run dry, and its recovery is noticed.
const leastWrites = 16

// writes is the line of the blocks of HTTP requests that are being stored. While it is congested,
// further ones are refused at once: a sender that waits up to store_wait holds its connection and
// memory, and is usually refused in the end. Lines over TCP are not refused; they are read more
// slowly.
type writes struct {
	congestion.Line
	patience congestion.Patience
	inside   atomic.Int64
	refused  atomic.Int64
}

// enter counts a block, or returns the error of one that is refused.
func (l *writes) enter(now time.Time) error {
	n := l.inside.Add(1)
	if n == 1 {
		l.Short(now)
	}
	if n <= leastWrites || !l.Congested(now, l.patience) {
		return nil
	}
	l.inside.Add(-1)
	l.refused.Add(1)
	return &store.LimitError{Limit: "writes that wait", Max: leastWrites, Need: n, Wait: l.patience.Enough(), What: fmt.Sprintf(
		"for %s the store has taken no write over HTTP within %s; send the points again later, over fewer connections", l.patience.While(), l.patience.Soon())}
}

// leave ends the wait of a block.
func (l *writes) leave() { l.inside.Add(-1) }
